"""Counts, boxes, and 8-bit codes: results that are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import E4M3, E5M2, F32, F64, I8, I16, I32, I64, U8, DType, dtype_of
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_bits, check_close, check_equal, check_within
from tests.random_calls.draw import Array

CODES: dict[str, tuple[DType, float]] = {"e4m3": (E4M3, 448.0), "e5m2": (E5M2, 57344.0), "int8": (I8, 127.0)}
"""What a code is stored as, and the largest one."""

WEIGHTS = 1e-12
"""What sums of weights may be off by, of the sum of their magnitudes: they are computed in float64."""


@calls("bincount")
def bincount(call: Call, operator: str) -> None:
    """Evenly spread, or most of them in few bins; with weights half of the time."""
    count = call.pick(0, 1, 100, 5000, call.between(1, max(1, call.most * 2 // 3)))
    bins, dtype = min(call.pick(1, 3, 256, 1000, 65536, 300_000), 10 * call.most), call.pick(I32, I64, U8, I16)
    top = min(bins, np.iinfo(dtype.numpy).max)
    drawn = (call.rng.random(count) ** call.pick(1, 1, 6) * top).astype(np.int64)
    x = call.array(drawn, dtype, plainly=0.6)
    if call.chance(0.5):
        check_equal(call(operator, x, minlength=bins), np.bincount(drawn, minlength=bins), I64)
        return
    weights = call.array(call.rng.standard_normal(count), call.pick(F32, F64))
    expected = np.bincount(drawn, weights.exact, bins)
    most = WEIGHTS * np.bincount(drawn, abs(weights.exact), bins) + 1e-30
    check_within(call(operator, x, weights, minlength=bins), expected, most, F64)


@calls("histogram")
def histogram(call: Call, operator: str) -> None:
    """Bins of one width, between the extremes or some of them beyond a given range; NumPy's edges exactly."""
    count, dtype = call.pick(1, 100, 5000, call.between(1, call.most // 6)), call.pick(F32, F64, I32)
    x = call.array(call.rng.standard_normal(count) * call.pick(1, 100, 1e-3), dtype, plainly=0.7)
    bins, bounds = call.pick(1, 2, 10, 100, 257, 5000), call.pick(None, (-1.5, 2.0), (-1.5, 0.7))
    counts, edges = call(operator, x, bins, bounds)
    wanted, wanted_edges = np.histogram(x.values, bins, bounds)
    check_equal(counts, wanted, I64, "the counts")
    check_equal(edges, wanted_edges, dtype_of(wanted_edges.dtype), "the edges")


@calls("nms", "batched_nms", weight=0.7)
def suppression(call: Call, operator: str) -> None:
    """Boxes far apart or in a heap, now and then of equal scores."""
    count = call.pick(0, 1, 2, 63, 64, 65, 500, call.between(1, min(4000, call.most // 5)))
    corners = call.uniform((count, 2)) * np.float32(call.pick(10, 100, 1000))
    sides = call.uniform((count, 2)) * np.float32(call.pick(5, 30))
    boxes = call.array(np.concatenate([corners, corners + sides], 1), F32)
    scores = call.uniform((count,))
    scored = call.array((scores * 50).round() / 50 if call.chance(0.3) else scores, F32)
    threshold, classes = call.pick(0.0, 0.3, 0.5, 0.7, 1.0), np.zeros(count, np.int64)
    more = []
    if operator == "batched_nms":
        classes = call.rng.integers(0, 5, count)
        more = [call.array(classes, I64)]
    expected = kept(boxes.values, scored.values, classes, np.float32(threshold))
    check_equal(call(operator, boxes, scored, *more, threshold), expected, I64)


def kept(boxes: Array, scores: Array, classes: Array, threshold: np.float32) -> Array:
    """By descending score, each box suppresses those of its class that it overlaps too much; in float32 as kgen."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    stays, found = np.ones(len(boxes), bool), []
    for i in np.argsort(-scores, kind="stable"):
        if stays[i]:
            found.append(i)
            widths = np.maximum(np.minimum(right, right[i]) - np.maximum(left, left[i]), 0)
            heights = np.maximum(np.minimum(bottom, bottom[i]) - np.maximum(top, top[i]), 0)
            both = widths * heights
            with np.errstate(all="ignore"):
                stays &= ~((both / (areas[i] + areas - both) > threshold) & (classes == classes[i]))
    return np.array(found, np.int64)


@calls("quantize")
def quantize(call: Call, operator: str) -> None:
    """One scale for all, for each line of an axis, or for each block of a row: the codes bit for bit."""
    dtype, shape = call.dtype(), call.shape(call.pick(1, 2, 3))
    x = call.array(call.normal(shape) * call.pick(1, 100), dtype)
    code = call.pick(*CODES)
    stored, largest = CODES[code]
    numbers = x.values.astype(np.float32)
    sharing = call.pick("all", "line", "block")
    options: dict[str, Any] = {}
    if sharing == "line":
        options["axis"] = axis = call.pick(-1, 0)
        most = abs(numbers).max(axis, keepdims=True)
    elif sharing == "block":
        options |= {"axis": -1, "block": call.pick(16, 32, 64, 128, 100)}
        most = np.maximum.reduceat(abs(numbers), range(0, shape[-1], options["block"]), -1)
    else:
        most = abs(numbers).max()
    scale = np.where(most > 0, most / np.float32(largest), np.float32(1))
    divisor = np.repeat(scale, options["block"], -1)[..., : shape[-1]] if sharing == "block" else scale
    scaled = (numbers / divisor).clip(-largest, largest)
    expected = (np.rint(scaled) if stored == I8 else scaled).astype(stored.numpy)
    codes, scales = call(operator, x, code, **options)
    check_equal(scales, scale, F32, "the scale")
    check_bits(codes, expected, stored, "the codes")


@calls("dequantize", weight=0.4)
def dequantize(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape(call.pick(1, 2, 3))
    stored, largest = CODES[call.pick(*CODES)]
    codes = call.array(call.normal(shape).clip(-3, 3) * (largest / 4), stored)
    scale = call.array(call.uniform(tuple(call.pick(1, size) for size in shape)) + 0.5, F32)
    result = call(operator, codes, scale, dtype=dtype.numpy_name, **call.maybe_out(shape, dtype))
    check_close(result, codes.exact * scale.exact, dtype)
