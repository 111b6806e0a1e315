"""Elementwise operators and transposes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import kgen
from kgen.bandwidth import Array, Problem, Row, normal, rows_of
from kgen.dtypes import DType

TRANSPOSED = (3, 17, 33, 100, 128, 129, 300, 1001, 4097)
"""The shorter side of a transpose."""


def elements(dtype: DType) -> Iterator[Row]:
    """One, two and three operands; from x[1:] into aligned results."""
    for name in ("add", "relu", "gelu", "swiglu"):
        for begin in (0, 1):
            label = f"{name} of x[1:]" if begin else name
            count = rows_of(1, dtype)
            yield Row(label, str(count), dtype, partial(_elements, name, begin, count, dtype))


def rows(dtype: DType, widths: Sequence[int]) -> Iterator[Row]:
    """Transposes of short, odd and square matrices."""
    side = {4: (8192, 8191, 8193), 2: (11584, 11583, 11585)}[dtype.itemsize]
    shapes = [] if widths else [(side[0], side[0]), (side[1], side[2])]
    for short in widths or TRANSPOSED:
        shapes += [(rows_of(short, dtype), short), (short, rows_of(short, dtype))]
    for shape in shapes:
        yield Row("transpose", "x".join(map(str, shape)), dtype, partial(_transpose, shape, dtype))


def _elements(name: str, begin: int, count: int, dtype: DType) -> Problem:
    import cupy

    given = [normal(count, dtype=dtype, seed=n, begin=begin) for n in range(2 if name in ("add", "swiglu") else 1)]
    out = cupy.empty(count, dtype.numpy)
    call: Any = getattr(kgen, name)

    def exact() -> list[Array]:
        x = [a.astype("f8") for a in given]
        return [
            {
                "add": lambda: x[0] + x[1],
                "relu": lambda: cupy.maximum(x[0], 0),
                "gelu": lambda: x[0] * _normal_cdf(x[0]),
                "swiglu": lambda: x[0] / (1 + cupy.exp(-x[0])) * x[1],
            }[name]()
        ]

    return Problem(lambda: call(*given, out=out), exact, (*given, out))


def _transpose(shape: tuple[int, int], dtype: DType) -> Problem:
    x = normal(*shape, dtype=dtype)
    return Problem(lambda: kgen.transpose(x), lambda: [x.T.astype("f8")], (x, x))


def _normal_cdf(x: Array) -> Array:
    from cupyx.scipy.special import ndtr  # type: ignore[import-untyped]

    return ndtr(x)
