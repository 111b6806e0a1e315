"""Layer norm, RMS norm and group norm, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgen.dtypes import F32, DType
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import BAR, TINY, check_close, rms_of
from tests.random_calls.draw import Array, Shape
from tests.random_calls.views import View

SLACK = 2
"""Bars of a normalised number: its own rounding, and what a weight adds."""

OF_SUMS = 1e-5
"""The least bar of gradients of weights: float32 sums over rows, of numbers of both signs, which cancel."""

OF_TERMS = 2**-21
"""What float32 arithmetic may lose of the terms of a gradient, which cancel: wholly, where a row of dy is constant."""


def bar_of_gradient(exact: Array, terms: Array, bar: float) -> float:
    """Up to which error, relative to itself, it is right: its own, or that of terms that are so much larger than it."""
    return max(bar, OF_TERMS * rms_of(terms) / (rms_of(exact) + TINY))


def normal_of(x: Array, axes: tuple[int, ...], *, rms: bool) -> Array:
    """Without weights, and with the default eps."""
    x = x if rms else x - x.mean(axes, keepdims=True)
    result: Array = x / np.sqrt((x**2).mean(axes, keepdims=True) + (1e-6 if rms else 1e-5))
    return result


@calls("layer_norm", "rms_norm", weight=2)
def along_rows(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape()
    x = call.array(call.normal(shape) + 3, dtype)
    count = 1 if call.chance(0.8) else call.between(1, len(shape))
    axes = tuple(range(len(shape) - count, len(shape)))
    options: dict[str, Any] = {}
    rms = operator == "rms_norm"
    weights = _weights(call, shape[-count:], dtype, 1 if rms else 2)
    expected = normal_of(x.exact, axes, rms=rms)
    if weights:
        shift = call.pick(0.0, 0.0, 1.0) if rms else 0.0
        expected = expected * (weights[0].exact + shift)
        if shift:
            options["weight_offset"] = shift
    if len(weights) > 1:
        expected = expected + weights[1].exact
    told = call.chance(0.2)
    if told:
        options["return_rstd" if rms else "return_stats"] = True
    result = call(operator, x, *weights, axis=-1 if count == 1 else axes, **options, **call.maybe_out(shape, dtype))
    result, *statistics = result if told else (result,)
    check_close(result, expected, dtype, slack=SLACK)
    _check_statistics(statistics, x.exact, axes)


@calls("fused_add_rms_norm", weight=0.5)
def with_residual(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape()
    x, residual = call.array(call.normal(shape) + 3, dtype), call.in_place(call.normal(shape), dtype)
    total = (x.values.astype(np.float32) + residual.values.astype(np.float32)).astype(dtype.numpy).astype(np.float64)
    weights = _weights(call, shape[-1:], dtype, 1)
    expected = normal_of(total, (-1,), rms=True)
    if weights:
        expected = expected * weights[0].exact
    result = call(operator, x, residual, *weights, **call.maybe_out(shape, dtype))
    check_close(residual.now(), total, dtype, what="the residual")
    check_close(result, expected, dtype, slack=SLACK)


@calls("group_norm")
def group_norm(call: Call, operator: str) -> None:
    dtype, groups = call.dtype(), call.pick(1, 2, 3, 8, 32)
    channels = groups * call.pick(1, 1, 2, 3, 4, 10)
    places = call.pick((2,), (4,), (7, 7), (9,), (63,), (32, 32), (63, 63), (call.between(2, 5000),))
    room = max(1, call.most // (channels * math.prod(places)))
    shape = (min(call.pick(1, 2, 5, 16), room), channels, *places)
    x = call.array(call.normal(shape) + 3, dtype)
    weights = _weights(call, (channels,), dtype, 2)
    of_groups = x.exact.reshape(shape[0], groups, -1)
    expected = normal_of(of_groups, (-1,), rms=False).reshape(shape)
    each = (channels, *(1 for _ in places))
    if weights:
        expected = expected * weights[0].exact.reshape(each)
    if len(weights) > 1:
        expected = expected + weights[1].exact.reshape(each)
    told = call.chance(0.2)
    result = call(operator, x, groups, *weights, return_stats=told, **call.maybe_out(shape, dtype))
    result, *statistics = result if told else (result,)
    _check_statistics(statistics, of_groups, (-1,))
    # A group of two numbers that lie close together has a mean nearer to both than they are to each other.
    check_close(result, expected, dtype, slack=3)


@calls("layer_norm_backward", "rms_norm_backward")
def backward(call: Call, operator: str) -> None:
    dtype, rms = call.dtype(), operator == "rms_norm_backward"
    shape = call.shape(call.pick(2, 2, 3))
    shape = (*shape[:-1], max(4, shape[-1]))  # of fewer numbers 1 / sqrt(variance) may be large, and all errors with it
    dy, x = call.array(call.normal(shape), dtype), call.array(call.normal(shape) + 3, dtype)
    mean = np.zeros(shape[:-1]) if rms else x.exact.mean(-1)
    rstd = 1 / np.sqrt((x.exact**2).mean(-1) + 1e-6 if rms else x.exact.var(-1) + 1e-5)
    statistics = [call.array(statistic, F32) for statistic in ((rstd,) if rms else (mean, rstd))]
    weights = _weights(call, shape[-1:], dtype, 1)
    mean = 0 if rms else statistics[0].exact[..., None]
    rstd = statistics[-1].exact[..., None]
    normal = (x.exact - mean) * rstd
    weighed = dy.exact * weights[0].exact if weights else dy.exact
    less = 0 if rms else weighed.mean(-1, keepdims=True)
    dx = rstd * (weighed - less - normal * (weighed * normal).mean(-1, keepdims=True))

    made = call(operator, dy, x, *statistics, *weights)
    gradients = made if isinstance(made, tuple) else (made,)
    check_close(gradients[0], dx, dtype, bar=bar_of_gradient(dx, rstd * weighed, SLACK * BAR[dtype]), what="dx")
    if weights:
        rows = tuple(range(len(shape) - 1))
        of_weights = weights[0].dtype
        bar = max(SLACK * BAR[of_weights], OF_SUMS)
        dweight, terms = (dy.exact * normal).sum(rows), np.abs(dy.exact * mean * rstd).sum(rows)
        check_close(gradients[1], dweight, of_weights, bar=bar_of_gradient(dweight, terms, bar), what="dweight")
        if not rms:
            check_close(gradients[2], dy.exact.sum(rows), of_weights, bar=bar, what="dbias")


def _check_statistics(statistics: list[Array], x: Array, axes: tuple[int, ...]) -> None:
    """Mean and 1 / sqrt(variance + eps), or 1 / sqrt(mean square + eps) alone, or nothing."""
    if len(statistics) == 2:
        check_close(statistics[0], x.mean(axes), F32, slack=SLACK, what="mean")
    if statistics:
        variance = x.var(axes) + 1e-5 if len(statistics) == 2 else (x**2).mean(axes) + 1e-6
        check_close(statistics[-1], 1 / np.sqrt(variance), F32, slack=2 * SLACK, what="rstd")


def _weights(call: Call, shape: Shape, dtype: DType, most: int) -> list[View]:
    """None of them, weights, or weights and a bias; of the dtype of x, or float32."""
    own = dtype if call.chance(0.6) else F32
    count = 0 if call.chance(0.3) else call.between(1, most)
    return [call.array(call.normal(shape), own, plainly=0.8) for _ in range(count)]
