"""How rows are loaded and stored, and which cut suits how many of them, and how wide; the tables are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kgen.arch import Arch
from kgen.device import device_arch, multiprocessors
from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.ops.rows import BLOCK, CLUSTER, LANES, PACKS, VECTOR, WIDEST, Cut
from kgen.spec import Spec

MOST = {**dict.fromkeys((1, 2, 4, 8), 3), 16: 4, **dict.fromkeys((32, 64, 96, 128, 160, 192, 256, 320, 384), 5)}
"""Packs of a thread, by the lanes of a row: rows on as few lanes as hold them so leave few of them idle."""
OF_NARROW = {1: 3, 2: 3, 4: 3, 8: 3, 16: 3, 32: 4, 128: 5, 256: 5}
"""The same where packs are narrower than 16 bytes, in packs of 4 elements."""
FITTING = ((16, 3, 1), (64, 4, 1), (96, 3, 1), (128, 3, 1), (160, 4, 1), (192, 4, 1), (256, 4, 1))
"""Lanes, packs of float32 and blocks of rows that are added up, too, which threads that take one at a time do best."""
FOURS = ((range(129, 161), 8, 5), (range(161, 193), 8, 6), (range(257, 321), 16, 5), (range(321, 385), 16, 6))
"""Columns of 16 bits that are added up, too, which packs of four leave fewer lanes idle with; and lanes and packs."""
CLUSTERS = Arch.parse("sm_90")  # the first that has them
COPIES = Arch.parse("sm_80")  # the first that copies to shared memory without registers
ALONE = 2048  # packs of all arrays, up to which a block does best with one row
LOOPED = ((512, 8, 1), (512, 8, 2), (256, 8, 8), (512, 4, 16), (512, 8, 16))
"""Lanes, packs of all arrays, and blocks of a cluster that take rows in turn."""
NARROW = ((8, 3, 1), (16, 3, 1))
"""What goes before these where there are vectors that would have to be moved for each row."""
LOOPED_ROWS = 8  # of blocks, for each multiprocessor, from which on they take rows in turn


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


class Packs(NamedTuple):
    """How rows are loaded and stored: VEC elements at once, at multiples of a pack or wherever they begin.

    `full`: a pack has 16 bytes.
    """

    vec: int
    ragged: bool = False
    shifted: bool = False
    full: bool = False

    def flags(self) -> dict[str, bool]:
        """For `Kernel.spec`."""
        return {"ragged": self.ragged, "shifted": self.shifted}


def packs(operands: Sequence[Pitched], columns: int, *, ragged: bool = False, beside: Sequence[Pitched] = ()) -> Packs:
    """The widest packs that all operands can be taken in, and what goes `beside` them.

    With `ragged` the kernel can take rows that begin anywhere: the last operands are written, all of them at the same
    places in a pack, and packs are theirs. What goes beside these may begin at other places, then.
    """
    vec = 8
    while vec > 1 and (columns % vec or not all(operand.allows(vec) for operand in (*operands, *beside))):
        vec //= 2
    full = VECTOR // operands[-1].itemsize
    if vec == full or not ragged or columns < 8 * full:
        return Packs(vec, full=vec == full)
    written = operands[-1]
    apart = {(o.offset(row) - written.offset(row)) % VECTOR for o in operands for row in (0, 1)}
    anywhere = columns % full or not all(operand.allows(full) for operand in (*beside, written))
    return Packs(full, bool(anywhere), apart != {0}, full=True)


def largest(device: int) -> int:
    """How many blocks a cluster may have; 1 where there are none."""
    return 16 if device_arch(device) >= CLUSTERS else 1


def cut(
    rows: int,
    columns: int,
    taken: Packs,
    held: int,
    device: int,
    *,
    looped: int = 0,
    alone: int = 0,
    kept: bool = False,
    few: Sequence[int] = (),
    most: Mapping[int, int] = MOST,
) -> Cut | None:
    """The cut for rows so wide, or None where they fit into no cluster; `held`: numbers of a row in a thread.

    `looped`: of how many arrays the kernel can take rows in turn; `alone`: up to how many packs a block does best with
    one row, if not ALONE; `kept`: it moves vectors that are dear to move only once for rows in turn; `few`: blocks of
    how many threads to try in a cluster, the first that is enough; `most`: packs of a thread, by the lanes of a row.
    """
    total = columns // taken.vec
    if looped and taken.full and not taken.shifted and device_arch(device) >= COPIES:
        sizes = (*NARROW, *LOOPED) if kept and taken.ragged else LOOPED
        found = _looped(
            total, taken.vec, looped, alone or ALONE, [size for size in sizes if size[2] <= largest(device)]
        )
        if found and -(-rows // found.rows) * found.cluster >= LOOPED_ROWS * multiprocessors(device):
            return found
    return _at_once(rows, total, taken.vec, held, device, few or (256, WIDEST), most)


def _looped(total: int, vec: int, arrays: int, alone: int, sizes: Sequence[tuple[int, int, int]]) -> Cut | None:
    """The smallest of these that holds the rows; None where there is none, or a row is better off by itself."""
    found = next((size for size in sizes if math.prod(size) >= arrays * total), None)
    if found is None or (found in LOOPED and arrays * total <= alone):
        return None
    lanes, _, cluster = found
    if arrays > 1 and cluster > 2:  # then a cluster does as well with one row
        return None
    return Cut(lanes, _enough(total, lanes * cluster), vec, cluster, True)


def summing(rows: int, columns: int, taken: Packs, held: int, device: int, *, pairs: bool = False) -> Cut | None:
    """The cut for a kernel that takes many rows with each thread, so that it can add up what it has of a column.

    Half as many numbers in a thread where that takes no more than a block, but for packs of eight that begin anywhere,
    where sums are `pairs`: what each thread has to do besides then counts more. None where rows fit into no cluster.
    """
    total = columns // taken.vec
    most = max(1, held // taken.vec)
    half = most if pairs and taken.ragged and taken.vec == 8 else max(1, most // 2)
    few = most if taken.ragged and taken.vec == 8 else half
    fitted = FITTING if taken.full and taken.vec == 4 else ()
    single = ((8, few, 1), (16, few, 1), (32, few, 1), (32, most, 1))
    blocks = fitted or ((BLOCK, half, 1), (2 * BLOCK, half, 1))
    wide = ((WIDEST, most, cluster) for cluster in CLUSTER.values if cluster <= largest(device))
    sizes = sorted((*single, *blocks, (WIDEST, half, 1), *wide), key=math.prod)
    found = next((size for size in sizes if math.prod(size) >= total), None)
    if found is None:
        return None
    lanes, _, cluster = found
    looped = lanes > 32 and found not in fitted and taken.full and not taken.shifted and device_arch(device) >= COPIES
    return Cut(lanes, _enough(max(total, 1), lanes * cluster), taken.vec, cluster, looped)


def fours(columns: int, taken: Packs, *, pairs: bool) -> Cut | None:
    """The cut of narrow rows that fill packs of eight, where packs of four do better; `pairs` as in `summing`."""
    if taken.vec < 8 or taken.ragged or taken.shifted or not (pairs or columns <= 320):
        return None
    return next((Cut(lanes, each, 4, 1) for widths, lanes, each in FOURS if columns in widths), None)


def _enough(total: int, threads: int) -> int:
    return next(p for p in PACKS.values if p * threads >= total)


def _at_once(
    rows: int, total: int, vec: int, held: int, device: int, few: Sequence[int], most_of: Mapping[int, int]
) -> Cut | None:
    """Each row its own lanes: as few as hold it with several loads each in flight.

    More of them where there are few rows, since a multiprocessor without work costs more than a reduction over more
    threads.
    """
    sms, most_blocks = multiprocessors(device), largest(device)
    widening = max(1, 4 // vec)  # narrow packs: as many bytes in flight
    if widening > 1:
        most_of = OF_NARROW
    most = max(p for p in PACKS.values if p * vec <= held)
    lanes = next((n for n, some in most_of.items() if n * min(some * widening, most) >= total), WIDEST)
    cluster = 1
    if lanes * most < total:
        sizes = [(n, c) for n in few for c in CLUSTER.values if c <= most_blocks and n * c * most >= total]
        if not sizes:
            return None
        lanes, cluster = sizes[0]
    while lanes < WIDEST and cluster == 1 and -(-rows // max(1, BLOCK // lanes)) < sms and lanes < total:
        lanes = LANES.values[LANES.values.index(lanes) + 1]
    while (
        lanes == WIDEST and cluster < min(8, most_blocks) and 2 * rows * cluster <= sms and total > 2 * cluster * lanes
    ):
        cluster *= 2
    return Cut(lanes, _enough(max(total, 1), lanes * cluster), vec, cluster)


def in_parts(columns: int, tile: int, most: int) -> tuple[int, int]:
    """Into how many parts of whole tiles, `most` at most, a row is cut that several blocks read; and their width."""
    width = -(-columns // (min(most, -(-columns // tile)) * tile)) * tile
    return -(-columns // width), width


def refuse(op: str, spec: Spec, columns: int, taken: Packs) -> None:
    """SpecError where a specialization, named by the caller, cannot take rows so wide, or that begin so."""
    known = {axis.name for axis in spec.kernel.axes} | {flag.name for flag in spec.kernel.flags}
    flagged = {name for name in ("ragged", "shifted") if name in known and spec[name]}
    needed = {name for name, needs in taken.flags().items() if needs}
    if "CLUSTER" in known:
        cut = Cut.of(spec)
        room = cut.lanes * cut.packs * cut.vec * cut.cluster
        if room < columns // cut.vec * cut.vec:
            raise SpecError(f"{op}: {spec.name} has room for {room} columns, and there are {columns}")
    if not needed <= flagged and spec["VEC"] > 1:
        raise SpecError(f"{op}: {spec.name} does not take rows that begin in the midst of a pack")
    if spec["VEC"] > taken.vec:
        raise SpecError(f"{op}: {spec.name} loads {spec['VEC']} elements at once; these rows allow {taken.vec}")
