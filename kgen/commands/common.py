"""What the verbs share: arguments and their completion, JSON, colour, a line of progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from kgen.arch import Arch
    from kgen.spec import Spec

F = TypeVar("F", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path, file_okay=False)


def complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernel names until one is written out, its specializations' names, word by word, after."""
    from kgen import catalog, registry

    return [CompletionItem(word) for word in registry.completions(incomplete, catalog.kernels().values())]


def name_argument(variable: str, metavar: str = "NAME") -> Callable[[F], F]:
    """A specialization by its one name."""
    return click.argument(variable, metavar=metavar, callback=_parse_name, shell_complete=complete_words)


words_argument = click.argument("words", nargs=-1, shell_complete=complete_words)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document to standard output.")(command)


def arch_option(command: F) -> F:
    text = "GPU architecture, such as sm_80; by default that of this machine's GPU, or sm_90a if there is none."
    return click.option("--arch", callback=_parse_arch, help=text)(command)


def archs_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--arch",
        "archs",
        default=default,
        show_default=True,
        callback=_parse_archs,
        help="Separated by commas.",
    )


def out_option(command: F) -> F:
    return click.option("--out", type=FOLDER, default="generated", show_default=True, help="Of generated files.")(
        command
    )


def _parse_name(ctx: click.Context, param: click.Parameter, value: str) -> Spec:
    from kgen import catalog

    return catalog.parse(value)


def _parse_arch(ctx: click.Context, param: click.Parameter, value: str | None) -> Arch | None:
    from kgen.arch import Arch

    return Arch.parse(value) if value else None


def _parse_archs(ctx: click.Context, param: click.Parameter, value: str) -> tuple[Arch, ...]:
    from kgen.arch import Arch

    return tuple(dict.fromkeys(Arch.parse(word) for word in value.split(",")))


def print_json(document: Any) -> None:
    # JSON knows no NaN: an error that is none (a wrong result in a benchmark) becomes null.
    document = json.loads(json.dumps(document), parse_constant=lambda name: None)
    click.echo(json.dumps(document, indent=2))


def default_arch() -> Arch:
    """The architecture of the current device, or sm_90a where there is none."""
    from kgen.arch import Arch
    from kgen.device import current_device, device_arch
    from kgen.errors import KgenError

    try:
        return device_arch(current_device())
    except KgenError:
        return Arch(9, 0, "a")


def in_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def print_diff(diff: str) -> None:
    """A unified diff, red and green on a terminal."""
    colours = {"+": "green", "-": "red", "@": "cyan"} if in_colour() else {}
    for line in diff.split("\n") if diff else ():
        click.echo(click.style(line, fg=colours[line[0]]) if line[:1] in colours else line)


class StatusLine:
    """A line on a terminal's standard error that says what goes on, and is gone at the end; nothing anywhere else."""

    def __enter__(self) -> StatusLine:
        self._shown = sys.stderr.isatty()
        return self

    def say(self, text: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[K  {text}", nl=False, err=True)

    def __exit__(self, *error: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
