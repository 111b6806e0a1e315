"""The gradients of a norm and its weights over many rows, which stay in shared memory, and are taken in turn.

A row is that of some threads of a block, or of a cluster of blocks. The packs of the rows that follow are on their way
all the time. A thread has several packs of columns, since all else that it does for a row costs the same however many
they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from kgen.device import shared_memory
from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.backward_kernels import BIAS, OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows import SHARED, VEC, VECTOR
from kgen.ops.rows_text import WEIGHT_TYPES, centred, text_of_weights, weight_of
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 512  # of a block, which has a multiprocessor to itself: 128 registers each
SECTOR = rows_ring.SECTOR // VECTOR  # packs that memory is read and written by
LINE = 8  # packs of a line of memory
WIDE = 32768  # columns, up to which threads do best with few packs each; beyond, with many, and smaller clusters
EXCHANGES = 4  # of what is found of a row, in turn
TURNS = 8  # rows of the same threads, from which on it pays
LEAST = {4: 960, 8: 320}  # columns from which on it pays, as measured, by the elements of a pack
EVEN = 4096  # likewise, without a bias, where packs are a power of two, which leave no thread idle elsewhere
SHARED_RAGGED = {4: 7169, 8: 6145}  # likewise, where a block shares a ragged row
OTHERS = ((64, 4), (256, 2))  # lanes and packs of ragged rows of 16 bits, where others do better
PLAIN = 2  # blocks of a cluster, up to which so many clusters have room that all rows of one begin at the same place
import os
EXTRA: dict[str, bool] = {w: True for w in os.environ.get("G12", "").split()}
SUMS = 32
"""Columns of a thread, at most."""
FEW, MANY = (2, 3, 4), (4, 3, 2)
"""Packs of a thread, those that do better first, of rows that leave room for those that follow."""
LANES = Axis("LANES", "t", (32, 64, 128, 256, 512), "threads of a block that share a row", default=THREADS)
PACKS = Axis("PACKS", "n", (2, 3, 4, 8), "packs of each array, that a thread has of a row")
RAGGED = (
    Flag("ragged", "rows begin anywhere, or end so, not at multiples of a pack"),
    Flag("lined", "packs of such rows begin with a line of memory, not only with a sector"),
)
OFFSET = Flag("offset", "the result was multiplied by weights that a number was added to")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a row, as a cluster", default=1)


class Cut(NamedTuple):
    """A point on the axes, and how many blocks or clusters take rows."""

    lanes: int
    packs: int
    vec: int
    cluster: int
    teams: int
    lined: bool = False

    @property
    def blocks(self) -> int:
        """Of the launch."""
        return self.cluster * self.teams

    def sorted(self, *, ragged: bool) -> bool:
        """Whether rows are taken in the order of where they begin in a sector.

        There are too few large clusters to give each rows that all begin alike.
        """
        return ragged and self.cluster > PLAIN

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        axes = {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec, "CLUSTER": self.cluster}
        return {**axes, "lined": self.lined}

    def __str__(self) -> str:
        blocks = f"{self.cluster} blocks of " if self.cluster > 1 else ""
        return f"{blocks}{self.lanes} threads, which take rows in turn"


def cut(height: int, columns: int, taken: rows_cut.Packs, device: int, *, bias: bool, turns: int = TURNS) -> Cut | None:
    """The cut for so many rows, so wide, or None where another does better, or the device has no room for one."""
    clusters = [cluster for cluster in CLUSTER.values if cluster <= rows_cut.largest(device)]
    if (
        not taken.full
        or taken.shifted
        or columns < LEAST[taken.vec]
        or shared_memory(device) < SHARED
        or len(clusters) == 1
    ):
        return None
    sizes = [(lanes, 1) for lanes in LANES.values[:-1]] + [(THREADS, cluster) for cluster in clusters]
    total = columns // taken.vec
    if columns < EVEN and not (taken.ragged or bias or total & (total - 1)):
        return None
    alone = taken.ragged and bias and taken.vec == 8
    loose = taken.vec if taken.ragged else 0
    found = _least_idle(total, sizes, FEW if columns <= WIDE else MANY, loose, alone=alone)
    if found is None and PACKS.values[-1] * taken.vec <= SUMS:  # then there is shared memory for one row
        found = _least_idle(total, sizes, PACKS.values[-1:], loose)
    if found is None or not _pays(columns, taken, *found):
        return None
    lanes, packs, cluster = found
    teams = rows_ring.taking_turns(cluster, height // (THREADS // lanes), turns, device)
    lined = False
    if taken.ragged and cluster <= PLAIN:  # rows of the same threads all begin at the same place
        step = max(1, _boundary(lanes) * taken.vec * lanes // THREADS)
        line = LINE * taken.vec
        lined = lanes == THREADS and teams // line * line == teams // step * step > 0
        teams = teams // step * step
    return Cut(lanes, packs, taken.vec, cluster, teams, lined) if teams else None


def by_sectors(taken: rows_cut.Packs, columns: int, pitch: int) -> rows_cut.Packs:
    """Rows that begin at multiples of a pack, so many elements apart, as if they began anywhere, where they are wide:
    packs begin with a sector then, of which otherwise two warps read and write parts."""
    amid = pitch % (SECTOR * taken.vec) > 0
    wide = taken.full and not taken.shifted and columns >= SHARED_RAGGED[taken.vec]
    return taken._replace(ragged=True) if amid and wide else taken


def _pays(columns: int, taken: rows_cut.Packs, lanes: int, packs: int, cluster: int) -> bool:
    """Whether others do no better, as measured, with rows that are shared so."""
    if taken.vec == 4 and packs == 3 and cluster == 1:
        return False
    if not taken.ragged:
        return True
    if lanes == THREADS:
        return columns >= SHARED_RAGGED[taken.vec]
    return (lanes, packs) not in OTHERS if taken.vec == 8 else _boundary(lanes) == SECTOR


def _least_idle(
    total: int, sizes: Sequence[tuple[int, int]], each: Sequence[int], loose: int = 0, *, alone: bool = False
) -> tuple[int, int, int] | None:
    """Lanes, packs of a thread, and blocks of a cluster, that have room for so many packs, and the least to spare.

    `each`: how many packs of a thread to try. Of those that do as well the first is taken; of rows that begin anywhere,
    with so many elements of a pack to be taken one by one where there is no room for it, the first whose rows' packs
    begin with a sector, and need not be sorted; `alone`: one block before two. None where no size has room.
    """

    def room(lanes: int, packs: int, cluster: int) -> int:
        threads = lanes * cluster  # each takes one of the elements before and behind the packs
        return packs * threads + (threads // loose - 1 if loose and lanes == THREADS else 0)

    smallest = [next(((n, c) for n, c in sizes if room(n, packs, c) >= total), None) for packs in each]
    cuts = [(n, next(p for p in PACKS.values if room(n, p, c) >= total), c) for n, c in filter(None, smallest)]

    def order(cut: tuple[int, int, int]) -> tuple[int, bool, bool]:
        lanes, _, cluster = cut
        return math.prod(cut), loose > 0 and (_boundary(lanes) < SECTOR or cluster > PLAIN), alone and cluster > 1

    return min(cuts, key=order, default=None)


def _boundary(lanes: int) -> int:
    """Of how many packs those of a row that begins anywhere begin at multiples, which does best."""
    return 1 if 64 < lanes < THREADS else SECTOR


def _derive(spec: Spec) -> dict[str, int]:
    lanes, cluster = spec["LANES"], spec["CLUSTER"]
    found = 4 if spec["rms"] else 8  # bytes
    exchange = found * (lanes // 32 + (cluster if cluster > 1 else 0)) + 8
    static = EXCHANGES * (THREADS // lanes) * (-(-exchange // 8) * 8) if lanes > 32 else 0
    if spec["ragged"] and lanes < THREADS:
        static += 4 * (THREADS // lanes) * (1 + (_boundary(lanes) + 1) * spec["VEC"] * (1 + spec["bias"]))
    weights = THREADS * spec["PACKS"] * spec["VEC"] * weight_of(spec).itemsize
    packs, slot = spec["PACKS"], 2 * THREADS * VECTOR
    held = bool(spec["rms"]) and SHARED - static - weights < 2 * packs * slot
    weights = 0 if held else weights
    ring = (SHARED - static - weights) // slot
    ring = ring // packs * packs if ring >= 2 * packs else ring  # a part of a row is better than none
    return {
        "THREADS": THREADS,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": ring * slot + weights,
        "RING": ring,
        "HELD": held,
        "SORTED": bool(spec["ragged"]) and cluster > PLAIN,
        "EXCHANGES": EXCHANGES,
        "CLUSTER": cluster,
    }


def _text(spec: Spec) -> dict[str, Any]:
    factor = "(weight_offset + weight)" if spec["offset"] else "weight"
    less = "number * slope" if spec["rms"] else "fmaf(number - mean, slope, sum)"
    gradient = f"rstd * fmaf(dy, {factor}, -{less})"
    # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
    folded = spec.dtype is not F32 and not spec["rms"]
    return {
        **rows_ring.text(spec, "float" if spec["rms"] else "float2", claimed=False),
        **text_of_weights(spec),
        "ragged": bool(spec["ragged"]),
        "sectors": bool(spec["ragged"]) and _boundary(spec["LANES"]) == SECTOR,
        "sorted": spec.derived["SORTED"],
        # Whole lines are asked for where that took less time: not by clusters, nor by few threads for many packs.
        "lines": spec["CLUSTER"] == 1 and not spec["rms"] and (spec["LANES"] > 64 or spec.dtype is not F32),
        "sector": (LINE if spec["lined"] else SECTOR) * spec["VEC"],
        "several_rows": spec["LANES"] < THREADS,
        "parted": True,
        "by_row": bool(spec["xr"]) != (spec["PACKS"] == 3 and spec.derived["RING"] % spec["PACKS"] == 0),
        "held": spec.derived["HELD"],  # weights, in registers
        "ahead": spec["LANES"] == THREADS and spec.derived["RING"] >= 2 * spec["PACKS"],
        "merges": {"Sum": "a + b" if spec["rms"] else "make_float2(a.x + b.x, a.y + b.y)"},
        "channels": False,
        "tight": spec["ragged"] and spec["bias"] and spec["PACKS"] * spec["VEC"] == SUMS,  # few registers are left
        "folded": folded,
        "normal": "fmaf(number, rstd, of_zero)" if folded else centred(spec, "number") + " * rstd",
        "upstream": f"dy * {factor}",
        "gradient": f"fmaf(rstd, dy * {factor}, fmaf(number, pull, push))" if folded else gradient,
        "sum_type": "double" if spec.dtype is F32 else "float",
    }


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if spec["lined"] and not (spec["ragged"] and spec["LANES"] == THREADS and spec["CLUSTER"] <= PLAIN):
        return "only rows of whole blocks that need not be sorted begin with a line"
    if spec["offset"] and not spec["rms"]:
        return "a number is added to the weights of RMS norms only"
    if spec["CLUSTER"] > 1 and spec["LANES"] < THREADS:
        return "a cluster is of whole blocks"
    if spec["PACKS"] * spec["VEC"] > SUMS:
        return f"a thread has no registers for the sums of more than {SUMS} columns"
    if spec.derived["RING"] < spec["PACKS"]:
        return "there is shared memory for a row at least"
    return None if spec["VEC"] * spec.dtype.itemsize == VECTOR else f"what is fetched for later is of {VECTOR} bytes"


RING = register(
    Kernel(
        name="norm_backward_ring",
        summary="The gradient of the input of a norm, and sums for those of its weights, over many rows.",
        formula="n[i] = (x[i] - mean) rstd,  g[i] = dy[i] weight[i]\ndx[i] = rstd (g[i] - mean(g) - n[i] mean(g n))",
        axes=(LANES, PACKS, VEC, CLUSTER),
        flags=(RMS, *OWN, BIAS, OFFSET, *RAGGED, Flag("xr","x")),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="the chain rule",
        defaults=(
            "norm_backward_ring_t64_n2_v8_bias_bf16",
            "norm_backward_ring_t64_n4_v8_rms_ragged_bf16",
            "norm_backward_ring_t128_n2_v8_bias_ragged_bf16",
            "norm_backward_ring_t256_n3_v8_bias_bf16",
            "norm_backward_ring_n2_v8_rms_ragged_bf16",
            "norm_backward_ring_n2_v4_c4_bias_f32",
            "norm_backward_ring_n4_v8_c4_rms_bf16",
            "norm_backward_ring_n8_v4_c2_rms_f32",
            "norm_backward_ring_n8_v4_c2_bias_ragged_f32",
            "norm_backward_ring_n4_v8_c4_bias_ragged_f16",
        ),
    )
)
