"""Calls of what picks and turns elements: indices beyond their table, boxes that overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops.moving.rope import rope as kgen_rope
from kgen.ops.moving.take import take as kgen_take
from kgen.ops.moving.take_kernels import FEW
from kgen.ops.nms.nms import nms as kgen_nms
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def take(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that end within a tile of words; indices that count from the end, and some beyond it.

    A shape is the number of indices, and the rows and columns of the table.
    """
    width = max(1, spec["LANES"] * spec["ACROSS"] - 5) * spec["BYTES"] // 4
    rows, length, width = shape or (71 if spec["ACROSS"] == 1 else 5, 23, width)
    return _taken(spec, rows, length, width, np.dtype(np.int32))


def take_flat(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that begin anywhere, in pieces of two groups; otherwise as `take`."""
    rows, length, width = shape or (FEW + 3 if spec["checked"] else 900, 23, 33 if spec["short"] else 77)
    return _taken(spec, rows, length, width, np.dtype(f"i{spec['BYTES']}"), 257)


def _taken(spec: Spec, rows: int, length: int, width: int, dtype: np.dtype[Any], margin: int = 256) -> tuple[Case, ...]:
    rng = np.random.default_rng(1)
    table = between_poison(rng.integers(0, np.iinfo(dtype).max // 2 + 1, (length, width), dtype), margin)
    refuses = bool({"told", "checked"} & spec.flags)
    most = length if refuses else length + 6
    indices = rng.integers(-most, most, rows).astype(spec.dtype.numpy)
    indices[-1] = length - 1
    inside = (indices >= -length) & (indices < length)
    expected = np.where(inside[:, None], table[np.where(inside, indices, 0)], -1).astype(dtype)
    options = {"mode": "raise" if refuses else "fill"}
    good = Case(kgen_take, (table, between_poison(indices)), options, expected)
    if not refuses:
        return (good,)
    more = np.zeros(FEW, spec.dtype.numpy) if spec["checked"] else ()
    beyond = [np.array([0, bad, length - 1, bad, *more], spec.dtype.numpy) for bad in (length, -length - 1)]
    return good, *(Case(_first_beyond, (table, between_poison(one)), {}, np.array(1)) for one in beyond)


def _first_beyond(table: Array, indices: Array) -> Array:
    """The number of the first index that is out of bounds, as the operator tells it."""
    try:
        kgen_take(table, indices)
    except IndexError as error:
        return np.array(int(str(error).partition("number ")[2].partition(",")[0]))
    return np.array(-1)


def rope(spec: Spec, shape: Shape | None = None) -> Case:
    """Several blocks for the pairs of all tokens, heads that do not share out evenly, features that are not turned.

    A shape is B, H, T and the features, of which two thirds are turned.
    """
    pairs = spec["PAIRS"]
    (x,) = numbers(spec, shape or (1, spec.derived["UNROLL"] + 3, 101, 12 * pairs))
    half = x.shape[3] // (3 * pairs) * pairs
    turned, kept = wide(x[..., : 2 * half], x[..., 2 * half :])
    frequencies = 10000.0 ** (-np.arange(half) / half)
    positions = np.arange(x.shape[2])
    options: dict[str, Any] = {"interleaved": "interleaved" in spec.flags, "rotary_dim": 2 * half}
    if spec["INDEX_BYTES"]:
        positions = positions[::-1] * 3
        options["positions"] = between_poison(positions.astype(f"i{spec['INDEX_BYTES']}"))
    if "tables" in spec.flags:
        angles = np.arange(3 * x.shape[2])[:, None] * frequencies
        options |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    halves = turned.reshape(*turned.shape[:-1], *((-1, 2) if options["interleaved"] else (2, -1)))
    axis = -1 if options["interleaved"] else -2
    first, second = np.moveaxis(halves, axis, 0)
    cos, sin = (f(positions[:, None] * frequencies) for f in (np.cos, np.sin))
    expected = np.stack([first * cos - second * sin, first * sin + second * cos], axis).reshape(turned.shape)
    return Case(kgen_rope, (x,), options, np.concatenate([expected, kept], -1))


def nms(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Many tiles and a part of one; equal scores among the boxes; room for nearly all that stay, or for more.

    A shape is the number of boxes.
    """
    (count,) = shape or (34 * 64 + 5,)
    return _suppression(count, -7), _suppression(count if shape else 130, 9)


def _suppression(count: int, spare: int) -> Case:
    """Boxes, and room for so many more than stay."""
    rng = np.random.default_rng(1)
    corners = rng.random((count, 2), np.float32) * 20
    boxes = between_poison(np.concatenate([corners, corners + rng.random((count, 2), np.float32) * 3], 1))
    scores = between_poison(rng.integers(0, 999, count).astype(np.float32))
    kept = _non_maximum_suppression(boxes, scores, np.float32(0.3))
    most = max(1, len(kept) + spare)
    options = {"iou_threshold": 0.3, "padded": True, "max_output": most}
    padded = np.array((kept + [-1] * most)[:most])
    return Case(kgen_nms, (boxes, scores), options, (padded, np.array(min(most, len(kept)))))


def _non_maximum_suppression(boxes: Array, scores: Array, threshold: np.float32) -> list[int]:
    """Greedily by score; all in the type of the boxes."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    stays = np.ones(len(boxes), bool)
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if stays[i]:
            kept.append(int(i))
            width = np.maximum(np.minimum(right, right[i]) - np.maximum(left, left[i]), 0)
            height = np.maximum(np.minimum(bottom, bottom[i]) - np.maximum(top, top[i]), 0)
            both = width * height
            stays &= ~(both / (areas[i] + areas - both) > threshold)
    return kept


CASES = {
    "take": take,
    "take_flat": take_flat,
    "rope": rope,
    "nms_rank": nms,
    "nms_overlap": nms,
    "nms_sweep": nms,
}
