"""Reductions down columns: threads side by side in tiles, parts that fill the device, and narrow rows read as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.dtypes import FLOATS
from kgen.launch import Step
from kgen.ops.reduce import flat, waves
from kgen.ops.reduce.axes import Kept
from kgen.ops.reduce.kernels import COLUMN_THREADS, LOAD_BYTES, MOST_ROWS, RESIDENT, residents, value_bytes
from kgen.ops.reduce.passes import Pass, divisor_of, levels, of_one_type, spec_of
from kgen.ops.reduce.waves import ITEMS

LANES = (1, 2, 4, 8, 16, 32)
IDLE = 1.6
"""Lanes of blocks of ragged columns, as a multiple of those that have columns, up to which wide blocks are better."""
RAGGED_FROM = 8
"""Packs of a row that begins anywhere, from which on they are read as packs nevertheless."""


def down_columns(one: Pass, columns: Kept, inside: Sequence[Kept]) -> tuple[Step, int]:
    """The launch, and the bytes in which its blocks meet."""
    return _flat(one, columns, inside) or _tiles(one, columns, inside)


def _flat(one: Pass, columns: Kept, inside: Sequence[Kept]) -> tuple[Step, int] | None:
    """All rows read as one, where they lie one behind the other and loads do not begin with them."""
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 0)
    whole = LOAD_BYTES // one.dtype.itemsize
    even = columns.size % whole == 0 and one.low % LOAD_BYTES == 0
    dense = columns.stride == 1 and stride == columns.size and math.prod(axis.size for axis in inside) == 1
    if not (dense and of_one_type(one)):
        return None
    cut = flat.cut(one.op, columns.size, length * columns.size, one.dtype, one.sms, even=even, early=one.early)
    if cut is None:
        return None
    ints = (columns.size, cut.period, *flat.reads_of(length * columns.size, *cut))
    step = Step(cut.spec, cut.parts, 4, ints, (length * columns.size, columns.out), doubles=divisor_of(one))
    return step, cut.parts * columns.size * value_bytes(cut.spec)


def _tiles(one: Pass, columns: Kept, inside: Sequence[Kept]) -> tuple[Step, int]:
    outer = math.prod(axis.size for axis in inside)
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 0)
    together = (columns.size, stride, *(axis.stride for axis in inside))
    wide = LOAD_BYTES // one.dtype.itemsize
    vec = wide if columns.stride == 1 else 1
    while any(number % vec for number in together) or one.low % (vec * one.dtype.itemsize):
        vec //= 2
    if one.algorithm == "naive" or length > MOST_ROWS:
        vec = 1
    lanes = next((lanes for lanes in LANES if lanes * vec >= columns.size), max(LANES))
    pack = min(wide, 8) if one.op.startswith("arg") else wide  # or they exchange too much
    several = columns.size >= RAGGED_FROM * wide and columns.stride == 1 and length <= MOST_ROWS
    if ragged := not one.algorithm and vec < pack and several:
        vec, lanes = pack, ragged_lanes(columns.size, pack)
    if one.op.startswith("arg") and one.dtype not in FLOATS and not ragged:
        lanes = min(lanes, 128 // vec) if vec <= 8 else min(lanes, 16)
    items = ITEMS if vec * one.dtype.itemsize >= LOAD_BYTES // 2 else 2 * ITEMS
    whole = vec * one.dtype.itemsize == LOAD_BYTES and of_one_type(one)
    alone = one.sms * RESIDENT // COLUMN_THREADS  # a wave of blocks that do not meet, and
    wave = one.sms * (residents(one.op, one.dtype, vec) if vec > 1 else 3 * RESIDENT // 2) // COLUMN_THREADS
    if whole and lanes == max(LANES) and 2 * outer * tiles_of(columns.size, lanes, vec, ragged) > wave:
        fits = [lanes for lanes in waves.SIDE_BY_SIDE if not ragged or COLUMN_THREADS // lanes % vec == 0]
        blocks = {lanes: outer * tiles_of(columns.size, lanes, vec, ragged) for lanes in fits}
        lanes = waves.lanes_of_columns(blocks, length / items / COLUMN_THREADS, alone if ragged else wave)
    elif whole and lanes == max(LANES) and not ragged:
        lanes = waves.filled_lanes(columns.size // vec)
    groups = outer * tiles_of(columns.size, lanes, vec, ragged)
    depth = COLUMN_THREADS // lanes
    tiles = -(-length // (depth * items))
    if ragged and groups <= alone:
        parts = waves.parts_of_ragged(groups, tiles, wave, one.sms)
    else:
        parts = waves.parts_of_columns(groups, tiles, wave)
    if one.op.startswith("arg"):
        parts = max(parts, -(-length // (depth * (flat.MOST_PACKS - items))))
    split = parts > 1
    spec = spec_of(one, 1, LANES=lanes, VEC=vec, ITEMS=items, split=split, ragged=ragged)
    sizes, x_strides, out_strides = levels(inside)
    step = Step(
        spec,
        groups * parts,
        4 if split else 2,
        (parts, columns.size, *sizes),
        (length, stride, columns.stride, columns.out, *x_strides, *out_strides),
        doubles=divisor_of(one),
    )
    return step, groups * parts * lanes * vec * value_bytes(spec) if split else 0


def tiles_of(columns: int, lanes: int, vec: int, ragged: bool) -> int:
    """Blocks side by side: where rows begin anywhere, a lane of each has no columns of its own."""
    return -(-columns // ((lanes - ragged) * vec))


def ragged_lanes(columns: int, vec: int) -> int:
    """Threads side by side where rows begin anywhere: the more the better, but where too many had no columns."""
    most = min(max(LANES), COLUMN_THREADS // vec)
    filled = (
        lanes for lanes in (most, most // 2) if -(-columns // ((lanes - 1) * vec)) * lanes * vec <= IDLE * columns
    )
    return next(filled, most // 4)
