"""Softmax, its logarithm, the logarithm of sums of exponentials, and the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import BOOL, F32, DType
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import BAR, check_close
from tests.random_calls.draw import Array, Shape
from tests.random_calls.views import View

Axis = int | tuple[int, ...] | None


def log_softmax_of(x: Array, axis: Axis) -> Array:
    """In float64. NaN where there is nothing but -inf, as kgen has it."""
    with np.errstate(all="ignore"):
        x = x - x.max(axis, keepdims=True)
        result: Array = x - np.log(np.exp(x).sum(axis, keepdims=True))
    return result


@calls("softmax", "softmax", "log_softmax", weight=1.5)
def softmax(call: Call, operator: str) -> None:
    x, dtype = _numbers(call)
    axis = call.axis(len(x.values.shape))
    options: dict[str, Any] = {}
    scale = call.pick(1, 1, 1, 0.3, -2)
    if scale != 1:
        options["scale"] = scale
    exact = x.exact * scale
    if call.chance(0.25):
        options["mask"] = mask = _mask(call, exact.shape)
        exact = np.where(mask.values, exact, -np.inf)
    if exact.ndim >= 2 and axis == -1 and call.chance(0.25):
        options["causal"] = True
        queries, keys = exact.shape[-2:]
        exact = np.where(np.tri(queries, keys, keys - queries, dtype=bool), exact, -np.inf)
    expected = log_softmax_of(exact, axis)
    if operator == "softmax":
        expected = np.exp(expected)
    if not x.writable and call.chance(0.1):
        options["dtype"] = "float32"
        dtype = F32
    check_close(call(operator, x, axis=axis, **options, **call.results(x, dtype)), expected, dtype)


@calls("logsumexp", weight=0.5)
def logsumexp(call: Call, operator: str) -> None:
    x, dtype = _numbers(call)
    axis, keepdims = call.axis(len(x.values.shape)), call.chance(0.3)
    top = x.exact.max(axis, keepdims=True)
    with np.errstate(all="ignore"):
        sums = np.exp(np.where(np.isfinite(top), x.exact - top, -np.inf)).sum(axis, keepdims=True)
        expected = np.where(np.isfinite(top), top + np.log(sums), top)
    expected = expected if keepdims else expected.squeeze(axis)
    check_close(call(operator, x, axis=axis, keepdims=keepdims), expected, dtype)


@calls("softmax_backward", "log_softmax_backward")
def backward(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape()
    axis, scale = call.axis(len(shape)), call.pick(1, 1, 1, 0.3)
    log = log_softmax_of(call.normal(shape).astype(np.float64), axis)
    of_log = operator == "log_softmax_backward"
    dy, y = call.array(call.normal(shape), dtype), call.array(log if of_log else np.exp(log), dtype)
    if of_log:
        expected = dy.exact - np.exp(y.exact) * dy.exact.sum(axis, keepdims=True)
    else:
        expected = y.exact * (dy.exact - (dy.exact * y.exact).sum(axis, keepdims=True))
    result = call(
        operator, dy, y, axis=axis, **({} if scale == 1 else {"scale": scale}), **call.maybe_out(shape, dtype)
    )
    # Of a logarithm in 16 bits the exponential has the rounding's error times the logarithm, which is 10 for long rows.
    check_close(result, scale * expected, dtype, bar=BAR[dtype] * (2 if of_log else 1))


def _numbers(call: Call) -> tuple[View, DType]:
    """Numbers of size 1 or 8, of which now and then some are -inf."""
    dtype, shape = call.dtype(), call.shape()
    x = call.normal(shape) * call.pick(1, 1, 8)
    if call.chance(0.1):
        x[call.uniform(shape) < 0.2] = -np.inf
    return call.in_place(x, dtype) if call.chance(0.1) else call.array(x, dtype), dtype


def _mask(call: Call, shape: Shape) -> View:
    """Which elements count, for all of them or the same along some axes."""
    of = tuple(size if call.chance(0.7) else 1 for size in shape)
    return call.array(call.uniform(of) < call.pick(0.5, 0.9, 0.02), BOOL)
