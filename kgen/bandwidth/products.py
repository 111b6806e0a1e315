"""Matrices times vectors, transposed or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import kgen
from kgen.bandwidth import Array, Problem, Row, normal, rows_of
from kgen.dtypes import DType

WIDTHS = (7, 17, 33, 63, 128, 129, 257, 601, 1001, 4096, 8193, 16384, 16385)


def rows(dtype: DType, widths: Sequence[int]) -> Iterator[Row]:
    """gemv of matrices from narrow to square."""
    for name in ("gemv", "gemv transposed"):
        for columns in widths or WIDTHS:
            shape = (rows_of(columns, dtype), columns)
            yield Row(name, "x".join(map(str, shape)), dtype, partial(_gemv, shape, name != "gemv", dtype))


def _gemv(shape: tuple[int, int], trans: bool, dtype: DType) -> Problem:
    a, x = normal(*shape, dtype=dtype), normal(shape[0] if trans else shape[1], dtype=dtype, seed=1)

    def exact() -> list[Array]:
        return [(a.T if trans else a).astype("f8") @ x.astype("f8")]

    return Problem(lambda: kgen.gemv(a, x, trans=trans), exact, (a, x, kgen.gemv(a, x, trans=trans)))
