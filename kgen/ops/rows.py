"""How a kernel cuts rows among threads: the axes and flags that the kernels on rows share, and what follows from them.

A row lies in the registers of neighbouring lanes, of a block, or of a cluster of blocks. Which of these suits a problem
is in `rows_cut`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import DType
from kgen.spec import Axis, Flag, Kernel, Spec

BLOCK = 128  # threads, where several rows share a block
WIDEST = 512  # threads of a block, beyond which a cluster takes a row: two such blocks share a multiprocessor
VECTOR = 16  # bytes of the widest load
LINE = 128  # bytes of a line of shared memory: what is copied to amid a sector of one takes longer
SHARED = 227 * 1024  # bytes that the blocks of a multiprocessor share, as on Hopper
TURNS = 4  # rows of a block that takes them in turn
REACH = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.91, 16: 0.85}
"""The share of an H200's multiprocessors that clusters of so many blocks can occupy at once: as its driver says."""
LOOPED_PACKS = 8  # of a thread that takes row after row
RESERVED = 1024  # bytes of shared memory that each block costs besides its own

FITTED = (64, 96, 160, 192, 320, 384)  # threads of blocks that few rows leave idle
FITTED_PACKS = 9  # of their threads
LANES = Axis(
    "LANES",
    "t",
    (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 1024),
    "threads of a block that share a row",
)
PACKS = Axis("PACKS", "n", (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 40), "packs per thread")
VEC = Axis("VEC", "v", (1, 2, 4, 8), "adjacent elements in a pack, which is loaded and stored at once")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a row, as a cluster", default=1)
AXES = (LANES, PACKS, VEC, CLUSTER)
LOOPED = Flag("looped", "a block takes rows in turn, and fetches the next one while it works on one")
FLAGS = (
    Flag("ragged", "rows of the result may start or end anywhere, not only at multiples of a pack"),
    Flag("shifted", "rows are offset differently within packs where they are read and where they are written"),
    LOOPED,
)


