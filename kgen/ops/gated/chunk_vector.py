"""Linear attention with a gate for each feature in chunks: what they cannot take, when they pay, the forward pass."""

from __future__ import annotations

from kgen.arch import Arch
from kgen.device import device_arch, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, WIDEST
from kgen.ops.gated.chunk_vector_walks import Cut, Way, add_last, add_states, cut_of, scan_of, unaligned
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.ops.gated.sums import add_sum_of_parts, partial_rows
from kgen.ops.gated.vector_team import add_team, segments_of
from kgen.spec import Spec

FEWEST_STEPS = 32
"""Time steps from which on chunks are faster than a walk step by step, gradients too."""
FEWEST_OF_PARTS, FEWEST_OF_HEADS = 256, 3072
"""And with parts of features: of a sequence, or of all heads of all sequences."""


def refusal(problem: Problem) -> str | None:
    """Why chunks cannot serve this problem, or None."""
    if problem.dtype is F32:
        return "it multiplies in float16; float32 is computed one time step after another, by 'auto' and 'recurrent'"
    if device_arch(problem.device) < Arch(9, 0):
        return "it needs a GPU of compute capability 9.0 or above"
    if _room(problem) > shared_memory(problem.device):
        return f"it needs {_room(problem)} bytes of shared memory, and the GPU has {shared_memory(problem.device)}"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are the faster way; with parts, whose sum is a launch of its own, not where both are short."""
    return long_enough(problem, problem.features, FEWEST_OF_PARTS, FEWEST_OF_HEADS)


def long_enough(problem: Problem, widest: int, of_sequence: int, of_heads: int) -> bool:
    """Whether there are so many time steps of a sequence, or of all heads, where this width takes parts."""
    p = problem
    return p.length >= FEWEST_STEPS and (
        widest <= WIDEST or p.batch * p.length >= of_sequence * p.sequences or p.numbers(1) >= of_heads
    )


def _room(problem: Problem) -> int:
    return _spec(problem, cut_of(problem)).dynamic_smem


def _spec(problem: Problem, cut: Cut, *, unaligned: bool = False) -> Spec:
    more = {"OFFSETS": problem.offsets, "split": cut.parts > 1, "unaligned": unaligned}
    return scan_of(CHUNK_SCAN, problem, cut.features, cut.values, **more)


def forward(program: Program, problem: Problem, q: Rows, k: Rows, v: Rows, o: Rows, initial: str, last: str) -> str:
    """Queue the forward pass; why it is cut as it is."""
    p, gates, cut = problem, problem.gate_rows, cut_of(problem)
    assert gates
    odd = unaligned(p, q, k, v, o)
    block = cut.features, cut.values, cut.tiles
    segments = segments_of(p, block) if cut.parts == 1 else 0
    if segments:
        add_team(program, p, segments, block, (q, k, v, o), (initial, last), unaligned=odd)
        return f"{p.shared * cut.tiles} teams of {segments} blocks each, in chunks of {CHUNK} time steps"
    # What the first of two segments makes of nothing is the state before the second.
    alone = cut.segments == 2 and initial == NOTHING
    (states,) = add_states(program, p, cut, Way(k, v, initial), alone=alone)
    spec = _spec(p, cut, unaligned=odd)
    packed = program.room("last state", p.shared * cut.size) if last != NOTHING else NOTHING
    part, stride = (o, o.strides[3]) if cut.parts == 1 else partial_rows(program, p, "o", p.values, cut.parts)
    pointers = (q.name, k.name, v.name, gates.name, *(["u"] if p.bonus else []))
    pointers += (*(["cu_seqlens"] if p.offsets else []), states, packed, part.name)
    groups = [p.heads // x.heads for x in (q, k, v, gates)]
    sizes = (p.heads, p.length, p.features, p.values, cut.segments, cut.slots)
    ints = (*sizes, cut.slots // cut.segments if alone else 0, -1 if p.reverse else 1, *groups)
    longs = (*q.strides, *k.strides, *v.strides, *gates.strides, *(p.bonus_strides if p.bonus else ()))
    longs += (*part.strides[:3], stride)
    blocks = p.shared * cut.segments * cut.panels
    program.add(Step(spec, blocks, len(pointers), ints, longs, (p.scale, 1.0)), pointers)
    if cut.parts > 1:
        add_sum_of_parts(program, p, part, o, p.values, cut.parts, p.dtype)
    add_last(program, p, cut, packed, last)
    return f"{told(p, cut)} walk along {cut.segments} segments each, in chunks of {CHUNK} time steps"


def told(problem: Problem, cut: Cut) -> str:
    """What walks, in words."""
    return f"{problem.shared} states" + (f" in {cut.parts} parts of {WIDEST} features" if cut.parts > 1 else "")
