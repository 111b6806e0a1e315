"""Looking at kernels: list, show, sass, diff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgen.commands.common import (
    arch_option,
    default_arch,
    in_colour,
    json_option,
    name_argument,
    out_option,
    print_diff,
    print_json,
    words_argument,
)

if TYPE_CHECKING:
    from kgen.arch import Arch
    from kgen.spec import Spec


@click.command("list")
@words_argument
@arch_option
@click.option("--kernels", is_flag=True, help="List kernels instead, and how their specializations are named.")
@click.option("--count", is_flag=True, help="Print only how many there are.")
@json_option
def list_(words: tuple[str, ...], arch: Arch | None, kernels: bool, count: bool, as_json: bool) -> None:
    """List specializations and the resources they take.

    WORDS are names of specializations or kernels, globs, and axis=value pairs, which narrow the selection:

        kgen list lmha e=64,128 dtype=f16 reverse=no

    Without WORDS, lists the default set, which is what `kgen build` generates. With --kernels, WORDS are names of
    kernels and globs; without any, lists all kernels.
    """
    from kgen import catalog, report
    from kgen.build import find, store

    if kernels:
        _list_kernels(words, count, as_json)
        return
    specs = catalog.select(*words)
    if count:
        print_json({"count": len(specs)}) if as_json else click.echo(len(specs))
        return
    arch = arch or default_arch()
    kept = {record.name for record in store().entries() if record.arch == str(arch)}
    built = {spec: find(spec, arch) for spec in specs if spec.name in kept}
    cards = [report.card(found) if (found := built.get(spec)) else report.unbuilt_card(spec, arch) for spec in specs]
    if as_json:
        print_json({"arch": str(arch), "kernels": [card.as_dict() for card in cards]})
    else:
        click.echo(report.card_table(cards))


def _list_kernels(words: tuple[str, ...], count: bool, as_json: bool) -> None:
    from kgen import catalog, registry

    known = catalog.named(*words)
    if count:
        print_json({"count": len(known)}) if as_json else click.echo(len(known))
        return
    if as_json:
        names = {kernel.name: registry.grammar(kernel) for kernel in known}
        print_json({"kernels": [{"name": k.name, "names": names[k.name], "summary": k.summary} for k in known]})
        return
    for kernel in known:
        click.echo(f"{registry.grammar(kernel)}\n    {kernel.summary}")


@click.command()
@name_argument("spec")
@click.option("--card", is_flag=True, help="Show a summary and its resources instead; compiles it if necessary.")
@click.option("--path", is_flag=True, help="Print the path of its source instead.")
@arch_option
@out_option
@json_option
def show(spec: Spec, card: bool, path: bool, arch: Arch | None, out: Path, as_json: bool) -> None:
    """Show the generated CUDA source of one specialization."""
    if card:
        return _show_card(spec, arch or default_arch(), as_json)
    if path:
        file = _path_of(spec, arch, out)
        return print_json({"name": spec.name, "path": str(file)}) if as_json else click.echo(file)
    from kgen.render import render

    source = render(spec)
    if as_json:
        return print_json({"name": spec.name, "sha256": source.sha256, "source": source.text})
    return click.echo(_highlighted(source.text), nl=False)


@click.command()
@name_argument("spec")
@arch_option
@json_option
def sass(spec: Spec, arch: Arch | None, as_json: bool) -> None:
    """Show the machine code (SASS) of one specialization."""
    from kgen import report
    from kgen.build import build

    arch = arch or default_arch()
    text = report.disassemble(build(spec, arch).cubin)
    if as_json:
        print_json({"name": spec.name, "arch": str(arch), "sass": text})
    else:
        click.echo(text, nl=False)


@click.command()
@name_argument("a", "A")
@name_argument("b", "B")
@click.option("--sass", "of_sass", is_flag=True, help="Compare the machine code, ignoring addresses and names.")
@arch_option
@json_option
def diff(a: Spec, b: Spec, of_sass: bool, arch: Arch | None, as_json: bool) -> None:
    """Show how two specializations differ, as a unified diff."""
    from kgen.build import build
    from kgen.generated import unified_diff
    from kgen.render import render
    from kgen.report import comparable, disassemble

    if of_sass:
        target = arch or default_arch()
        texts = [comparable(disassemble(build(spec, target).cubin), spec.symbol) for spec in (a, b)]
        names = [f"{spec.name}.{target}.sass" for spec in (a, b)]
    else:
        texts = [render(spec).text for spec in (a, b)]
        names = [f"{spec.name}.cu" for spec in (a, b)]
    found = unified_diff(*texts, *names)
    if as_json:
        print_json({"a": a.name, "b": b.name, "of": "sass" if of_sass else "source", "diff": found})
    else:
        print_diff(found)


def _show_card(spec: Spec, arch: Arch, as_json: bool) -> None:
    from kgen import report
    from kgen.build import build

    card = report.card(build(spec, arch))
    if as_json:
        print_json(card.as_dict())
    else:
        click.echo(f"{report.facts_table(spec)}\n\n{report.card_table([card])}")


def _path_of(spec: Spec, arch: Arch | None, out: Path) -> Path:
    """The emitted file, or the copy beside the cubin in the cache."""
    from kgen.build import find
    from kgen.errors import KgenError
    from kgen.generated import source_path

    emitted = out / source_path(spec)
    if emitted.is_file():
        return emitted
    kept = find(spec, arch or default_arch())
    if kept is None or kept.path is None:
        raise KgenError(f"{spec.name} is neither in {out} nor in the cache", hint=f"kgen build {spec.name}")
    return kept.path / "kernel.cu"


def _highlighted(text: str) -> str:
    if not in_colour():
        return text
    try:
        from pygments import highlight
        from pygments.formatters import TerminalFormatter
        from pygments.lexers import CudaLexer
    except ImportError:
        return text
    return str(highlight(text, CudaLexer(stripnl=False), TerminalFormatter()))
