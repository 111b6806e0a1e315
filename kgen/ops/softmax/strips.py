"""The softmax of columns that stay in shared memory, strip after strip: the kernel."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows_cut
from kgen.ops.rows import LINE, SHARED, VECTOR
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.columns import RAGGED, pairs, text_of_columns
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = {False: 512, True: 256}
"""Of a block that hold packs: one block for each multiprocessor, since two that are half as large were no faster. Where
the grid shares strips, fewer: they have registers for packs."""
CHUNK = 2  # rows of a thread that come together
KEPT = 8  # chunks in registers, at most, where the grid shares strips
LEAD = {False: 2, True: 16}
"""Chunks of further strips that are taken before a result is begun, at most: where a cluster shares strips, or the
grid, whose blocks hear one another only some 7 us later."""
COMING = {False: 2, True: 5}  # chunks on their way, at least
FIRST = 4  # chunks that are asked for at once, at least
LEAST = 4  # bytes of a copy that does without registers
WIDTHS = (128, 256, 512, 1024)
"""Bytes of a row in a strip: in narrower ones, columns are copied at half the speed, or less."""
EARS = 128  # threads of a block that hear the others of its team, beside those that hold packs
HEARD = 5  # blocks of a team that a lane hears
SECTOR = 32  # bytes that memory, and shared memory, are written by
STATIC = 48 * 1024  # bytes of shared memory that a kernel may declare
FOUND = 32 * 1024  # of these for what the threads of a block find, beyond which half of them tell the others first

LANES = Axis("LANES", "l", (8, 16, 32, 64), "threads side by side, each on a pack of columns")
PACKS = Axis("PACKS", "n", (4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48), "rows of a thread, of a strip")
VEC = Axis("VEC", "v", (1, 2, 4, 8), "neighbours that make a pack, and are loaded and stored at once")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a strip, as a cluster", default=1)
AXES = (LANES, PACKS, VEC, CLUSTER)
FLAGS = tuple(flag for flag in softmax_flags.FLAGS if flag.name in ("log", "scaled"))
GRID = Flag("grid", "any blocks share a strip, all of which run at once")


def threads(spec: Spec) -> int:
    """How many of a block hold packs."""
    return THREADS[bool(spec["grid"])]


def _kept(chunks: int) -> int:
    """How many chunks of a strip of so many wait in registers: all registers come round as often."""
    return max(kept for kept in range(1, KEPT + 1) if chunks % kept == 0 and kept < chunks)


def _lead(spec: Spec, stages: int) -> int:
    """How many chunks are taken before a result is begun, if there is room for so many."""
    chunks = spec["PACKS"] // CHUNK
    if spec["grid"]:
        return min(LEAD[True], stages + _kept(chunks) - chunks - COMING[True])
    return max(1, min(stages - chunks - COMING[False], LEAD[False], chunks - 1))


def _alike(spec: Spec) -> bool:
    """Whether all rows of a thread begin at the same place in a sector, of two packs, whatever their length."""
    apart = spec["CLUSTER"] * (threads(spec) // spec["LANES"])
    return bool(spec["ragged"]) and apart % (2 * spec["VEC"]) == 0


def _derive(spec: Spec) -> dict[str, int]:
    cluster, width, chunks = spec["CLUSTER"], spec["LANES"] * spec["VEC"], spec["PACKS"] // CHUNK
    workers = threads(spec)
    chunk = workers * CHUNK * spec["VEC"] * spec.dtype.itemsize
    slots = workers // max(32, spec["LANES"])
    gap = 16 // max(1, workers // width)
    pitch = width + gap
    totals = (12 if spec.dtype is F32 and not spec["log"] else 8) * width
    # Of how many strips blocks tell one another at the same time: a power of two, by which it is faster to divide.
    turns = 1 << (_lead(spec, SHARED // chunk - 1) // chunks + 1).bit_length()
    if spec["grid"]:
        totals, exchanges = turns * totals, 2 * 8 * turns
    else:
        exchanges = 2 * (8 * cluster * pitch + 16) if cluster > 1 else 8
    found = 8 * slots * pitch
    folded = spec["ragged"] and cluster == 1 and found > FOUND
    if spec["ragged"]:
        slots //= 1 + folded
        found = 8 * (slots * pitch - gap)
    static = -(-(found + -(-totals // 8) * 8 + exchanges) // LINE) * LINE
    stages = (SHARED - static) // chunk
    if not spec["grid"]:
        stages = min(stages, 3 * chunks)
    lead = _lead(spec, stages)
    matched = _alike(spec) and static + stages * (chunk + CHUNK * SECTOR) <= SHARED
    chunk += matched * CHUNK * SECTOR
    return {
        "THREADS": workers + (EARS if spec["grid"] else 0),
        "WORKERS": workers,
        "EARS": EARS,
        "TURNS": turns,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": stages * chunk,
        "DEPTH": workers // spec["LANES"],
        "SLOTS": slots,
        "FOLDED": int(folded),
        "MATCHED": int(matched),
        "RING": workers + 2 * matched,
        "CHUNK": CHUNK,
        "CHUNKS": chunks,
        "KEPT": _kept(chunks) if spec["grid"] else 0,
        "STAGES": stages,
        "LEAD": lead,
        "FIRST": min(stages, max(FIRST, stages - chunks - lead)),
        "CLUSTER": cluster,
        "HEARD": HEARD,
        "AHEAD": -(-stages // chunks),
    }


def check(spec: Spec) -> str | None:
    """Why a combination of AXES and flags is illegal, or None."""
    size = spec["VEC"] * spec.dtype.itemsize
    if not LEAST <= size <= VECTOR or (spec["ragged"] and size != VECTOR):
        return f"what is fetched for later is of {LEAST} to {VECTOR} bytes, or of {VECTOR} where rows begin anywhere"
    if spec["LANES"] * size not in WIDTHS or spec["LANES"] * spec["VEC"] > threads(spec):
        return "strips are " + ", ".join(map(str, WIDTHS)) + f" bytes wide, and of {threads(spec)} columns at most"
    if spec["grid"] and (spec["CLUSTER"] > 1 or spec["ragged"] or spec.derived["LEAD"] < 2):
        return "a team of the grid's blocks needs time to tell what it finds, and nothing that would take more"
    derived = spec.derived
    if derived["STATIC_SMEM"] > STATIC or derived["STAGES"] + derived["KEPT"] <= derived["CHUNKS"] + derived["LEAD"]:
        return "there is no shared memory for a strip, and what is to come"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    number = softmax_flags.scaled(spec, "float_of(taken, i)")
    folded = spec.dtype is not F32 and not spec["log"]
    answer = softmax_flags.answer(spec, softmax_flags.below(spec, number, "peak[i]"), "[i]")
    return {
        **text_of_columns(spec),
        "staged": True,
        "lines": True,
        "teamed": True,
        "ragged": bool(spec["ragged"]),
        "overlapping": bool(spec["ragged"]),
        "grid": bool(spec["grid"]),
        "begin": "part * DEPTH + " if spec["grid"] else "cluster_rank() * DEPTH + " if spec["CLUSTER"] > 1 else "",
        "number": number,
        "pairs": spec.dtype is not F32,
        "slack": spec.dtype is not F32 and not spec["scaled"],
        **pairs(spec),
        "deferred": True,
        "power": "addend" if spec.dtype is F32 else "exponential",
        "lse": False,
        "folded": folded,
        "answer": f"exponential_times({number} - peak[i], inverse[i])" if folded else answer,
    }


STRIPS = register(
    Kernel(
        name="softmax_strips",
        summary="Softmax along columns, strips of which stay in shared memory.",
        formula=formulas.down,
        axes=AXES,
        flags=(*FLAGS, RAGGED, GRID),
        derive=_derive,
        text=_text,
        check=check,
        min_arch=rows_cut.CLUSTERS,
        grid="as many blocks, clusters or teams for many strips as all multiprocessors have room for",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=(
            "softmax_strips_l8_n8_v4_c2_f32",
            "softmax_strips_l8_n16_v8_bf16",
            "softmax_strips_l16_n4_v4_ragged_f32",
            "softmax_strips_l32_n4_v8_ragged_bf16",
            "softmax_strips_l16_n32_v8_grid_bf16",
            "softmax_strips_l16_n32_v4_grid_f32",
        ),
    )
)


def rows_of(spec: Spec) -> int:
    """How many rows a block or a cluster has room for."""
    return spec.derived["DEPTH"] * spec["PACKS"] * spec["CLUSTER"]
