"""Calls of what moves data: tiles that an array does not fill, indices beyond their table."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops.moving import transpose_short as transpose_short_steps
from kgen.ops.moving import transpose_steps
from kgen.ops.moving.rope import rope as kgen_rope
from kgen.ops.moving.take import take as kgen_take
from kgen.ops.moving.take_kernels import FEW
from kgen.ops.moving.transpose import transpose as kgen_transpose
from kgen.ops.moving.transpose_short import LINE, ShortRows
from kgen.ops.nms.nms import nms as kgen_nms
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec

_NOT_IN_WORDS = (ShortRows, "cut", lambda *_, **__: None)


def _strips(spec: Spec) -> tuple[object, str, int]:
    return transpose_steps, "_STRIP", 0 if spec["across"] else 1 << 40


def transpose(spec: Spec, shape: Shape | None = None) -> Case:
    """Tiles that the array does not fill in both of its directions; elements one by one where they lie apart."""
    if shape:
        case = _reversed(spec, shape, 1 if spec["LOAD"] > 1 else 2)
    elif spec["across"]:
        case = _permutation(spec, (352, 352 + 16 // spec.dtype.itemsize), (1, 0))
    elif spec["BATCH"] == 2:
        case = _permutation(spec, (3, 72, 5, 152), (2, 0, 3, 1))
    else:
        wide = spec["LOAD"] > 1
        case = _permutation(spec, (160, 96), (1, 0)) if wide else _permutation(spec, (141, 77), (1, 0), 2)
    return case._replace(settings=(_NOT_IN_WORDS, _strips(spec)))


def transpose_ragged(spec: Spec, shape: Shape | None = None) -> Case:
    """Tiles that the array does not fill in both of its directions; rows begin anywhere, and are no short ones."""
    if shape:
        case = _reversed(spec, shape, margin=257)
    else:
        case = _permutation(spec, (5 * spec["ROWS"] // 2 + 13, 3 * spec["COLUMNS"] + 307), (1, 0), margin=257)
    cut = {spec.dtype.itemsize: (spec["ROWS"], spec["COLUMNS"], spec["THREADS"])}
    return case._replace(
        settings=((transpose_steps, "_RAGGED_TILE", cut), (transpose_steps, "LARGE", 0), _NOT_IN_WORDS, _strips(spec))
    )


def transpose_narrow(spec: Spec, shape: Shape | None = None) -> Case:
    """More packs than a block takes, and a warp that has some lanes to spare; matrices one behind the other."""
    if shape:
        return _reversed(spec, shape)
    long = (spec.threads + 5) * 16 // spec.dtype.itemsize
    matrix = (long, spec["WIDTH"]) if spec["split"] else (spec["WIDTH"], long)
    outer = tuple(range(spec["BATCH"]))
    return _permutation(spec, (*(2 for _ in outer), *matrix), (*outer, len(outer) + 1, len(outer)))


def transpose_short(spec: Spec, shape: Shape | None = None) -> Case:
    """More short rows than a block takes, and lines of which some lanes have nothing; matrices one behind the other."""
    if shape:
        return _reversed(spec, shape)
    width = {1: 37, 2: 38, 4: 36}[spec.derived["IN_WORD"]]
    lines, unit = spec.derived["ROOM"] // (LINE * (width | 1)), 16 // spec.dtype.itemsize
    long = (16 * lines + 4) * unit - (4 if spec["anywhere"] else 0)
    matrix = (long, width) if spec["split"] else (width, long)
    outer = tuple(range(spec["BATCH"]))
    shape = (*(2 for _ in outer), *matrix)
    case = _permutation(spec, shape, (*outer, len(outer) + 1, len(outer)))
    cut = spec["KIB"], lines, spec["TURNS"]
    return case._replace(settings=((ShortRows, "cut", lambda rows, *_, **__: cut if rows.width == width else None),))


def transpose_ragged_short(spec: Spec, shape: Shape | None = None) -> Case:
    """As many pieces of long rows as let a block take just so many lines; rows begin and end amid packs."""
    if shape:
        return _reversed(spec, shape, margin=257)._replace(settings=(_NOT_IN_WORDS,))
    lines, unit = spec["LINES"], 16 // spec.dtype.itemsize
    width = min(37, spec.derived["ROOM"] // (16 * (8 * lines + 2)))
    long = (7 >> spec["BATCH"]) * (16 * lines - 2) * unit - 3
    matrix = (long, width) if spec["split"] else (width, long)
    outer = tuple(range(spec["BATCH"]))
    shape = (*(2 for _ in outer), *matrix)
    case = _permutation(spec, shape, (*outer, len(outer) + 1, len(outer)), margin=257)
    return case._replace(settings=(_NOT_IN_WORDS, (transpose_short_steps, "RAGGED_KIBS", (spec["KIB"],))))


def transpose_padded_short(spec: Spec, shape: Shape | None = None) -> Case:
    """The same, of short rows of an even size; of bytes, some lanes of a warp have none."""
    if shape:
        return _reversed(spec, shape, margin=257)._replace(settings=(_NOT_IN_WORDS,))
    lines, unit = spec["LINES"], 16 // spec.dtype.itemsize
    width = (40 if spec.dtype.itemsize < 4 else 48) if lines <= 4 else 256 // lines
    long = (7 >> spec["BATCH"]) * (16 * lines - (2 if spec["split"] else 4)) * unit - 3
    matrix = (long, width) if spec["split"] else (width, long)
    outer = tuple(range(spec["BATCH"]))
    shape = (*(2 for _ in outer), *matrix)
    case = _permutation(spec, shape, (*outer, len(outer) + 1, len(outer)), margin=257)
    return case._replace(settings=(_NOT_IN_WORDS,))


def transpose_rows(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows of words, the other axes in reverse order; those of the last block do not exist."""
    shape = shape or (3, 5, 7, (spec["LANES"] - 5) * spec["BYTES"])
    return _permutation(spec, shape, (*reversed(range(len(shape) - 1)), len(shape) - 1))


