"""The launch of norms of rows that blocks or clusters of them take in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgen.dtypes import F32, DType
from kgen.ops import rows_cut, rows_ring
from kgen.ops.calls import Plan
from kgen.ops.norm.problem import Problem
from kgen.ops.norm.ring import PACKS, RING
from kgen.ops.norm.ring_memory import CHANNELS, FEW, HALF, PAIRED, SHARING
from kgen.ops.rows import SHARED, VECTOR, shared_for

TOGETHER = (1, 2)  # blocks of a cluster, of which two share a multiprocessor
PAIRS = (1, 2, 4)  # blocks of a cluster that has two rows at once
HELD = PACKS.values[-1]  # of such a thread
HALVES = 7
"""Such packs, at most, where blocks of half as many threads do better than others in clusters of as many."""
MANY = 4  # blocks of a cluster, from which on they always do with rows of 16 bits
LARGE = 8  # blocks of a cluster, up to which results that begin elsewhere do well with rows of float32
WIDE = 4096
"""Packs of a row, from which on its weights lie in shared memory wherever it begins, which leaves threads registers for
the row; for layer norms weights of float beside 16 bits always do."""
LEAST = 7 * HALF
"""Packs of a block, below which other kernels take less time where results begin elsewhere than x."""
FULL, NEARLY = 7 / 8, 3 / 4
"""The share of its threads' packs that a row must have where each has SHARING at most; RMS norms of float32 have less
to do."""
STATIC = 4096  # bytes of shared memory beside rows and weights, at most


def _fitting(flags: Mapping[str, bool], weights: int) -> int:
    """Packs of a thread, at most, whose weights, so many bytes of each, there is room for in shared memory."""
    arrays = 1 + flags["residual"]
    return min(rows_ring.MOST, SHARED // (rows_ring.THREADS * (rows_ring.STAGES * arrays * VECTOR + weights)))


def _raised(weights: int, resident: int = 1, threads: int = HALF, rows: int = 1) -> int:
    """The same of so many threads, whose row is in registers: two more lie in shared memory. `rows`: of a block at
    once."""
    pack = 2 * rows * (VECTOR + VECTOR // 32 + 1) + weights
    return (shared_for(resident) - STATIC) // (threads * pack)


def _turns(taken: rows_cut.Packs) -> int:
    """Groups of a cluster from which on it pays: where these begin amid sectors, other kernels take longer."""
    return 6 if taken.ragged else 12 if taken.vec == 8 else rows_ring.TURNS


def _filled(cut: rows_ring.Cut, packs: int) -> float:
    """Which share a row of so many packs has of SHARING for each thread."""
    return packs / (cut.cluster * cut.threads * SHARING)


def _better(fewer: rows_ring.Cut, cut: rows_ring.Cut | None, dtype: DType) -> bool:
    """Whether fewer threads that hold rows do better than a cut whose rows lie in shared memory."""
    if cut is None or fewer.packs <= SHARING or fewer.cluster < cut.cluster:
        return True
    few = fewer.packs * fewer.threads <= HALVES * HALF or fewer.cluster >= (2 * LARGE if dtype is F32 else MANY)
    return fewer.cluster == cut.cluster and few


def plan_ring(problem: Problem, taken: rows_cut.Packs, alone: int) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted.

    `alone`: packs of a row, up to which a block does best with one.
    """
    x, read, flags, groups = problem.x, problem.read, problem.flags, problem.groups
    along = [] if groups else problem.vectors
    within = not groups or groups[-1] >= rows_ring.SECTOR // x.dtype.itemsize
    if taken.shifted and (groups or flags["residual"]):
        return None
    if taken.shifted:
        taken = taken._replace(ragged=True)
    elif within:
        taken = rows_ring.by_sectors(taken, read.columns, problem.pitches[0])
    elif taken.ragged and not within:
        return None  # packs begin with a sector, behind more than a channel
    kept = sum(taken.vec * w.dtype.itemsize for w in along)
    arrays = 1 + flags["residual"]
    total = read.columns // taken.vec - rows_ring.EDGE
    beside = taken
    if along and not flags["residual"] and (total > WIDE or (flags.get("wfloat") and not flags["rms"])):
        beside = taken._replace(ragged=True)

    def cut_with(
        weights: int,
        most: int,
        threads: int = rows_ring.THREADS,
        clusters: Sequence[int] = rows_ring.CLUSTER.values,
        resident: int = 1,
        taken: rows_cut.Packs = beside,
    ) -> rows_ring.Cut | None:
        return rows_ring.cut(
            read.rows,
            read.columns,
            taken,
            problem.device,
            weights=weights,
            turns=_turns(taken) if groups else rows_ring.TURNS,
            wide=rows_ring.WIDE // arrays if flags["residual"] else alone,
            most=most,
            anywhere=True,
            threads=threads,
            clusters=clusters,
            resident=resident,
        )

    def halved() -> rows_ring.Cut | None:
        """Rows in registers: two blocks share a multiprocessor if they nearly hold one, or else each has one, or a
        block has two of a layer norm at once."""
        layer = not flags["rms"]
        shared = cut_with(0, min(SHARING, _raised(kept, 2)), HALF, TOGETHER, 2)
        dear = taken.shifted and layer and x.dtype is not F32 and shared and shared.cluster == 1
        moved = x.dtype is F32 and not taken.shifted  # a block by itself would move weights for each row
        if shared and (moved or _filled(shared, total) >= (NEARLY if dear else FULL)):
            return shared
        pairs = min(PAIRED, _raised(kept, rows=2))
        paired = cut_with(0, pairs, HALF, PAIRS) if layer else None
        if paired and paired.packs > SHARING:
            return paired
        found = cut_with(0, min(HELD, _raised(kept)), HALF)
        if layer and found and found.cluster > 1 and pairs < found.packs <= PAIRED:
            quarter = cut_with(0, min(HELD, _raised(kept, threads=HALF // 2, rows=2)), HALF // 2, [found.cluster])
            return quarter or found
        pays = layer and (flags.get("wfloat") or (found and SHARING < found.packs <= PAIRED))
        return found if found and (not taken.shifted or pays or total > LEAST * found.cluster) else None

    cut: rows_ring.Cut | None
    if taken.shifted:
        wide = cut_with(0, SHARING) if flags["rms"] else None
        if wide and _filled(wide, total) >= (NEARLY if x.dtype is F32 else FULL):
            cut = wide
        else:
            cut = None if flags["rms"] and x.dtype is F32 else halved()
        if cut and cut.cluster > LARGE and x.dtype is F32 and not flags["rms"]:
            return None
    else:
        cut = cut_with(0, _fitting(flags, kept)) if along and beside.ragged else None
        fewer = halved() if along and beside.ragged and not flags["rms"] else None
        if fewer and _better(fewer, cut, x.dtype):
            cut = fewer
        cut = cut or cut_with(kept, rows_ring.MOST // arrays, taken=taken)
    if cut is None:
        return None
    if groups:
        if cut.ragged and cut.packs <= FEW and groups[0] * groups[1] > CHANNELS:
            return None
        flags = {**flags, "across": flags["across"] or cut.ragged}
    spec = RING.spec(LANES=cut.threads, **cut.values(), **flags, shifted=taken.shifted, dtype=x.dtype)
    return problem.launch(spec, cut.blocks, f"for {cut}", ints=groups, claiming=True)
