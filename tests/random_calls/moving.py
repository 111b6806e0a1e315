"""Transpositions, entries of tables, and rotary positions."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from kgen.dtypes import I8, I32, I64, DType
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_close, check_equal
from tests.random_calls.draw import DTYPES, Array, Shape
from tests.random_calls.views import View

MOVED = (*DTYPES, I8, I32, I64)


@calls("transpose")
def transpose(call: Call, operator: str) -> None:
    x = _numbers(call, call.shape())
    axes = call.shuffled(range(x.values.ndim))
    expected = x.values.transpose(axes)
    check_equal(call(operator, x, axes, **call.maybe_out(expected.shape, x.dtype, contiguous=True)), expected, x.dtype)


@calls("take", "embedding", weight=0.7)
def take(call: Call, operator: str) -> None:
    """Indices of both signs; beyond the table where something stands for what is not there."""
    shape = call.shape(call.pick(1, 2, 2, 3) if operator == "take" else 2)
    axis = call.between(0, len(shape) - 1) if operator == "take" else 0
    entry = math.prod(shape) // shape[axis]
    count = max(1, min(call.pick(1, 5, 33, 700), 4 * call.most // entry))
    table = _numbers(call, shape)
    mode: Literal["raise", "wrap", "clip"] = "raise"
    if operator == "take" and call.chance(0.6):
        mode = "wrap" if call.chance(0.5) else "clip"
    most = shape[axis] * (1 if mode == "raise" else 2)
    chosen = call.rng.integers(-most, most, (count,) if call.chance(0.7) else (count, 2))
    indices = call.array(chosen, call.pick(I32, I64), plainly=0.7)
    expected = table.values.take(indices.values, axis, mode=mode)
    given = (table, indices, axis) if operator == "take" else (indices, table)
    options = {"mode": mode} if operator == "take" else {}
    result = call(operator, *given, **options, **call.maybe_out(expected.shape, table.dtype, contiguous=True))
    check_equal(result, expected, table.dtype)


@calls("rope", weight=0.7)
def rope(call: Call, operator: str) -> None:
    dtype = call.dtype()
    features = call.pick(2, 6, 16, 64, 80, 128, 130, 256)
    room = max(1, call.most // features)
    time = min(call.pick(1, 7, 100, 513), room)
    heads = max(1, min(call.pick(1, 3, 8), room // time))
    shape = (max(1, min(call.pick(1, 2, 3), room // (time * heads))), heads, time, features)
    turned = call.pick(features, features, max(2, features // 4 * 2))
    interleaved, inverse, by_time = call.chance(0.5), call.chance(0.4), call.chance(0.3)
    x = call.array(_by_time(call.normal(shape), by_time), dtype)
    positions, given = np.arange(time), None
    if call.chance(0.6):
        of = (shape[0], time) if call.chance(0.5) else (time,)
        given = call.array(call.rng.integers(0, 100_000, of), call.pick(I32, I64))
        positions = given.values
    expected = rotated(_by_time(x.exact, by_time), positions, turned, interleaved=interleaved, inverse=inverse)
    result = call(
        operator,
        x,
        given,
        rotary_dim=None if turned == features else turned,
        interleaved=interleaved,
        inverse=inverse,
        layout="bthd" if by_time else "bhtd",
        **call.maybe_out(x.values.shape, dtype),
    )
    check_close(result, _by_time(expected, by_time), dtype)


def rotated(x: Array, positions: Array, width: int, *, interleaved: bool, inverse: bool) -> Array:
    """The first `width` features of x [B, H, T, D] turned, in pairs of neighbours or of halves."""
    half = width // 2
    frequencies = 10000.0 ** (-np.arange(half) / half)
    angles = np.broadcast_to(positions, (x.shape[0], x.shape[2]))[:, None, :, None] * frequencies
    cos, sin = np.cos(angles), np.sin(-angles if inverse else angles)
    pairs = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    first, second = (x[..., pair] for pair in pairs)
    result = x.copy()
    result[..., pairs[0]] = first * cos - second * sin
    result[..., pairs[1]] = second * cos + first * sin
    return result


def _by_time(x: Array, by_time: bool) -> Array:
    """[B, H, T, D] as [B, T, H, D], or back."""
    return x.swapaxes(1, 2) if by_time else x


def _numbers(call: Call, shape: Shape) -> View:
    dtype: DType = call.pick(*MOVED)
    if dtype in DTYPES:
        return call.array(20 * call.normal(shape), dtype)
    return call.array(call.rng.integers(-100, 100, shape), dtype)
