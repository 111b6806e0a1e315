"""Which kernels normalise rows: those that hold one in registers, or those that read its parts twice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step, bind, picked
from kgen.operand import Operand, joined
from kgen.ops import rows, rows_cut, rows_grid
from kgen.ops.axes import Rows, as_rows, staged
from kgen.ops.calls import Plan
from kgen.ops.norm.cuts import ACROSS, ALONG, APART, BESIDE, DEAR, ELSEWHERE, MOVED, SUMMED
from kgen.ops.norm.grid import plan_grid
from kgen.ops.norm.kernels import HELD, NORM, SPLIT
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


ROLES = ("x", "residual", "weight", "bias", "y", "total", "mean", "rstd")
"""In which order kernels take them."""


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
    x, residual, weight, bias, y, total = (named.get(role) for role in ROLES[:6])
    assert x is not None and y is not None
    at = {role: index for index, (role, operand) in enumerate(named.items()) if operand}
    read, written = rows_of(x, axes), rows_of(y, axes)
    long = [x, *((residual, total) if residual and total else ()), y]
    pitched = [rows_cut.Pitched(o, rows_of(o, axes).pitch, o.dtype.itemsize) for o in long]
    weights = [w for w in (weight, bias) if w]
    taken = _packs(pitched, read.columns, weights, normal, ragged=True)
    affine = _affine(x, weight, bias, normal)
    order = [at[role] for role in ROLES if role in at]
    nobody = () if normal.stats else (0,) if normal.rms else (0, 0)
    device = y.device
    channels = read.columns // normal.spatial if normal.spatial else 0
    groups = (normal.groups, channels, normal.spatial) if affine.get("channels") else ()
    along = bool(groups) and normal.spatial == 1  # weights go along the rows, as in a layer norm
    floats = (normal.eps, normal.offset) if normal.rms and weight else (normal.eps,)
    flags = {**affine, "rms": normal.rms, "residual": residual is not None}
    if groups and not along:
        flags["across"] = taken.ragged or normal.spatial % taken.vec > 0
    pitches = tuple(rows_of(o, axes).pitch for o in ([x, residual, y, total] if residual else [x, y]) if o)
    if taken.ragged:
        narrow = plan_sectors(named, read, pitches, taken, flags, order, nobody, floats)
        narrow = narrow or plan_span(named, read, pitches, flags, order, nobody, floats)
        narrow = narrow or plan_rows(named, read, pitches, taken, flags, order, nobody, floats)
        if narrow:
            return narrow
    apart = rows_cut.packs(pitched, read.columns, ragged=True)
    if apart.shifted and not normal.groups:
        in_turn = plan_sectors(named, read, pitches, apart, flags, order, nobody, floats)
        in_turn = in_turn or plan_span(named, read, pitches, flags, order, nobody, floats)
        in_turn = in_turn or plan_rows(named, read, pitches, apart, flags, order, nobody, floats)
        if residual is None and not in_turn:
            one = APART["rms" if normal.rms and not flags.get("wfloat") else x.dtype.name]
            in_turn = plan_ring(named, read, pitches, apart, flags, order, nobody, (), floats, one)
        in_turn = in_turn or plan_words(named, read, pitches, apart, flags, order, nobody, floats)
        if in_turn:
            return in_turn
    # Weights that have to be moved to where rows begin are dear, but for the one of four elements in a pack. Without
    # them a row of float32, and a group of 16 bits, does best by itself as far as the registers of a block reach.
    moved = bool(weights) and not groups and taken.ragged
    dear = moved and not (normal.rms and x.dtype is F32)
    alone = rows_cut.ALONE
    if x.dtype is F32:
        alone *= 1 if dear else 2
    elif groups:
        alone += alone // 4  # five packs of each thread
    # Rings have weights in shared memory, and nothing is moved: that pays for narrower rows, too.
    beside = dear and x.dtype is not F32 and (bias is not None or weights[0].dtype is F32)
    one = BESIDE[bias.dtype.itemsize if bias else 2] if beside else DEAR if dear else alone
    turning = None if along else plan_ring(named, read, pitches, taken, flags, order, nobody, groups, floats, one)
    turning = turning or plan_sums(named, read, pitches, taken, flags, order, nobody, floats)
    if turning:
        return turning
    most = ALONG if along else rows_cut.MOST
    if dear and x.dtype is F32:
        most = MOVED
    elif flags.get("across"):
        most = ACROSS[x.dtype.itemsize]
    elif residual:
        most = SUMMED[x.dtype.itemsize]
    elif taken.shifted:
        most = ELSEWHERE
    cut = rows_cut.cut(
        read.rows,
        read.columns,
        taken,
        HELD,
        device,
        looped=int(residual is None and not along),
        alone=alone,
        kept=dear,
        few=(rows.WIDEST,) if x.dtype is F32 else (),
        most=most,
    )
    if rows_grid.preferred(cut, taken) and not (along or (groups and taken.ragged)):
        shared = plan_grid(named, read, pitches, taken, flags, order, nobody, groups, floats)
        if shared:
            return shared
    if cut:
        own = flags | ({"channels": False, "grouped": True} if along else {})
        spec = NORM.spec(**cut.values(), **own, **taken.flags(), dtype=x.dtype)
        ints = (read.rows, read.columns, *(groups[:1] if along else groups))
        # Wide blocks that move them do so once, for as many rows as can be.
        turns = read.rows if moved and not normal.rms and cut.lanes == rows.WIDEST else 0
        blocks = rows.grid(spec, read.rows, device, turns)
        step = Step(spec, blocks, len(order) + len(nobody), ints, pitches, floats)
        run = picked(bind([step], device)[0], order, len(nobody))
        return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} fit into the registers of {cut}")
    plain = _packs(pitched, read.columns, weights, normal, ragged=False)
    # With a residual the second launch reads what the first one stored.
    sums = tuple(rows_of(o, axes).pitch for o in (residual, total) if o)
    return _plan_split(x, y, at, read, written, sums, plain.vec, affine, groups, floats, normal)


def _plan_split(
    x: Operand,
    y: Operand,
    at: Mapping[str, int],
    read: Rows,
    written: Rows,
    sums: tuple[int, ...],
    vec: int,
    affine: dict[str, bool],
    groups: tuple[int, ...],
    floats: tuple[float, ...],
    normal: Normal,
) -> Plan:
    values = {"VEC": vec, "PACKS": {1: 16, 2: 8}.get(vec, 4)}
    partial = SPLIT.spec(**values, rms=normal.rms, residual=bool(sums), partial=True, dtype=x.dtype)
    apply = SPLIT.spec(**values, rms=normal.rms, **affine, dtype=x.dtype)
    tile = apply["LANES"] * apply["PACKS"] * vec
    parts = min(-(-4 * multiprocessors(y.device) // read.rows), -(-read.columns // tile))
    width = -(-read.columns // (parts * tile)) * tile
    parts = -(-read.columns // width)
    blocks = read.rows * parts
    ints = (read.columns, parts, width)
    nobody = () if normal.stats else (0,) if normal.rms else (0, 0)
    first = [at[role] for role in ("x", "residual", "total") if role in at]
    second = "total" if sums else "x"
    before = [at[role] for role in (second, "weight", "bias") if role in at]
    behind = [at[role] for role in ("y", "mean", "rstd") if role in at]
    steps = (
        Step(partial, blocks, len(first) + 1, ints, (read.pitch, *sums)),
        Step(
            apply,
            blocks,
            len(before) + len(behind) + len(nobody) + 1,
            (*ints, *groups),
            (sums[1] if sums else read.pitch, written.pitch),
            floats,
        ),
    )
    find, finish = bind(steps, y.device)
    device = y.device

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(blocks * MOMENTS, device, stream)
        find([*(pointers[i] for i in first), memory.ptr], stream)
        finish([*(pointers[i] for i in before), memory.ptr, *(pointers[i] for i in behind), *nobody], stream)

    why = f"{read.rows} rows of {read.columns}, in {parts} parts each"
    return Plan(launch, tuple(map(str, steps)), why)


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
