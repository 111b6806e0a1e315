"""How many threads and parts a row's reduction takes, so that the last wave of blocks leaves the device idle little."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgen.ops.reduce.workspace import COUNTERS

GROUPS = (1, 2, 4, 8, 16, 32, 128, 256)
"""Threads of a row."""
ITEMS, MOST_ITEMS = 4, 6
"""Loads of a thread that are in flight together."""
FITTED = (8, 192)
"""Loads of a row, from above the first up to the second, which threads that take them all at once do best."""
FILLED = 0.95
"""The share of a tile from which on threads of 16 bits have enough to load."""
TURNS = 8
"""Turns of those, up to which it matters how many are left for the last one."""
WAVES = 8
"""Blocks in so many waves or more are balanced well enough."""
PART_COST = 0.02
"""What one more part costs, as a share of the time that a wave takes for whole groups."""
PHASES = 0.2
"""What a row costs besides its tiles where the place of an extreme is looked for, in tiles."""
BLOCK_COST = 0.8
"""What it costs a block of columns to begin and to end, in its tiles."""
SIDE_BY_SIDE = (16, 24, 32, 48, 64)
"""Lanes of blocks that have whole columns."""
WHOLE_COST = 1.2
"""The same for a block that has whole columns, and may be wider."""
FULL = 15 / 16
"""The share of lanes with columns above which blocks that share these do not do better with fewer lanes."""
RAGGED_BLOCKS = 3
"""Blocks of a multiprocessor that share columns of rows that begin anywhere."""
EMPTY = 0.25
"""The share of a wave that a single block takes as long as."""
UNFILLED = 0.6
"""The share of a multiprocessor's threads that is enough to keep the memory busy."""


def threads_of_row(rows: int, loads: int, wave: int) -> int:
    """Threads of a row in which the place of an extreme is looked for: as fill the last `wave` of threads best.

    All rows take as long, and what is left of a wave is lost. With more threads for each, waves are shorter; but then
    there are more of them, and each one's end costs time.
    """

    def cost(group: int) -> float:
        tiles = -(-loads // (group * ITEMS))
        waves = rows * group / wave
        return (max(waves, UNFILLED) if waves <= 1 else math.ceil(waves)) * tiles + PHASES * math.ceil(waves)

    return min((group for group in GROUPS if 32 <= group <= loads), key=cost)


def tile_of_row(loads: int, itemsize: int) -> tuple[int, int]:
    """Threads of a row in which the place of an extreme is looked for, and loads of each, all of them at once.

    Then those who have the extreme need not load again. Of 16 bits, which leave less time for what a thread does
    besides, half as many in two turns do better than threads of which some have little to load.
    """
    group = next(group for group in GROUPS if group >= 4 and MOST_ITEMS * group >= loads)
    if itemsize == 2 and group > 4 and loads < FILLED * ITEMS * group:
        return group // 2, ITEMS
    return group, max(ITEMS, -(-loads // group))


def in_flight(share: int) -> int:
    """Loads of a thread that are in flight together, where it has so many in all: those that leave the fewest idle.

    Of many turns the last one counts little.
    """
    return ITEMS if share > TURNS * ITEMS else min(range(ITEMS, MOST_ITEMS + 1), key=lambda items: -share % items)


def parts(groups: int, tiles: int, wave: int, *, least: int = 1) -> int:
    """In how many parts to cut each group's work, of so many tiles: those that leave the device idle the least.

    Where groups are many, a part has `least` tiles at least.
    """
    if groups >= WAVES * wave or groups > COUNTERS or tiles < 2:
        return 1
    if 2 * groups <= wave:
        return min(tiles, wave // groups)

    def cost(number: int) -> float:
        return -(-tiles // number) * -(-groups * number // wave) + PART_COST * number * tiles

    return min(range(1, max(1, min(tiles // least, 2 * WAVES)) + 1), key=cost)


def parts_of_columns(groups: int, tiles: int, wave: int) -> int:
    """The same for columns, of which a wave that is not full reads as fast, unless it is nearly empty."""
    if groups <= wave:
        return min(tiles, wave // groups)

    def cost(number: int) -> float:
        full, left = divmod(groups * number, wave)
        last = max(left / wave, EMPTY) if left else 0
        return -(-tiles // number) * (full + last) + BLOCK_COST * groups * number / wave

    return min(range(1, min(tiles, 2 * WAVES) + 1), key=cost) if groups <= COUNTERS else 1


def parts_of_ragged(groups: int, tiles: int, wave: int, sms: int) -> int:
    """The same for rows that begin anywhere, of no more groups than a wave of blocks that do not meet.

    About three blocks for each of the `sms` multiprocessors keep the memory busy; four have more to put together.
    """
    return max(1, min(tiles, wave // groups, round(RAGGED_BLOCKS * sms / groups)))


def lanes_of_columns(blocks: Mapping[int, int], tiles: float, wave: int) -> int:
    """Lanes of blocks that have whole columns: as fill the last wave best, of as many blocks as there are with so many.

    `tiles`: what one lane's columns are cut into for each block.
    """

    def cost(lanes: int) -> float:
        full, left = divmod(blocks[lanes], wave)
        return tiles * lanes * (full + time_of_part(left / wave)) + WHOLE_COST * blocks[lanes] / wave

    return min(blocks, key=cost)


def filled_lanes(packs: int) -> int:
    """Lanes of blocks that share columns: fewer, where many of 32 would have none. Eight read whole lines only."""
    if packs > FULL * -(-packs // 32) * 32:
        return 32
    return min((16, 8) if packs % 8 == 0 else (16,), key=lambda lanes: -packs % lanes)


def time_of_part(part: float) -> float:
    """What it takes to read a part of a wave of blocks, when it is alone, as a share of what it takes to read a wave.

    The fewer blocks there are, the less of the memory's bandwidth they use: a few take a third of a wave's time.
    """
    return 1 / (3 - 3 * part + part * part) if part else 0.0
