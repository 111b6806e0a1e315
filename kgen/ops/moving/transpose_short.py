"""Which kernel takes short rows whole, where they become a few long ones, or a few long ones become short rows."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.dtypes import U8, U16, U32, U64
from kgen.launch import Step
from kgen.operand import INT_MAX
from kgen.ops.moving.transpose_kernels import (
    LINES,
    MOST_NARROW,
    MOST_SHORT,
    NARROW,
    PACK,
    RAGGED_ROOM,
    RAGGED_SHORT,
    ROOM,
    SECTOR,
    SHORT,
    THREADS,
)

OF_SIZE = {1: U8, 2: U16, 4: U32, 8: U64}
WAVE = 2
"""Blocks for each multiprocessor that keep it busy."""
MOST_SPLIT, MOST_MERGED = 306, 160
"""Elements of short rows that begin anywhere: as many as a block has room for, with the rows before its own, where they
are split; and as many as leave room for long enough pieces of the long rows where these are merged."""
TILED = 64
"""Rows and columns from which on ragged tiles take a matrix as well."""
SAME_BANK, SAME_BANK_NARROW = 4, 16
"""Lanes that find elements of short rows in one bank of shared memory, up to which these are taken whole nevertheless:
where tiles could take packs of them, and where only single elements would be moved otherwise."""


class ShortRows(NamedTuple):
    """Short rows one behind the other, which become long ones (split), or come of them, and the further axes."""

    width: int
    long: int
    row: int  # elements from a long row to the next
    split: bool
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def in_packs(self) -> Step | None:
        """Where short rows, together, and each long row begin with a pack and are whole packs."""
        if not 1 < self.width <= MOST_SHORT:
            return None
        dtype, batch, packs = OF_SIZE[self.itemsize], len(self.sizes), self.long * self.itemsize // PACK
        if self.width <= MOST_NARROW:
            spec = NARROW.spec(WIDTH=self.width, BATCH=batch, split=self.split, dtype=dtype)
            ints = (packs, -(-packs // THREADS), *self.sizes)
            return Step(spec, math.prod(ints[1:]), 2, ints, (*self.strides, self.row))
        # Of an even number of elements, or one by one into shared memory, it does better than what is below.
        if self.width * self.itemsize % PACK and (self.width % 2 == 0 or (self.itemsize == 1 and not self.split)):
            spec = SHORT.spec(BATCH=batch, split=self.split, dtype=dtype)
            own = ROOM // PACK // self.width // 8 * 8  # packs of each long row: whole lines
            tiles = -(-packs // own)
            ints = (packs, self.width, own, tiles, *self.sizes)
            return Step(spec, math.prod(ints[3:]), 2, ints, (*self.strides, self.row))
        return None

    def anywhere(self, multiprocessors: int, *, whole: bool) -> Step | None:
        """As many lines of the long rows as a block has room for; fewer where there would be fewer blocks than a wave.

        `whole`: all rows are whole packs, which tiles take as well.
        """
        tiled = whole or min(self.width, self.long) >= TILED
        banks = SAME_BANK if tiled else SAME_BANK_NARROW
        short = 1 < self.width <= (MOST_SPLIT if self.split else MOST_MERGED)
        if not short or math.gcd(self.width, 32) > banks or self.long > INT_MAX - LINES[-1] * PACK * 8:
            return None
        widest = PACK // self.itemsize
        beside = SECTOR * widest  # elements of a long row that are loaded too, or that packs hold beside a block's own
        before = beside * self.split

        def own(lines: int) -> int:
            return 8 * lines * widest - beside + before

        def tiles(lines: int) -> int:
            # Sectors begin up to all but one element early, so that the last elements may need a tile more.
            return -(-(self.long + max(0, before - 1)) // own(lines))

        def suits(lines: int) -> bool:
            fits = (own(lines) + before) * self.width * self.itemsize + PACK <= RAGGED_ROOM
            return (
                fits and own(lines // 2) < self.long and tiles(lines) * math.prod(self.sizes) >= WAVE * multiprocessors
            )

        lines = max((n for n in LINES if n > 1 and suits(n)), default=1)
        spec = RAGGED_SHORT.spec(LINES=lines, BATCH=len(self.sizes), split=self.split, dtype=OF_SIZE[self.itemsize])
        ints = (self.long, self.width, tiles(lines), *self.sizes)
        return Step(spec, math.prod(ints[2:]), 2, ints, (*self.strides, self.row))
