"""How rows are cut among threads: the axes that the kernels on rows share, and the cut that suits a problem.

A row lies in the registers of neighbouring lanes, of a block, or of a cluster of blocks; the table below is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kgen.arch import Arch
from kgen.backend import HOST
from kgen.device import device_arch
from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.spec import Axis, Flag, Kernel, Spec

BLOCK = 128  # threads, where several rows share a block
WIDEST = 512  # threads of a block, beyond which a cluster takes a row: two such blocks share a multiprocessor
MOST = {1: 3, 2: 3, 4: 3, 8: 3, 16: 3, 32: 4, 128: 5, 256: 5}  # packs of a thread, by the lanes of a row
CLUSTERS = Arch.parse("sm_90")  # the first that has them
REGISTERS = 65536  # of a multiprocessor
VECTOR = 16  # bytes of the widest load

LANES = Axis("LANES", "t", (1, 2, 4, 8, 16, 32, 128, 256, 512), "threads of a block that share a row")
PACKS = Axis("PACKS", "n", (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 40), "packs of a thread")
VEC = Axis("VEC", "v", (1, 2, 4, 8), "neighbours that make a pack, and are loaded and stored at once")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a row, as a cluster", default=1)
AXES = (LANES, PACKS, VEC, CLUSTER)
FLAGS = (
    Flag("ragged", "rows begin anywhere, not at multiples of a pack; all of them at the same places"),
    Flag("shifted", "what is read begins at other places in its packs than what is written"),
)


class Cut(NamedTuple):
    """A point on AXES."""

    lanes: int
    packs: int
    vec: int
    cluster: int

    @classmethod
    def of(cls, spec: Spec) -> Cut:
        """The cut of a specialization."""
        return cls(*(spec[axis.name] for axis in AXES))

    def __str__(self) -> str:
        return (f"{self.cluster} blocks of " if self.cluster > 1 else "") + f"{self.lanes} threads"

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return max(1, BLOCK // self.lanes)

    def blocks(self, rows: int) -> int:
        """The grid for so many rows."""
        return -(-rows // self.rows) * self.cluster

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec, "CLUSTER": self.cluster}


class RowKernel(Kernel):
    """A kernel on AXES. Of its many flags few go together, and few cuts are legal: these are sorted out first."""

    def specs(self, admits: Callable[[str, object], bool] = lambda name, value: True) -> Iterator[Spec]:
        """Every legal specialization that `admits` allows."""
        words = [flag.name for flag in self.flags]
        subsets = [frozenset(c) for n in range(len(words) + 1) for c in itertools.combinations(words, n)]
        subsets = [subset for subset in subsets if all(admits(word, word in subset) for word in words)]
        for dtype in (dtype for dtype in self.dtypes if admits("dtype", dtype)):
            points = itertools.product(*([v for v in axis.values if admits(axis.name, v)] for axis in self.axes))
            cuts = [values for values in points if self.check(Spec(self, values, frozenset(), dtype)) is None]
            for flags in subsets:
                if self.check(Spec(self, (WIDEST, 1, 2, 1), flags, dtype)) is None:
                    specs = (Spec(self, values, flags, dtype) for values in cuts)
                    yield from (spec for spec in specs if self.check(spec) is None)


def check(spec: Spec, held: int) -> str | None:
    """Why a combination of AXES is illegal, or None; `held`: numbers of each operand that a thread can hold."""
    lanes, packs, vec, cluster = spec.values
    if vec * spec.dtype.itemsize > VECTOR:
        return f"no load is wider than {VECTOR} bytes"
    if packs * vec > held:
        return f"a thread has no registers for more than {held} numbers of a row"
    if cluster > 1 and lanes < 128:
        return "a warp's rows are small enough"
    if spec["ragged"] and spec["VEC"] == 1:
        return "an element is at a multiple of itself"
    if spec["shifted"] and not spec["ragged"]:
        return "only ragged rows are shifted"
    return None


def threads(spec: Spec) -> int:
    """Of a block."""
    return max(BLOCK, spec["LANES"])


def resident(spec: Spec) -> int:
    """How many blocks are to fit on a multiprocessor, which bounds the registers; 0: the compiler decides."""
    return 2 if spec["LANES"] == WIDEST and spec["PACKS"] * spec["VEC"] <= 32 else 0


def largest(device: int) -> int:
    """How many blocks a cluster may have; 1 where there are none, as on the executor."""
    return 16 if device != HOST and device_arch(device) >= CLUSTERS else 1


def refuse(op: str, spec: Spec, columns: int, taken: Packs) -> None:
    """SpecError where a specialization, named by the caller, cannot take rows so wide, or that begin so."""
    known = {axis.name for axis in spec.kernel.axes} | {flag.name for flag in spec.kernel.flags}
    ragged = "ragged" in known and spec["ragged"]
    if "CLUSTER" in known:
        cut = Cut.of(spec)
        room = cut.lanes * cut.packs * cut.vec * cut.cluster - (cut.vec - 1 if ragged else 0)
        if room < columns:
            raise SpecError(f"{op}: {spec.name} has room for {room} columns, and there are {columns}")
    if taken.ragged and (not ragged or taken.shifted > spec["shifted"]) and spec["VEC"] > 1:
        raise SpecError(f"{op}: {spec.name} does not take rows that begin in the midst of a pack")
    if spec["VEC"] > taken.vec:
        raise SpecError(f"{op}: {spec.name} loads {spec['VEC']} elements at once; these rows allow {taken.vec}")


def derive(spec: Spec, reductions: int) -> dict[str, int]:
    """The constants that a kernel on rows needs, with so many reductions of a row."""
    return {
        "THREADS": threads(spec),
        "STATIC_SMEM": reductions * slots(spec),
        "RESIDENT": resident(spec),
        "CLUSTER": spec["CLUSTER"],
    }


def slots(spec: Spec) -> int:
    """Bytes that one reduction over a row takes in shared memory."""
    if spec["LANES"] <= 32:
        return 0
    return 4 * (spec["LANES"] // 32) if spec["CLUSTER"] == 1 else 4 * (spec["LANES"] // 32 + spec["CLUSTER"]) + 8


class Pitched(NamedTuple):
    """An operand of which a kernel takes packs: the distance between its rows, and the size of its elements."""

    operand: Operand
    pitch: int
    itemsize: int

    def offset(self, row: int) -> int:
        """Where a row begins, in bytes."""
        return self.operand.ptr + row * self.pitch * self.itemsize

    def allows(self, vec: int) -> bool:
        """Whether every row begins at a multiple of so many elements."""
        size = vec * self.itemsize
        return (size <= VECTOR or self.itemsize == 1) and not (self.offset(0) % size or self.offset(1) % size)


STREAM = Flag("stream", "rows are too long for registers, and are read twice")


def check_stream(spec: Spec) -> str | None:
    """Why STREAM does not go with the rest of a specialization, or None."""
    if spec["stream"] and (spec["ragged"] or spec["CLUSTER"] > 1 or spec["LANES"] != WIDEST):
        return "a stream is of one block's whole packs"
    return None


class Packs(NamedTuple):
    """How rows are loaded and stored: VEC elements at once, at multiples of a pack or wherever they begin."""

    vec: int
    ragged: bool = False
    shifted: bool = False

    def flags(self) -> dict[str, bool]:
        """For `Kernel.spec`."""
        return {"ragged": self.ragged, "shifted": self.shifted}


def packs(operands: Sequence[Pitched], columns: int, *, ragged: bool = False) -> Packs:
    """The widest packs that all operands can be taken in.

    With `ragged` the kernel can take rows that begin anywhere: the last operands are written, all of them at the same
    places in a pack, and packs are theirs.
    """
    vec = 8
    while vec > 1 and (columns % vec or not all(operand.allows(vec) for operand in operands)):
        vec //= 2
    full = VECTOR // operands[-1].itemsize
    if vec == full or not ragged or columns < 8 * full:
        return Packs(vec)
    written = operands[-1]
    apart = {(o.offset(row) - written.offset(row)) % VECTOR for o in operands for row in (0, 1)}
    return Packs(full, True, apart != {0})


def cut(
    rows: int, columns: int, taken: Packs, held: int, sms: int, largest: int, blocks: Sequence[int] = (256, WIDEST)
) -> Cut | None:
    """The cut for rows so wide, or None where they fit into no cluster of `largest` blocks; these have the first of so
    many threads that is enough.

    As few lanes as hold a row with several loads each in flight; more of them where there are few rows, since a
    multiprocessor without work costs more than a reduction over more threads.
    """
    vec = taken.vec
    total = -(-(columns + (vec - 1 if taken.ragged else 0)) // vec)
    widening = max(1, 4 // vec)  # narrow packs: as many bytes in flight
    most = max(p for p in PACKS.values if p * vec <= held)
    lanes = next((n for n, few in MOST.items() if n * min(few * widening, most) >= total), WIDEST)
    cluster = 1
    if lanes * most < total:
        sizes = [(n, c) for n in blocks for c in CLUSTER.values if c <= largest and n * c * most >= total]
        if not sizes:
            return None
        lanes, cluster = sizes[0]
    while lanes < WIDEST and cluster == 1 and -(-rows // max(1, BLOCK // lanes)) < sms and lanes < total:
        lanes = LANES.values[LANES.values.index(lanes) + 1]
    while lanes == WIDEST and cluster < min(8, largest) and 2 * rows * cluster <= sms and total > 2 * cluster * lanes:
        cluster *= 2
    needed = -(-total // (lanes * cluster))
    return Cut(lanes, next(p for p in PACKS.values if p >= needed), vec, cluster)


def streaming(taken: Packs, held: int) -> Cut:
    """The cut for rows of any length, which a block reads twice."""
    most = max(p for p in PACKS.values if p * taken.vec <= held)
    return Cut(WIDEST, most, taken.vec, 1)
