"""The kernel of norms of rows that blocks or clusters of them take in turn."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm import formulas
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, affines, check_affine, vectors
from kgen.ops.norm.ring_memory import HALF, beside, derive, gathered, posted, raised, stages, widened
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
CLAIMED = 512  # packs of a row, from which on claims, made one after another, take no longer than rows
SHIFTED = Flag("shifted", "what is written begins at other places in its packs than what is read")
PACKS = Axis("PACKS", "n", tuple(range(2, 14)), "packs of a thread in its block's part of a row")


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and spec["ragged"] and not spec["across"]:
        return "packs that begin anywhere end so"
    if spec["LANES"] < rows_ring.THREADS and not (beside(spec) or spec["shifted"]):
        return "fewer threads share a row only where weights lie in shared memory, or results begin elsewhere"
    if spec["LANES"] < HALF and (spec["residual"] or (spec["CLUSTER"] > 1 and spec["LANES"] < HALF // 2)):
        return "several rows of a block are those of one array, and few where a cluster has them"
    if spec["LANES"] == 32 and spec["shifted"]:
        return "a warp has no lanes for so wide an edge"
    if spec["shifted"] and (spec["residual"] or spec["channels"] or not spec["ragged"]):
        return "packs of one array's result begin with a sector, wherever those of memory do"
    if spec["shifted"] and vectors(spec) and not beside(spec):
        return "there is no room for weights in shared memory"
    if spec["LANES"] == rows_ring.THREADS and spec["PACKS"] > rows_ring.MOST:
        return "so many threads have no registers for more packs"
    kept = len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize * spec["PACKS"]
    if kept > 4 * rows_ring.WEIGHTS and not beside(spec):
        return "a thread has no registers for so many weights"
    return check_affine(spec) or rows_ring.check(spec, stages(spec))


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
    in_shared, of_groups, as_float = beside(spec), gathered(spec), widened(spec)
    kept = bool(vectors(spec)) and not in_shared  # in registers
    own: dict[str, Any] = {"affine": affine(spec, "weight_of(affine)", "bias_of(affine)")} if in_shared else {}
    if spec.derived["ROWS"] > 1:
        block = "blockIdx.x / CLUSTER" if spec["CLUSTER"] > 1 else "blockIdx.x"
        own |= {"several_rows": True, "shared": False, "team": f"{block} * ROWS + threadIdx.x / LANES"}
    turns = text_of_turns(spec, "edge")
    return {
        **turns,
        "shifted": bool(spec["shifted"]),
        "lifted": bool(spec["shifted"]),
        "raised": raised(spec),
        "margin": spec["VEC"] if spec["shifted"] else 0,
        "asked": turns["there"],
        "needed": "needed(pack, head)",
        "posted": posted(spec),
        "at_once": not kept,
        "edge_most": (rows_ring.EDGE + 1) * spec["VEC"] - 1,  # elements of an edge
        "ordered": bool(spec["ragged"]) and kept,
        "beside": in_shared,
        "widened": as_float,
        "halves": not as_float and weight_of(spec) is not F32 and len(vectors(spec)) > 1,
        "affine_bytes": (F32 if as_float else weight_of(spec)).itemsize * len(vectors(spec)),
        "quick": spec["LANES"] == HALF and spec.dtype is not F32,
        "affines": affines(spec),
        "edge_affine": affine_of_edge(spec, gathered=of_groups),
        "gathered": of_groups,
        "fixed": spec.derived["ROWS"] > 1 and spec["LANES"] * spec["PACKS"] < CLAIMED,
        **own,
    }


RING = register(
    Kernel(
        name="norm_ring",
        summary="Normalises wide rows, which blocks, or clusters of them, take in turn.",
        formula=formulas.forward,
        axes=(LANES, PACKS, rows_ring.VEC, rows_ring.CLUSTER),
        flags=(RMS, RESIDUAL, *AFFINE, RAGGED, SHIFTED),
        derive=derive,
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
            "norm_ring_t64_n4_v8_c1_weight_bias_wfloat_ragged_shifted_bf16",
            "norm_ring_t256_n5_v8_c2_weight_bias_ragged_shifted_bf16",
            "norm_ring_t128_n13_v8_c2_weight_bias_wfloat_ragged_bf16",
            "norm_ring_n4_v8_c2_weight_bias_channels_across_bf16",
            "norm_ring_n4_v4_c4_weight_bias_channels_across_ragged_f32",
        ),
    )
)
