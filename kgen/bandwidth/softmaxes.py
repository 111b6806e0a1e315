"""Softmax along rows and down columns, with masks, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import kgen
from kgen.bandwidth import LONG, Array, Problem, Row, normal, rows_of
from kgen.dtypes import DType

WIDTHS = (128, 129, 1000, 1023, 4096, 4097, 8191, 16383, 16384, 32769, 50257, 65535, 65536, 131071, 131072)
WIDER = (262143, 262144, LONG)
APART = (303, 352, 1000, 4097, 16384, 50257, 65536, 131071)
MASKED = (4096, 4097, 32769, 65536)
CAUSAL = (4096, 16384, 50257, 65536)
SUMMED = (128, 129, 1024, 4097, 16384, 65536, 131071)
DOWN = (128, 512, 1024, 4096, 16384, 65536, 524288)
"""Rows of a softmax down columns."""


def rows(dtype: DType, widths: Sequence[int]) -> Iterator[Row]:
    """Softmax of all kinds."""

    def row(name: str, columns: int, **how: Any) -> Row:
        shape = (rows_of(columns, dtype), columns)
        return Row(name, "x".join(map(str, shape)), dtype, partial(_softmax, name.split()[0], shape, dtype, **how))

    yield from (row("softmax", columns) for columns in widths or (*WIDTHS, *WIDER))
    yield from (row("softmax of x[1:]", columns, begin=1) for columns in widths or APART)
    yield from (row("softmax masked", columns, masked=True) for columns in widths or MASKED)
    yield from (row("softmax causal", columns, causal=True) for columns in widths or CAUSAL)
    yield from (row("softmax_backward", columns) for columns in widths or (*WIDTHS, 524288, *WIDER))
    yield from (row("logsumexp", columns) for columns in widths or SUMMED)
    for down in widths or DOWN:
        for odd in (0, 1):
            shape = (down, rows_of(down, dtype) - odd)
            label = "x".join(map(str, shape))
            yield Row("softmax down", label, dtype, partial(_softmax, "softmax", shape, dtype, axis=0))


def _softmax(
    name: str,
    shape: tuple[int, int],
    dtype: DType,
    *,
    axis: int = -1,
    begin: int = 0,
    masked: bool = False,
    causal: bool = False,
) -> Problem:
    import cupy

    x = normal(*shape, dtype=dtype, begin=begin)
    out = cupy.empty(shape, dtype.numpy)
    mask = cupy.random.default_rng(1).random(shape, dtype="f4") < 0.7 if masked else None
    if causal:  # items of square matrices, or of their last rows
        queries = min(shape[0], shape[1])
        x = x[: shape[0] // queries * queries].reshape(-1, queries, shape[1])
        out = out[: shape[0] // queries * queries].reshape(x.shape)

    def exact() -> list[Array]:
        value = x.astype("f8")
        if mask is not None:
            value[~mask] = -cupy.inf
        if causal:
            seen = cupy.tri(x.shape[1], x.shape[2], x.shape[2] - x.shape[1], dtype=bool)
            value[:, ~seen] = -cupy.inf
        most = value.max(axis, keepdims=True)
        value = cupy.exp(value - most)
        total = value.sum(axis, keepdims=True)
        if name == "logsumexp":
            return [(cupy.log(total) + most)[..., 0]]
        return [value / total]

    if name == "logsumexp":
        return Problem(lambda: kgen.logsumexp(x, axis), exact, (x, kgen.logsumexp(x, axis)))
    if name == "softmax_backward":
        dy, y = normal(*shape, dtype=dtype, seed=1), kgen.softmax(x, -1)

        def gradient() -> list[Array]:
            mine, given = y.astype("f8"), dy.astype("f8")
            return [mine * (given - (mine * given).sum(-1, keepdims=True))]

        return Problem(lambda: kgen.softmax_backward(dy, y, -1, out=out), gradient, (dy, y, out))
    moved = (x, out) if mask is None else (x, out, mask)
    return Problem(lambda: kgen.softmax(x, axis, mask=mask, causal=causal, out=out), exact, moved)
