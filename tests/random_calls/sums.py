"""Reductions, and products with vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgen.dtypes import F64, I8, I32, I64, DType
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import BAR, check_equal, check_within, sum_distance
from tests.random_calls.draw import DTYPES, Array
from tests.random_calls.views import View

INTEGERS = (I8, I32, I64)


@calls("sum", "mean", weight=1)
def sums(call: Call, operator: str) -> None:
    x = _numbers(call, *DTYPES, F64, *INTEGERS)
    axis, keepdims = call.axis(len(x.values.shape)), call.chance(0.2)
    whole = x.dtype in INTEGERS
    dtype = x.dtype if not whole else I64 if operator == "sum" else F64
    expected = np.asarray(x.exact.sum(axis, keepdims=keepdims))
    result = call(operator, x, axis=axis, keepdims=keepdims, **call.maybe_out(expected.shape, dtype))
    if whole and operator == "sum":
        check_equal(result, np.asarray(x.values.sum(axis, np.int64, keepdims=keepdims)), dtype)
        return
    magnitudes = abs(x.exact).sum(axis, keepdims=keepdims)
    count = x.values.size // max(1, expected.size) if operator == "mean" else 1
    check_within(result, expected / count, sum_distance(expected / count, magnitudes / count, dtype), dtype)


@calls("prod", weight=0.3)
def prod(call: Call, operator: str) -> None:
    """So many factors that are not one that the product is neither large nor small."""
    dtype, shape = call.pick(*DTYPES, F64), call.shape()
    axis = call.axis(len(shape))
    products = np.empty(shape, np.int8).sum(axis).size
    some = call.uniform(shape) < 50 * products / math.prod(shape)
    x = call.array(np.where(some, 1 + 0.1 * call.normal(shape).clip(-3, 3), 1), dtype)
    expected = np.asarray(x.exact.prod(axis))
    check_within(call(operator, x, axis=axis), expected, 8 * BAR[dtype] * abs(expected), dtype)


@calls("max", "min", weight=0.6)
def extremes(call: Call, operator: str) -> None:
    x = _numbers(call, *DTYPES, F64, *INTEGERS, special=True)
    axis, keepdims = call.axis(len(x.values.shape)), call.chance(0.2)
    expected = getattr(np, operator)(x.exact if x.dtype != I64 else x.values, axis, keepdims=keepdims)
    result = call(operator, x, axis=axis, keepdims=keepdims)
    check_equal(result, np.asarray(expected).astype(x.dtype.numpy), x.dtype, nan=True)


@calls("argmax", "argmin", weight=0.6)
def places_of_extremes(call: Call, operator: str) -> None:
    """The first among equals, of which 16 bits and int8 have many; NaN is beyond all numbers."""
    x = _numbers(call, *DTYPES, F64, *INTEGERS, special=True)
    axis = call.axis(len(x.values.shape))
    axis = axis[0] if isinstance(axis, tuple) else axis
    expected = getattr(np, operator)(x.exact if x.dtype != I64 else x.values, axis)
    check_equal(call(operator, x, axis=axis), np.asarray(expected), I64)


@calls("reduce", weight=0.3)
def neighbours(call: Call, operator: str) -> None:
    width, count = call.pick(1, 3, 32, 33, 256, call.between(1, 1000)), call.between(1, 2000)
    dtype = call.dtype()
    x = call.array(call.normal((min(count, max(1, call.most // width)) * width,)), dtype)
    kind = call.pick("sum", "max", "argmin")
    result = call(operator, x, kind, width=width)
    rows = x.exact.reshape(-1, width)
    if kind == "argmin":
        check_equal(result, rows.argmin(1), I64)
    elif kind == "max":
        check_equal(result, rows.max(1).astype(dtype.numpy), dtype)
    else:
        expected = rows.sum(1)
        check_within(result, expected, sum_distance(expected, abs(rows).sum(1), dtype), dtype)


@calls("dot", "vdot", weight=0.4)
def dot(call: Call, operator: str) -> None:
    dtype, shape = call.pick(*DTYPES, F64), (min(call.width(), call.most),)
    a, b = (call.array(call.normal(shape), dtype) for _ in range(2))
    _check_products(call(operator, a, b), a.exact * b.exact, dtype)


@calls("gemv")
def gemv(call: Call, operator: str) -> None:
    dtype, shape = call.pick(*DTYPES, F64), call.shape(2)
    a, trans, alpha = call.array(call.normal(shape), dtype), call.chance(0.5), call.pick(1, 0.5)
    options: dict[str, Any] = {"alpha": alpha, "trans": trans}
    matrix = a.exact.T if trans else a.exact
    rows, columns = matrix.shape
    x = call.array(call.normal((columns,)), dtype, plainly=0.7)
    more: Array = np.zeros(rows)
    if call.chance(0.5):
        options["y"] = y = call.array(call.normal((rows,)), dtype, plainly=0.7)
        options["beta"] = beta = call.pick(1, -0.25)
        more = beta * y.exact
    result = call(operator, a, x, **options, **call.maybe_out((rows,), dtype))
    _check_matrix_vector(result, alpha * (matrix @ x.exact) + more, abs(matrix) @ abs(x.exact) + abs(more), dtype)


@calls("matvec", weight=0.5)
def matvec(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape(call.pick(2, 3, 3))
    batch = tuple(size if call.chance(0.7) else 1 for size in shape[:-2])
    a, x = call.array(call.normal(shape), dtype), call.array(call.normal((*batch, shape[-1])), dtype)
    vector = x.exact[..., None]
    expected, magnitudes = (a.exact @ vector)[..., 0], (abs(a.exact) @ abs(vector))[..., 0]
    _check_matrix_vector(call(operator, a, x), expected, magnitudes, dtype)


def _check_matrix_vector(result: Array, expected: Array, magnitudes: Array, dtype: DType) -> None:
    part = 1e-14 if dtype == F64 else 1e-6
    most = 1.2 * BAR[dtype] * abs(expected) + part * (magnitudes + 1)  # 1: float16's denormals
    check_within(result, expected, most, dtype)


def _check_products(result: Array, products: Array, dtype: DType) -> None:
    expected = np.asarray(products.sum())
    check_within(result, expected, sum_distance(expected, abs(products).sum(), dtype), dtype)


def _numbers(call: Call, *dtypes: DType, special: bool = False) -> View:
    dtype, shape = call.pick(*dtypes), call.shape()
    if dtype in INTEGERS:
        return call.array(call.rng.integers(-100, 100, shape), dtype)
    values = call.normal(shape)
    return call.array(call.special(values) if special else values, dtype)
