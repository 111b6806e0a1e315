"""How linear attention with a gate for each feature is cut for the chunked scans, and what they cannot take."""

from __future__ import annotations

from typing import NamedTuple

from kgen.arch import Arch
from kgen.backend import HOST
from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, CHUNK_STATE, PREFIX, PREFIX_THREADS, UNPACK, WIDEST
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.spec import Spec

SHORTEST = 4 * CHUNK
"""Time steps of a segment at least: each costs a pass over its keys and values."""
FEWEST_STEPS = 32
"""Time steps from which on chunks are faster than a walk step by step."""


def refusal(problem: Problem) -> str | None:
    """Why chunks cannot serve this problem, or None."""
    if problem.dtype is F32:
        return "it multiplies in float16; float32 is computed one time step after another, by 'auto' and 'recurrent'"
    if problem.features > WIDEST:
        return f"it takes at most {WIDEST} features, and here are {problem.features}"
    if problem.device != HOST and device_arch(problem.device) < Arch(9, 0):
        return "it needs a GPU of compute capability 9.0 or above"
    if _room(problem) > shared_memory(problem.device):
        return f"it needs {_room(problem)} bytes of shared memory, and the GPU has {shared_memory(problem.device)}"
    return None


def pays(problem: Problem) -> bool:
    """Whether chunks are the faster way."""
    return problem.length >= FEWEST_STEPS


def room_for(features: int) -> int:
    """The axis K."""
    return 64 if features <= 64 else 128


def columns_for(features: int, values: int) -> int:
    """Value columns of a block."""
    return next((width for width in (32, 64) if features <= 64 and values <= width), 128)


class Cut(NamedTuple):
    """Tiles of value columns, segments of a sequence, slots (the pieces that make their first states), and rooms."""

    tiles: int
    segments: int
    slots: int
    features: int  # as the axis K
    values: int  # as the axis V


