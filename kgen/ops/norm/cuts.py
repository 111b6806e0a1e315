"""How many packs a thread of a norm has, and which rows blocks take by themselves; the tables are measured."""

from __future__ import annotations

from kgen.ops import rows_cut

MOVED = {**rows_cut.MOST, 16: 7, 96: 6, 320: 6}
"""Packs of a thread, by the lanes of a row, where weights and biases are moved for each row."""
SUMMED = {
    4: {1: 3, 2: 3, 4: 3, 8: 3, 16: 4, 32: 4, 128: 5, 256: 5},
    2: {**rows_cut.MOST, 8: 2, **dict.fromkeys((64, 96, 128, 160, 192, 256, 320, 384), 4)},
}
"""The same where a residual is added, by the bytes of an element."""
LARGE = 100 << 20  # bytes of an array: twice the L2 cache, about
LIGHT = {lanes: 2 if lanes >= 64 else most for lanes, most in rows_cut.MOST.items()}
"""The same for RMS norms of float32 on LARGE arrays, whose rows begin with packs: a warp has so little to do for a row
that more warps hardly wait for one another, and each asks for less at once."""
ALONG = {**rows_cut.MOST, 1: 1, 2: 2, 16: 3, 32: 4}
"""The same, where weights go along rows of as many groups: these are narrow, and neighbours read neighbours."""
ACROSS = {4: {**rows_cut.MOST, 32: 6}, 2: {**rows_cut.MOST, 8: 5, 16: 5, 32: 5}}
"""The same, by the bytes of an element, where packs lie across channels: what a thread does but once takes longer."""
ELSEWHERE = {lanes: most for lanes, most in rows_cut.MOST.items() if lanes.bit_count() == 1}
"""The same where rows are read elsewhere in their packs than they are written: of powers of two only."""
APART = {"f32": 772, "f16": 772, "bf16": 772, "rms": 1536}
"""Packs of a row, up to which a block does best with one where results begin elsewhere, and of RMS norms."""
BESIDE = {2: 1032, 4: 1024}  # packs of a row of 16 bits, by the bytes of a bias, up to which weights are moved for it
DEAR = 1320  # packs of a row of float32, up to which a block moves weights and biases for it
