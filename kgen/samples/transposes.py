"""Calls of transposes: tiles that the array does not fill, rows that begin anywhere, short rows of several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops.moving import transpose_short as transpose_short_steps
from kgen.ops.moving import transpose_steps
from kgen.ops.moving.transpose import transpose as kgen_transpose
from kgen.ops.moving.transpose_short import LINE, ShortRows
from kgen.samples.case import Array, Case, Shape, between_poison
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
    if (spec["ROWS"], spec.dtype.itemsize) == (128, 2) and not shape:  # of large matrices
        case = _permutation(spec, (384, 224), (1, 0))
        return case._replace(settings=(_NOT_IN_WORDS, _strips(spec), (transpose_steps, "LARGE", 0)))
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
    lines, unit = spec.dynamic_smem // (LINE * (width | 1)), 16 // spec.dtype.itemsize
    long = (16 * lines + 4) * unit - (4 if spec["anywhere"] else 0)
    matrix = (long, width) if spec["split"] else (width, long)
    outer = tuple(range(spec["BATCH"]))
    shape = (*(2 for _ in outer), *matrix)
    case = _permutation(spec, shape, (*outer, len(outer) + 1, len(outer)))
    cut = spec["KIB"], lines, spec["TURNS"], spec["THREADS"]
    return case._replace(settings=((ShortRows, "cut", lambda rows, *_, **__: cut if rows.width == width else None),))


def transpose_ragged_short(spec: Spec, shape: Shape | None = None) -> Case:
    """As many pieces of long rows as let a block take just so many lines; rows begin and end amid packs."""
    if shape:
        return _reversed(spec, shape, margin=257)._replace(settings=(_NOT_IN_WORDS,))
    lines, unit = spec["LINES"], 16 // spec.dtype.itemsize
    width = min(37, (spec["KIB"] << 10) // (128 * (lines + spec["WITHIN"])))
    pieces, own = (5, 8 * lines) if spec["split"] else (14, 8 * lines - 2)
    long = ((pieces >> spec["BATCH"]) * own - (8 * spec["WITHIN"] if spec["split"] else 0)) * unit - 3
    matrix = (long, width) if spec["split"] else (width, long)
    outer = tuple(range(spec["BATCH"]))
    shape = (*(2 for _ in outer), *matrix)
    case = _permutation(spec, shape, (*outer, len(outer) + 1, len(outer)), margin=257)
    large = ((transpose_short_steps, "LARGE", 0),) if spec["WITHIN"] == 2 else ()
    return case._replace(settings=(_NOT_IN_WORDS, (transpose_short_steps, "STEP_KIB", spec["KIB"]), *large))


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


CASES = {
    "transpose": transpose,
    "transpose_ragged": transpose_ragged,
    "transpose_narrow": transpose_narrow,
    "transpose_short": transpose_short,
    "transpose_ragged_short": transpose_ragged_short,
    "transpose_padded_short": transpose_padded_short,
    "transpose_rows": transpose_rows,
    "transpose_flat": transpose_flat,
}
