"""How linear attention with a gate for each feature is cut for the chunked scans, and what they cannot take."""

from __future__ import annotations

from kgen.arch import Arch
from kgen.backend import HOST
from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, CHUNK_STATE, PREFIX, PREFIX_THREADS, WIDEST
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.spec import Spec

SHORTEST = 4 * CHUNK
"""Time steps of a segment at least: each costs a pass over its keys and values."""
FEWEST_STEPS = 48
"""Time steps from which on chunks are faster than a walk step by step."""


def refusal(problem: Problem) -> str | None:
    """Why chunks cannot serve this problem, or None."""
    if problem.dtype is F32:
        return "it multiplies in float16; float32 is computed one time step after another, by 'auto' and 'recurrent'"
    if problem.features > WIDEST:
        return f"it takes at most {WIDEST} features, and here are {problem.features}"
    if problem.device != HOST and device_arch(problem.device) < Arch(8, 0):
        return "it needs a GPU of compute capability 8.0 or above"
    if _room(problem) > shared_memory(problem.device):
        return f"it needs {_room(problem)} bytes of shared memory, and the GPU has {shared_memory(problem.device)}"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are the faster way."""
    return problem.length >= FEWEST_STEPS


def columns_for(values: int) -> int:
    """Value columns of a block."""
    return next((width for width in (32, 64, 128) if values <= width), 128)


def segments_for(problem: Problem) -> int:
    """As many segments of a sequence as fill the device; of sequences of any lengths, by their mean."""
    blocks = problem.shared * -(-problem.values // columns_for(problem.values))
    if not blocks:
        return 1
    mean = problem.batch * problem.length // problem.sequences
    return max(1, min(multiprocessors(problem.device) // blocks, mean // SHORTEST))


def _room(problem: Problem) -> int:
    return _spec(problem, adjoint=False, wide=False, unaligned=False).dynamic_smem


def _spec(problem: Problem, *, adjoint: bool, wide: bool, unaligned: bool) -> Spec:
    p = problem
    return CHUNK_SCAN.spec(
        K=64 if p.features <= 64 else 128,
        V=columns_for(p.values),
        OFFSETS=p.offsets,
        bonus=p.bonus,
        adjoint=adjoint and not p.bonus,
        wide=wide,
        unaligned=unaligned,
        gfloat=p.gate_type is F32,
        ufloat=p.bonus and p.bonus_type is F32,
        dtype=p.dtype,
    )


def forward(program: Program, problem: Problem, q: Rows, k: Rows, v: Rows, o: Rows, initial: str, last: str) -> str:
    """Queue the forward pass; why it is cut as it is."""
    segments = add_chunks(program, problem, q, k, v, o, initial=initial, last=last)
    return f"{problem.shared} states walk along {segments} segments each, in chunks of {CHUNK} time steps"


def add_chunks(
    program: Program,
    problem: Problem,
    q: Rows,
    k: Rows,
    v: Rows,
    o: Rows,
    *,
    adjoint: bool = False,
    wide: bool = False,
    initial: str = NOTHING,
    last: str = NOTHING,
) -> int:
    """Queue the scan of o = q S in chunks, and how many segments each sequence is cut into is returned."""
    p, gates = problem, problem.gate_rows
    assert gates
    segments = segments_for(p)
    states = (*p.states.get(initial, (0, 0, 0, 0)),)
    first = (*states[:2], 0, *states[2:])
    if segments > 1:
        initial = add_states(program, p, k, v, segments, adjoint=adjoint, initial=initial)
        size = p.features * p.values
        first = (p.heads * segments * size, segments * size, size, p.values, 1)
    spec = _spec(p, adjoint=adjoint, wide=wide, unaligned=_unaligned(p, q, k, v, o))
    tiles = -(-p.values // spec["V"])
    pointers = (q.name, k.name, v.name, gates.name, *(["u"] if p.bonus else []))
    pointers += (*(["cu_seqlens"] if p.offsets else []), initial, last, o.name)
    groups = [p.heads // x.heads for x in (q, k, v, gates)]
    ints = (p.heads, p.length, p.features, p.values, segments, _direction(p, adjoint), *groups)
    longs = (*q.strides, *k.strides, *v.strides, *gates.strides, *(p.bonus_strides if p.bonus else ()))
    longs += (*first, *p.states.get(last, (0, 0, 0, 0)), *o.strides)
    program.add(Step(spec, p.shared * segments * tiles, len(pointers), ints, longs, (p.scale,)), pointers)
    return segments


def add_states(
    program: Program,
    problem: Problem,
    k: Rows,
    v: Rows,
    segments: int,
    *,
    adjoint: bool = False,
    initial: str = NOTHING,
) -> str:
    """Queue what finds the states before each segment; the name of [sequences, heads, segments, features, values]."""
    p, gates = problem, problem.gate_rows
    assert gates
    size = p.features * p.values
    states = program.room("states of adjoint" if adjoint else "states of segments", p.shared * segments * size)
    decays = program.room(f"decays of {states}", p.shared * segments * p.features)
    spec = CHUNK_STATE.spec(
        K=64 if p.features <= 64 else 128,
        V=columns_for(p.values),
        OFFSETS=p.offsets,
        adjoint=adjoint and not p.bonus,
        unaligned=_unaligned(p, k, v),
        gfloat=p.gate_type is F32,
        dtype=p.dtype,
    )
    tiles = -(-p.values // spec["V"])
    pointers = (k.name, v.name, gates.name, *(["cu_seqlens"] if p.offsets else []), states, decays)
    groups = [p.heads // x.heads for x in (k, v, gates)]
    ints = (p.heads, p.length, p.features, p.values, segments, _direction(p, adjoint), *groups)
    longs = (*k.strides, *v.strides, *gates.strides)
    program.add(Step(spec, p.shared * (segments - 1) * tiles, len(pointers), ints, longs), pointers)
    ints = (p.heads, p.features, p.values, segments, p.features)
    blocks = p.shared * -(-size // PREFIX_THREADS)
    strides = p.states.get(initial, (0, 0, 0, 0))
    program.add(Step(PREFIX.spec(), blocks, 3, ints, strides), (initial, states, decays))
    return states


def _direction(problem: Problem, adjoint: bool) -> int:
    return -1 if problem.reverse != adjoint else 1


def _unaligned(problem: Problem, *rows: Rows) -> bool:
    """Whether some rows do not consist of pairs of neighbours; gates in float32 are loaded one by one anyway."""
    gates = problem.gate_rows
    assert gates
    return any(x.word < 4 for x in (*rows, *(() if problem.gate_type is F32 else (gates,))))
