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
SAME_BANK, SAME_BANK_IN_PACKS = 8, 4
"""Lanes that find elements of short rows in one bank of shared memory, up to which these are taken whole nevertheless;
and where tiles could take packs on both sides."""
LINE = 128
"""Bytes of a short row from which on it is taken whole there, too."""
FEW_PACKS = 2
"""Packs of a short row, up to which tiles do well if it is whole packs."""
AROUND = 4
"""What a block costs besides the packs of its long rows, in packs of each."""


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
        # It splits short rows of an odd number of elements no faster than what takes them wherever they begin.
        if self.width * self.itemsize % PACK and not (self.split and self.width % 2):
            spec = SHORT.spec(BATCH=batch, split=self.split, dtype=dtype)
            own = ROOM // PACK // self.width // 8 * 8  # packs of each long row: whole lines
            tiles = -(-packs // own)
            ints = (packs, self.width, own, tiles, *self.sizes)
            return Step(spec, math.prod(ints[3:]), 2, ints, (*self.strides, self.row))
        return None

    def anywhere(self, multiprocessors: int, *, whole: bool) -> tuple[int, Step] | None:
        """Wherever rows begin: what it costs, and how many lines of each long row a block takes at best.

        `whole`: all rows are whole packs, which tiles take as well.
        """
        nbytes = self.width * self.itemsize
        tiled = nbytes < LINE if whole else nbytes % PACK == 0 and nbytes <= FEW_PACKS * PACK
        fits = 1 < self.width <= (MOST_SPLIT if self.split else MOST_MERGED) and self.long <= INT_MAX - ROOM
        if tiled or not fits or math.gcd(self.width, 32) > (SAME_BANK_IN_PACKS if whole else SAME_BANK):
            return None
        widest = PACK // self.itemsize
        beside = SECTOR * widest  # elements of a long row that are loaded too, or that packs hold beside a block's own
        before = beside * self.split

        def own(lines: int) -> int:
            return 8 * lines * widest - beside + before

        def blocks(lines: int) -> int:
            # Sectors begin up to all but one element early, so that the last elements may need a block more.
            return -(-(self.long + max(0, before - 1)) // own(lines))

        def suits(lines: int) -> bool:
            room = (own(lines) + before) * nbytes + PACK <= RAGGED_ROOM
            return room and blocks(lines) * math.prod(self.sizes) >= WAVE * multiprocessors

        def cost(lines: int) -> int:
            return blocks(lines) * (8 * lines + AROUND) * self.width

        lines = min((n for n in LINES if n == 1 or suits(n)), key=lambda n: (cost(n), -n))
        spec = RAGGED_SHORT.spec(LINES=lines, BATCH=len(self.sizes), split=self.split, dtype=OF_SIZE[self.itemsize])
        ints = (self.long, self.width, blocks(lines), *self.sizes)
        return cost(lines), Step(spec, math.prod(ints[2:]), 2, ints, (*self.strides, self.row))
