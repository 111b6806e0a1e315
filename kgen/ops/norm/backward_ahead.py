"""How rows are cut that blocks take in turn while several are on their way, adding up the gradients of the weights.

What a thread does for a row besides its packs costs the same however many they are, and with many packs a row leaves
more threads idle: two do best, or three. Some 64 KB on their way to a multiprocessor keep memory busy; more would only
lengthen the beginning and the end of a launch. Threads of which a multiprocessor has room for more than fit rows
would fetch too little.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.device import device_arch, multiprocessors
from kgen.ops import rows_cut
from kgen.ops.norm.backward_kernels import FETCHING, TOGETHER

STAGES = 2  # rows of a thread on their way: with 512 threads and two packs, 64 KB to a multiprocessor
PACKS = {4: (2,), 8: (2, 3)}  # of a thread, by the elements of a pack
LANES = (16, 32, 64, 128, 256, 512)  # of a row: others, that are no power of two, do worse, however few are idle
LEAST = {4: 129, 8: 240}  # columns, from which on it pays, as measured
IDLE = {4: 6, 8: 4}  # what part of up to 64 lanes may be idle, at most, likewise; of more, a quarter
TURNS = 8  # rows of the same threads, from which on it pays


class Cut(NamedTuple):
    """A point on the axes."""

    lanes: int
    packs: int
    vec: int
    cluster: int
    stages: int

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        axes = {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec, "CLUSTER": self.cluster}
        return {**axes, "STAGES": self.stages, "looped": True}

    def __str__(self) -> str:
        return f"{self.lanes} threads, which take rows in turn"


def cut(rows: int, columns: int, taken: rows_cut.Packs, device: int, *, bias: bool) -> Cut | None:
    """The cut for so many rows, so wide, that leaves the fewest lanes idle, or None where others do better."""
    vec, total = taken.vec, columns // taken.vec
    if not taken.full or taken.shifted or columns < LEAST[vec] or device_arch(device) < rows_cut.COPIES:
        return None
    fitting = [(lanes, packs) for packs in PACKS[vec] for lanes in LANES if lanes * packs >= total]
    lanes, packs = min(fitting, key=math.prod, default=(0, 0))
    if (IDLE[vec] if lanes <= 64 else 4) * (lanes * packs - total) > lanes * packs or not fitting:
        return None
    if vec == 4 and taken.ragged and lanes == 256 and not bias:  # threads that take one row at a time do better
        return None
    threads = min(FETCHING, next(threads for threads, most in TOGETHER.items() if packs * vec <= most))
    turns = TURNS * threads // lanes * multiprocessors(device)
    return Cut(lanes, packs, vec, 1, STAGES) if threads % lanes == 0 and rows >= turns else None
