"""Which strips of columns stay in shared memory, who shares them, and the launch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import DType
from kgen.errors import SpecError
from kgen.launch import Run, Step, bind
from kgen.operand import Operand, extent
from kgen.ops import rows_cut
from kgen.ops.axes import Planes
from kgen.ops.calls import Plan
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows import LINE, REACH, SHARED, VECTOR
from kgen.ops.softmax.column_plans import ragged
from kgen.ops.softmax.columns import RAGGED
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.strips import (
    CHUNK,
    CLUSTER,
    FLAGS,
    GRID,
    HEARD,
    LANES,
    PACKS,
    STRIPS,
    THREADS,
    WIDTHS,
    check,
    rows_of,
)
from kgen.scratch import scratch
from kgen.spec import Spec
from kgen.streams import on
from kgen.views import device_view

ASIDE = {False: 16384, True: 49152}
"""What it costs a block to begin a strip, in bytes of one; where rows begin anywhere, and a cluster shares it."""
LEAST_LANES = {False: 8, True: 16}
"""Threads side by side: where rows begin anywhere, so much is read for others in narrower strips that these are for
columns which no wider ones hold."""
NARROW_CLUSTER = 8  # blocks that share such a strip, at most
NARROW = {False: 32, True: 160}
"""What the ends of a row of a strip cost, in bytes of it: where rows begin at multiples of a pack, or anywhere."""
BEGUN = 6144  # bytes that it costs to begin a strip which the grid's blocks share
APART = 34  # what the ends of a row of such a strip cost
AMID = {False: {64: 15, 32: 30, 16: 75}, True: {64: 36, 32: 60, 16: 120}}
"""What both cost besides, where a cluster or the grid shares the strip, and rows of the result begin at multiples of so
many bytes, and not at lines: two strips write parts of a line, or of a sector, each at another time."""
WIDEST = 256  # bytes of such a row, at most: wider ones are no faster
WIDEST_SHARED = 512
"""The same where rows begin anywhere, and a cluster shares the strip: wider ones need larger clusters, and take up to
4 % longer."""
ABOUT = 14  # chunks that come to such a block while what it has told of a strip gets about
WAITS = 0.5  # what each of these costs of which it is not ahead
TURNS = 4  # of teams of the grid's blocks, at least
TWICE = {False: 1.5, True: 4.95}
"""What two readings cost, for each byte of a block's share of all columns; where rows begin anywhere."""
TWICE_AMID = {False: 2.15, True: 1.55}
"""The same where rows of the result begin amid lines, beside what strips of clusters, or of the grid, cost there."""
MESSAGE = 16  # bytes of what a block tells its team of a column, or one of them tells all the others


def blocks(device: int) -> int:
    """How many run at once."""
    return multiprocessors(device)


def clusters(spec: Spec, device: int) -> int:
    """How many clusters a device has room for."""
    return int(multiprocessors(device) * REACH[spec["CLUSTER"]]) // spec["CLUSTER"]


