"""From a problem with at most one gate per head and time step to scans in chunks: one forward, three backward.

Few heads are cut along time into segments: first each adds up its own state (`outer`), then `gated_chunk_prefix` makes
of these the states before the segments, and all segments are scanned side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import BF16, F32
from kgen.launch import Step
from kgen.operand import Ints, Operand
from kgen.ops.gated.chunk_kernels import CHUNK, PREFIX, SLOPE, STATE, SUM_THREADS, TURN
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows, add_sum, rows_of, scratch_rows

WIDEST = 256
"""Features and value columns of a head that a scan in chunks takes."""
SHORTEST = 128
"""Time steps from which on it is faster than one step after another."""
WIDTH = 128
WARPS = 8
"""That hold the state of a block, at most."""
_SHORT_SEGMENT = 4  # chunks, the fewest of a segment: its state costs a second pass over its keys and values


def refusal(problem: Problem) -> str | None:
    """Why a problem cannot be computed in chunks, or None."""
    if problem.dtype is F32:
        return "it takes float16 and bfloat16, which tensor cores multiply exactly"
    if problem.normal:
        return "it takes no normalizer"
    if problem.feature:
        return "it takes no feature map"
    if max(problem.features, problem.values) > WIDEST:
        return f"it takes heads of at most {WIDEST} features"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are faster than one time step after another."""
    return problem.length >= SHORTEST


class Cut(NamedTuple):
    """How a scan is cut: room for rows, columns of a block, time steps of a chunk, pieces and segments of a sequence.

    A block walks through a segment, which is pieces / segments pieces; of the segments but the last, the states are
    needed beforehand, and a block of the first pass walks through one piece only.
    """

    room: int
    columns: int
    chunk: int
    pieces: int
    segments: int


