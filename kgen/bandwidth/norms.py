"""Norms of rows from narrow to wide, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import kgen
from kgen.bandwidth import LONG, Array, Problem, Row, normal, rows_of
from kgen.dtypes import F32, DType

EPS = 1e-5
WIDTHS = (128, 129, 255, 1000, 1023, 2049, 4096, 4097, 8191, 10241, 16383, 16384, 32769, 50257, 65535, 65536)
WIDER = (131071, 131072, 262143, 262144, LONG)
APART = (303, 352, 1000, 4097, 16384, 32769, 50257, 65536, 131071)
RESIDUAL = (4096, 32768, 50257, 65536, 262143, 262144)
GROUPS = ((8, 512, 16384), (64, 320, 1024), (16, 640, 3969), (2, 128, 262144))
"""Items, channels and places of a group norm in 32 groups, of float32."""


def rows(dtype: DType, widths: Sequence[int]) -> Iterator[Row]:
    """Norms, with weights and biases of x's type; of rows that begin elsewhere in their 16 bytes than the result."""

    def row(name: str, columns: int, **how: Any) -> Row:
        shape = (rows_of(columns, dtype), columns)
        return Row(name, "x".join(map(str, shape)), dtype, partial(_norm, name.split()[0], shape, dtype, **how))

    for name in ("layer_norm", "rms_norm"):
        yield from (row(name, columns) for columns in widths or (*WIDTHS, *WIDER))
        yield from (row(f"{name} of x[1:]", columns, begin=1) for columns in widths or APART)
    if dtype is not F32:
        yield from (
            row("layer_norm with float32 weights", columns, weights=F32) for columns in widths or (*WIDTHS, *WIDER)
        )
        yield from (row("layer_norm with float32 weights of x[1:]", n, weights=F32, begin=1) for n in widths or APART)
    yield from (row("fused_add_rms_norm", columns) for columns in widths or RESIDUAL)
    for name in ("layer_norm_backward", "rms_norm_backward"):
        yield from (row(name, columns) for columns in widths or (*WIDTHS, 524288, *WIDER))
    for shape in GROUPS if not widths else ():
        shape = (shape[0] * 4 // dtype.itemsize, *shape[1:])
        yield Row("group_norm", "x".join(map(str, shape)), dtype, partial(_group, shape, dtype))


def _norm(name: str, shape: tuple[int, int], dtype: DType, *, weights: DType | None = None, begin: int = 0) -> Problem:
    import cupy

    x, other = normal(*shape, dtype=dtype, begin=begin), normal(*shape, dtype=dtype, seed=1)
    weight, bias = (normal(shape[1], dtype=weights or dtype, seed=seed) for seed in (2, 3))
    layer = name.startswith("layer")

    def exact() -> list[Array]:
        total = (x.astype("f4") + other.astype("f4")).astype(x.dtype) if name.startswith("fused") else x
        value = total.astype("f8")
        if layer:
            value -= value.mean(-1, keepdims=True)
        scale = 1 / cupy.sqrt((value**2).mean(-1, keepdims=True) + EPS)
        value *= scale
        if not name.endswith("backward"):
            return [value * weight.astype("f8") + (bias.astype("f8") if layer else 0)]
        dy = other.astype("f8")
        upstream = dy * weight.astype("f8")
        part = (upstream * value).mean(-1, keepdims=True)
        shift = upstream.mean(-1, keepdims=True) if layer else 0
        own = [(dy * value).sum(0), *([dy.sum(0)] if layer else [])]
        return [scale * (upstream - shift - value * part), *own]

    if name.endswith("backward"):
        backward: Any = kgen.layer_norm_backward if layer else kgen.rms_norm_backward
        forward: Any = (
            kgen.layer_norm(x, eps=EPS, return_stats=True) if layer else kgen.rms_norm(x, eps=EPS, return_rstd=True)
        )
        statistics = forward[1:]
        del forward
        return Problem(lambda: backward(other, x, *statistics, weight), exact, (x, x, other))
    if name.startswith("fused"):  # the sum in other's place, and a result of that size
        return Problem(lambda: kgen.fused_add_rms_norm(x, other, weight, eps=EPS), exact, (x, other, other, other))
    out = cupy.empty(shape, dtype.numpy)
    if layer:
        return Problem(lambda: kgen.layer_norm(x, weight, bias, eps=EPS, out=out), exact, (x, out))
    return Problem(lambda: kgen.rms_norm(x, weight, eps=EPS, out=out), exact, (x, out))


def _group(shape: tuple[int, ...], dtype: DType) -> Problem:
    import cupy

    x = normal(*shape, dtype=dtype)
    weight, bias = (normal(shape[1], dtype=dtype, seed=seed) for seed in (2, 3))
    out = cupy.empty_like(x)

    def exact() -> list[Array]:
        value = x.astype("f8").reshape(shape[0] * 32, -1)
        value -= value.mean(-1, keepdims=True)
        value /= cupy.sqrt((value**2).mean(-1, keepdims=True) + EPS)
        return [value.reshape(shape) * weight.astype("f8")[:, None] + bias.astype("f8")[:, None]]

    return Problem(lambda: kgen.group_norm(x, 32, weight, bias, eps=EPS, out=out), exact, (x, out))
