"""How rows are cut whose gradients of a norm and its weights are found in rings; the tables are measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import shared_memory
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.backward_ring_kernel import CLUSTER, LANES, LINE, PACKS, PLAIN, SECTOR, SUMS, THREADS, boundary
from kgen.ops.rows import SHARED

WIDE = 32768  # columns, up to which threads do best with few packs each; beyond, with many, and smaller clusters
TURNS = 8  # rows of the same threads, from which on it pays
LEAST = {4: 960, 8: 320}  # columns from which on it pays, as measured, by the elements of a pack
EVEN = 4096  # likewise, without a bias, where packs are a power of two, which leave no thread idle elsewhere
SHARED_RAGGED = {4: 7169, 8: 6145}  # likewise, where a block shares a ragged row
OTHERS = ((64, 4), (256, 2))  # lanes and packs of ragged rows of 16 bits, where others do better
AMID = ((2, 8),)  # packs of whole blocks' threads, and their numbers, that do no worse where they begin amid a line
FEW, MANY = (2, 3, 4), (4, 3, 2)
"""Packs of a thread, those that do better first, of rows that leave room for those that follow."""


class Cut(NamedTuple):
    """A point on the axes, and how many blocks or clusters take rows."""

    lanes: int
    packs: int
    vec: int
    cluster: int
    teams: int
    lined: bool = False

    @property
    def blocks(self) -> int:
        """Of the launch."""
        return self.cluster * self.teams

    def sorted(self, *, ragged: bool) -> bool:
        """Whether rows are taken in the order of where they begin in a sector.

        There are too few large clusters to give each rows that all begin alike.
        """
        return ragged and self.cluster > PLAIN

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        axes = {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec, "CLUSTER": self.cluster}
        return {**axes, "lined": self.lined}

    def __str__(self) -> str:
        blocks = f"{self.cluster} blocks of " if self.cluster > 1 else ""
        return f"{blocks}{self.lanes} threads, which take rows in turn"


def cut(height: int, columns: int, taken: rows_cut.Packs, device: int, *, bias: bool, turns: int = TURNS) -> Cut | None:
    """The cut for so many rows, so wide, or None where another does better, or the device has no room for one."""
    clusters = [cluster for cluster in CLUSTER.values if cluster <= rows_cut.largest(device)]
    if (
        not taken.full
        or taken.shifted
        or columns < LEAST[taken.vec]
        or shared_memory(device) < SHARED
        or len(clusters) == 1
    ):
        return None
    sizes = [(lanes, 1) for lanes in LANES.values[:-1]] + [(THREADS, cluster) for cluster in clusters]
    total = columns // taken.vec
    if columns < EVEN and not (taken.ragged or bias or total & (total - 1)):
        return None
    alone = taken.ragged and bias and taken.vec == 8
    loose = taken.vec if taken.ragged else 0
    found = _least_idle(total, sizes, FEW if columns <= WIDE else MANY, loose, alone=alone)
    if found is None and PACKS.values[-1] * taken.vec <= SUMS:  # then there is shared memory for one row
        found = _least_idle(total, sizes, PACKS.values[-1:], loose)
    if found is None or not _pays(columns, taken, *found):
        return None
    lanes, packs, cluster = found
    teams = rows_ring.taking_turns(cluster, height // (THREADS // lanes), turns, device)
    lined = False
    if taken.ragged and cluster <= PLAIN:  # rows of the same threads all begin at the same place
        step = max(1, boundary(lanes) * taken.vec * lanes // THREADS)
        line = LINE * taken.vec
        whole = lanes == THREADS and (packs, taken.vec) not in AMID
        lined = whole and teams // line * line == teams // step * step > 0  # none is left idle for it
        teams = teams // step * step
    return Cut(lanes, packs, taken.vec, cluster, teams, lined) if teams else None


def by_sectors(taken: rows_cut.Packs, columns: int, pitch: int) -> rows_cut.Packs:
    """Rows that begin at multiples of a pack, so many elements apart, as if they began anywhere, where they are wide:
    packs begin with a sector then, of which otherwise two warps read and write parts."""
    amid = pitch % (SECTOR * taken.vec) > 0
    wide = taken.full and not taken.shifted and columns >= SHARED_RAGGED[taken.vec]
    return taken._replace(ragged=True) if amid and wide else taken


def _pays(columns: int, taken: rows_cut.Packs, lanes: int, packs: int, cluster: int) -> bool:
    """Whether others do no better, as measured, with rows that are shared so."""
    if taken.vec == 4 and packs == 3 and cluster == 1:
        return False
    if not taken.ragged:
        return True
    if lanes == THREADS:
        return columns >= SHARED_RAGGED[taken.vec]
    return (lanes, packs) not in OTHERS if taken.vec == 8 else boundary(lanes) == SECTOR


def _least_idle(
    total: int, sizes: Sequence[tuple[int, int]], each: Sequence[int], loose: int = 0, *, alone: bool = False
) -> tuple[int, int, int] | None:
    """Lanes, packs of a thread, and blocks of a cluster, that have room for so many packs, and the least to spare.

    `each`: how many packs of a thread to try. Of those that do as well the first is taken; of rows that begin anywhere,
    with so many elements of a pack to be taken one by one where there is no room for it, the first whose rows' packs
    begin with a sector, and need not be sorted; `alone`: one block before two. None where no size has room.
    """

    def room(lanes: int, packs: int, cluster: int) -> int:
        threads = lanes * cluster  # each takes one of the elements before and behind the packs
        return packs * threads + (threads // loose - 1 if loose and lanes == THREADS else 0)

    smallest = [next(((n, c) for n, c in sizes if room(n, packs, c) >= total), None) for packs in each]
    cuts = [(n, next(p for p in PACKS.values if room(n, p, c) >= total), c) for n, c in filter(None, smallest)]

    def order(cut: tuple[int, int, int]) -> tuple[int, bool, bool]:
        lanes, _, cluster = cut
        return math.prod(cut), loose > 0 and (boundary(lanes) < SECTOR or cluster > PLAIN), alone and cluster > 1

    return min(cuts, key=order, default=None)
