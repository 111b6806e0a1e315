"""Reductions of everything, along rows, and down columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import kgen
from kgen.bandwidth import Array, Problem, Row, normal, rows_of
from kgen.dtypes import DType

WIDTHS = (3, 7, 17, 33, 63, 128, 129, 1000, 4097, 65536, 262144)
DOWN = ((512, None), (600, 100000), (None, 17), (None, 33), (None, 129), (None, 511), (None, 1001), (None, 8191))


def rows(dtype: DType, widths: Sequence[int]) -> Iterator[Row]:
    """Sums, maxima and their places."""

    def row(name: str, shape: tuple[int, ...], axis: int | None) -> Row:
        where = {None: "of", 0: "down", 1: "along"}[axis]
        return Row(f"{name} {where}", "x".join(map(str, shape)), dtype, partial(_reduction, name, shape, axis, dtype))

    for name in ("sum", "max") if not widths else ():
        yield row(name, (rows_of(1, dtype),), None)
    for name in ("sum", "max", "argmax"):
        yield from (row(name, (rows_of(columns, dtype), columns), 1) for columns in widths or WIDTHS)
        for down, columns in [(None, n) for n in widths] or DOWN:
            shape = (down or rows_of(columns or 1, dtype), columns or rows_of(down or 1, dtype))
            yield row(name, shape, 0)


def _reduction(name: str, shape: tuple[int, ...], axis: int | None, dtype: DType) -> Problem:
    x = normal(*shape, dtype=dtype)
    call: Any = getattr(kgen, name)

    def exact() -> list[Array]:
        return [getattr(x.astype("f8"), name)(axis)]

    return Problem(lambda: call(x, axis), exact, (x, call(x, axis)))
