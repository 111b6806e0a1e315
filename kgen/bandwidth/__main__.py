"""python -m kgen.bandwidth [GLOB ...] [--dtype f32] [--jobs 4] [--json]"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from typing import Any

import click

from kgen.bandwidth import BARS, Problem, Row, rows
from kgen.bench import errors, machine
from kgen.commands.common import json_option, print_json
from kgen.dtypes import BF16, F16, F32
from kgen.timing import Call, copy_bandwidth, measure

DTYPES = {dtype.name: dtype for dtype in (F32, F16, BF16)}


def chosen(globs: tuple[str, ...], dtypes: tuple[str, ...]) -> list[Row]:
    """The rows whose label, as in "softmax 65536x1024 f32", one of the globs matches; none: all."""
    every = [row for name in dtypes for row in rows(DTYPES[name])]
    return [row for row in every if not globs or any(fnmatch(row.label, glob) for glob in globs)]


def complaint(row: Row) -> str | None:
    """What is wrong with a row's result."""
    import cupy

    try:
        rms = _error(row.prepare())
    except Exception as error:  # the others go on
        return f"{type(error).__name__}: {error}"
    finally:
        cupy.get_default_memory_pool().free_all_blocks()
    return None if rms <= BARS[row.dtype] else f"relative RMS error {rms:.1e}"


def _error(problem: Problem) -> float:
    exact = problem.exact()  # before a call that works in place
    result = problem.call()
    return errors(result if isinstance(result, tuple) else (result,), exact)[0]


def _numbered(call: Callable[[], Any]) -> Call:
    return lambda _: call()


def _complaint(globs: tuple[str, ...], dtypes: tuple[str, ...], nth: int) -> str | None:
    return complaint(chosen(globs, dtypes)[nth])


@click.command()
@click.argument("globs", nargs=-1)
@click.option(
    "--dtype", "dtypes", multiple=True, type=click.Choice(list(DTYPES)), default=["f32", "bf16"], show_default=True
)
@click.option("--jobs", default=4, show_default=True, help="Processes that check, and compile, at once.")
@json_option
def main(globs: tuple[str, ...], dtypes: tuple[str, ...], jobs: int, as_json: bool) -> None:
    """Check and time operators on this device: of the bandwidth of a copy, how much do they reach?

    GLOBS choose rows by their labels, such as "softmax 16384x4096 f32".
    """
    import cupy

    asked = chosen(globs, dtypes)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        wrong = list(pool.map(_complaint, [globs] * len(asked), [dtypes] * len(asked), range(len(asked))))
    bandwidth = copy_bandwidth()
    if not as_json:
        click.echo(f"{machine()['device']}, copy {bandwidth / 1e9:.0f} GB/s")
    told: list[dict[str, Any]] = []
    for row, complained in zip(asked, wrong, strict=True):
        line: dict[str, Any] = {"row": row.label, "wrong": complained}
        if complained is None:
            problem = row.prepare()
            taken = measure({"kgen": _numbered(problem.call)}, reps=10, min_ms=2, warm_ms=6)["kgen"]
            line |= {"ms": taken.ms, "spread": taken.spread, "of_copy": problem.nbytes / (taken.ms * 1e-3) / bandwidth}
            del problem
            cupy.get_default_memory_pool().free_all_blocks()
        told.append(line)
        if not as_json:
            figures = complained or f"{line['ms']:9.4f} ms {line['of_copy']:7.1%}"
            click.echo(f"{row.label:56} {figures}")
    if as_json:
        print_json({"machine": machine(), "copy_gb_s": bandwidth / 1e9, "rows": told})
    if any(line["wrong"] for line in told):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
