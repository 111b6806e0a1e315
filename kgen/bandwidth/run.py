"""Checking rows, several at once, and timing them, one after another."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from statistics import median
from typing import Any

from kgen.bandwidth import BARS, Problem, Row, rows
from kgen.bench import errors
from kgen.benchmarks import BenchError
from kgen.dtypes import FLOATS
from kgen.timing import Call, measure

DTYPES = {dtype.name: dtype for dtype in FLOATS}


def drawn(count: int, seed: int) -> list[int]:
    """Widths from 128 to 262144, even in their logarithm: those of tables hide what the others take."""
    rng = random.Random(seed)
    return sorted(round(2 ** rng.uniform(7, 18)) for _ in range(count))


def chosen(globs: Sequence[str], dtypes: Sequence[str], widths: Sequence[int] = ()) -> list[Row]:
    """The rows whose label, as in "softmax 65536x1024 f32", one of the globs matches; none: all. Raises BenchError."""
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown:
        raise BenchError(f"no rows are of {unknown[0]!r}", hint=f"there are rows of {', '.join(DTYPES)}")
    every = [row for name in dtypes for row in rows(DTYPES[name], widths)]
    found = [row for row in every if not globs or any(fnmatch(row.label, glob) for glob in globs)]
    if not found:
        raise BenchError(f"no row matches {' or '.join(globs)}", hint=f"rows are called like {every[-1].label!r}")
    return found


def complaint(row: Row) -> str | None:
    """What is wrong with a row's result."""
    import cupy

    try:
        rms = _error(row.prepare())
    except Exception as error:  # the others go on
        return f"{type(error).__name__}: {error}"
    cupy.get_default_memory_pool().free_all_blocks()
    return None if rms <= BARS[row.dtype] else f"relative RMS error {rms:.1e}"


def _error(problem: Problem) -> float:
    exact = problem.exact()  # before a call that works in place
    result = problem.call()
    return errors(result if isinstance(result, tuple) else (result,), exact)[0]


def _numbered(call: Callable[[], Any]) -> Call:
    return lambda _: call()


def complaints(asked: Sequence[Row], jobs: int) -> list[str | None]:
    """Of every row, found by so many processes; these also compile what the rows need."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(complaint, asked))


def summary(parts: Sequence[tuple[Row, float]]) -> list[dict[str, Any]]:
    """Of each operator, the least and the median part of the bandwidth over its rows."""
    of: dict[str, list[float]] = {}
    for row, part in parts:
        of.setdefault(row.name, []).append(part)
    return [{"name": name, "rows": len(own), "least": min(own), "median": median(own)} for name, own in of.items()]


def timed(row: Row, bandwidth: float) -> dict[str, Any]:
    """Milliseconds of a call, and what part of the bandwidth (bytes a second) that is."""
    import cupy

    problem = row.prepare()
    taken = measure({"kgen": _numbered(problem.call)}, reps=10, min_ms=2, warm_ms=6)["kgen"]
    nbytes = problem.nbytes
    del problem
    cupy.get_default_memory_pool().free_all_blocks()
    return {"ms": taken.ms, "spread": taken.spread, "of_copy": nbytes / (taken.ms * 1e-3) / bandwidth}
