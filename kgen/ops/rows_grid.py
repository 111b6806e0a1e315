"""Rows that a team of blocks shares, all blocks of the grid at once: how they are cut, and when that pays.

Rows stay in shared memory from their one reading to their one writing, however wide they are, as long as the whole
device has room for a few of them. What clusters do for rows of less than a megabyte, teams do on all multiprocessors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.ops import rows
from kgen.ops.reduce.workspace import COUNTERS, workspace
from kgen.ops.rows import RESERVED, SHARED, VECTOR, shared_for
from kgen.ops.rows_cut import COPIES, Packs
from kgen.spec import Axis, Flag, Spec

LANES = Axis("LANES", "t", (128, 256, 512, 1024), "threads of a block", default=512)
PACKS = Axis("PACKS", "n", (1, 2, 4), "packs of a thread in its block's part of a row")
VEC = Axis("VEC", "v", (4, 8), "neighbours that make a pack, and are loaded and stored at once")
STAGES = Axis("STAGES", "s", (3, 4, 5, 6), "rows of which a block has its part in shared memory")
AXES = (LANES, PACKS, VEC, STAGES)
RAGGED = Flag("ragged", "rows begin anywhere, or end so, not at multiples of a pack")
STATIC = 16
"""Bytes of shared memory for what each warp finds, and as many for the row and for the team."""
MESSAGE = 16  # bytes of what a block tells its team of its part of a row
ASIDE = 96
"""What the meeting of a team costs for each row, in packs."""


TEXT = {
    "staged": True,
    "looped": False,
    "shifted": False,
    "edged": False,
    "any_weights": False,
    "filled": True,
    "CLUSTER": 1,
}
"""For the templates, beside numbers."""


class Cut(NamedTuple):
    """A specialization's axes, and how many blocks make a team, of how many teams."""

    packs: int
    stages: int
    parts: int
    teams: int
    width: int  # elements of a part, but for the last

    def values(self, vec: int) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"PACKS": self.packs, "VEC": vec, "STAGES": self.stages}

    @property
    def blocks(self) -> int:
        """Of the launch."""
        return self.parts * self.teams

    def __str__(self) -> str:
        return f"teams of {self.parts} blocks, which take rows in turn"


def check(spec: Spec) -> str | None:
    """Why a combination of AXES is illegal, or None."""
    if spec["VEC"] * spec.dtype.itemsize != VECTOR:
        return f"what is fetched for later is of {VECTOR} bytes"
    if spec.dynamic_smem > SHARED - RESERVED:
        return f"{spec.dynamic_smem} bytes of shared memory are more than there are"
    return None


def _resident(lanes: int, packs: int) -> int:
    """Blocks of a multiprocessor; threads that hold many numbers need its registers for half as many."""
    return max(1, (512 if packs > 2 else 1024) // lanes)


def _deferred(stages: int) -> int:
    """Rows between what is found of one and its result: messages take a few microseconds, and one row is to come."""
    return min(3, stages - 2)


def _heard(packs: int) -> int:
    """How many blocks of a team a lane hears at once: enough for 32 lanes, and for the blocks that run at once."""
    return 5 if packs > 2 else 2


def _words(stages: int, blocks: int, teams: int) -> int:
    """Of four bytes: the messages, and the counters of blocks."""
    return MESSAGE // 4 * 2 * _deferred(stages) * blocks + teams


def derive(spec: Spec, arrays: int = 1, kept: int = 0) -> dict[str, int]:
    """The constants of a kernel that reads so many arrays, and keeps so many bytes of weights for a pack."""
    staged = spec["LANES"] * spec["PACKS"] * spec["STAGES"] * VECTOR * arrays
    return {
        "THREADS": spec["LANES"],
        "STATIC_SMEM": STATIC * (spec["LANES"] // 32 + 2),
        "STAGED": staged,
        "DYNAMIC_SMEM": staged + spec["LANES"] * spec["PACKS"] * kept,
        "DEFER": _deferred(spec["STAGES"]),
        "HEARD": _heard(spec["PACKS"]),
        "RESIDENT": _resident(spec["LANES"], spec["PACKS"]),
    }


def cut(height: int, columns: int, taken: Packs, device: int, *, arrays: int = 1, kept: int = 0) -> Cut | None:
    """The cut for so many rows, so wide, or None where the device has no room for one.

    `arrays`: how many are read; `kept`: bytes of weights that a block keeps for each pack.
    """
    total = columns // taken.vec
    if not taken.full or taken.shifted or device_arch(device) < COPIES:
        return None
    lanes = LANES.default
    assert lanes is not None
    best: tuple[int, Cut] | None = None
    for packs in PACKS.values:
        resident = _resident(lanes, packs)
        room = shared_for(resident, shared_memory(device)) - (STATIC + 4) * (lanes // 32 + 2)
        stages = min(STAGES.values[-1], (room // (lanes * packs) - kept) // (VECTOR * arrays))
        if stages < STAGES.values[0]:
            continue
        blocks = resident * multiprocessors(device)
        step = taken.vec if taken.ragged else 1  # rows of a team all begin at the same place in a pack
        for parts in range(max(2, -(-total // (lanes * packs))), blocks + 1):
            teams = min(blocks // parts, height) // step * step
            if parts > 32 * _heard(packs):
                break
            if not teams or _words(stages, parts * teams, teams) > COUNTERS:
                break
            wide = -(-total // parts)
            cost = -(-height // teams) * (wide + ASIDE) * resident
            if best is None or cost < best[0]:
                best = cost, Cut(packs, stages, -(-total // wide), teams, wide * taken.vec)
    return best and best[1]


def meeting(cut: Cut, device: int, stream: int) -> tuple[int, int, Any]:
    """Where the messages of a launch and its counters are, all zero, and what holds them until it is queued."""
    words = _words(cut.stages, cut.blocks, cut.teams)
    _, zeros, held = workspace(0, words, device, stream)
    return zeros, zeros + 4 * (words - cut.teams), held


def preferred(cut: rows.Cut | None, taken: Packs) -> bool:
    """Whether teams do better than this cut: where rows fit into no cluster, or begin anywhere and there are few large
    clusters that take them in turn, of whose number a multiple of a pack's elements is left.
    """
    return cut is None or (taken.ragged and cut.looped and cut.cluster >= 16)
