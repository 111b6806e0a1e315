"""The kernel of linear attention where teams of blocks share short sequences, in one launch, and when it is taken.

Few heads leave most of a device idle, so their sequences are cut into segments, each in the shared memory of one block
from its only reading on. The states before the segments are found on the way, by all blocks of a team together.
"""

from __future__ import annotations

from typing import Any

from kgen.arch import Arch
from kgen.device import has_wgmma, multiprocessors
from kgen.dtypes import BF16
from kgen.launch import Step
from kgen.ops.gated.kernels import offset_type
from kgen.ops.gated.linear_chunk import CHUNK, ROOM
from kgen.ops.gated.plan import MEETINGS, Problem, Program, Rows
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

CHUNKS = 4
"""That a block has room for."""
SHORTEST = 512
"""Time steps from which on it is faster than one block that walks through all chunks."""
LARGEST = 32
"""Blocks of a team: each reads, of a part of the state, what all the others add."""
_WORKERS, _HELPERS = 8, 4  # warps
_TILE = 2 * ROOM * CHUNK  # bytes of a chunk of z, x or y
_SIGNALS = 32  # bytes of mbarriers
_STATE = 4 * ROOM * ROOM  # bytes


def _text(spec: Spec) -> dict[str, Any]:
    """What the template asks beside the axes; `shapes` are of the products that warpgroups compute."""
    return {
        "outer": False,
        "offset_type": offset_type(spec),
        "shapes": [("tiles", 64, 0), ("rows", 128, 0), ("columns", 128, 1)],
    }


TEAM = register(
    Kernel(
        name="linear_team",
        summary="Linear attention of short sequences, each shared by a team of blocks, on the tensor cores of whole "
        "warpgroups.",
        formula="o[t] = z[t]^T S + sum over s <= t within t's segment of (z[t] . x[s]) y[s]\n"
        "S    = sum over s of the segments before t's of x[s] y[s]^T",
        axes=(
            Axis("K", "k", (ROOM,), "room for columns of z and x; the true count comes at run time", default=ROOM),
            Axis("V", "v", (ROOM,), "columns of y of a block", default=ROOM),
            Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
        ),
        flags=(
            Flag("fine", "the state and the scores enter products in two parts, of 16 bits together, not of 8"),
            Flag("warpgroup", "products are wgmma, which compute capability 9.0 alone has; else they are mma.sync"),
        ),
        dtypes=(BF16,),
        derive=lambda spec: {
            "THREADS": 32 * (_WORKERS + _HELPERS),
            "HELPERS": _HELPERS,
            "CHUNKS": CHUNKS,
            "PARTS": 2 if spec["fine"] else 1,
            "WORKER_REGISTERS": 192,
            "HELPER_REGISTERS": 120,
            "DYNAMIC_SMEM": 3 * CHUNKS * _TILE + 2 * ROOM * ROOM + _SIGNALS,
        },
        text=_text,
        grid="(segments * tiles * heads * sequences): one block per segment and tile of columns; all run at once",
        origin="Katharopoulos et al., Transformers are RNNs, 2020, in the chunked form of Hua et al., Transformer "
        "Quality in Linear Time, 2022; a segment's own part as in FlashAttention-3 (Shah et al., 2024)",
        min_arch=Arch(9, 0),
        defaults=("linear_team_fine_bf16", "linear_team_bf16"),
    )
)


def segments_of(problem: Problem, columns: int) -> int:
    """Segments of a sequence, one for each block of its team; 0 where it is too short to be cut, or too long to fit."""
    p = problem
    blocks = multiprocessors(p.device) // max(p.shared * -(-columns // ROOM), 1)
    segments = min(blocks, -(-p.length // CHUNK), LARGEST)
    # Of sequences that follow one another, one may be as long as all.
    return segments if segments > 1 and SHORTEST <= p.length <= segments * CHUNKS * CHUNK else 0


def add_team(
    program: Program,
    problem: Problem,
    segments: int,
    arrays: tuple[Rows, Rows, Rows, Rows],
    sizes: tuple[int, int],
    scales: tuple[float, float, float],
    states: tuple[str, str],
    *,
    fine: bool,
    mirrored: bool,
) -> None:
    """Queue the scan of z, x, y into o in so many segments, from the first of two states to the other, both in the
    order of registers; `sizes` are rows and columns of a state."""
    p = problem
    teams = p.shared * -(-sizes[1] // ROOM)
    own = program.room(f"{arrays[3].name}: states of segments", teams * segments * _STATE // 4)
    program.meet(teams)
    z, x, y, o = arrays
    offsets = ("cu_seqlens",) if p.offsets else ()
    pointers = (z.name, x.name, y.name, *offsets, *states, own, MEETINGS, o.name)
    ints = (p.heads, p.length, *sizes, *(p.heads // each.heads for each in (z, x, y)), segments, int(mirrored))
    strides = sum((each.strides[:3] for each in arrays), ())
    spec = TEAM.spec(OFFSETS=p.offsets, fine=fine, warpgroup=has_wgmma(p.device))
    step = Step(spec, teams * segments, len(pointers), ints, strides, scales, cooperative=True)
    program.add(step, pointers)
