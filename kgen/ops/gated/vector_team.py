"""The kernel of linear attention with a gate for each feature where teams of blocks share sequences, in one launch.

Few heads leave most of a device idle, so their sequences are cut into segments, a block each. All of them begin at
once, with no state; what the results lack of the states before, each block adds at its end.
"""

from __future__ import annotations

from typing import Any

from kgen.arch import Arch
from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import BF16, F16
from kgen.launch import Step
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN
from kgen.ops.gated.chunk_vector_walks import scan_of
from kgen.ops.gated.plan import MEETINGS, NOTHING, Problem, Program, Rows
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

SHORTEST = 4 * CHUNK
"""Time steps of a segment at least."""
LARGEST = 8
"""Blocks of a team: each reads what all before it leave, where nothing is forgotten."""
CHUNKS = 16
"""That a block has room for."""
LONGEST = 8 * CHUNK
"""Time steps of a segment: where little is forgotten, what longer ones lack takes longer than their states first."""
STATELESS = Flag("stateless", "from no state on, and none behind the sequences is wanted")
"""Compiles in two thirds of the time. Not taken by scans with a block a sequence, which ran 1 to 3 % slower so."""


def _geometry(spec: Spec) -> dict[str, int]:
    derived = dict(CHUNK_SCAN.derive(spec))
    floats = spec["K"] + CHUNKS * (1 + CHUNK // 16 * spec["V"] // 32) + 8 + 4 + 1
    derived["DYNAMIC_SMEM"] += 3 * 16 + -(-(4 * floats + 8 + 32) // 16) * 16
    return {**derived, "CHUNKS": CHUNKS}


def _text(spec: Spec) -> dict[str, Any]:
    return {**CHUNK_SCAN.text(spec), "team": True, "split": False, "stateless": "stateless" in spec.flags}


TEAM = register(
    Kernel(
        name="gated_vector_team",
        stem="gated_chunk_vector",
        summary="Linear attention with a gate for each feature in chunks of time steps on the tensor cores, each "
        "sequence shared by a team of blocks.",
        formula=CHUNK_SCAN.formula,
        axes=(*CHUNK_SCAN.axes[:2], Axis("OFFSETS", "s", (0,), "sequences are of one length", default=0)),
        flags=(*(flag for flag in CHUNK_SCAN.flags if flag.name != "split"), STATELESS),
        dtypes=(BF16, F16),
        derive=_geometry,
        check=CHUNK_SCAN.check,
        text=_text,
        grid="(segments * tiles * heads * sequences): one block per segment and tile of columns; all run at once",
        origin=CHUNK_SCAN.origin,
        min_arch=Arch(9, 0),
        defaults=("gated_vector_team_k128_v128_stateless_bf16", "gated_vector_team_k64_v64_bonus_f16"),
    )
)


def segments_of(problem: Problem, sizes: tuple[int, int, int]) -> int:
    """Segments of a sequence, one for each block of its team; 0 where it is not to be cut, or does not fit. `sizes` are
    the room for features and the value columns of a block, and its tiles."""
    p = problem
    features, values, tiles = sizes
    blocks = multiprocessors(p.device) // max(p.shared * tiles, 1)
    segments = min(blocks, p.length // SHORTEST)
    # Two segments need no prefix: the state before the second is what the first makes of nothing.
    fits = scan_of(TEAM, p, features, values).dynamic_smem <= shared_memory(p.device)
    taken = fits and not p.offsets and 2 < segments <= LARGEST and p.length <= segments * LONGEST
    return segments if taken else 0


def add_team(
    program: Program,
    problem: Problem,
    segments: int,
    sizes: tuple[int, int, int],
    arrays: tuple[Rows, Rows, Rows, Rows],
    states: tuple[str, str],
    *,
    unaligned: bool,
) -> None:
    """Queue the forward pass of q, k, v into o in so many segments, from the first of two states to the other."""
    p, gates = problem, problem.gate_rows
    assert gates
    features, values, tiles = sizes
    blocks = p.shared * tiles * segments
    steps = -(-p.length // (segments * CHUNK)) * CHUNK
    rooms = (
        program.room("decayed queries", blocks * steps * features // 2),
        program.room("results that lack something", blocks * steps * values // 2),
        program.room("states of segments", blocks * features * values),
        program.room("decays of segments", blocks * features),
    )
    program.meet(blocks)
    q, k, v, o = arrays
    stateless = set(states) == {NOTHING}
    ends = () if stateless else states
    pointers = (q.name, k.name, v.name, gates.name, *(["u"] if p.bonus else []), *ends, *rooms, MEETINGS, o.name)
    groups = [p.heads // x.heads for x in (q, k, v, gates)]
    ints = (p.heads, p.length, p.features, p.values, segments, -1 if p.reverse else 1, *groups)
    longs = (*q.strides, *k.strides, *v.strides, *gates.strides, *(p.bonus_strides if p.bonus else ()))
    longs += sum((p.states.get(state, (0, 0, 0, 0)) for state in ends), ())
    spec = scan_of(TEAM, p, features, values, unaligned=unaligned, stateless=stateless)
    step = Step(spec, blocks, len(pointers), ints, (*longs, *o.strides), (p.scale, 1.0), cooperative=True)
    program.add(step, pointers)
