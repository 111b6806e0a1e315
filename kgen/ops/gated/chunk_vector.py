"""How linear attention with a gate for each feature is cut for the chunked scans, and what they cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.arch import Arch
from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, CHUNK_STATE, PREFIX, PREFIX_THREADS, UNPACK, WIDEST
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.ops.gated.sums import add_sum_of_parts, partial_rows
from kgen.spec import Spec

SHORTEST = 4 * CHUNK
"""Time steps of a segment at least: each costs a pass over its keys and values."""
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
    p = problem
    return p.length >= FEWEST_STEPS and (
        p.features <= WIDEST or p.batch * p.length >= FEWEST_OF_PARTS * p.sequences or p.numbers(1) >= FEWEST_OF_HEADS
    )


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
    parts: int = 1  # of the features, which know nothing of one another: results are the sum of those of all parts

    @property
    def panels(self) -> int:
        """Of K features by V values, in a state."""
        return self.parts * self.tiles

    @property
    def size(self) -> int:
        """Numbers of a state in panels."""
        return self.panels * self.features * self.values


def cut_of(problem: Problem, both_ways: bool = False) -> Cut:
    """As many segments and slots as fill the device; of sequences of any lengths, by their mean.

    For gradients states are walked along both ways at once, and there is room for as many values as features.
    """
    features, values = room_for(problem.features), columns_for(problem.features, problem.values)
    if both_ways:
        features = values = room_for(max(problem.features, problem.values))
    tiles, parts = -(-problem.values // values), -(-problem.features // features)
    blocks = problem.shared * tiles * parts * (2 if both_ways else 1)
    if not blocks:
        return Cut(tiles, 1, 1, features, values, parts)
    mean, sms = problem.batch * problem.length // problem.sequences, multiprocessors(problem.device)
    segments = max(1, min(sms // blocks, mean // SHORTEST))
    # What comes before the last segment is walked twice; in finer pieces where that alone would not fill the device.
    finer = max(1, min(sms // (blocks * (segments - 1)), mean // (SHORTEST * segments))) if segments > 1 else 1
    return Cut(tiles, segments, segments * finer, features, values, parts)


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
        split=cut.parts > 1,
        dtype=p.dtype,
    )


def forward(program: Program, problem: Problem, q: Rows, k: Rows, v: Rows, o: Rows, initial: str, last: str) -> str:
    """Queue the forward pass; why it is cut as it is."""
    p, gates, cut = problem, problem.gate_rows, cut_of(problem)
    assert gates
    (states,) = add_states(program, p, cut, Way(k, v, initial))
    spec = _spec(p, cut, unaligned=unaligned(p, q, k, v, o))
    packed = program.room("last state", p.shared * cut.size) if last != NOTHING else NOTHING
    part, stride = (o, o.strides[3]) if cut.parts == 1 else partial_rows(program, p, "o", p.values, cut.parts)
    pointers = (q.name, k.name, v.name, gates.name, *(["u"] if p.bonus else []))
    pointers += (*(["cu_seqlens"] if p.offsets else []), states, packed, part.name)
    groups = [p.heads // x.heads for x in (q, k, v, gates)]
    ints = (p.heads, p.length, p.features, p.values, cut.segments, cut.slots, -1 if p.reverse else 1, *groups)
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


def add_last(program: Program, problem: Problem, cut: Cut, packed: str, last: str) -> None:
    """Queue what brings the last state from its tiles to where it is wanted."""
    p = problem
    if last != NOTHING:
        blocks = p.shared * cut.size // (4 * PREFIX_THREADS)
        unpack = UNPACK.spec(K=cut.features, V=cut.values)
        program.add(Step(unpack, blocks, 2, (p.heads, p.features, p.values), p.states[last]), (packed, last))


class Way(NamedTuple):
    """What a walk adds up, and its first state: keys and values; or, from the end, queries and results' gradients."""

    k: Rows
    v: Rows
    initial: str = NOTHING


def add_states(program: Program, problem: Problem, cut: Cut, *ways: Way) -> list[str]:
    """Queue what finds the states before each slot, of the way forward and of the adjoint one; the names of both,
    [sequences, heads, slots, parts, tiles, K, V]."""
    p = problem
    states, decays = [], []
    for name, way in zip(("", " of adjoint"), ways, strict=False):
        needed = cut.slots > 1 or way.initial != NOTHING
        states.append(program.room(f"states{name}", p.shared * cut.slots * cut.size) if needed else NOTHING)
        decays.append(
            program.room(f"decays{name}", p.shared * cut.slots * cut.parts * cut.features) if needed else NOTHING
        )
    if cut.slots > 1:
        # Nothing comes after the last segment.
        add_walks(program, p, cut, ways, cut.slots - cut.slots // cut.segments, 1, after=states, decays=decays)
    prefix = PREFIX.spec(K=cut.features, V=cut.values)
    ints = (p.heads, p.features, p.values, cut.slots - cut.slots // cut.segments + 1, cut.slots)
    blocks = p.shared * cut.size // (4 * PREFIX_THREADS)
    for way, state, decay in zip(ways, states, decays, strict=True):
        if state != NOTHING:
            strides = p.states.get(way.initial, (0, 0, 0, 0))
            program.add(Step(prefix, blocks, 3, ints, strides), (way.initial, state, decay))
    return states


def add_walks(
    program: Program,
    problem: Problem,
    cut: Cut,
    ways: Sequence[Way],
    segments: int,
    share: int,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    decays: Sequence[str] = (),
    kept: Sequence[str] = (),
    units: Sequence[str] = (),
) -> None:
    """Queue walks along `segments` of `share` slots each; names are those of the way forward and the adjoint one."""
    p, gates = problem, problem.gate_rows
    assert gates
    (k, v, _), (q, do, _) = ways[0], ways[-1]
    spec = CHUNK_STATE.spec(
        K=cut.features,
        V=cut.values,
        OFFSETS=p.offsets,
        unaligned=unaligned(p, k, v, q, do),
        gfloat=p.gate_type is F32,
        split=cut.parts > 1 or (bool(kept) and cut.tiles > 1),
        dtype=p.dtype,
    )
    pointers = [k.name, v.name, q.name, do.name, gates.name, *(["cu_seqlens"] if p.offsets else [])]
    for names in (before, after, decays, kept, units):
        pointers += [*names, NOTHING, NOTHING][:2]
    ints = (p.heads, p.length, p.features, p.values, len(ways), segments, cut.slots, share)
    groups = [p.heads // x.heads for x in (k, v, gates)]
    longs = (*k.strides, *v.strides, *q.strides, *do.strides, *gates.strides)
    blocks = p.shared * segments * cut.panels * len(ways)
    all_ints = (*ints, -1 if p.reverse else 1, not p.bonus, *groups)
    program.add(Step(spec, blocks, len(pointers), all_ints, longs, (p.scale,)), tuple(pointers))


def unaligned(problem: Problem, *rows: Rows) -> bool:
    """Whether rows are to be loaded element by element, since some do not consist of fours of neighbours."""
    gates = problem.gate_rows
    assert gates
    return problem.length > 0 and (
        any(x.word < 8 for x in rows) or gates.word < (16 if problem.gate_type is F32 else 8)
    )
