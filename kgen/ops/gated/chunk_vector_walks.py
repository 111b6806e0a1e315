"""How sequences with a gate for each feature are cut, and what finds the states before and behind each segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_ENDS, CHUNK_STATE
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.ops.gated.prefix_kernels import PREFIX, PREFIX_THREADS, UNPACK
from kgen.spec import Kernel, Spec

SHORTEST = 4 * CHUNK
"""Time steps of a segment at least: each costs a pass over its keys and values."""


def room_for(features: int) -> int:
    """The axis K."""
    return 64 if features <= 64 else 128


def columns_for(features: int, values: int) -> int:
    """Value columns of a block."""
    return next((width for width in (32, 64) if features <= 64 and values <= width), 128)


class Cut(NamedTuple):
    """Tiles of value columns, segments of a sequence, slots, and rooms.

    What a segment makes of the state is made in one slot, or as the sum of two, by blocks that take chunks by turns.
    """

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


def scan_of(kernel: Kernel, problem: Problem, features: int, values: int, **more: int) -> Spec:
    """The specialization that scans a problem with so much room, the forward pass's or a team's."""
    p = problem
    return kernel.spec(
        K=features,
        V=values,
        bonus=p.bonus,
        gfloat=p.gate_type is F32,
        ufloat=p.bonus and p.bonus_type is F32,
        dtype=p.dtype,
        **more,
    )


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
    # What comes before the last segment is walked twice; by two blocks by turns where one does not fill the device.
    finer = segments > 1 and 2 * blocks * (segments - 1) <= sms and mean >= 2 * SHORTEST * segments
    return Cut(tiles, segments, 2 * segments if finer else segments, features, values, parts)


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


def add_states(program: Program, problem: Problem, cut: Cut, *ways: Way, alone: bool = False) -> list[str]:
    """Queue what finds the states before each slot, of the way forward and of the adjoint one; the names of both,
    [sequences, heads, slots, parts, tiles, K, V]. With `alone`, a slot has what it adds to the state behind it."""
    p = problem
    states, decays = [], []
    for name, way in zip(("", " of adjoint"), ways, strict=False):
        needed = cut.slots > 1 or way.initial != NOTHING
        states.append(program.room(f"states{name}", p.shared * cut.slots * cut.size) if needed else NOTHING)
        decays.append(
            program.room(f"decays{name}", p.shared * cut.slots * cut.parts * cut.features) if needed else NOTHING
        )
    if cut.slots > 1:
        add_ends(program, p, cut, ways, states, decays)
    if alone:
        return states
    prefix = PREFIX.spec(K=cut.features, V=cut.values)
    ints = (p.heads, p.features, p.values, cut.slots - cut.slots // cut.segments + 1, cut.slots)
    blocks = p.shared * cut.size // (4 * PREFIX_THREADS)
    for way, state, decay in zip(ways, states, decays, strict=True):
        if state != NOTHING:
            strides = p.states.get(way.initial, (0, 0, 0, 0))
            program.add(Step(prefix, blocks, 3, ints, strides), (way.initial, state, decay))
    return states


def add_ends(
    program: Program, problem: Problem, cut: Cut, ways: Sequence[Way], states: Sequence[str], decays: Sequence[str]
) -> None:
    """Queue what finds, for every segment but the last, what it adds to the state and by what it multiplies it."""
    _add_walk(program, problem, cut, ways, CHUNK_ENDS, cut.segments - 1, (states, decays))


def add_walks(
    program: Program,
    problem: Problem,
    cut: Cut,
    ways: Sequence[Way],
    *,
    before: Sequence[str],
    after: Sequence[str],
    kept: Sequence[str],
    units: Sequence[str],
) -> None:
    """Queue walks along all segments that keep states; names are those of the way forward and the adjoint one."""
    _add_walk(program, problem, cut, ways, CHUNK_STATE, cut.segments, (before, after, kept, units))


def _add_walk(
    program: Program,
    problem: Problem,
    cut: Cut,
    ways: Sequence[Way],
    kernel: Kernel,
    segments: int,
    of_ways: Sequence[Sequence[str]],
) -> None:
    """Queue walks along the first segments; what is `of_ways` has a name for each."""
    p, gates = problem, problem.gate_rows
    assert gates
    (k, v, _), (q, do, _) = ways[0], ways[-1]
    spec = kernel.spec(
        K=cut.features,
        V=cut.values,
        OFFSETS=p.offsets,
        unaligned=unaligned(p, k, v, q, do),
        gfloat=p.gate_type is F32,
        split=cut.parts > 1 or (kernel is CHUNK_STATE and cut.tiles > 1),
        dtype=p.dtype,
    )
    pointers = [k.name, v.name, q.name, do.name, gates.name, *(["cu_seqlens"] if p.offsets else [])]
    for names in of_ways:
        pointers += [*names, NOTHING][:2]
    share = cut.slots // cut.segments
    groups = [p.heads // x.heads for x in (k, v, gates)]
    sizes = (p.heads, p.length, p.features, p.values, len(ways), segments, cut.slots, share)
    ints = (*sizes, -1 if p.reverse else 1, not p.bonus, *groups)
    longs = (*k.strides, *v.strides, *q.strides, *do.strides, *gates.strides)
    blocks = p.shared * segments * cut.panels * len(ways) * (share if kernel is CHUNK_ENDS else 1)
    program.add(Step(spec, blocks, len(pointers), ints, longs, (p.scale,)), tuple(pointers))


def unaligned(problem: Problem, *rows: Rows) -> bool:
    """Whether rows are to be loaded element by element, since some do not consist of fours of neighbours."""
    gates = problem.gate_rows
    assert gates
    return problem.length > 0 and (
        any(x.word < 8 for x in rows) or gates.word < (16 if problem.gate_type is F32 else 8)
    )
