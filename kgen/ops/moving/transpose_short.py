"""Which kernel takes short rows whole, where they become a few long ones, or a few long ones become short rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kgen.dtypes import U8, U16, U32, U64
from kgen.launch import Step
from kgen.operand import INT_MAX
from kgen.ops.moving.transpose_kernels import (
    LINES,
    MOST_KIB,
    MOST_NARROW,
    NARROW,
    PACK,
    PADDED_SHORT,
    RAGGED_ROOM,
    RAGGED_SHORT,
    SECTOR,
    STEP_KIB,
    THREADS,
    ragged_threads,
)
from kgen.ops.moving.transpose_words import KIBS, MOST_APART, MOST_TURNS, SHORT, group
from kgen.ops.moving.transpose_words import room as room_of

OF_SIZE = {1: U8, 2: U16, 4: U32, 8: U64}
WAVE = 2
"""Blocks of 256 threads for each multiprocessor that keep it busy."""
LINE, LANES = 128, 8
"""Bytes of a line, and the lanes that take its packs. A short row of as many is taken whole there, too."""
FEW_LINES = 4
"""Lines of each long row up to which a block has all the room with which two of 512 threads share a multiprocessor:
pieces of long rows are the faster the longer they are, up to 512 bytes."""
SMALL_ROOM = 16 << 10
"""Bytes that suit blocks which merge elements of four bytes and more, of each long row more lines than that."""
SPLIT_ROOM = 28 << 10
"""The same of blocks that split short rows of a large matrix, of more than bytes."""
MOST_SPLIT, MOST_MERGED = {1: 298, 2: 298, 4: 224, 8: 298}, 160
"""Elements of short rows that begin anywhere. Where they are split, as many as leave room for two lines of each long
row and the one before them, by the size of elements (tiles do better for longer ones of four bytes); where they are
merged, as many as leave room for long enough pieces of the long rows."""
MOST_IN_LINES = (MOST_KIB << 10) // ((FEW_LINES + 1) * LINE)
"""Up to which a block takes four lines of each and the one before: lanes that have a line each find columns in
different banks."""
MOST_IN_WORDS, MOST_BYTES = {1: 576, 2: 320, 4: 160, 8: 80}, 319
"""Elements of short rows up to which these are merged, and bytes are split, where they begin with packs: tiles do
better for longer ones. Of bytes that are merged, a block takes as many as leave room for a line of each long row."""
MOST_BYTES_MERGED = 320
"""The same of bytes that are merged, of whole packs, or of a matrix that makes few blocks."""
MOST_WHOLE, MOST_NOT_TILED = 80, 192
"""The same of bytes that are split, of whole packs; and of elements of two bytes, merged to whole sectors."""
MOST_NARROW_SPLIT = 33
"""Elements up to which these are split by small blocks."""
MOST_PADDED = {1: 278, 2: 160, 4: 128, 8: 48}
"""The same with packs beside them, where these are split, by the size of elements: wider ones suit tiles."""
SAME_BANK, SAME_BANK_IN_PACKS = 8, 4
"""Lanes that find elements of short rows in one bank of shared memory, up to which these are taken whole nevertheless;
and where tiles could take packs on both sides."""
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
    def nbytes(self) -> int:
        return self.width * self.itemsize * self.long * math.prod(self.sizes)

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
        if width > MOST_PADDED[self.itemsize] or (same > SAME_BANK and width >= TILED and self.nbytes < LARGE):
            return False
        if self.itemsize >= 4:
            return same >= 16 and width != 96  # of which tiles have just so many
        return width * self.itemsize >= PACK and (same >= 8 or (same == 4 and width > MOST_IN_LINES))

    def narrow(self) -> Step | None:
        """Of a few elements, where all rows begin with a pack and long ones are whole packs."""
        if not 1 < self.width <= MOST_NARROW:
            return None
        dtype, packs = OF_SIZE[self.itemsize], self.long * self.itemsize // PACK
        spec = NARROW.spec(WIDTH=self.width, BATCH=len(self.sizes), split=self.split, dtype=dtype)
        ints = (packs, -(-packs // THREADS), *self.sizes)
        return Step(spec, math.prod(ints[1:]), 2, ints, (*self.strides, self.row))

    def in_words(self, multiprocessors: int, begins: int, *, whole: bool) -> Step | None:
        """Where blocks' short rows, together, begin with a pack, and each long row at a multiple of `begins` bytes.

        `whole`: short rows are whole packs, which tiles take as well.
        """
        unit = PACK // self.itemsize
        anywhere = begins % (SECTOR * PACK if self.split else PACK) > 0
        cut = self.cut(multiprocessors, anywhere=anywhere, whole=whole)
        if not cut or not 2 * unit <= self.long <= INT_MAX - RAGGED_ROOM:
            return None
        kib, lines, turns, threads = cut
        spec = SHORT.spec(
            WORD=max(self.itemsize, math.gcd(4, self.width * self.itemsize)),
            KIB=kib,
            TURNS=turns,
            THREADS=threads,
            BATCH=len(self.sizes),
            anywhere=anywhere,
            split=self.split,
            dtype=OF_SIZE[self.itemsize],
        )
        before = SECTOR if self.split and anywhere else 0  # packs of each long row that are loaded before a block's own
        own = LANES * lines - before
        tiles = -(-(self.long + max(0, before * unit - 1)) // (own * unit))
        ints = (self.long, self.width, own, tiles, *self.sizes)
        return Step(spec, math.prod(ints[3:]), 2, ints, (*self.strides, self.row))

    def cut(self, multiprocessors: int, *, anywhere: bool, whole: bool) -> tuple[int, int, int, int] | None:
        """KiB of shared memory, lines of each long row in it, turns of a thread, and the threads of a block.

        None where others are as fast.
        """
        suits = self._splits_in_words if self.split else self._merges_in_words
        if not suits(anywhere, whole):
            return None
        line = LINE * (self.width | 1)  # bytes
        wide = self.itemsize == 1 and self.width > MOST_BYTES_MERGED
        if self.split:
            least = (
                (40 if 128 < self.width <= 160 else 32) if anywhere else 12 if self.width <= MOST_NARROW_SPLIT else 24
            )
        elif wide:
            least = 56
        elif anywhere:
            least = 40 if self.itemsize == 2 and room_of(32) < 2 * line <= room_of(40) else 32
        else:
            least = 16
        kib = next(kib for kib in KIBS if kib >= least and room_of(kib) >= line)
        wave = self.long * self.itemsize * math.prod(self.sizes) // LINE // (WAVE * multiprocessors)
        most = max(1, min(room_of(kib) // line, wave))
        groups = -(-self.width // group(self.itemsize))
        at_once = MOST_APART if anywhere and self.itemsize > 1 and not self.split else 1  # turns that are waited for

        def waits(lines: int, turns: int) -> int:
            return -(-LANES * lines * groups // (turns * THREADS))

        if self.split and anywhere:
            return kib, most, 1, THREADS  # the sectors that blocks load before their own are the fewest so
        lines = min(range(most, 0, -1), key=lambda n: waits(n, at_once) / n)
        if self.split:
            return kib, lines, 1, THREADS
        if anywhere:
            return kib, lines, min(waits(lines, 1), at_once), 2 * THREADS if wide else THREADS
        # As many threads as take all packs in turns that are under way together, but for one of which nearly all lanes
        # would be idle.
        full = LANES * (lines * groups - 1)
        if wide or (kib >= 40 and full > MOST_TURNS * THREADS):
            return kib, lines, -(-full // (2 * THREADS)), 2 * THREADS
        return kib, lines, min(waits(lines, 1), MOST_TURNS), THREADS

    def _splits_in_words(self, anywhere: bool, whole: bool) -> bool:
        width = self.width
        if self.itemsize == 1:
            return width <= MOST_BYTES and (width % 4 == 0 if anywhere else not whole or width < MOST_WHOLE)
        # Of an even number of elements only those that are one pack, or few.
        return (
            self.itemsize == 2 and not anywhere and (width % 2 == 1 or whole) and width <= MOST_NARROW_SPLIT - 8 * whole
        )

    def _merges_in_words(self, anywhere: bool, whole: bool) -> bool:
        width, bytewise = self.width, self.itemsize == 1
        if width > (MOST_BYTES_MERGED if bytewise and self.nbytes < LARGE else MOST_IN_WORDS[self.itemsize]):
            return False
        if anywhere:
            few = width % 4 == 0 or (width == 2 and not bytewise)
            tiled = not bytewise and width > MOST_NOT_TILED and width * self.itemsize % (SECTOR * PACK) == 0
            return self.itemsize <= 2 and (few or width >= (7 if bytewise else 9)) and not tiled
        if bytewise:
            return not whole or 32 < width <= MOST_BYTES_MERGED
        return not whole or (width >= TILED and width * self.itemsize % (SECTOR * PACK) > 0)

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
        fits = (
            1 < self.width <= (MOST_SPLIT[self.itemsize] if self.split else MOST_MERGED)
            and self.long <= INT_MAX - RAGGED_ROOM
        )
        if not self.split:
            fits = fits and self.long * self.itemsize >= PACK  # a pack sticks out of one row at most
        if not fits or (tiled and not padded):
            return None
        widest = PACK // self.itemsize
        sector, line = SECTOR * widest, LANES * widest
        large = self.nbytes >= LARGE
        beside = 0 if self.split else sector  # elements of a long row that packs hold beside a block's own

        def within(lines: int) -> int:
            # Memory takes two lines together faster than one by one, if both are written at once.
            fits = (lines + 2) * line * nbytes + PACK <= MOST_KIB << 10
            return 2 if self.split and not padded and large and lines >= 2 and fits else 1

        def before(lines: int) -> int:
            # Elements of a long row that are loaded too, before a block's own.
            return (sector if padded else within(lines) * line) if self.split else 0

        def own(lines: int) -> int:
            return line * lines - beside

        def blocks(lines: int) -> int:
            # Sectors and lines begin up to all but one element early, so that the last elements may need a block more.
            return -(-(self.long + max(0, before(lines) - 1)) // own(lines))

        def room(lines: int) -> int:
            packs = (8 * lines + 3) * (self.width | 1)  # with those beside, and what sticks out on both sides
            return packs * PACK if padded else (own(lines) + before(lines)) * nbytes + PACK

        def most(lines: int) -> int:
            if padded or (lines > FEW_LINES and (self.split or self.itemsize < 4)):
                tight = self.split and large and not padded and self.itemsize > 1
                return SPLIT_ROOM if tight else RAGGED_ROOM
            return SMALL_ROOM if lines > FEW_LINES else MOST_KIB << 10

        def suits(lines: int) -> bool:
            threads = THREADS if padded else ragged_threads(room(lines), split=self.split)
            busy = blocks(lines) * math.prod(self.sizes) * threads >= WAVE * multiprocessors * THREADS
            return room(lines) <= most(lines) and busy

        def cost(lines: int) -> int:
            return blocks(lines) * (8 * lines + AROUND) * self.width

        lines = min((n for n in LINES if n == 1 or suits(n)), key=lambda n: (cost(n), -n))
        axes: dict[str, Any] = {
            "LINES": lines,
            "BATCH": len(self.sizes),
            "split": self.split,
            "dtype": OF_SIZE[self.itemsize],
        }
        if padded:
            spec = PADDED_SHORT.spec(**axes)
        else:
            kib = -(-room(lines) // (STEP_KIB << 10)) * STEP_KIB
            spec = RAGGED_SHORT.spec(KIB=kib, WITHIN=within(lines), **axes)
        ints = (self.long, self.width, blocks(lines), *self.sizes)
        return cost(lines), Step(spec, math.prod(ints[2:]), 2, ints, (*self.strides, self.row))