def cut_of(problem: Problem, rows: int, columns: int) -> Cut:
    """As many segments as fill the device, and not more."""
    sms = multiprocessors(problem.device)
    room = next(value for value in CHUNK.axes[0].values if value >= rows)
    width = next((value for value in CHUNK.axes[1].values if value >= columns), 128)
    if room == 256:
        width = min(width, 64)
    width = min(width, WIDTH)
    chunk = 32 if WIDTH == 64 or room == 256 or shared_memory(problem.device) < 200 * 1024 else 64
    blocks = problem.shared * -(-columns // width)
    length = problem.length // (max(problem.sequences, 1) if problem.offsets else 1)
    segments = max(1, min(sms // max(blocks, 1), length // (_SHORT_SEGMENT * chunk)))
    pieces = segments
    if segments > 1:
        while blocks * (segments - 1) * (pieces // segments) * 2 <= sms and pieces * 2 * chunk <= length:
            pieces *= 2
    return Cut(room, width, chunk, pieces, segments)


class Scan(NamedTuple):
    """A queued scan: how it is cut, and the scratch memory of its states, in the order of registers, and products."""

    cut: Cut
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
    """Queue one scan; the arrays' roles are those of kgen.ops.gated.kernels.

    fine       whether the state and the scores, too, are as good as floats, or rounded once as the result is
    own        what o is the gradient of, where the products of both are wanted for the gradient of gates
    other      a scan whose states are those of this one, turned
    keep_last  keep the last state in scratch memory
    """
    p = problem
    rows, columns = (p.values, p.features) if turned else (p.features, p.values)
    cut = cut_of(p, rows, columns)
    tiles = -(-columns // cut.columns)
    warps = min(WARPS, cut.columns // 16)
    fours = _fours(cut, columns)
    mirrored = p.reverse != adjoint
    gate = p.gate_rows if p.gate == 1 else None
    gates = (gate,) if gate else ()
    common: dict[str, Any] = {
        "K": cut.room,
        "V": cut.columns,
        "C": cut.chunk,
        "WARPS": warps,
        "GATE": p.gate,
        "OFFSETS": p.offsets,
        "adjoint": adjoint and bool(gate),
        "gfloat": bool(gate) and p.gate_type is F32,
        "dtype": p.dtype,
    }
    gate_strides = gate.strides[:3] if gate else ()
    offsets = ("cu_seqlens",) if p.offsets else ()
    begun = initial != NOTHING
    # A gradient's state is that of x y^T times the scale, as is the gradient of the last state that it begins with.
    add_scale, read_scale = (p.scale, 1.0) if adjoint else (1.0, p.scale)

    states = NOTHING
    if begun or cut.segments > 1:
        states = program.room(f"{o.name}: states", p.shared * cut.pieces * fours * 4)
    turns = other is not None and other.cut[2:] == cut[2:]
    if turns and other and states != NOTHING:
        _add_turn(program, p, other, cut, states, rows, columns, begun=begun)
    elif begun:
        add_state(program, p, cut, rows, columns, initial, states, cut.pieces, turned=turned, unpack=False)
    if cut.segments > 1 and not turns:
        walked = cut.pieces - cut.pieces // cut.segments
        spec = CHUNK.spec(BYTES=_words(x, y), outer=True, fine=fine and bool(gate), **common)
        decays = (program.room(f"{o.name}: decays", p.shared * cut.pieces),) if gate else ()
        pointers = (x.name, y.name, *(each.name for each in gates), *offsets, states, *decays)
        groups = tuple(p.heads // each.heads for each in (x, y, *gates))
        ints = (p.heads, p.length, rows, columns, *groups, cut.pieces, walked, int(mirrored))
        strides = (*x.strides, *y.strides, *gate_strides)
        program.add(Step(spec, p.shared * tiles * walked, len(pointers), ints, strides, (add_scale,)), pointers)
        blocks = p.shared * -(-fours // SUM_THREADS)
        counts = (cut.pieces, walked, fours, int(begun))
        program.add(Step(PREFIX.spec(gated=bool(gate)), blocks, 1 + len(decays), counts), (states, *decays))

    words = _words(z, x, y) if o.word >= (8 if wide else 4) else 2
    spec = CHUNK.spec(BYTES=words, wide=wide, products=bool(own), fine=fine, **common)
    end = products = NOTHING
    if keep_last or last != NOTHING:
        end = program.room(f"{o.name}: last state", p.shared * fours * 4)
    extra: tuple[str, ...] = ()
    own_strides: Ints = ()
    if own:
        products = program.room(f"{o.name}: products", tiles * warps * p.numbers(1))
        extra = (own.name, products)
        own_strides = (*own.strides, p.numbers(1))
    pointers = (z.name, x.name, y.name, *(each.name for each in gates), *extra, *offsets, states, end, o.name)
    groups = tuple(p.heads // each.heads for each in (z, x, y, *gates, *((own,) if own else ())))
    ints = (p.heads, p.length, rows, columns, *groups, cut.pieces, cut.segments, int(mirrored), int(begun))
    strides = (*z.strides, *x.strides, *y.strides, *gate_strides, *own_strides, *o.strides)
    scales = (p.scale, read_scale, add_scale)
    program.add(Step(spec, p.shared * tiles * cut.segments, len(pointers), ints, strides, scales), pointers)
    if last != NOTHING:
        add_state(program, p, cut, rows, columns, last, end, 1, turned=turned, unpack=True)
    return Scan(cut, states, end, products)


def _add_turn(
    program: Program, problem: Problem, other: Scan, cut: Cut, states: str, rows: int, columns: int, *, begun: bool
) -> None:
    """Queue the way of the states with which segments begin from another scan, whose columns are the rows of this."""
    share = cut.pieces // cut.segments
    count = cut.segments - (not begun)
    tiles = (other.cut.room // 8, -(-rows // 16), cut.room // 8, -(-columns // 16))
    blocks = problem.shared * count * -(-_fours(cut, columns) // SUM_THREADS)
    counts = (cut.pieces, 0 if begun else share, share, count, *tiles)
    program.add(Step(TURN.spec(), blocks, 2, counts), (other.states, states))


def _fours(cut: Cut, columns: int) -> int:
    """Of numbers in a state, in the order of registers."""
    return -(-columns // 16) * cut.room * 4


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
    sequence, head, feature, value = problem.states[state]
    strides: Ints = (sequence, head, value, feature) if turned else (sequence, head, feature, value)
    row_tiles, column_tiles = cut.room // 8, -(-columns // 16)
    blocks = problem.shared * -(-row_tiles * column_tiles * 32 // SUM_THREADS)
    counts = (problem.heads, slots, row_tiles, column_tiles, rows, columns)
    pointers = (packed, state) if unpack else (state, packed)
    program.add(Step(STATE.spec(unpack=unpack), blocks, 2, counts, strides), pointers)


def _words(*arrays: Rows) -> int:
    """Bytes that may be loaded at once from all of them."""
    return min(16, *(array.word for array in arrays))


def forward(program: Program, problem: Problem, q: Rows, k: Rows, v: Rows, o: Rows, initial: str, last: str) -> str:
    """Queue the forward pass; `initial` and `last` name states. Returns why it is cut as it is."""
    fine = problem.dtype is BF16  # the roundings of one result, one state and one score: binary16 leaves room for them
    return why(problem, add_chunk(program, problem, q, k, v, o, initial=initial, last=last, fine=fine).cut)


def backward(
    program: Program,
    problem: Problem,
    inputs: tuple[Rows, Rows, Rows, Rows],
    gradients: Mapping[str, Operand],
    layout: str,
    initial: str,
    dstate: str,
) -> str:
    """Queue the backward pass: three scans, and a sum for gates. `inputs` are do, q, k, v; gradients go by name.

    Returns why it is cut as it is.
    """
    do, q, k, v = inputs
    gated = problem.gate == 1

    def scan(name: str, z: Rows, x: Rows, y: Rows, **more: Any) -> Scan:
        """A scan into a gradient; where heads share an input, by way of floats for every head."""
        result = gradients[name]
        final = rows_of(name, result, layout)
        if final.heads == problem.heads:
            return add_chunk(program, problem, z, x, y, final, **more)
        whole = scratch_rows(f"{name} of heads", problem, result.shape[3])
        program.room(whole.name, problem.numbers(result.shape[3]))
        queued = add_chunk(program, problem, z, x, y, whole, wide=True, **more)
        shape = (problem.batch, final.heads, problem.length, result.shape[3])
        add_sum(program, whole.name, final, shape, result.dtype, problem.heads)
        return queued

    # Gates' gradients are differences, and with gates there is one more rounding, of what is added to a state.
    fine = gated and problem.dtype is BF16
    ends = gated and dstate != NOTHING
    own = (q, k) if gated else (None, None)
    queries = scan("dq", do, v, k, turned=True, initial=initial, own=own[0], fine=gated, keep_last=ends)
    keys = scan("dk", v, do, q, turned=True, adjoint=True, initial=dstate, own=own[1], fine=gated)
    last = "dinitial" if "dinitial" in gradients else NOTHING
    scan("dv", k, q, do, adjoint=True, initial=dstate, last=last, fine=fine, other=keys)
    if gated:
        _add_slope(program, problem, queries, keys, k, v, rows_of("dg", gradients["dg"], layout))
    return why(problem, queries.cut)


def _add_slope(program: Program, problem: Problem, queries: Scan, keys: Scan, k: Rows, v: Rows, dg: Rows) -> None:
    """Queue the gradient of gates; where heads share them, by way of floats for every head."""
    p, cut, gate = problem, queries.cut, problem.gate_rows
    assert gate
    shared = dg.heads != p.heads
    slopes = scratch_rows("dg of heads", p, 1) if shared else dg
    if shared:
        program.room(slopes.name, p.numbers(1))
    parts = -(-p.features // cut.columns) * min(WARPS, cut.columns // 16)
    gfloat = p.gate_type is F32
    spec = SLOPE.spec(C=cut.chunk, OFFSETS=p.offsets, wide=shared and not gfloat, gfloat=gfloat, dtype=p.dtype)
    offsets = ("cu_seqlens",) if p.offsets else ()
    pointers = (queries.products, keys.products, gate.name, k.name, v.name, *offsets)
    pointers = (*pointers, queries.states, keys.states, queries.last, slopes.name)
    groups = tuple(p.heads // each.heads for each in (gate, k, v))
    ints = (p.heads, p.length, p.features, p.values, *groups)
    ints = (*ints, parts, cut.pieces, cut.segments, int(p.reverse), cut.room // 8)
    strides = (p.numbers(1), *gate.strides[:3], *k.strides, *v.strides, *slopes.strides[:3])
    program.add(Step(spec, p.shared * cut.segments, len(pointers), ints, strides), pointers)
    if shared:
        add_sum(program, slopes.name, dg, (p.batch, dg.heads, p.length, 1), p.gate_type, p.heads)


def why(problem: Problem, cut: Cut) -> str:
    return (
        f"{problem.shared} states, cut into blocks of {cut.columns} columns and {cut.segments} segments of time, "
        f"walk in chunks of {cut.chunk} of {problem.length} time steps"
    )
