"""Reductions along rows: threads for each, and blocks that share one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.dtypes import FLOATS
from kgen.launch import Step
from kgen.ops.reduce import narrow, packs, short, waves
from kgen.ops.reduce.axes import Kept
from kgen.ops.reduce.kernels import LOAD_BYTES, RESIDENT, RESIDENT_NARROW, value_bytes
from kgen.ops.reduce.passes import NAIVE, Pass, divisor_of, levels, spec_of
from kgen.ops.reduce.waves import GROUPS, ITEMS

TILES = 16
"""Tiles of a row of 16 bits where an extreme is looked for, up to which a warp does better than a block."""
FEW = 1.6
"""Rows for each multiprocessor, up to which several blocks share one."""
OWN_ROWS, OWN_TILES = 2, 16
"""Waves of blocks from which on, and tiles of a row up to which, a block does best with a whole row: parts of a tile or
two cost more than what is left of the last wave."""


def along_rows(one: Pass, inside: Sequence[Kept]) -> tuple[Step, int]:
    """The launch, and the bytes in which its blocks meet."""
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
    if step := packs.launch(one, rows, inside) or narrow.launch(one, rows, inside) or short.launch(one, rows, inside):
        return step, 0
    loads = -(-length // vec)

    if one.algorithm in NAIVE:
        group, parts = 128, max(1, min(-(-loads // 128), (1 << 31) // max(1, rows) - 1))
    else:
        group = max(group for group in GROUPS if group <= max(1, -(-loads // items)))
        arg = one.op.startswith("arg")
        balanced = arg and one.dtype in FLOATS and group >= 32 and rows > FEW * one.sms
        usual = loads if even and length % vec == 0 else (length - vec // 2) // vec  # of rows that begin anywhere
        if arg and one.dtype in FLOATS and waves.FITTED[0] < usual <= waves.FITTED[1]:
            balanced, (group, items) = False, waves.tile_of_row(usual, itemsize)
        elif balanced:
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
    spec = spec_of(one, 0, GROUP=group, VEC=vec, ITEMS=items, split=split)
    sizes, x_strides, out_strides = levels(inside)
    per_block = spec.threads // group
    step = Step(
        spec,
        rows * parts if split else -(-rows // per_block),
        4 if split else 2,
        (parts, rows, *sizes),
        (length, stride, *x_strides, *out_strides),
        doubles=divisor_of(one),
    )
    return step, rows * parts * value_bytes(spec) if split else 0
