"""The kernel of norms of rows that blocks or clusters of them take in turn."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, affines, check_affine, vectors
from kgen.ops.rows import VECTOR, shared_for
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_text import (
    affine,
    affine_of_edge,
    affine_of_packs,
    centred,
    off_mean,
    text_of_weights,
    weight_of,
)
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

LANES = Axis("LANES", "t", (32, 64, 128, 256, 512), "threads of a block that share a row", default=rows_ring.THREADS)
ROWS = {32: 12, 64: 8, 128: 4}  # of a block at once, at most, by the threads that share one
CLAIMED = 512  # packs of a row, from which on claims, made one after another, take no longer than rows
SHIFTED = Flag("shifted", "what is written begins at other places in its packs than what is read")
HALF = rows_ring.THREADS // 2
"""Threads of a block whose rows stay in registers, which does better with a row that has a mean: what a warp does for a
row, however many packs of it there are, takes longer than what it does for the packs of a wider block."""
CHANNELS = 2560  # of all groups, at most, where their weights lie in shared memory
SHARING = 4  # packs of a thread, at most, where two blocks of half as many threads share a multiprocessor
PACKS = Axis("PACKS", "n", tuple(range(2, 14)), "packs of a thread in its block's part of a row")
FEW = 6  # packs of a thread, up to which what is done besides takes longer than memory


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and spec["ragged"] and not spec["across"]:
        return "packs that begin anywhere end so"
    if spec["LANES"] < rows_ring.THREADS and not (_beside(spec) or spec["shifted"]):
        return "fewer threads share a row only where weights lie in shared memory, or results begin elsewhere"
    if spec["LANES"] in ROWS and (spec["CLUSTER"] > 1 or spec["residual"] or spec["shifted"]):
        return "several rows of a block are those of one array, and whole"
    if spec["shifted"] and (spec["residual"] or spec["channels"] or not spec["ragged"]):
        return "packs of one array's result begin with a sector, wherever those of memory do"
    if spec["shifted"] and vectors(spec) and not _beside(spec):
        return "there is no room for weights in shared memory"
    if spec["LANES"] == rows_ring.THREADS and spec["PACKS"] > rows_ring.MOST:
        return "so many threads have no registers for more packs"
    kept = len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize * spec["PACKS"]
    if kept > 4 * rows_ring.WEIGHTS and not _beside(spec):
        return "a thread has no registers for so many weights"
    return check_affine(spec) or rows_ring.check(spec, _stages(spec))


def _derive(spec: Spec) -> dict[str, int]:
    found = {"ROWS": _rows_at_once(spec), **({"CHANNELS": CHANNELS} if _gathered(spec) else {})}
    return found | _constants(spec, _behind(spec) if _beside(spec) else 0, found["ROWS"], posted=_posted(spec))


def _constants(spec: Spec, behind: int, teams: int = 1, *, posted: bool) -> dict[str, int]:
    found, arrays = 4 if spec["rms"] else 8, 1 + spec["residual"]
    channels = CHANNELS * F32.itemsize * len(affines(spec)) if _gathered(spec) else 0
    lanes, resident = spec["LANES"], _resident(spec["LANES"], spec["PACKS"])
    derived = rows_ring.derive(
        spec,
        found,
        arrays,
        lanes + spec["shifted"] * lanes // 32,
        posted=posted,
        beside=channels,
        behind=behind,
        threads=lanes,
        teams=teams,
        room=shared_for(resident),
    )
    return {**derived, "RESIDENT": resident}


def _resident(lanes: int, packs: int) -> int:
    """Blocks of a multiprocessor: while one waits for what its warps have found, another goes on."""
    return 1 if lanes in ROWS or packs > SHARING else rows_ring.THREADS // lanes


def _gathered(spec: Spec) -> bool:
    """Whether the weights of all channels lie in shared memory: packs that begin anywhere lie in others in each row."""
    return bool(spec["channels"] and spec["ragged"]) and spec["PACKS"] <= FEW


def _beside(spec: Spec) -> bool:
    """Whether weights of columns lie in shared memory: packs of rows that begin anywhere have others in each row."""
    anywhere = bool(spec["ragged"] and vectors(spec))
    least = rows_ring.STAGES - (spec["shifted"] or (spec["LANES"] == HALF and not spec["residual"]))
    return anywhere and _constants(spec, _behind(spec), posted=spec["LANES"] > 32)["STAGES"] >= least


def _rows_at_once(spec: Spec) -> int:
    """As many rows as a block has room for."""
    most = ROWS.get(spec["LANES"], 1) if spec["CLUSTER"] == 1 and _beside(spec) else 1
    while most > 1 and _constants(spec, _behind(spec), most, posted=_posted(spec))["STAGES"] < rows_ring.STAGES:
        most -= 1
    return most


def _raised(spec: Spec) -> bool:
    """Whether a row is in registers from when it is found until it is written, and shared memory free for another."""
    return bool(spec["shifted"]) or (spec["LANES"] == HALF and not spec["residual"] and _beside(spec))


def _stages(spec: Spec) -> int:
    return rows_ring.STAGES - _raised(spec)


def _behind(spec: Spec) -> int:
    """Bytes of these weights: of a block's packs, and of some more behind as many as there are threads."""
    packs = spec["PACKS"] * (spec["LANES"] + rows_ring.SECTOR // VECTOR + spec["shifted"])
    return packs * spec["VEC"] * weight_of(spec).itemsize * len(vectors(spec))


def _posted(spec: Spec) -> bool:
    """Whether one warp finds out what follows for a row, for all: of groups in clusters of two, and where weights take
    up the registers, each warp does better by itself."""
    return (bool(spec["channels"]) and spec["CLUSTER"] >= 4) or (_beside(spec) and spec["LANES"] > 32)


def _known(spec: Spec) -> list[str]:
    """What all threads need to know of a row, as it is declared."""
    mean = [] if spec["rms"] else ["float mean;"]
    rest = ["float rest;  // what rstd misses"] if spec.dtype is F32 else []
    return [*mean, "float rstd;", *rest, "int coming;  // the row that comes where this one lies"]


def text_of_turns(spec: Spec, edge: str) -> dict[str, Any]:
    """What templates of norms need whose rows are taken in turn; `edge`: a thread's number outside of packs."""
    edge = "edge.of_x" if spec["residual"] else edge
    return {
        **rows_ring.text(spec, "float" if spec["rms"] else "float2"),
        **text_of_weights(spec),
        "carried": spec.dtype is F32,
        "known": _known(spec),
        "merges": {"Sum": "a + b"},
        "moments": not spec["rms"],
        "sources": ["x", "residual"] if spec["residual"] else ["x"],
        "edge": edge,
        "vectors": vectors(spec),
        "held": True,
        # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
        "folded": "" if spec.dtype is F32 or spec["rms"] else "float_of(value, i)",
        "centred": centred(spec, "float_of(value, i)"),
        "off": off_mean(spec, "float_of(value, i)"),
        "affine": affine_of_packs(spec),
        "edge_centred": centred(spec, f"to_float({edge})"),
        "edge_off": off_mean(spec, f"to_float({edge})"),
        "edge_affine": affine_of_edge(spec),
    }


def _text(spec: Spec) -> dict[str, Any]:
    beside, gathered = _beside(spec), _gathered(spec)
    kept = bool(vectors(spec)) and not beside  # in registers
    own: dict[str, Any] = {"affine": affine(spec, "weight_of(affine)", "bias_of(affine)")} if beside else {}
    if spec.derived["ROWS"] > 1:
        own |= {"several_rows": True, "shared": False, "team": "blockIdx.x * ROWS + threadIdx.x / LANES"}
    turns = text_of_turns(spec, "edge")
    return {
        **turns,
        "shifted": bool(spec["shifted"]),
        "lifted": bool(spec["shifted"]),
        "raised": _raised(spec),
        "margin": spec["VEC"] if spec["shifted"] else 0,
        "asked": turns["there"],
        "needed": "needed(pack, head)",
        "posted": _posted(spec),
        "at_once": not kept,
        "edge_most": (rows_ring.EDGE + 1) * spec["VEC"] - 1,  # elements of an edge
        "ordered": bool(spec["ragged"]) and kept,
        "beside": beside,
        "halves": weight_of(spec) is not F32 and len(vectors(spec)) > 1,
        "affine_bytes": weight_of(spec).itemsize * len(vectors(spec)),
        "affines": affines(spec),
        "edge_affine": affine_of_edge(spec, gathered=gathered),
        "gathered": gathered,
        "fixed": spec.derived["ROWS"] > 1 and spec["LANES"] * spec["PACKS"] < CLAIMED,
        **own,
    }


RING = register(
    Kernel(
        name="norm_ring",
        summary="Normalises wide rows, which blocks, or clusters of them, take in turn.",
        formula="y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]",
        axes=(LANES, PACKS, rows_ring.VEC, rows_ring.CLUSTER),
        flags=(RMS, RESIDUAL, *AFFINE, RAGGED, SHIFTED),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=(
            "norm_ring_n8_v4_c1_weight_bias_ragged_f32",
            "norm_ring_n5_v8_c1_weight_bias_bf16",
            "norm_ring_n8_v4_c4_weight_bias_f32",
            "norm_ring_n8_v8_c2_rms_weight_bf16",
            "norm_ring_n4_v8_c2_weight_bias_ragged_bf16",
            "norm_ring_n4_v8_c2_rms_residual_weight_bf16",
            "norm_ring_n2_v4_c2_rms_residual_weight_ragged_f32",
            "norm_ring_n7_v8_c2_rms_weight_ragged_bf16",
            "norm_ring_t32_n4_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_t64_n4_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_t256_n3_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_t256_n4_v8_c1_weight_bias_ragged_shifted_bf16",
            "norm_ring_t256_n8_v4_c2_weight_bias_ragged_shifted_f32",
            "norm_ring_n4_v8_c2_weight_bias_channels_across_bf16",
            "norm_ring_n4_v4_c4_weight_bias_channels_across_ragged_f32",
        ),
    )
)
