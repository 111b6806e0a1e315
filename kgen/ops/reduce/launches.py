"""How one pass of a reduction is cut into blocks: rows or columns, threads for each, and parts that fill the device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kgen.dtypes import FLOATS, DType
from kgen.launch import Step
from kgen.ops.reduce import flat, waves
from kgen.ops.reduce.axes import Kept, Layout
from kgen.ops.reduce.kernels import (
    COLUMN_THREADS,
    KERNELS,
    LOAD_BYTES,
    RESIDENT,
    RESIDENT_NARROW,
    SHORT,
    residents,
    result_axes,
    summed,
    value_bytes,
)
from kgen.ops.reduce.text import rounded_once
from kgen.ops.reduce.waves import GROUPS, ITEMS
from kgen.spec import Spec

LEVELS = 4
"""Kept axes that a kernel walks; of further ones each index is a launch."""
LANES = (1, 2, 4, 8, 16, 32)
IDLE = 1.6
"""Lanes of blocks of ragged columns, as a multiple of those that have columns, up to which wide blocks are better."""
SHORT_FROM = 1024
"""Short rows for each multiprocessor, from which on blocks of them keep it busy."""
TILES = 16
"""Tiles of a row of 16 bits where an extreme is looked for, up to which a warp does better than a block."""
FEW = 1.6
"""Rows for each multiprocessor, up to which several blocks share one."""
OWN_ROWS, OWN_TILES = 2, 16
"""Waves of blocks from which on, and tiles of a row up to which, a block does best with a whole row: parts of a tile or
two cost more than what is left of the last wave."""
RAGGED_FROM = 8
"""Packs of a row that begins anywhere, from which on they are read as packs nevertheless."""
NAIVE = {"naive": (1, 1), "vec4": (4, 1), "vec8": (8, 1), "vec16": (16, 1)}
"""The ladder: elements of a load, and loads in flight."""


class Launch(NamedTuple):
    """A step, and how many bytes into its source and its target it begins."""

    step: Step
    source: int
    target: int
    partials: int  # bytes in which its blocks meet
    groups: int  # of blocks that meet


class Pass(NamedTuple):
    """One kernel's work: an axis reduced, from elements of one type to results of another."""

    op: str
    dtype: DType
    out: DType
    layout: Layout
    low: int  # bits of addresses that are not zero: how aligned the source is
    divisor: float
    sms: int
    algorithm: str | None


def length_of(axes: Layout) -> int:
    return axes.reduced[0].size if axes.reduced else 1


def launches(one: Pass) -> Iterator[Launch]:
    """The launches of a pass: one, but for kept axes that are too many for the kernel."""
    kept = one.layout.kept
    form, columns = _form(one)
    others = tuple(axis for axis in kept if axis is not columns)
    outside, inside = others[: max(0, len(others) - LEVELS)], others[max(0, len(others) - LEVELS) :]
    while math.prod(axis.size for axis in inside) >= 1 << 31:
        outside, inside = (*outside, inside[0]), inside[1:]
    step, partials = (
        _rows(one, inside) if form == "rows" else _flat(one, columns, inside) or _columns(one, columns, inside)
    )
    for index in itertools.product(*(range(axis.size) for axis in outside)):
        source = one.layout.start + sum(i * axis.stride for i, axis in zip(index, outside))
        target = sum(i * axis.out for i, axis in zip(index, outside))
        groups = _groups(step) if partials else 0
        yield Launch(step, source * one.dtype.itemsize, target * _out_bytes(one), partials, groups)


def _out_bytes(one: Pass) -> int:
    return 8 if one.op.startswith("arg") else one.out.itemsize


def _form(one: Pass) -> tuple[str, Kept]:
    """Rows or columns, whichever reads neighbours in memory; with columns, the axis along which they lie."""
    kept, reduced = one.layout.kept, one.layout.reduced
    stride = reduced[0].stride if reduced else 0
    columns = min(kept, key=lambda axis: abs(axis.stride) or 1 << 62, default=Kept(1, 1, 1))
    nearer = 0 < abs(stride) <= abs(columns.stride) or columns.stride == 0
    if (reduced and nearer) or not kept or columns.size >= 1 << 31:
        return "rows", Kept(0, 0, 0)
    return "columns", columns


