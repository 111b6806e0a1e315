"""kgen bench: is it right, and how fast is it beside its peers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kgen.commands.common import StatusLine, json_option, print_json

if TYPE_CHECKING:
    from kgen.bench_table import Row


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kgen.benchmarks import operators

    return [CompletionItem(name) for name in operators() if name.startswith(incomplete)]


def _until_stopped(work: Callable[[], object]) -> int:
    """Do the work; which signal ended it before it was done, or 0."""

    def stop(number: int, frame: object) -> None:
        raise _Stopped(number)

    kept = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        work()
    except _Stopped as stopped:
        return stopped.number
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return 0


class _Stopped(BaseException):
    """A signal came: no Exception, lest it be taken for a contestant's failure."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command()
@click.argument("operator", shell_complete=_complete)
@click.option("--row", "rows", multiple=True, help="A shape, written as in the table (even one not in it); repeatable.")
@click.option("--dtype", "dtypes", multiple=True, help="f32, f16 or bf16; repeatable; by default all.")
@click.option("--pass", "stages", multiple=True, help="A pass, written as in the table, or 'sum *'; by default all.")
@click.option("--quick", is_flag=True, help="Only the small rows, with few samples.")
@click.option("--ladder", is_flag=True, help="Compare kgen's own algorithms.")
@click.option("--algorithm", "algorithms", multiple=True, help="Also time this algorithm of kgen's; repeatable.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="Also time other libraries.")
@click.option("--graph", is_flag=True, help="Replay kgen's calls as CUDA graphs.")
@json_option
def bench(operator: str, as_json: bool, **choice: Any) -> None:
    """Check and time OPERATOR beside other libraries.

    Wrong results are reported and never timed. Exits with 1 if one of kgen's own is wrong. When it is interrupted, or
    terminated as `timeout` does it, it prints the rows that are done.
    """
    from kgen.bench import run
    from kgen.bench_table import table
    from kgen.benchmarks import bench_of
    from kgen.device import current_device

    bench_of(operator)  # a name that does not exist is said before a GPU that does not
    current_device()
    with StatusLine() as line:
        rows: list[Row] = []

        def tick(row: Row) -> None:
            rows.append(row)
            line.say(f"{row['shape']} {row['dtype']} {row['pass']}  {row['contestant']}")

        stopped = _until_stopped(lambda: run(operator, on_row=tick, **choice))
    if as_json:
        print_json(rows)
    else:
        click.echo(table(rows))
    if stopped:
        raise click.exceptions.Exit(128 + stopped)
    if any(row["contestant"].startswith("kgen") and row["status"] in ("wrong", "failed") for row in rows):
        raise click.exceptions.Exit(1)
