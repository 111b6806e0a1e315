"""Narrow rows that begin anywhere, several of which a block normalises at once: which those are, and their launch.

Moved to where each row begins, weights take as long as the row, or longer; here a block keeps them in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgen.device import shared_memory
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
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


def plan_rows(
    named: Mapping[str, Operand | None],
    read: Rows,
    pitches: Sequence[int],
    taken: rows_cut.Packs,
    flags: Mapping[str, bool],
    order: Sequence[int],
    nobody: Sequence[int],
    floats: tuple[float, ...],
) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted.

    `order` and `nobody`: which of a call's pointers the kernel takes, and what follows them.
    """
    x, y = named["x"], named["y"]
    assert x is not None and y is not None
    device, vectors = y.device, [w for w in (named.get("weight"), named.get("bias")) if w]
    if (
        flags["residual"]
        or flags.get("channels")
        or not vectors
        or shared_memory(device) < SHARED
        or rows_cut.largest(device) == 1
    ):
        return None
    wide = vectors[0].dtype.itemsize > x.dtype.itemsize
    found = cut(read, taken, x.dtype.itemsize, len(vectors), wide=wide)
    if found is None:
        return None
    spec = RING.spec(LANES=found.threads, **found.values(), **flags, shifted=taken.shifted, dtype=x.dtype)
    blocks = rows_ring.taking_turns(1, read.rows // spec.derived["ROWS"], rows_ring.TURNS, device)
    if not blocks:
        return None
    step = Step(spec, blocks, len(order) + len(nobody) + 1, (read.rows, read.columns), tuple(pitches), floats)
    run = picked(rows_ring.taking(bind([step], device)[0], device), order, len(nobody))
    return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} for {found}, several of a block at once")