def _levels(inside: Sequence[Kept]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes of all kept axes but the outermost, and the strides of all, filled up with axes of size 1."""
    full = [*inside[:1], *[Kept(1, 0, 0)] * (LEVELS - len(inside)), *inside[1:]]
    return (
        tuple(axis.size for axis in full[1:]),
        tuple(axis.stride for axis in full),
        tuple(axis.out for axis in full),
    )


def _spec(one: Pass, form: int, **axes: int | bool) -> Spec:
    return KERNELS[one.op][form].spec(dtype=one.dtype, **axes, **result_axes(one.op, one.dtype, one.out))


def _rows(one: Pass, inside: Sequence[Kept]) -> tuple[Step, int]:
    rows = math.prod(axis.size for axis in inside)
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 1)
    itemsize = one.dtype.itemsize
    wide = LOAD_BYTES // itemsize
    even = not any(axis.stride % wide for axis in inside) and not one.low % LOAD_BYTES
    vec = wide if stride == 1 and length * itemsize >= (LOAD_BYTES if even else 4 * LOAD_BYTES) else 1
    items = ITEMS
    if one.algorithm in NAIVE:
        vec, items = NAIVE[one.algorithm]
        vec = vec if stride == 1 else 1
    if vec == 1 and _is_short(one, rows, inside):
        return _short(one, rows, inside[0].out), 0
    loads = -(-length // vec)

    if one.algorithm in NAIVE:
        group, parts = 128, max(1, min(-(-loads // 128), (1 << 31) // max(1, rows) - 1))
    else:
        group = max(group for group in GROUPS if group <= max(1, -(-loads // items)))
        arg = one.op.startswith("arg")
        balanced = arg and one.dtype in FLOATS and group >= 32 and rows > FEW * one.sms
        if balanced:
            group = waves.threads_of_row(rows, loads, one.sms * RESIDENT_NARROW)
        elif arg and itemsize <= 2 and loads <= TILES * 32 * items:
            group = min(group, 32)
        for larger in GROUPS if not balanced else ():  # few rows: more threads for each
            if group < larger <= loads and rows * group < one.sms * RESIDENT // 2:
                group = larger
        share = -(-loads // group)
        if share == 1:
            items = 1
        elif not arg:
            items = waves.in_flight(share)
        wave = one.sms * RESIDENT // group
        tiles = -(-loads // (group * items))
        whole = balanced or group < max(GROUPS) or (rows >= OWN_ROWS * wave and tiles < OWN_TILES)
        parts = 1 if whole else waves.parts(rows, tiles, wave)
    split = parts > 1
    spec = _spec(one, 0, GROUP=group, VEC=vec, ITEMS=items, split=split)
    sizes, x_strides, out_strides = _levels(inside)
    per_block = spec.threads // group
    step = Step(
        spec,
        rows * parts if split else -(-rows // per_block),
        4 if split else 2,
        (parts, rows, *sizes),
        (length, stride, *x_strides, *out_strides),
        doubles=_divisor(one),
    )
    return step, rows * parts * value_bytes(spec) if split else 0


def _divisor(one: Pass) -> tuple[float, ...]:
    """What a kernel of sums is told to divide by, or, where sums are doubles to be rounded, to multiply by."""
    if not summed(one.op):
        return ()
    if not rounded_once(one.op, one.dtype, one.out):
        return (one.divisor,)
    return (1 / one.divisor if one.divisor else math.inf,)  # a mean of nothing is 0 times infinity, a NaN


def _is_short(one: Pass, rows: int, inside: Sequence[Kept]) -> bool:
    """Whether rows are short, many, and one behind the other from a multiple of a load on."""
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 1)
    nbytes = one.dtype.itemsize
    aligned = not (one.low | one.layout.start * nbytes) % LOAD_BYTES
    dense = len(inside) == 1 and inside[0].stride == length and stride == 1
    short = length > 1 and length * nbytes <= SHORT and rows >= SHORT_FROM * one.sms
    return dense and aligned and short and one.algorithm is None


def _short(one: Pass, rows: int, out: int) -> Step:
    length = length_of(one.layout)
    spec = _spec(one, 2)
    per_block = spec.threads * (SHORT // (length * one.dtype.itemsize))
    return Step(spec, -(-rows // per_block), 2, (rows, length), (out,), doubles=_divisor(one))


def _columns(one: Pass, columns: Kept, inside: Sequence[Kept]) -> tuple[Step, int]:
    outer = math.prod(axis.size for axis in inside)
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 0)
    together = (columns.size, stride, *(axis.stride for axis in inside))
    wide = LOAD_BYTES // one.dtype.itemsize
    vec = wide if columns.stride == 1 else 1
    while any(number % vec for number in together) or one.low % (vec * one.dtype.itemsize):
        vec //= 2
    if one.algorithm == "naive":
        vec = 1
    lanes = next((lanes for lanes in LANES if lanes * vec >= columns.size), max(LANES))
    pack = min(wide, 8) if one.op.startswith("arg") else wide  # or they exchange too much
    if ragged := not one.algorithm and vec < pack and columns.stride == 1 and columns.size >= RAGGED_FROM * wide:
        vec, lanes = pack, ragged_lanes(columns.size, pack)
    if one.op.startswith("arg") and not ragged:
        lanes = min(lanes, 128 // vec) if vec <= 8 else min(lanes, 16)
    items = ITEMS if vec * one.dtype.itemsize >= LOAD_BYTES // 2 else 2 * ITEMS
    tiles = -(-columns.size // ((lanes - ragged) * vec))
    depth = COLUMN_THREADS // lanes
    wave = one.sms * (residents(one.op, one.dtype, vec) if vec > 1 else 3 * RESIDENT // 2) // COLUMN_THREADS
    parts = waves.parts_of_columns(outer * tiles, -(-length // (depth * items)), wave)
    split = parts > 1
    spec = _spec(one, 1, LANES=lanes, VEC=vec, ITEMS=items, split=split, ragged=ragged)
    sizes, x_strides, out_strides = _levels(inside)
    step = Step(
        spec,
        outer * tiles * parts,
        4 if split else 2,
        (parts, columns.size, *sizes),
        (length, stride, columns.stride, columns.out, *x_strides, *out_strides),
        doubles=_divisor(one),
    )
    return step, outer * tiles * parts * lanes * vec * value_bytes(spec) if split else 0


def _groups(step: Step) -> int:
    """Of blocks that meet."""
    if step.spec.kernel is flat.FLAT:
        return flat.counters_of(step.blocks)
    return step.blocks // step.ints[0]


def _flat(one: Pass, columns: Kept, inside: Sequence[Kept]) -> tuple[Step, int] | None:
    """All rows read as one, where they lie one behind the other and loads do not begin with them."""
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 0)
    whole = LOAD_BYTES // one.dtype.itemsize
    even = columns.size % whole == 0 and one.low % LOAD_BYTES == 0
    dense = columns.stride == 1 and stride == columns.size and math.prod(axis.size for axis in inside) == 1
    if not dense or one.op != "sum" or one.out is not one.dtype or one.dtype not in FLOATS or one.algorithm:
        return None
    cut = flat.cut(columns.size, length * columns.size, one.dtype, one.sms, even=even)
    if cut is None:
        return None
    spec = flat.FLAT.spec(THREADS=cut.threads, dtype=one.dtype, **result_axes(one.op, one.dtype, one.out))
    ints = (columns.size, cut.period)
    step = Step(spec, cut.parts, 4, ints, (length * columns.size, columns.out), doubles=_divisor(one))
    return step, cut.parts * columns.size * value_bytes(spec)


def ragged_lanes(columns: int, vec: int) -> int:
    """Threads side by side where rows begin anywhere: the more the better, but where too many had no columns."""
    most = min(max(LANES), COLUMN_THREADS // vec)
    filled = (
        lanes for lanes in (most, most // 2) if -(-columns // ((lanes - 1) * vec)) * lanes * vec <= IDLE * columns
    )
    return next(filled, most // 4)