class Cut(NamedTuple):
    """A point on AXES, and whether blocks take rows in turn."""

    lanes: int
    packs: int
    vec: int
    cluster: int
    looped: bool = False

    @classmethod
    def of(cls, spec: Spec) -> Cut:
        """The cut of a specialization."""
        return cls(spec["LANES"], spec["PACKS"], spec["VEC"], spec["CLUSTER"], bool(spec["looped"]))

    def __str__(self) -> str:
        blocks = f"{self.cluster} blocks of " if self.cluster > 1 else ""
        return f"{blocks}{self.lanes} threads{', which take rows in turn' if self.looped else ''}"

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return max(1, BLOCK // self.lanes) if self.lanes <= 32 else 1

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {
            "LANES": self.lanes,
            "PACKS": self.packs,
            "VEC": self.vec,
            "CLUSTER": self.cluster,
            "looped": self.looped,
        }


class RowKernel(Kernel):
    """A kernel on AXES, and others behind them.

    Of its many flags few go together, and few cuts are legal: these are sorted out first, with other axes at defaults.
    """

    def specs(self, admits: Callable[[str, object], bool] = lambda name, value: True) -> Iterator[Spec]:
        """Every legal specialization that `admits` allows."""
        words = [flag.name for flag in self.flags]
        subsets = [frozenset(c) for n in range(len(words) + 1) for c in itertools.combinations(words, n)]
        subsets = [subset for subset in subsets if all(admits(word, word in subset) for word in words)]
        values = [[value for value in axis.values if admits(axis.name, value)] for axis in self.axes]
        others = list(itertools.product(*values[len(AXES) :]))
        usual = tuple(axis.values[0] if axis.default is None else axis.default for axis in self.axes[len(AXES) :])
        for dtype in (dtype for dtype in self.dtypes if admits("dtype", dtype)):

            def legal(cut: tuple[int, ...], flags: frozenset[str], dtype: DType = dtype) -> bool:
                return self.check(Spec(self, (*cut, *usual), flags, dtype)) is None

            cuts = [cut for cut in itertools.product(*values[: len(AXES)]) if legal(cut, frozenset())]
            for flags in (flags for flags in subsets if legal((WIDEST, 1, VECTOR // dtype.itemsize, 1), flags)):
                specs = (Spec(self, (*cut, *more), flags, dtype) for cut in cuts for more in others)
                yield from (spec for spec in specs if self.check(spec) is None)


def in_two(spec: Spec) -> bool:
    """Whether each pack of a result, which begins elsewhere than what is read, is put together out of two of memory.

    Where rows have more threads, these have fewer registers to spare.
    """
    return bool(spec["shifted"]) and spec["LANES"] <= 32


def single(spec: Spec) -> bool:
    """Whether a block has one row, and no other behind it: there are many blocks, which begin as others end."""
    return spec["CLUSTER"] == 1 and spec["LANES"] == spec.threads and not spec["looped"]


def shared_for(resident: int, room: int = SHARED) -> int:
    """Bytes of shared memory of each block, where so many share a multiprocessor which has `room` for one."""
    return (room + RESERVED) // resident - RESERVED


def check(spec: Spec, held: int, looped_lanes: int = BLOCK) -> str | None:
    """Why a combination of AXES is illegal, or None.

    `held`: numbers of each operand that a thread can hold; `looped_lanes`: of rows that are taken in turn, at least.
    """
    lanes, packs, vec, cluster = spec.values[: len(AXES)]
    if vec * spec.dtype.itemsize > VECTOR:
        return f"no load is wider than {VECTOR} bytes"
    if packs * vec > held and not (spec["looped"] and packs <= LOOPED_PACKS):
        return f"a thread has no registers for more than {held} numbers of a row"
    if cluster > 1 and lanes < BLOCK:
        return "a warp's rows are small enough"
    if lanes in FITTED and (cluster > 1 or packs > FITTED_PACKS):
        return "such blocks are for rows that fit them, one at a time"
    if (spec["ragged"] or spec["shifted"]) and spec["VEC"] == 1:
        return "an element is at a multiple of itself"
    if spec["looped"] and (lanes < looped_lanes or vec * spec.dtype.itemsize < VECTOR or spec["shifted"]):
        return f"what is fetched for later is of {VECTOR} bytes, aligned, for {looped_lanes} lanes or more"
    return None


def threads(spec: Spec) -> int:
    """Of a block."""
    return BLOCK if spec["LANES"] <= 32 else spec["LANES"]


def derive(spec: Spec, fetched: int = 1, kept: int = 0, *, pairs: bool = False) -> dict[str, int]:
    """The constants that a kernel on rows needs.

    `fetched`: how many arrays a looped one reads; `kept`: bytes of weights for a pack that it would keep; `pairs`:
    whether its reductions are of two numbers at once.
    """
    lanes, numbers = threads(spec), spec["PACKS"] * spec["VEC"] * fetched
    memory = lanes * spec["PACKS"] * (VECTOR * fetched + kept) if spec["looped"] else 0
    resident = 2 if spec["LANES"] == WIDEST and spec["PACKS"] * spec["VEC"] <= 32 else 0
    if spec["looped"]:
        resident = max(1, min((1024 if numbers <= 32 else 512) // lanes, SHARED // (memory + RESERVED)))
    return {
        "THREADS": threads(spec),
        "STATIC_SMEM": 2 * slots(spec, 8 if pairs else 4),
        "DYNAMIC_SMEM": memory,
        "RESIDENT": resident,
        "CLUSTER": spec["CLUSTER"],
    }


def margin(spec: Spec, *, weights: bool) -> bool:
    """Whether what is read elsewhere than at packs, which lies in two, needs one of them left free at both ends.

    `weights`: whether vectors that begin anywhere go with the packs.
    """
    return bool(spec["shifted"] or (spec["ragged"] and weights))


def edges(spec: Spec, *, weights: bool, sectors: bool = False) -> int:
    """How many elements before and after the packs of a row a thread has, at most.

    `sectors`: packs begin with a sector, of which there are two in one.
    """
    amid = spec["ragged"] * 2 * (spec["VEC"] - 1)  # of packs in which rows begin and end
    loose = amid + (2 * margin(spec, weights=weights) + sectors) * spec["VEC"]
    return -(-loose // (spec["LANES"] * spec["CLUSTER"]))


def slots(spec: Spec, size: int) -> int:
    """Bytes that one reduction over a row takes in shared memory, where a number has this size."""
    if spec["LANES"] <= 32:
        return 0
    warps, cluster = spec["LANES"] // 32, spec["CLUSTER"]
    return size * warps if cluster == 1 else size * (warps + cluster) + 8


def grid(spec: Spec, rows: int, device: int, turns: int = 0, period: int = 0) -> int:
    """Blocks for so many rows.

    Blocks that take rows in turn take `turns` of them, if not TURNS, as others become free; clusters, which start
    together or not at all, each take their share. Ragged rows of a thread all begin at the same place in a pack, or in
    a sector of `period` elements, since their distance is a multiple of so many rows.
    """
    cut = Cut.of(spec)
    side_by_side = spec.threads // cut.lanes
    own = -(-rows // side_by_side)
    sums = any(flag.name == "sums" for flag in spec.kernel.flags) and spec["sums"]
    if not (cut.looped or sums):
        return own * cut.cluster
    memory = spec.static_smem + spec.dynamic_smem + RESERVED
    resident = min(spec.derived["RESIDENT"], (shared_memory(device) + RESERVED) // memory)
    teams = int(resident * multiprocessors(device) * REACH[cut.cluster]) // cut.cluster
    if not sums and cut.cluster <= 2:
        teams = max(teams, own // (turns or TURNS)) if cut.cluster == 1 else 2 * teams
    step = 1
    if spec["ragged"]:
        period = period or cut.vec
        step = period // math.gcd(period, side_by_side)
    return max(min(own, teams) // step, 1) * step * cut.cluster