def cut_of(problem: Problem, square: bool = False) -> Cut:
    """As many segments and slots as fill the device; of sequences of any lengths, by their mean."""
    features, values = room_for(problem.features), columns_for(problem.features, problem.values)
    if square:
        features = values = room_for(max(problem.features, problem.values))
    tiles = -(-problem.values // values)
    blocks = problem.shared * tiles
    if not blocks:
        return Cut(tiles, 1, 1, features, values)
    mean, sms = problem.batch * problem.length // problem.sequences, multiprocessors(problem.device)
    segments = max(1, min(sms // blocks, mean // SHORTEST))
    # What comes before the last segment is walked twice; in finer pieces where that alone would not fill the device.
    finer = max(1, min(sms // (blocks * (segments - 1)), mean // (SHORTEST * segments))) if segments > 1 else 1
    return Cut(tiles, segments, segments * finer, features, values)


def _room(problem: Problem) -> int:
    return _spec(problem, cut_of(problem), unaligned=False).dynamic_smem


def _spec(problem: Problem, cut: Cut, *, unaligned: bool) -> Spec:
    p = problem
    return CHUNK_SCAN.spec(
        K=cut.features,
        V=cut.values,
        OFFSETS=p.offsets,
        bonus=p.bonus,
        unaligned=unaligned,
        gfloat=p.gate_type is F32,
        ufloat=p.bonus and p.bonus_type is F32,
        dtype=p.dtype,
    )


def forward(program: Program, problem: Problem, q: Rows, k: Rows, v: Rows, o: Rows, initial: str, last: str) -> str:
    """Queue the forward pass; why it is cut as it is."""
    p, gates, cut = problem, problem.gate_rows, cut_of(problem)
    assert gates
    states = add_states(program, p, cut, k, v, initial=initial)
    spec = _spec(p, cut, unaligned=unaligned(p, q, k, v, o))
    packed = program.room("last state", p.shared * _size(cut)) if last != NOTHING else NOTHING
    pointers = (q.name, k.name, v.name, gates.name, *(["u"] if p.bonus else []))
    pointers += (*(["cu_seqlens"] if p.offsets else []), states, packed, o.name)
    groups = [p.heads // x.heads for x in (q, k, v, gates)]
    ints = (p.heads, p.length, p.features, p.values, cut.segments, cut.slots, direction(p, adjoint=False), *groups)
    longs = (*q.strides, *k.strides, *v.strides, *gates.strides, *(p.bonus_strides if p.bonus else ()), *o.strides)
    blocks = p.shared * cut.segments * cut.tiles
    program.add(Step(spec, blocks, len(pointers), ints, longs, scales(p, adjoint=False)), pointers)
    add_last(program, p, cut, packed, last)
    return f"{p.shared} states walk along {cut.segments} segments each, in chunks of {CHUNK} time steps"


def add_last(program: Program, problem: Problem, cut: Cut, packed: str, last: str) -> None:
    """Queue what brings the last state from its tiles to where it is wanted."""
    p = problem
    if last != NOTHING:
        blocks = p.shared * _size(cut) // PREFIX_THREADS
        unpack = UNPACK.spec(K=cut.features, V=cut.values)
        program.add(Step(unpack, blocks, 2, (p.heads, p.features, p.values), p.states[last]), (packed, last))


def add_states(
    program: Program, problem: Problem, cut: Cut, k: Rows, v: Rows, *, adjoint: bool = False, initial: str = NOTHING
) -> str:
    """Queue what finds the states before each slot; the name of [sequences, heads, slots, tiles, K, V]."""
    p = problem
    if cut.slots == 1 and initial == NOTHING:
        return NOTHING
    states = program.room(f"states{' of adjoint' if adjoint else ''}", p.shared * cut.slots * _size(cut))
    decays = program.room(f"decays of {states}", p.shared * cut.slots * cut.features)
    if cut.slots > 1:
        # Nothing comes after the last segment.
        walked = cut.slots - cut.slots // cut.segments
        add_walk(program, p, cut, k, v, walked, 1, adjoint=adjoint, after=states, decays=decays)
    prefix = PREFIX.spec(K=cut.features, V=cut.values)
    strides = p.states.get(initial, (0, 0, 0, 0))
    needed = cut.slots - cut.slots // cut.segments + 1
    ints = (p.heads, p.features, p.values, needed, cut.slots)
    blocks = p.shared * _size(cut) // PREFIX_THREADS
    program.add(Step(prefix, blocks, 3, ints, strides), (initial, states, decays))
    return states


def add_walk(
    program: Program,
    problem: Problem,
    cut: Cut,
    k: Rows,
    v: Rows,
    segments: int,
    share: int,
    *,
    adjoint: bool,
    before: str = NOTHING,
    after: str = NOTHING,
    decays: str = NOTHING,
    kept: tuple[str, str] = (NOTHING, NOTHING),
) -> None:
    """Queue a walk along `segments` of `share` slots each; of the state's gradient, with queries and do for k and v."""
    p, gates = problem, problem.gate_rows
    assert gates
    spec = CHUNK_STATE.spec(
        K=cut.features,
        V=cut.values,
        OFFSETS=p.offsets,
        unaligned=unaligned(p, k, v),
        gfloat=p.gate_type is F32,
        dtype=p.dtype,
    )
    pointers = (k.name, v.name, gates.name, *(["cu_seqlens"] if p.offsets else []), before, after, decays, *kept)
    groups = [p.heads // x.heads for x in (k, v, gates)]
    early = adjoint and not p.bonus
    ints = (p.heads, p.length, p.features, p.values, segments, cut.slots, share, direction(p, adjoint), adjoint, early)
    longs = (*k.strides, *v.strides, *gates.strides)
    blocks = p.shared * segments * cut.tiles
    program.add(Step(spec, blocks, len(pointers), (*ints, *groups), longs, scales(p, adjoint)[1:]), pointers)


def _size(cut: Cut) -> int:
    """Numbers of a state in tiles."""
    return cut.features * cut.values * cut.tiles


def direction(problem: Problem, adjoint: bool) -> int:
    """Of a walk."""
    return -1 if problem.reverse != adjoint else 1


def scales(problem: Problem, adjoint: bool) -> tuple[float, float]:
    """Of what is read, and of what is added: a gradient's state is scaled, the state is not."""
    return (1.0, problem.scale) if adjoint else (problem.scale, 1.0)


def unaligned(problem: Problem, *rows: Rows) -> bool:
    """Whether rows are to be loaded element by element, since some do not consist of fours of neighbours."""
    gates = problem.gate_rows
    assert gates
    return problem.length > 0 and (
        any(x.word < 8 for x in rows) or gates.word < (16 if problem.gate_type is F32 else 8)
    )
