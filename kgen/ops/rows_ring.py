"""Wide rows, which the blocks of a grid or clusters of them take in turn: how they are cut, and when that pays.

A row stays in the shared memory of a cluster from its one reading to its one writing. While what was found of it gets
about among the blocks, or the warps of one, the next row is gone through, and those that follow are on their way all
the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.ops import rows_cut
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows import LINE, REACH, RESERVED, SHARED, VECTOR
from kgen.ops.rows_cut import Packs
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_text import ALIGNED
from kgen.spec import Axis, Spec
from kgen.step import Run

PACKS = Axis("PACKS", "n", (2, 3, 4, 5, 6, 7, 8), "packs of a thread in its block's part of a row")
VEC = Axis("VEC", "v", (4, 8), "neighbours that make a pack, and are loaded and stored at once")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a row, as a cluster")
AXES = (PACKS, VEC, CLUSTER)
THREADS = 512  # of a block, which has a multiprocessor to itself
EXCHANGES = 4  # of what is found of a row, in turn
MOST = PACKS.values[-1]  # of which three rows fit into shared memory
STAGES = 3  # such rows, at least: one that is written, one that is gone through, one on its way
ENOUGH = 96 * 1024
"""Bytes of rows that a multiprocessor keeps in shared memory, unless STAGES rows take more. They keep memory busy; more
would only lengthen the end of a launch, when nothing is left to be read and all that is there must still be written."""
WIDE = 4096  # packs of a row that a block has room for
WEIGHTS = 64  # registers of a thread, at most, for weights
SECTOR = 32  # bytes that memory is read and written by
EDGE = SECTOR // VECTOR + 2
"""Packs of a row that begins anywhere, at most, whose elements are taken one by one: the first begins with a sector."""
EDGE_OF_LINES = LINE // VECTOR + 2
"""The same where the first begins with a line."""
TURNS = 8  # rows of a cluster, from which on it mostly pays


class Cut(NamedTuple):
    """A point on AXES, how many clusters take rows in turn, whether rows begin anywhere, and the threads of a block."""

    packs: int
    vec: int
    cluster: int
    clusters: int
    ragged: bool = False
    threads: int = THREADS

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"PACKS": self.packs, "VEC": self.vec, "CLUSTER": self.cluster, "ragged": self.ragged}

    @property
    def blocks(self) -> int:
        """Of the launch."""
        return self.cluster * self.clusters

    def __str__(self) -> str:
        blocks = "blocks" if self.cluster == 1 else f"{self.cluster} blocks"
        return f"{blocks} of {self.threads} threads, which take rows in turn"


def cut(
    height: int,
    columns: int,
    taken: Packs,
    device: int,
    *,
    weights: int = 0,
    turns: int = TURNS,
    wide: int = WIDE,
    edge: int = EDGE,
    most: int = MOST,
    anywhere: bool = False,
    threads: int = THREADS,
    clusters: Sequence[int] = CLUSTER.values,
    resident: int = 1,
) -> Cut | None:
    """The cut for so many rows, so wide, or None where another does better, or the device has no room for one.

    `weights`: bytes of what goes with a pack of every row; `turns`: rows of a cluster from which on it pays; `wide`:
    packs of a row that others do better with; `edge`: packs of a row that begins anywhere which need no room, as their
    elements are taken one by one; `most`: packs of a thread that there is room for; `anywhere`: packs are those of what
    is read, and results may begin at other places in theirs; `threads`: of a block; `clusters`: their sizes;
    `resident`: blocks of a multiprocessor.
    """
    total = columns // taken.vec - (edge if taken.ragged else 0)
    if (
        not taken.full
        or (taken.shifted and not anywhere)
        or columns <= wide * taken.vec
        or shared_memory(device) < SHARED
    ):
        return None
    for cluster in clusters:
        packs = -(-total // (threads * cluster))
        if cluster > rows_cut.largest(device) or packs > most or packs * weights > 4 * WEIGHTS:
            continue
        together = taking_turns(cluster, height, turns, device, resident)
        return Cut(packs, taken.vec, cluster, together, taken.ragged, threads) if together else None
    return None


def edge(lanes: int, vec: int, most: int = EDGE) -> int:
    """Packs of a row that begins anywhere, at most, whose elements so many threads take one by one."""
    return min(most, lanes // vec - 1)


def slots(threads: int, *, shifted: bool) -> int:
    """For a pack of each of so many threads, in shared memory.

    Where results begin elsewhere than what is read, a pack ends in the slot of the next lane, so that a warp has one
    slot more than lanes. And it has another: what begins amid a sector of memory is put amid one of shared memory,
    since copies from there to anywhere else take longer, and the next warp's slots begin with a sector again.
    """
    return threads + threads // 32 * 2 * shifted


def by_sectors(taken: Packs, columns: int, pitch: int, edge: int = EDGE) -> Packs:
    """Rows that begin at multiples of a pack, so many elements apart, as if they began anywhere, where that pays.

    Packs begin with a sector then, or with a line, while otherwise two warps write parts of a sector; and some, `edge`
    at most, are left to the edge, for which each thread would need one more.
    """
    total = columns // taken.vec
    amid = pitch % (SECTOR // VECTOR * taken.vec) > 0
    return taken._replace(ragged=True) if taken.full and (amid or _room(total - edge) < _room(total)) else taken


def _room(total: int) -> int:
    """For so many packs of a row, in packs of a thread of each block."""
    sizes = ((-(-total // (THREADS * cluster)), cluster) for cluster in CLUSTER.values)
    return next((packs * cluster for packs, cluster in sizes if packs <= MOST), 0)


def taking_turns(cluster: int, height: int, turns: int, device: int, resident: int = 1) -> int:
    """As many clusters of so many blocks, `resident` on a multiprocessor, as a device has room for; 0 where it has
    none, or `turns` rows for each are more than there are."""
    clusters = int(multiprocessors(device) * REACH[max(1, cluster // resident)]) * resident // cluster
    return clusters if turns * clusters <= height else 0


def taking(run: Run, device: int) -> Run:
    """A launch whose clusters claim rows: behind its pointers comes the counter of the claims."""

    def launch(pointers: Sequence[int], stream: int) -> None:
        _, claims, held = workspace(0, 1, device, stream)
        run((*pointers, claims), stream)
        del held  # once the launch is queued

    return launch


def derive(
    spec: Spec,
    found: int,
    arrays: int = 1,
    posted: bool = False,
    beside: int = 0,
    behind: int = 0,
    threads: int = THREADS,
    teams: int = 1,
    room: int = SHARED,
    shifted: bool = False,
    enough: int = SHARED,
) -> dict[str, int]:
    """The constants of a kernel that finds so many bytes of a part of a row, of so many arrays; `posted`: one warp
    posts 16 bytes of a row for all; `beside`: bytes of what else a block keeps in shared memory, of which it has so
    much `room`; `behind`: of what lies there behind the rows; `shifted`: results begin elsewhere than what is read;
    `enough`: bytes of rows, beyond which there are only STAGES of them.
    """
    blocks = spec["CLUSTER"] if spec["CLUSTER"] > 1 else 0  # that tell one another
    exchange = -(-(found * (threads // 32 + blocks) + 4 + 8) // 8 * 8)
    static = beside + teams * EXCHANGES * (-(-(exchange + 16 + 8) // 16 * 16) if posted else exchange)
    part = slots(threads, shifted=shifted) * spec["PACKS"] * VECTOR * arrays  # of a row
    fitting = (room - static - behind) // (teams * part)
    stages = min(fitting, max(STAGES, -(-enough // (teams * part))))
    return {
        "LANES": threads,
        "THREADS": teams * threads,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": max(teams * stages * part + behind, filling(static, room)),
        "STAGES": stages,
        "EXCHANGES": EXCHANGES,
        "CLUSTER": spec["CLUSTER"],
    }


def filling(static: int, room: int = SHARED) -> int:
    """Bytes that a block which may have `room` asks for at the least, besides `static` ones: no more blocks then share
    a multiprocessor than are to run on it. Where a launch begins while another ends, others would have none."""
    blocks = (SHARED + RESERVED) // (room + RESERVED)
    return (SHARED + RESERVED) // (blocks + 1) // VECTOR * VECTOR + VECTOR - RESERVED - static


def check(spec: Spec, stages: int = STAGES) -> str | None:
    """Why a combination of AXES is illegal, or None; `stages`: rows in shared memory, at least."""
    if spec["VEC"] * spec.dtype.itemsize != VECTOR:
        return f"what is fetched for later is of {VECTOR} bytes"
    if spec.derived["STAGES"] < stages:
        return f"there is shared memory for {stages} rows at least"
    return None


def text(spec: Spec, reduced: str, *, claimed: bool = True, lined: bool = False) -> dict[str, Any]:
    """What the templates need beside numbers; `reduced`: the type of what is found of a part; `claimed`: clusters claim
    rows as they get on, instead of at fixed turns; `lined`: packs of rows that begin anywhere begin with a line of
    memory, not only with a sector."""
    alone = spec["CLUSTER"] == 1
    return {
        **ALIGNED,
        "CLUSTER": spec["CLUSTER"],  # not that of ALIGNED
        "alone": alone,
        "team": "blockIdx.x" if alone else "blockIdx.x / CLUSTER",
        "threads_of_row": "LANES" if alone else "CLUSTER * LANES",
        "teller": "warp" if alone else "block",
        "tellers": "WARPS" if alone else "CLUSTER",
        "several_rows": False,
        "ragged": RAGGED.name in spec.flags,
        "sector": SECTOR // spec.dtype.itemsize,
        "line": LINE // spec.dtype.itemsize,
        "boundary": "LINE" if lined else "SECTOR",  # that packs begin with
        "there": "there(pack, head)" if RAGGED.name in spec.flags else "there(pack)",
        "shared": True,
        "turns": True,
        "ordered": False,
        "raised": False,
        "staged": True,
        "deferred": True,
        "claimed": claimed,
        "joined": False,
        "reduced": reduced,
    }
