"""The command line: one verb a question, plain text for people and `--json` for programs.

Exit codes: 0 all is well, 1 something failed or drifted, 2 the command was asked for something that does not exist.
"""

from __future__ import annotations

import errno
import warnings
from typing import Any

import click

from kgen import __version__
from kgen.commands import bandwidth, bench, build, cache, check, demo, doctor, look
from kgen.errors import KgenError

_EPILOG = "The README lists the environment variables that are read, such as KGEN_CACHE_DIR, KGEN_JIT and KGEN_KERNELS."


class Cli(click.Group):
    """Verbs in the order of work, and errors as a message with its hint instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except (KgenError, OSError) as error:
                # Who reads us has had enough: click leaves quietly.
                if ctx.params["traceback"] or getattr(error, "errno", None) == errno.EPIPE:
                    raise
                click.echo(f"kgen: {error}", err=True)
                # Errors about bad input are ValueErrors as well.
                return ctx.exit(2 if isinstance(error, ValueError) else 1)


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    click.echo(f"kgen: warning: {message}", err=True)


@click.group(cls=Cli, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kgen", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show Python tracebacks of errors.")
def main(traceback: bool) -> None:
    """Generate specialized CUDA kernels, compile them, and look at the result."""


for command in (
    look.list_,
    build.build,
    look.show,
    look.sass,
    look.diff,
    check.check,
    bench.bench,
    bandwidth.bandwidth,
    demo.demo,
    cache.cache,
    doctor.doctor,
):
    main.add_command(command)
