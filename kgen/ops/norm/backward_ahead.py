"""How rows are cut that blocks take in turn, adding up the gradients of the weights, and how many are on their way.

What a thread does for a row besides its packs costs the same however many they are, and with more packs, a row leaves
more threads idle: two do best. Some 64 KB on their way to a multiprocessor keep memory busy; what is more only
lengthens the beginning and the end of a launch.
"""

from __future__ import annotations

from typing import NamedTuple

from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.ops import rows_cut
from kgen.ops.norm.backward_kernels import FETCHING, STAGES, TOGETHER
from kgen.ops.rows import LANES, RESERVED, VECTOR

ON_THE_WAY = 64 * 1024
"""Bytes, to a multiprocessor."""
LEAST = {4: 900, 8: 480}  # columns, from which on it pays, by the elements of a pack
PACKS = (2, 3)
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
    """The cut for so many rows, so wide, or None where others do better: a quarter of the lanes would be idle."""
    if not taken.full or taken.shifted or device_arch(device) < rows_cut.COPIES or columns < LEAST[taken.vec]:
        return None
    total = columns // taken.vec
    fitting = [(lanes, packs) for packs in PACKS for lanes in LANES.values if 3 * lanes * packs < 4 * total <= 4 * lanes * packs]
    if not fitting:
        return None
    lanes, packs = fitting[0]
    threads = next(threads for threads, most in TOGETHER.items() if packs * taken.vec <= most)
    threads = min(threads, FETCHING)
    if lanes > threads or rows < TURNS * threads // lanes * multiprocessors(device):
        return None
    stages = round(ON_THE_WAY / (2 * VECTOR * packs * threads))
    return Cut(lanes, packs, taken.vec, 1, stages)