def transpose_flat(spec: Spec, shape: Shape | None = None) -> Case:
    """Two groups of rows and pieces of both; rows that begin anywhere, the other axes in reverse order."""
    shape = shape or (*(2 for _ in range(spec["BATCH"] - 2)), 30, 30, 33 if spec["short"] else 77)
    x = between_poison(_numbered(shape, np.dtype(f"u{spec['BYTES']}")), 257)
    axes = (*reversed(range(len(shape) - 1)), len(shape) - 1)
    return Case(kgen_transpose, (x,), {"axes": axes}, x.transpose(axes))


def _reversed(spec: Spec, shape: Shape, step: int = 1, margin: int = 256) -> Case:
    """All axes in reverse order; elements that are `step` apart."""
    return _permutation(spec, shape, tuple(reversed(range(len(shape)))), step, margin)


def _permutation(spec: Spec, shape: Shape, axes: tuple[int, ...], step: int = 1, margin: int = 256) -> Case:
    shape = (*shape[:-1], shape[-1] * step)
    x = between_poison(_numbered(shape, spec.dtype.numpy), margin)[..., ::step]
    return Case(kgen_transpose, (x,), {"axes": axes}, x.transpose(axes))


def _numbered(shape: Shape, dtype: np.dtype[Any]) -> Array:
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64) * 40503 % 65521
    return numbers.astype(dtype).reshape(shape)


def take(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that end within a tile of words; indices that count from the end, and some beyond it.

    A shape is the number of indices, and the rows and columns of the table.
    """
    width = (spec["LANES"] * spec["ACROSS"] - 5) * spec["BYTES"] // 4
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
    "transpose": transpose,
    "transpose_ragged": transpose_ragged,
    "transpose_narrow": transpose_narrow,
    "transpose_short": transpose_short,
    "transpose_ragged_short": transpose_ragged_short,
    "transpose_padded_short": transpose_padded_short,
    "transpose_rows": transpose_rows,
    "transpose_flat": transpose_flat,
    "take": take,
    "take_flat": take_flat,
    "rope": rope,
    "nms_rank": nms,
    "nms_overlap": nms,
    "nms_sweep": nms,
}
