"""The gradients of linear attention with a gate for each feature, as three chunked scans of which two are turned.

dv   the scan itself on the way back, its roles exchanged
dq   a state read along the values; it leaves q dq, and every other of its states
dk   the same on the way back; q dq - k dk, summed from those states on, is the gates' gradient
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgen.device import shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.operand import Operand
from kgen.ops.gated import chunk_vector
from kgen.ops.gated.chunk_vector import Cut, add_chunks, add_states, cut_of
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_KEY, CHUNK_QUERY, DOT, DOT_THREADS, WIDEST
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows, rows_of
from kgen.ops.gated.sums import add_sum
from kgen.spec import Spec

FEWEST_STEPS = 2048
"""Time steps from which on "auto" takes chunks; shorter ones were not timed yet."""


def refusal(problem: Problem, *rows: Rows) -> str | None:
    """Why chunks cannot serve these gradients, or None."""
    refused = chunk_vector.refusal(problem)
    if refused:
        return refused
    if problem.values > WIDEST:
        return f"its gradients take at most {WIDEST} value columns, and here are {problem.values}"
    gates = problem.gate_rows
    if any(x.heads != problem.heads for x in (*rows, *((gates,) if gates else ()))):
        return "its gradients take as many heads of one input as of another"
    room = _spec(problem, cut_of(problem, square=True), key=True, unaligned=False).dynamic_smem
    if room > shared_memory(problem.device):
        return f"its gradients need {room} bytes of shared memory, and the GPU has {shared_memory(problem.device)}"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are known to be faster than one time step after another."""
    return problem.length >= FEWEST_STEPS


def backward(
    program: Program,
    problem: Problem,
    rows: tuple[Rows, Rows, Rows, Rows],
    gradients: Mapping[str, Operand],
    layout: str,
    initial: str,
    dstate: str,
) -> str:
    """Queue the backward pass, given the rows of do, q, k and v; why it is cut as it is."""
    p = problem
    do, q, k, v = rows
    dq, dk, dv, dg = (rows_of(name, gradients[name], layout) for name in ("dq", "dk", "dv", "dg"))
    du, last = gradients.get("du"), "dinitial" if "dinitial" in gradients else NOTHING
    cut = cut_of(p, square=True)
    states = add_states(program, p, cut, k, v, shifted=p.bonus, initial=initial)
    adjoint = add_states(program, p, cut, q, do, adjoint=True, shifted=p.bonus, initial=dstate)
    pieces = (p.batch * p.length // (2 * CHUNK) + 3 * p.sequences + 1) * p.heads
    program.room("products", p.numbers(p.features))
    program.room("kept states", pieces * cut.features * cut.features // 2)
    program.room("kept units", pieces * (cut.features // 32))
    kept = ("products", "kept states", "kept units")
    bonus = None
    if du:
        count = p.numbers(1)
        longs = (count, *v.strides, *do.strides)
        steps = Step(
            DOT.spec(dtype=p.dtype),
            -(-count // (DOT_THREADS // 32)),
            3,
            (p.heads, p.length, p.values),
            longs,
            (p.scale,),
        )
        program.add(steps, (v.name, do.name, program.room("dots", count)))
        bonus = program.room("bonus slopes", p.shared * cut.segments * p.features)
    add_turned(program, p, cut, do, v, k, q, dq, states, kept, bonus=bonus)
    add_turned(program, p, cut, v, do, q, k, dk, adjoint, kept, dg, bonus=bonus)
    if du and bonus:
        adjoint = add_states(program, p, cut, q, do, adjoint=True, initial=dstate)
        final = Rows("du", (0, du.strides[0], 0, du.strides[1]), p.heads, False)
        add_sum(program, bonus, final, (1, p.heads, 1, p.features), du.dtype, p.heads, p.sequences * cut.segments)
    add_chunks(program, p, cut, k, q, do, dv, adjoint=True, states=adjoint, last=last)
    return f"{p.shared} states walk along {cut.segments} segments each and back, in chunks of {CHUNK} time steps"


def add_turned(
    program: Program,
    problem: Problem,
    cut: Cut,
    z: Rows,
    x: Rows,
    y: Rows,
    own: Rows,
    o: Rows,
    states: str,
    kept: tuple[str, str, str],
    dg: Rows | None = None,
    *,
    bonus: str | None = None,
) -> None:
    """Queue the scan of a gradient: of queries, or with `dg` of keys and gates."""
    p, gates = problem, problem.gate_rows
    assert gates
    adjoint = dg is not None
    aligned = all(x.word >= 8 for x in (z, x, y, own, o)) and gates.word >= (16 if p.gate_type is F32 else 8)
    spec = _spec(p, cut, key=adjoint, unaligned=not aligned or bool(dg and dg.word < 4))
    pointers = [z.name, x.name, y.name, gates.name, own.name, *((y.name, "u", "dots") if bonus else ())]
    pointers += [*(["cu_seqlens"] if p.offsets else []), states, *kept]
    if dg:
        pointers += [dg.name, *((bonus,) if bonus else ())]
    pointers.append(o.name)
    ints = (p.heads, p.length, p.features, p.values, cut.segments, cut.slots, chunk_vector.direction(p, adjoint))
    read, add = chunk_vector.scales(p, adjoint)
    mantissa, exponent = math.frexp(add)
    longs = [*z.strides, *x.strides, *y.strides, *gates.strides, *own.strides]
    longs += [*y.strides, *p.bonus_strides] if bonus else []
    longs += [*(dg.strides if dg else ()), *o.strides]
    floats = (read, 2 * mantissa, math.ldexp(1.0, exponent - 1))
    program.add(Step(spec, p.shared * cut.segments, len(pointers), ints, tuple(longs), floats), tuple(pointers))


def _spec(problem: Problem, cut: Cut, *, key: bool, unaligned: bool) -> Spec:
    return (CHUNK_KEY if key else CHUNK_QUERY).spec(
        ROOM=cut.features,
        OFFSETS=problem.offsets,
        bonus=problem.bonus,
        unaligned=unaligned,
        gfloat=problem.gate_type is F32,
        ufloat=problem.bonus and problem.bonus_type is F32,
        dtype=problem.dtype,
    )
