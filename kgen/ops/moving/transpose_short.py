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
    PADDED_SHORT,
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
MOST_IN_LINES = 85
"""Up to which a block takes four lines of each: lanes that have a line each find columns in different banks."""
SPLIT_ANYWHERE, MERGED_ANYWHERE = {1: 64, 2: MOST_SHORT, 4: MOST_SHORT}, {2: 42, 4: MOST_IN_LINES}
"""Elements of short rows of an even size, up to which these are split, or merged, faster wherever they begin than in
packs as they lie, by the size of elements."""
MOST_PADDED = {1: 278, 2: 160, 4: 128, 8: 48}
"""The same with packs beside them, where these are split, by the size of elements: wider ones suit tiles."""
SAME_BANK, SAME_BANK_IN_PACKS = 8, 4
"""Lanes that find elements of short rows in one bank of shared memory, up to which these are taken whole nevertheless;
and where tiles could take packs on both sides."""
LINE = 128
"""Bytes of a short row from which on it is taken whole there, too."""
PADDED_IN_PACKS = 64
"""Bytes of a short row up to which packs beside rows help where tiles could take packs on both sides."""
FEW_PACKS = 2
"""Packs of a short row, up to which tiles do well if it is whole packs."""
TILED = 64
"""Rows and columns from which on a matrix is worth tiles of rows that begin anywhere."""
LARGE = 32 << 20
"""Bytes from which on packs of half the width do worse than such tiles: of less, the L2 cache may hold both sides."""
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

    @property
    def crowded(self) -> bool:
        """Whether lanes find elements of short rows in so few banks that packs beside those are worth their room.

        Where tiles take rows that begin anywhere, and the L2 cache may hold both sides, these do as well.
        """
        width, same = self.width, math.gcd(self.width, 32)
        if not self.split:
            if self.itemsize == 1:
                return width >= 16 and (same >= 8 or width > 32)
            if self.itemsize == 2:
                return width >= 8 and (same >= 8 or width > 102)
            return self.itemsize == 4 and same >= 8 and 16 < width < 96
        nbytes = width * self.itemsize * self.long * math.prod(self.sizes)
        if width > MOST_PADDED[self.itemsize] or (same > SAME_BANK and width >= TILED and nbytes < LARGE):
            return False
        if self.itemsize >= 4:
            return same >= 16 and width != 96  # of which tiles have just so many
        return width * self.itemsize >= PACK and (same >= 8 or (same == 4 and width > MOST_IN_LINES))

    def in_packs(self) -> Step | None:
        """Where short rows, together, and each long row begin with a pack and are whole packs."""
        if not 1 < self.width <= MOST_SHORT:
            return None
        dtype, batch, packs = OF_SIZE[self.itemsize], len(self.sizes), self.long * self.itemsize // PACK
        if self.width <= MOST_NARROW:
            spec = NARROW.spec(WIDTH=self.width, BATCH=batch, split=self.split, dtype=dtype)
            ints = (packs, -(-packs // THREADS), *self.sizes)
            return Step(spec, math.prod(ints[1:]), 2, ints, (*self.strides, self.row))
        # What takes short rows wherever they begin splits those of an odd number of elements as fast, bytes by fours
        # faster, both ways, and those of an even number as far as these were timed.
        by_fours = self.itemsize == 1 and self.width % 4 == 0
        if self.width % 2:
            better = self.split
        elif by_fours:
            better = self.split or self.width <= MOST_IN_LINES
        else:
            better = self.width <= (SPLIT_ANYWHERE if self.split else MERGED_ANYWHERE).get(self.itemsize, 0)
        if self.width * self.itemsize % PACK and not better:
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
        nbytes, same = self.width * self.itemsize, math.gcd(self.width, 32)
        if whole:
            padded = self.split and self.itemsize <= 2 and nbytes <= PADDED_IN_PACKS
            tiled = nbytes < LINE or same > SAME_BANK_IN_PACKS
        else:
            padded = self.crowded
            tiled = same > SAME_BANK or (nbytes % PACK == 0 and nbytes <= FEW_PACKS * PACK)
        fits = 1 < self.width <= (MOST_SPLIT if self.split else MOST_MERGED) and self.long <= INT_MAX - ROOM
        if not self.split:
            fits = fits and self.long * self.itemsize >= PACK  # a pack sticks out of one row at most
        if not fits or (tiled and not padded):
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
            packs = (8 * lines + 3) * (self.width | 1)  # with those beside, and what sticks out on both sides
            room = (packs * PACK if padded else (own(lines) + before) * nbytes + PACK) <= RAGGED_ROOM
            return room and blocks(lines) * math.prod(self.sizes) >= WAVE * multiprocessors

        def cost(lines: int) -> int:
            return blocks(lines) * (8 * lines + AROUND) * self.width

        lines = min((n for n in LINES if n == 1 or suits(n)), key=lambda n: (cost(n), -n))
        kernel = PADDED_SHORT if padded else RAGGED_SHORT
        spec = kernel.spec(LINES=lines, BATCH=len(self.sizes), split=self.split, dtype=OF_SIZE[self.itemsize])
        ints = (self.long, self.width, blocks(lines), *self.sizes)
        return cost(lines), Step(spec, math.prod(ints[2:]), 2, ints, (*self.strides, self.row))