def strips_of(spec: Spec, read: Planes) -> int:
    """How many there are. Ragged, of a row's packs all but the first and the last are written, wherever they begin."""
    across = read.columns + (spec["VEC"] - 1 if spec["ragged"] else 0)
    return -(-across // ((spec["LANES"] - 2 * spec["ragged"]) * spec["VEC"])) * read.planes


def _teams(spec: Spec, read: Planes, device: int) -> tuple[int, int]:
    """How many teams take strips in turn, and of how many blocks; no teams where there is no room for one."""
    strips = strips_of(spec, read)
    if not spec["grid"]:
        return min(strips, clusters(spec, device)), spec["CLUSTER"]
    parts = -(-read.length // rows_of(spec))
    teams = min(strips, blocks(device) // parts)
    if teams:  # the blocks that are left take their share, if all threads have fewer rows then
        rows = _rows(spec, read, blocks(device) // teams)
        parts = -(-read.length // (spec.derived["DEPTH"] * rows))
    return teams * (parts <= 32 * HEARD), parts  # which a warp hears


def _rows(spec: Spec, read: Planes, parts: int) -> int:
    """Of a strip, at most, for each thread of so many blocks."""
    return -(-read.length // (spec.derived["DEPTH"] * parts))


def _cuts(
    read: Planes, vec: int, flags: frozenset[str], dtype: DType, device: int, *, narrow: bool = False
) -> Iterator[Spec]:
    """Specializations that hold such columns, the widest strips first; or those that are too narrow for others, and
    have time to tell what was found."""
    largest = min(NARROW_CLUSTER, rows_cut.largest(device)) if narrow else rows_cut.largest(device)
    for width in (w for w in reversed(WIDTHS) if w <= WIDEST or GRID.name not in flags):
        lanes = width // (vec * dtype.itemsize)
        if lanes not in LANES.values or (lanes < LEAST_LANES[RAGGED.name in flags]) != narrow:
            continue
        most = 1 if RAGGED.name in flags and width > WIDEST_SHARED else largest
        for cluster in (c for c in CLUSTER.values if c <= most):
            room = THREADS[GRID.name in flags] // lanes * cluster
            enough = (p for p in PACKS.values if GRID.name in flags or p * room >= read.length)
            for packs in enough:
                spec = Spec(STRIPS, (lanes, packs, vec, cluster), flags, dtype)
                if check(spec) is None and _teams(spec, read, device)[0] and spec.derived["LEAD"] > narrow:
                    yield spec
                if GRID.name not in flags:  # the fewest are best
                    break


def _cost(spec: Spec, read: Planes, device: int, begins: int) -> float:
    """The time that a block needs, in bytes of its parts of strips."""
    ends = AMID[bool(spec["grid"])].get(begins, 0)
    width = spec["LANES"] * spec["VEC"] * spec.dtype.itemsize
    teams, parts = _teams(spec, read, device)
    turns = -(-strips_of(spec, read) // teams)
    if spec["grid"]:
        depth = spec.derived["DEPTH"]
        waits = WAITS * max(0, ABOUT - spec.derived["LEAD"]) * CHUNK * depth * width
        return turns * (_rows(spec, read, parts) * depth * (width + APART + ends) + BEGUN + waits)
    part = rows_of(spec) // spec["CLUSTER"] * width
    anywhere = bool(spec["ragged"])
    return turns * (part + ASIDE[anywhere and spec["CLUSTER"] > 1]) * (1 + (NARROW[anywhere] + ends) / width)


def _pays(spec: Spec, read: Planes, device: int, begins: int) -> bool:
    """Whether strips do better than two readings."""
    share = read.planes * read.columns * read.length * spec.dtype.itemsize / blocks(device)
    amid = begins in AMID[False]
    twice = TWICE_AMID[bool(spec["grid"])] if amid else TWICE[bool(spec["ragged"])]
    return _cost(spec, read, device, begins) < twice * share


def _many(spec: Spec, read: Planes, device: int) -> bool:
    """Whether teams of the grid, or clusters for narrow strips, take several of them."""
    return strips_of(spec, read) >= TURNS * _teams(spec, read, device)[0]


def cut(read: Planes, vec: int, flags: frozenset[str], dtype: DType, device: int, begins: int = LINE) -> Spec | None:
    """The specialization that takes the least time for such columns, or None where there is no room for a strip.

    Where clusters have none, the blocks of the grid may; where rows begin anywhere, clusters for a narrow one. Rows of
    the result begin at multiples of so many bytes.
    """
    if shared_memory(device) < SHARED:
        return None
    anywhere = RAGGED.name in flags
    found = list(_cuts(read, vec, flags, dtype, device))
    if found and begins in AMID[False]:
        found = [s for s in found if not _many(s, read, device) or _pays(s, read, device, begins)]
    elif not found:
        others = _cuts(read, vec, flags if anywhere else flags | {GRID.name}, dtype, device, narrow=anywhere)
        found = [s for s in others if _many(s, read, device) and _pays(s, read, device, begins)]
    return min(found, key=lambda spec: _cost(spec, read, device, begins), default=None)


def plan_strips(
    x: Operand, y: Operand, read: Planes, written: Planes, vec: int, wanted: Wanted, spec: Spec | None
) -> Plan | None:
    """One launch, or None where there is no room for a strip, or the kernel cannot do what is wanted."""
    device = y.device
    if wanted.op == "logsumexp" or y.dtype is not x.dtype:
        return None
    full = VECTOR // x.dtype.itemsize
    apart = read.step >= read.columns  # what lies beside a row is in others
    anywhere = vec < full and apart and ragged(x, y, read, written) and (spec is None or spec["ragged"])
    vec = full if anywhere else vec
    if spec is None:
        asked = {name for name, on in wanted.flags(wide=False).items() if on}
        flags = frozenset({flag.name for flag in FLAGS} & asked | ({RAGGED.name} if anywhere else set()))
        size = y.dtype.itemsize
        begins = math.gcd(LINE, y.ptr, written.step * size, written.plane * size)
        spec = cut(read, vec, flags, x.dtype, device, LINE if anywhere else begins)  # what NARROW counts
        if spec is None:
            return None
    teams, parts = _teams(spec, read, device)
    short = not spec["grid"] and rows_of(spec) < read.length
    if spec["VEC"] > vec or short or not teams:
        raise SpecError(
            f"{wanted.op}: {spec.name} does not take columns of {read.length} in packs of {vec} at most neighbours"
        )
    strips = strips_of(spec, read)
    sizes = (read.length, read.columns, strips)
    steps = (read.plane, read.step, written.plane, written.step)
    if spec["grid"]:
        places = spec["LANES"] * spec["VEC"] * (parts + 2)
        words = MESSAGE // 4 * places * teams * spec.derived["TURNS"]
        step = Step(spec, teams * parts, 4, (*sizes, parts), steps, wanted.floats, cooperative=True)
        run = _meeting(bind([step], device)[0], words + teams, (0, words), device)
    else:
        step = Step(spec, teams * parts, 3, sizes, steps, wanted.floats)
        run = _meeting(bind([step], device)[0], 1, (0,), device)
    why = f"{strips} strips of columns of {read.length}, which {teams} times {parts} blocks take in turn"
    return Plan(_apart(run, x) if spec["ragged"] else run, (str(step),), why)


def _meeting(run: Run, words: int, places: tuple[int, ...], device: int) -> Run:
    """The launch on x and y, with so many words that are zero before and after; what it is given begins at `places`."""

    def launch(pointers: Sequence[int], stream: int) -> None:
        _, zeros, held = workspace(0, words, device, stream)
        run((pointers[0], pointers[-1], *(zeros + 4 * place for place in places)), stream)
        del held  # once the launch is queued

    return launch


def _apart(run: Run, x: Operand) -> Run:
    """The launch, but from a copy of x where the result takes its place: strips read columns that others write."""
    device, size = x.device, x.dtype.itemsize
    low, high = extent(x.shape, x.strides)
    begin = (x.ptr + low * size) % VECTOR - low * size
    like_x = x.view(x.shape, x.strides, 0)

    def launch(pointers: Sequence[int], stream: int) -> None:
        if pointers[0] != pointers[-1]:
            run(pointers, stream)
            return
        memory = scratch((high - low) * size + VECTOR, device, stream)
        copy = memory.ptr + begin
        with on(device, stream):
            device_view(like_x, copy)[...] = device_view(like_x, pointers[0])
        run((copy, *pointers[1:]), stream)

    return launch
