"""What a block of norm_ring keeps on its multiprocessor: rows, of which it may have several at once, and weights."""

from __future__ import annotations

from kgen.dtypes import F32
from kgen.ops import rows_ring
from kgen.ops.norm.kernels import affines, vectors
from kgen.ops.rows import VECTOR, shared_for
from kgen.ops.rows_text import weight_of
from kgen.spec import Spec

ROWS = {32: 12, 64: 8, 128: 4, 256: 2}
"""Rows of a block at once, at most, by the threads that share one. While warps of one wait, those of others go on, with
the same weights."""
HALF = rows_ring.THREADS // 2
"""Threads of a block whose rows stay in registers, which does better with a row that has a mean: what a warp does for a
row, however many packs of it there are, takes longer than what it does for the packs of a wider block."""
SHARING = 4  # packs of a thread, at most, where two blocks of half as many threads share a multiprocessor
PAIRED = 7  # packs of a thread, at most, where a block has two rows of half as many threads at once
CHANNELS = 2560  # of all groups, at most, where their weights lie in shared memory
FEW = 6  # packs of a thread, up to which what is done besides takes longer than memory


def derive(spec: Spec) -> dict[str, int]:
    """The constants of the kernel."""
    found = {"ROWS": _rows_at_once(spec), **({"CHANNELS": CHANNELS} if gathered(spec) else {})}
    behind = _behind(spec, F32.itemsize if widened(spec) else 0) if beside(spec) else 0
    return found | _constants(spec, behind, found["ROWS"], posted=posted(spec))


def _constants(spec: Spec, behind: int, teams: int = 1, *, posted: bool) -> dict[str, int]:
    found, arrays = 4 if spec["rms"] else 8, 1 + spec["residual"]
    channels = CHANNELS * F32.itemsize * len(affines(spec)) if gathered(spec) else 0
    lanes, resident = spec["LANES"], _resident(spec["LANES"], spec["PACKS"])
    derived = rows_ring.derive(
        spec,
        found,
        arrays,
        posted=posted,
        beside=channels,
        behind=behind,
        threads=lanes,
        teams=teams,
        room=shared_for(resident),
        shifted=bool(spec["shifted"]),
        enough=rows_ring.ENOUGH // resident,
    )
    return {**derived, "RESIDENT": resident}


def _resident(lanes: int, packs: int) -> int:
    """Blocks of a multiprocessor: while one waits for what its warps have found, another goes on."""
    return 1 if lanes < HALF or packs > SHARING else rows_ring.THREADS // lanes


def gathered(spec: Spec) -> bool:
    """Whether the weights of all channels lie in shared memory: packs that begin anywhere lie in others in each row."""
    return bool(spec["channels"] and spec["ragged"]) and spec["PACKS"] <= FEW


def beside(spec: Spec) -> bool:
    """Whether weights of columns lie in shared memory: packs of rows that begin anywhere have others in each row."""
    anywhere = bool(spec["ragged"] and vectors(spec))
    least = rows_ring.STAGES - (spec["shifted"] or _halved(spec))
    return anywhere and _constants(spec, _behind(spec), posted=spec["LANES"] > 32)["STAGES"] >= least


def _rows_at_once(spec: Spec) -> int:
    """As many rows as a block has room for."""
    most = ROWS.get(spec["LANES"], 1) if beside(spec) else 1
    if spec["LANES"] == HALF and not _paired(spec):
        most = 1
    elif spec["CLUSTER"] > 1:
        most = min(most, 2)
    while most > 1 and _constants(spec, _behind(spec), most, posted=posted(spec))["STAGES"] < stages(spec):
        most -= 1
    return most


def _paired(spec: Spec) -> bool:
    """Whether a block has two rows at once, each of half as many threads: RMS norms have less to wait for."""
    return SHARING < spec["PACKS"] <= PAIRED and not (spec["rms"] or spec["residual"])


def raised(spec: Spec) -> bool:
    """Whether a row is in registers from when it is found until it is written, and shared memory free for another."""
    return bool(spec["shifted"]) or (_halved(spec) and beside(spec))


def _halved(spec: Spec) -> bool:
    """Whether a row has half as many threads as it may have, or a quarter of a cluster, where these leave registers
    for it."""
    quarter = spec["LANES"] == HALF // 2 and spec["CLUSTER"] > 1
    return quarter or (spec["LANES"] == HALF and not spec["residual"])


def stages(spec: Spec) -> int:
    """Rows in shared memory, at least."""
    return rows_ring.STAGES - raised(spec)


def _behind(spec: Spec, size: int = 0) -> int:
    """Bytes of these weights: of a block's packs, and of some more behind as many as there are threads; `size`: of one,
    if not what it has in memory."""
    packs = spec["PACKS"] * (spec["LANES"] + rows_ring.SECTOR // VECTOR + spec["shifted"])
    return packs * spec["VEC"] * (size or weight_of(spec).itemsize) * len(vectors(spec))


def widened(spec: Spec) -> bool:
    """Whether these lie there as float, where there is room: then no row has to take pairs of 16 bits apart."""
    if not spec["shifted"] or weight_of(spec) is F32 or len(vectors(spec)) < 2:
        return False
    wide = _constants(spec, _behind(spec, F32.itemsize), _rows_at_once(spec), posted=posted(spec))
    return wide["STAGES"] >= stages(spec)


def posted(spec: Spec) -> bool:
    """Whether one warp finds out what follows for a row, for all: of groups in clusters of two, and where weights take
    up the registers, each warp does better by itself."""
    return (bool(spec["channels"]) and spec["CLUSTER"] >= 4) or (beside(spec) and spec["LANES"] > 32)
