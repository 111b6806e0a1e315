"""Narrow rows that begin anywhere, several of which a block normalises at once: which those are, and their launch.

Moved to where each row begins, weights take as long as the row, or longer; here a block keeps them in shared memory.
"""

from __future__ import annotations

from kgen.device import shared_memory
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm.problem import Problem
from kgen.ops.norm.ring import RING
from kgen.ops.rows import SHARED

SIZES = {False: ((32, 6), (64, 7), (128, 10)), True: ((64, 7), (128, 6))}
"""Threads that share a row, and packs of each at most, by whether results begin elsewhere than what is read: few
threads with many packs, since what a warp does for a row takes as long however many packs of it there are."""
PAYS = {
    (2, 2, True): (range(112, 1025),),
    (2, 2, False): (range(161, 193), range(769, 897)),
    (2, 1, True): (range(129, 193), range(512, 1282)),
}
"""Packs of a row for which this took the least time on an H200, by the bytes of an element, how many vectors go with a
row, and whether these are float32 beside rows of 16 bits."""
SHIFTED = range(193, 773)
"""The same of layer norms of 16 bits whose results begin elsewhere."""


def cut(read: Rows, taken: rows_cut.Packs, size: int, vectors: int, *, wide: bool) -> rows_ring.Cut | None:
    """The fewest threads that have room for a row, or None where others do better; `wide`: with wider weights."""
    packs = read.columns // taken.vec
    those = PAYS.get((size, vectors, wide), ())
    if taken.shifted:
        those = (SHIFTED,) if size == 2 and vectors == 2 else ()
    if not taken.ragged or not any(packs in some for some in those):
        return None
    for lanes, most in SIZES[taken.shifted]:
        found = -(-(packs - rows_ring.edge(lanes, taken.vec)) // lanes)
        if found <= most:
            return rows_ring.Cut(found, taken.vec, 1, 1, ragged=True, threads=lanes)
    return None


def plan_rows(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    flags, device, dtype = problem.flags, problem.device, problem.x.dtype
    if (
        flags["residual"]
        or flags.get("channels")
        or not problem.vectors
        or shared_memory(device) < SHARED
        or rows_cut.largest(device) == 1
    ):
        return None
    found = cut(problem.read, taken, dtype.itemsize, len(problem.vectors), wide=problem.wide)
    if found is None:
        return None
    spec = RING.spec(LANES=found.threads, **found.values(), **flags, shifted=taken.shifted, dtype=dtype)
    blocks = rows_ring.taking_turns(1, problem.read.rows // spec.derived["ROWS"], rows_ring.TURNS, device)
    return problem.launch(spec, blocks, f"for {found}, several of a block at once", claiming=True) if blocks else None
