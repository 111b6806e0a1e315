"""Which kernels normalise rows: those that hold one in registers, or those that read its parts twice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand, joined
from kgen.ops import rows, rows_cut, rows_grid
from kgen.ops.axes import Rows, as_rows, staged
from kgen.ops.calls import Plan
from kgen.ops.norm.cuts import ACROSS, ALONG, APART, BESIDE, DEAR, ELSEWHERE, LARGE, LIGHT, MOVED, SUMMED
from kgen.ops.norm.grid import plan_grid
from kgen.ops.norm.kernels import HELD, NORM, SPLIT
from kgen.ops.norm.problem import ROLES, Problem
from kgen.ops.norm.ring_plans import plan_ring
from kgen.ops.norm.ring_rows import plan_rows
from kgen.ops.norm.sectors import plan_sectors
from kgen.ops.norm.span import plan_span
from kgen.ops.norm.sums import plan_sums
from kgen.ops.norm.words import plan_words
from kgen.ops.rows_text import WEIGHT_TYPES
from kgen.scratch import scratch

MOMENTS = 8  # bytes of what is known of a part

Axes = tuple[int, ...]


class Normal(NamedTuple):
    """What is asked for, besides the arrays. `groups` and `spatial`: of a group norm, else 0."""

    op: str
    rms: bool
    eps: float
    offset: float
    stats: bool
    groups: int = 0
    spatial: int = 0


def plan(given: Mapping[str, Operand | None], results: Mapping[str, Operand], axes: Axes, normal: Normal) -> Plan:
    """The launches for operands by their ROLES, all with the axes of x, in the order of the pointers of a call."""
    operands = (*given.values(), *results.values())
    fits = [operand is None or as_rows(operand, axes) is not None for operand in operands]
    if normal.groups:  # one number for each channel, neighbours all through
        for index, (role, operand) in enumerate(given.items()):
            if role in ("weight", "bias") and operand:
                fits[index] = joined(operand.shape, operand.strides)[1] in ((), (1,))
    roles = (*given, *results)

    def build(operands: Sequence[Operand | None], axes: Axes) -> Plan:
        return _plan_rows(dict(zip(roles, operands)), axes, normal)

    return staged(operands, len(given), axes, fits, build)


def _plan_rows(named: dict[str, Operand | None], axes: Axes, normal: Normal) -> Plan:
    problem, pitched = _problem(named, axes, normal)
    taken = _packs(pitched, problem.read.columns, problem.vectors, normal, ragged=True)
    if problem.groups and normal.spatial > 1:
        across = taken.ragged or normal.spatial % taken.vec > 0
        problem = replace(problem, flags={**problem.flags, "across": across})
    found = _plan_narrow(problem, taken) if taken.ragged else None
    apart = rows_cut.packs(pitched, problem.read.columns, ragged=True)
    if found is None and apart.shifted and not normal.groups:
        found = _plan_narrow(problem, apart) or _plan_apart(problem, apart)
    found = found or _plan_held(problem, taken, normal)
    if found:
        return found
    plain = _packs(pitched, problem.read.columns, problem.vectors, normal, ragged=False)
    return _plan_split(problem, rows_of(problem.y, axes).pitch, plain.vec)


def _problem(named: dict[str, Operand | None], axes: Axes, normal: Normal) -> tuple[Problem, list[rows_cut.Pitched]]:
    """What is to be done, and the arrays of long rows, the results last."""
    x, residual, weight, bias, y, total = (named.get(role) for role in ROLES[:6])
    assert x is not None and y is not None
    affine = _affine(x, weight, bias, normal)
    flags = {**affine, "rms": normal.rms, "residual": residual is not None}
    long = [x, *((residual, total) if residual and total else ()), y]
    pitched = [rows_cut.Pitched(o, rows_of(o, axes).pitch, o.dtype.itemsize) for o in long]
    pitches = tuple(rows_of(o, axes).pitch for o in ([x, residual, y, total] if residual else [x, y]) if o)
    floats = (normal.eps, normal.offset) if normal.rms and weight else (normal.eps,)
    unasked = 0 if normal.stats else 1 if normal.rms else 2
    read = rows_of(x, axes)
    places = (normal.groups, read.columns // normal.spatial, normal.spatial) if affine.get("channels") else ()
    return Problem(named, read, pitches, flags, floats, unasked, places), pitched


def _plan_narrow(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """Rows that begin anywhere, several for a block."""
    return plan_sectors(problem, taken) or plan_span(problem) or plan_rows(problem, taken)


def _plan_apart(problem: Problem, apart: rows_cut.Packs) -> Plan | None:
    """Rows that begin elsewhere in their packs than results do."""
    in_turn = None
    if not problem.flags["residual"]:
        rms = problem.flags["rms"] and not problem.flags.get("wfloat")
        in_turn = plan_ring(problem, apart, APART["rms" if rms else problem.x.dtype.name])
    return in_turn or plan_words(problem, apart)


def _plan_held(problem: Problem, taken: rows_cut.Packs, normal: Normal) -> Plan | None:
    """Rows that stay on chip: in rings, in registers, or in those of many blocks."""
    flags, read, size = problem.flags, problem.read, problem.x.dtype.itemsize
    along = bool(problem.groups) and normal.spatial == 1  # weights go along the rows, as in a layer norm
    # Weights that have to be moved to where rows begin are dear, but for the one of four elements in a pack. Without
    # them a row of float32, and a group of 16 bits, does best by itself as far as the registers of a block reach.
    moved = bool(problem.vectors) and not problem.groups and taken.ragged
    dear = moved and not (normal.rms and problem.x.dtype is F32)
    alone = rows_cut.ALONE
    if problem.x.dtype is F32:
        alone *= 1 if dear else 2
    elif problem.groups:
        alone += alone // 4  # five packs of each thread
    # Rings have weights in shared memory, and nothing is moved: that pays for narrower rows, too.
    bias = problem.named.get("bias")
    beside = dear and problem.x.dtype is not F32 and (bias is not None or problem.vectors[0].dtype is F32)
    one = BESIDE[bias.dtype.itemsize if bias else 2] if beside else DEAR if dear else alone
    turning = (None if along else plan_ring(problem, taken, one)) or plan_sums(problem, taken)
    if turning:
        return turning
    most = ALONG if along else rows_cut.MOST
    if dear and problem.x.dtype is F32:
        most = MOVED
    elif flags.get("across"):
        most = ACROSS[size]
    elif flags["residual"]:
        most = SUMMED[size]
    elif taken.shifted:
        most = ELSEWHERE
    elif normal.rms and problem.x.dtype is F32 and taken.full and not taken.ragged:
        # Of a smaller array, some is still in the L2 cache.
        most = LIGHT if read.rows * read.columns * size > LARGE else most
    cut = rows_cut.cut(
        read.rows,
        read.columns,
        taken,
        HELD,
        problem.device,
        looped=int(not flags["residual"] and not along),
        alone=alone,
        kept=dear,
        few=(rows.WIDEST,) if problem.x.dtype is F32 else (),
        most=most,
    )
    if rows_grid.preferred(cut, taken) and not (along or (problem.groups and taken.ragged)):
        shared = plan_grid(problem, taken)
        if shared:
            return shared
    if cut is None:
        return None
    own = {**flags, "channels": False, "grouped": True} if along else flags
    spec = NORM.spec(**cut.values(), **own, **taken.flags(), dtype=problem.x.dtype)
    # Wide blocks that move them do so once, for as many rows as can be.
    turns = read.rows if moved and not normal.rms and cut.lanes == rows.WIDEST else 0
    blocks = rows.grid(spec, read.rows, problem.device, turns)
    return problem.launch(spec, blocks, f"fit into the registers of {cut}", ints=problem.groups[: 1 if along else 3])


def _plan_split(problem: Problem, written: int, vec: int) -> Plan:
    """Two launches: moments of parts of rows, then the results, whose rows are `written` so far apart."""
    read, named, device = problem.read, problem.named, problem.device
    # With a residual the second launch reads what the first one stored.
    sums = problem.pitches[1::2] if problem.flags["residual"] else ()
    affine = {name: on for name, on in problem.flags.items() if name not in ("rms", "residual", "across")}
    values = {"VEC": vec, "PACKS": {1: 16, 2: 8}.get(vec, 4)}
    rms, dtype = problem.flags["rms"], problem.x.dtype
    partial = SPLIT.spec(**values, rms=rms, residual=bool(sums), partial=True, dtype=dtype)
    apply = SPLIT.spec(**values, rms=rms, **affine, dtype=dtype)
    tile = apply["LANES"] * apply["PACKS"] * vec
    parts, width = rows_cut.in_parts(read.columns, tile, -(-4 * multiprocessors(device) // read.rows))
    blocks = read.rows * parts
    ints = (read.columns, parts, width)
    at = {role: index for index, (role, operand) in enumerate(named.items()) if operand}
    nobody = (0,) * problem.unasked
    first = [at[role] for role in ("x", "residual", "total") if role in at]
    second = "total" if sums else "x"
    before = [at[role] for role in (second, "weight", "bias") if role in at]
    behind = [at[role] for role in ("y", "mean", "rstd") if role in at]
    pitch = sums[1] if sums else read.pitch
    pointers = len(before) + len(behind) + len(nobody) + 1
    steps = (
        Step(partial, blocks, len(first) + 1, ints, (read.pitch, *sums)),
        Step(apply, blocks, pointers, (*ints, *problem.groups), (pitch, written), problem.floats),
    )
    find, finish = bind(steps, device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(blocks * MOMENTS, device, stream)
        find([*(pointers[i] for i in first), memory.ptr], stream)
        finish([*(pointers[i] for i in before), memory.ptr, *(pointers[i] for i in behind), *nobody], stream)

    return Plan(launch, tuple(map(str, steps)), f"{problem.what}, in {parts} parts each")


def rows_of(operand: Operand, axes: Axes) -> Rows:
    """An operand that fits, as rows."""
    found = as_rows(operand, axes)
    assert found is not None
    return found


def _packs(
    long: Sequence[rows_cut.Pitched], columns: int, weights: Sequence[Operand], normal: Normal, *, ragged: bool
) -> rows_cut.Packs:
    """How rows, and the weights along them, are loaded and stored; what is written last."""
    stored = long[-2:] if len(long) > 2 else long[-1:]
    alike = len({o.offset(row) % rows.VECTOR - stored[-1].offset(row) % rows.VECTOR for o in stored for row in (0, 1)})
    # Where every number has its own weight, in a group of one place each, weights are those of a layer norm.
    by_channel = bool(weights and normal.groups) and (normal.spatial > 1 or not ragged)
    # A pack lies in two channels at most.
    across = ragged and normal.spatial >= rows.VECTOR // stored[-1].itemsize
    taken = rows_cut.packs(long, columns, ragged=ragged and alike == 1 and (across or not by_channel))
    if by_channel and taken.shifted:
        taken = rows_cut.packs(long, columns)
    if by_channel and across and taken.full:
        return taken
    if taken.ragged:  # weights are then taken from anywhere, too
        return taken
    if taken.shifted:
        bytes_of_pack = [min(rows.VECTOR, taken.vec * w.dtype.itemsize) for w in weights]
        return taken._replace(ragged=any(w.ptr % size for w, size in zip(weights, bytes_of_pack)))
    vec = math.gcd(taken.vec, normal.spatial) if by_channel else taken.vec
    while vec > 1 and not by_channel and any(w.ptr % min(rows.VECTOR, vec * w.dtype.itemsize) for w in weights):
        vec //= 2
    return rows_cut.Packs(vec, full=taken.full and vec == taken.vec)


def _affine(x: Operand, weight: Operand | None, bias: Operand | None, normal: Normal) -> dict[str, bool]:
    """The flags of AFFINE."""
    flags: dict[str, bool] = {}
    first = weight or bias
    if first is not None:
        flags |= {"weight": weight is not None, "bias": bias is not None, "channels": normal.groups > 0}
        if first.dtype is not x.dtype:
            flags[WEIGHT_TYPES[first.dtype]] = True
    return flags
