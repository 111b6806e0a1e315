"""The gradients of linear attention with a gate for each feature: walks keep states, then all pieces at once.

there and back  the states before every piece of time steps, and their gradients behind it, side by side
pieces          all gradients of one piece's time steps, of what comes before it, behind it, and of one another
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.operand import Operand
from kgen.ops.gated import chunk_vector
from kgen.ops.gated.chunk_vector import long_enough, told
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_GRADIENT, PIECE
from kgen.ops.gated.chunk_vector_walks import Cut, Way, add_last, add_states, add_walks, cut_of, unaligned
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows, rows_of
from kgen.ops.gated.sums import add_sum, add_sum_of_parts, partial_rows
from kgen.spec import Spec

FEWEST_OF_PARTS, FEWEST_OF_HEADS = 64, 2048
"""Time steps from which on chunks are faster with parts: of a sequence, or of all heads of all sequences."""
SUMS_AT_ONCE = 32
"""Sums over some of the pieces, that are then summed up themselves."""


def refusal(problem: Problem, *rows: Rows) -> str | None:
    """Why chunks cannot serve these gradients, or None."""
    refused = chunk_vector.refusal(problem)
    if refused:
        return refused
    gates = problem.gate_rows
    if any(x.heads != problem.heads for x in (*rows, *((gates,) if gates else ()))):
        return "its gradients take as many heads of one input as of another"
    room = _spec(problem, cut_of(problem, both_ways=True)).dynamic_smem
    if room > shared_memory(problem.device):
        return f"its gradients need {room} bytes of shared memory, and the GPU has {shared_memory(problem.device)}"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are the faster way; there are more launches with parts, but a walk step by step takes three."""
    return long_enough(problem, max(problem.features, problem.values), FEWEST_OF_PARTS, FEWEST_OF_HEADS)


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
    p, gates = problem, problem.gate_rows
    assert gates
    do, q, k, v = rows
    last = "dinitial" if "dinitial" in gradients else NOTHING
    cut = cut_of(p, both_ways=True)
    dq, dk, dv, dg = (rows_of(name, gradients[name], layout) for name in ("dq", "dk", "dv", "dg"))
    part, stride = (dv, dv.strides[3]) if cut.parts == 1 else partial_rows(program, p, "dv", p.values, cut.parts)
    # Of sequences of any lengths one after the other as many as there may be, some of them with nothing to do.
    pieces = p.length // PIECE + p.sequences if p.offsets else p.sequences * -(-p.length // PIECE)
    slots = (p.batch * p.length // PIECE + p.sequences) * p.heads
    packed = NOTHING if last == NOTHING else program.room("last state", p.shared * cut.size)
    ways = (Way(k, v, initial), Way(q, do, dstate))
    before = add_states(program, p, cut, *ways)
    kept = [program.room(name, slots * cut.size // 2) for name in ("kept states", "kept adjoints")]
    units = [program.room(f"units of {name}", slots * cut.panels) for name in kept]
    add_walks(program, p, cut, ways, before=before, after=(NOTHING, packed), kept=kept, units=units)
    add_last(program, p, cut, packed, last)
    du = gradients.get("du")
    blocks = pieces * p.heads
    bonus = program.room("bonus slopes", blocks * p.features) if du else None
    odd = unaligned(p, do, q, k, v, dq, dk) or part.word < 4
    fours = not odd and any(x.word < 16 for x in (do, q, k, v, gates, dq, dk))
    spec = _spec(p, cut, unaligned=odd, fours=fours)
    pointers = (do.name, q.name, k.name, v.name, gates.name, *(["u"] if du else []))
    pointers += (
        *(["cu_seqlens"] if p.offsets else []),
        kept[0],
        units[0],
        kept[1],
        units[1],
        *(x.name for x in (dq, dk, part, dg)),
        *([bonus] if bonus else []),
    )
    at_once = -(-multiprocessors(p.device) // cut.parts)
    ints = (p.heads, p.length, p.features, p.values, p.sequences, -1 if p.reverse else 1, at_once)
    longs = [*do.strides, *q.strides, *k.strides, *v.strides, *gates.strides, *(p.bonus_strides if du else ())]
    longs += [*dq.strides, *dk.strides, *part.strides[:3], stride, *dg.strides]
    program.add(Step(spec, blocks * cut.parts, len(pointers), ints, tuple(longs), (p.scale,)), pointers)
    if cut.parts > 1:
        add_sum_of_parts(program, p, part, dv, p.values, cut.parts, p.dtype)
    if du and bonus:
        together = math.gcd(pieces, SUMS_AT_ONCE)
        if together > 1:
            size = p.heads * p.features
            sums = Rows(program.room("sums of slopes", together * size), (size, p.features, 0, 1), p.heads, True)
            add_sum(program, bonus, sums, (together, p.heads, 1, p.features), F32, p.heads, pieces // together)
            bonus, pieces = sums.name, together
        final = Rows("du", (0, du.strides[0], 0, du.strides[1]), p.heads, False)
        add_sum(program, bonus, final, (1, p.heads, 1, p.features), du.dtype, p.heads, pieces)
    walks = f"{told(p, cut)} walk along {cut.segments} segments each and back, in chunks of {CHUNK} time steps"
    return f"{walks}; then {blocks} pieces of {PIECE} at once"


def _spec(problem: Problem, cut: Cut, *, unaligned: bool = False, fours: bool = False) -> Spec:
    return CHUNK_GRADIENT.spec(
        ROOM=cut.features,
        OFFSETS=problem.offsets,
        bonus=problem.bonus,
        unaligned=unaligned,
        fours=fours,
        gfloat=problem.gate_type is F32,
        ufloat=problem.bonus and problem.bonus_type is F32,
        fsplit=cut.parts > 1,
        vsplit=cut.tiles > 1,
        dtype=problem.dtype,
    )
