"""A scan in chunks: its launches.

Few heads are cut along time into segments: first each adds up its own state (`outer`), then `gated_chunk_prefix` makes
of these the states before the segments, and all segments are scanned side by side. Short ones are scanned by teams, in
one launch (`linear_team`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kgen.device import device_arch, has_wgmma
from kgen.dtypes import BF16, F32
from kgen.launch import Step
from kgen.operand import Ints
from kgen.ops.gated.chunk_cut import Cut, fours_of
from kgen.ops.gated.chunk_cut import cut_of as cut_of
from kgen.ops.gated.chunk_kernels import CHUNK, PREFIX, STATE, SUM_THREADS, TURN
from kgen.ops.gated.linear_chunk import CHUNK as LINEAR_CHUNK
from kgen.ops.gated.linear_chunk import LINEAR, ROOM, WIDE
from kgen.ops.gated.linear_team import add_team
from kgen.ops.gated.linear_team import segments_of as segments_of
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.spec import Spec

WARPS = 8
"""That hold the state of a block, at most."""


class Scan(NamedTuple):
    """A queued scan: how it is cut, the warps of a block that hold its state, and what it leaves in scratch memory:
    states, in the order of registers, the last ones, and products."""

    cut: Cut
    warps: int
    states: str
    last: str
    products: str


def add_chunk(
    program: Program,
    problem: Problem,
    z: Rows,
    x: Rows,
    y: Rows,
    o: Rows,
    *,
    turned: bool = False,
    adjoint: bool = False,
    wide: bool = False,
    initial: str = NOTHING,
    last: str = NOTHING,
    fine: bool = False,
    own: Rows | None = None,
    other: Scan | None = None,
    keep_last: bool = False,
) -> Scan:
    """Queue one scan; the arrays' roles are those of kgen.ops.gated.scan_kernels.

    fine       whether the state and the scores, too, are as good as floats, or rounded once as the result is
    own        what o is the gradient of, where it decides: with a feature map, and for the gradient of gates
    other      a scan whose states are those of this one, turned
    keep_last  keep the last state in scratch memory
    """
    p = problem
    rows, columns = (p.values, p.features) if turned else (p.features, p.values)
    grouped = not wide and in_warpgroups(p, rows, z, x, y, o, *([own] if own else []))
    cut = cut_of(p, rows, columns, grouped)
    grouped = grouped and cut.chunk == LINEAR_CHUNK
    tiles = -(-columns // cut.columns)
    fours = fours_of(cut, columns)
    gates = p.step_gates
    common = _choices(p, cut, turned=turned, adjoint=adjoint)
    warps = common["WARPS"]
    offsets = ("cu_seqlens",) if p.offsets else ()
    begun = initial != NOTHING
    # A gradient's state is that of x y^T times the scale, as is the gradient of the last state that it begins with.
    add_scale, read_scale = (p.scale, 1.0) if adjoint else (1.0, p.scale)
    segments = segments_of(p, columns) if grouped and not gates and cut.room == ROOM else 0
    if segments:
        cut = cut._replace(pieces=segments, segments=segments)
        before = after = NOTHING
        if begun:
            before = program.room(f"{o.name}: first state", p.shared * fours * 4)
            add_state(program, p, cut, rows, columns, initial, before, 1, turned=turned, unpack=False)
        if last != NOTHING:
            after = program.room(f"{o.name}: last state", p.shared * fours * 4)
        scales = p.scale, read_scale, add_scale
        ends, sizes, mirrored = (before, after), (rows, columns), p.reverse != adjoint
        add_team(program, p, segments, (z, x, y, o), sizes, scales, ends, fine=fine, mirrored=mirrored)
        if last != NOTHING:
            add_state(program, p, cut, rows, columns, last, after, 1, turned=turned, unpack=True)
        return Scan(cut, warps, NOTHING, after, NOTHING)

    states = NOTHING
    if begun or cut.segments > 1:
        states = program.room(f"{o.name}: states", p.shared * cut.pieces * fours * 4)
    turns = other is not None and other.states != NOTHING and other.cut[2:] == cut[2:]
    if turns and other and states != NOTHING:
        _add_turn(program, p, other, cut, states, rows, columns, begun=begun)
    elif begun:
        add_state(program, p, cut, rows, columns, initial, states, cut.pieces, turned=turned, unpack=False)
    if cut.segments > 1 and not turns:
        walked = cut.pieces - cut.pieces // cut.segments
        add_pieces(program, p, cut, x, y, states, walked, begun=begun, turned=turned, adjoint=adjoint, fine=fine)

    pairs = o.word >= (8 if wide else 4) and (own is None or own.word >= 4)
    words = _words(z, x, y) if pairs else 2
    if grouped:
        spec = linear(p, cut, fine=fine, adjoint=adjoint, products=bool(own))
    else:
        spec = CHUNK.spec(BYTES=words, wide=wide, products=bool(own and gates), fine=fine, **common)
    end = products = NOTHING
    if keep_last or last != NOTHING:
        end = program.room(f"{o.name}: last state", p.shared * fours * 4)
    extra: tuple[str, ...] = ()
    own_strides: Ints = ()
    if own:
        extra, own_strides = (own.name,), own.strides
    if own and gates:
        products = program.room(f"{o.name}: products", tiles * warps * p.numbers(1))
        extra, own_strides = (own.name, products), (*own.strides[: 4 - grouped], p.numbers(1))
    pointers = (z.name, x.name, y.name, *(each.name for each in gates), *extra, *offsets, states, end, o.name)
    groups = tuple(p.heads // each.heads for each in (z, x, y, *gates, *((own,) if own else ())))
    ints = (p.heads, p.length, rows, columns, *groups, cut.pieces, cut.segments, int(p.reverse != adjoint), int(begun))
    taken = tuple(each.strides[: 4 - grouped] for each in (z, x, y))
    strides = (*sum(taken, ()), *sum((gate.strides[:3] for gate in gates), ()), *own_strides, *o.strides[: 4 - grouped])
    scales = (p.scale, read_scale, add_scale)
    program.add(Step(spec, p.shared * tiles * cut.segments, len(pointers), ints, strides, scales), pointers)
    if last != NOTHING:
        add_state(program, p, cut, rows, columns, last, end, 1, turned=turned, unpack=True)
    return Scan(cut, warps, states, end, products)


def add_pieces(
    program: Program,
    problem: Problem,
    cut: Cut,
    x: Rows,
    y: Rows,
    states: str,
    walked: int,
    *,
    begun: bool,
    turned: bool = False,
    adjoint: bool = False,
    fine: bool = False,
) -> None:
    """Queue what finds the states behind the first `walked` pieces, each into the slot of the piece that comes then;
    slot 0 holds a state where `begun`."""
    p = problem
    rows, columns = (p.values, p.features) if turned else (p.features, p.values)
    gates = p.step_gates
    tiles, fours = -(-columns // cut.columns), fours_of(cut, columns)
    grouped = cut.chunk == LINEAR_CHUNK and in_warpgroups(p, rows, x, y)
    if grouped:
        spec = linear(p, cut, outer=True, fine=bool(gates), adjoint=adjoint)
    else:
        common = _choices(p, cut, turned=turned, adjoint=adjoint)
        spec = CHUNK.spec(BYTES=_words(x, y), outer=True, fine=fine and bool(gates), **common)
    decays = (program.room(f"{states}: decays", p.shared * cut.pieces),) if gates else ()
    offsets = ("cu_seqlens",) if p.offsets else ()
    pointers = (x.name, y.name, *(each.name for each in gates), *offsets, states, *decays)
    groups = tuple(p.heads // each.heads for each in (x, y, *gates))
    ints = (p.heads, p.length, rows, columns, *groups, cut.pieces, walked, int(p.reverse != adjoint))
    strides = (*x.strides[: 4 - grouped], *y.strides[: 4 - grouped], *sum((gate.strides[:3] for gate in gates), ()))
    scale = p.scale if adjoint else 1.0
    program.add(Step(spec, p.shared * tiles * walked, len(pointers), ints, strides, (scale,)), pointers)
    blocks = p.shared * (fours // SUM_THREADS)
    counts = (cut.pieces, walked, fours, int(begun))
    program.add(Step(PREFIX.spec(gated=bool(gates)), blocks, 1 + len(decays), counts), (states, *decays))


def _choices(problem: Problem, cut: Cut, *, turned: bool, adjoint: bool) -> dict[str, Any]:
    """Of a specialization, what both passes share."""
    p, gated = problem, bool(problem.step_gates)
    return {
        "K": cut.room,
        "V": cut.columns,
        "C": cut.chunk,
        "WARPS": min(WARPS, cut.columns // 16),
        "GATE": p.gate,
        "FEATURE": p.feature,
        "turned": turned and p.feature > 0,
        "OFFSETS": p.offsets,
        "adjoint": adjoint and gated,
        "gfloat": gated and p.gate_type is F32,
        "dtype": p.dtype,
    }


def linear(problem: Problem, cut: Cut, *, adjoint: bool, **flags: bool) -> Spec:
    """Of the kernel whose warpgroups multiply."""
    p, gated = problem, bool(problem.step_gates)
    flags = {**flags, "adjoint": adjoint and gated, "gfloat": gated and p.gate_type is F32}
    flags["warpgroup"] = has_wgmma(p.device)
    return LINEAR.spec(K=cut.room, V=cut.columns, GATE=p.gate, OFFSETS=p.offsets, **flags)


def _add_turn(
    program: Program, problem: Problem, other: Scan, cut: Cut, states: str, rows: int, columns: int, *, begun: bool
) -> None:
    """Queue the way of the states with which segments begin from another scan, whose columns are the rows of this."""
    share = cut.pieces // cut.segments
    count = cut.segments - (not begun)
    tiles = (other.cut.room // 8, -(-rows // 16), cut.room // 8, -(-columns // 16))
    blocks = problem.shared * count * (fours_of(cut, columns) // SUM_THREADS)
    counts = (cut.pieces, 0 if begun else share, share, count, *tiles)
    program.add(Step(TURN.spec(), blocks, 2, counts), (other.states, states))


def add_state(
    program: Program,
    problem: Problem,
    cut: Cut,
    rows: int,
    columns: int,
    state: str,
    packed: str,
    slots: int,
    *,
    turned: bool,
    unpack: bool,
) -> None:
    """Queue the way of a state from the caller into slot 0 of packed ones, or back."""
    sequence, head, feature, value = problem.states.get(state, (0, 0, 0, 0))
    strides: Ints = (sequence, head, value, feature) if turned else (sequence, head, feature, value)
    row_tiles, column_tiles = cut.room // 8, -(-columns // 16)
    blocks = problem.shared * (fours_of(cut, columns) // SUM_THREADS)
    counts = (problem.heads, slots, row_tiles, column_tiles, rows, columns)
    pointers = (packed, state) if unpack else (state, packed)
    program.add(Step(STATE.spec(unpack=unpack), blocks, 2, counts, strides), pointers)


def in_warpgroups(problem: Problem, rows: int, *arrays: Rows) -> bool:
    """Whether whole warpgroups multiply: on Hopper, bfloat16 as it comes, more than 64 rows, at most one gate per step.

    The executor does likewise, with the same text but for the instruction that multiplies.
    """
    p = problem
    plain = p.dtype is BF16 and p.gate < 2 and p.feature == 0 and not p.mapped
    fits = ROOM // 2 < rows <= WIDE and _words(*arrays) == 16
    return plain and fits and device_arch(p.device)[:2] == (9, 0)


def _words(*arrays: Rows) -> int:
    """Bytes that may be loaded at once from all of them."""
    return min(16, *(array.word for array in arrays))
