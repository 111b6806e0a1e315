"""From a problem with at most one gate per head and time step to scans in chunks: one forward, three backward."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kgen.arch import Arch
from kgen.device import device_arch, shared_memory
from kgen.dtypes import BF16, F32
from kgen.launch import Step
from kgen.operand import Operand
from kgen.ops.gated.chunk_cut import LARGE_SHARED, Cut, fours_of
from kgen.ops.gated.chunk_kernels import SLOPE
from kgen.ops.gated.chunk_pair import add_pair, pair_cut
from kgen.ops.gated.chunk_scan import Scan, add_chunk
from kgen.ops.gated.features import NUMBERS
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows, rows_of, scratch_rows
from kgen.ops.gated.sums import add_gradient, add_sum

WIDEST = 256
"""Features and value columns of a head that a scan in chunks takes."""
SHORTEST = 64
"""Time steps from which on it is faster than one step after another."""
WIDE = 128
"""Features and value columns that it takes on any GPU; more need as much shared memory as an A100 has."""


def refusal(problem: Problem) -> str | None:
    """Why a problem cannot be computed in chunks, or None."""
    if problem.dtype is F32:
        return "it takes float16 and bfloat16, which tensor cores multiply exactly"
    if problem.normal:
        return "it takes no normalizer"
    if problem.mapped or (problem.feature == NUMBERS["elu"] and problem.dtype is BF16):
        return "it takes relu, and with float16 elu, as feature maps: others have more bits than the inputs"
    if device_arch(problem.device) < Arch(8, 0):
        return "it needs a GPU of compute capability 8.0 or above"
    room = shared_memory(problem.device)
    widest = WIDEST if room >= LARGE_SHARED else WIDE
    if max(problem.features, problem.values) > widest:
        return f"it takes heads of at most {widest} features where a block has {room} bytes of shared memory"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are faster than one time step after another."""
    return problem.length >= SHORTEST


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
    """Queue the backward pass: three scans, of which two may be one launch, and a sum for gates.

    `inputs` are do, q, k, v; gradients go by name. Returns why it is cut as it is.
    """
    do, q, k, v = inputs
    gated = problem.gate == 1

    def scan(name: str, z: Rows, x: Rows, y: Rows, **more: Any) -> Scan:
        queue = partial(add_chunk, program, problem, z, x, y, **more)
        return add_gradient(program, problem, name, gradients[name], layout, queue)

    # Gates' gradients are differences, and with gates there is one more rounding, of what is added to a state. Without
    # any, dq takes the forward pass's kernel, which is compiled already: 1.7e-3 instead of 2.35e-3 of error.
    fine = gated and problem.dtype is BF16
    begun = gated and initial != NOTHING
    own = (q, k) if gated or problem.feature else (None, None)
    queries = scan("dq", do, v, k, turned=True, initial=initial, own=own[0], fine=gated or problem.dtype is BF16)
    last = "dinitial" if "dinitial" in gradients else NOTHING
    dk, dv = (rows_of(name, gradients[name], layout) for name in ("dk", "dv"))
    cut = pair_cut(problem, q, do, k, v, dk, dv) if dk.heads == dv.heads == problem.heads else None
    if cut:
        add_pair(program, problem, cut, q, do, (k, dv), (v, dk), initial=dstate, last=last)
        return why(problem, queries.cut)
    keys = scan("dk", v, do, q, turned=True, adjoint=True, initial=dstate, own=own[1], fine=gated, keep_last=begun)
    scan("dv", k, q, do, adjoint=True, initial=dstate, last=last, fine=fine, other=keys)
    if gated:
        _add_slope(program, problem, queries, keys, rows_of("dg", gradients["dg"], layout))
    return why(problem, queries.cut)


def _add_slope(program: Program, problem: Problem, queries: Scan, keys: Scan, dg: Rows) -> None:
    """Queue the gradient of gates; where heads share them, by way of floats for every head."""
    p, cut, gate = problem, queries.cut, problem.gate_rows
    assert gate
    shared = dg.heads != p.heads
    slopes = scratch_rows("dg of heads", p, 1) if shared else dg
    if shared:
        program.room(slopes.name, p.numbers(1))
    parts = -(-p.features // cut.columns) * queries.warps
    gfloat = p.gate_type is F32
    spec = SLOPE.spec(C=cut.chunk, OFFSETS=p.offsets, wide=shared and not gfloat, gfloat=gfloat, dtype=p.dtype)
    offsets = ("cu_seqlens",) if p.offsets else ()
    pointers = (queries.products, keys.products, gate.name, *offsets)
    pointers = (*pointers, queries.states, keys.states, keys.last, slopes.name)
    fours = fours_of(cut, p.features)
    ints = (p.heads, p.length, p.heads // gate.heads, parts, cut.pieces, cut.segments, int(p.reverse), fours)
    strides = (p.numbers(1), *gate.strides[:3], *slopes.strides[:3])
    program.add(Step(spec, p.shared * cut.segments, len(pointers), ints, strides), pointers)
    if shared:
        add_sum(program, slopes.name, dg, (p.batch, dg.heads, p.length, 1), p.gate_type, p.heads)


def why(problem: Problem, cut: Cut) -> str:
    return (
        f"{problem.shared} states, cut into blocks of {cut.columns} columns and {cut.segments} segments of time, "
        f"walk in chunks of {cut.chunk} of {problem.length} time steps"
    )
