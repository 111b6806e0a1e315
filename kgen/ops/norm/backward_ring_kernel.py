"""The gradients of a norm and its weights over many rows, which stay in shared memory, and are taken in turn.

A row is that of some threads of a block, or of a cluster of blocks. The packs of the rows that follow are on their way
all the time. A thread has several packs of columns, since all else that it does for a row costs the same however many
they are.
"""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm import formulas
from kgen.ops.norm.backward_kernels import BIAS, OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows import SHARED, VEC, VECTOR
from kgen.ops.rows_text import WEIGHT_TYPES, centred, text_of_weights, weight_of
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 512  # of a block, which has a multiprocessor to itself: 128 registers each
SECTOR = rows_ring.SECTOR // VECTOR  # packs that memory is read and written by
LINE = 8  # packs of a line of memory
EXCHANGES = 4  # of what is found of a row, in turn
PLAIN = 2  # blocks of a cluster, up to which so many clusters have room that all rows of one begin at the same place
SUMS = 32
"""Columns of a thread, at most."""
LANES = Axis("LANES", "t", (32, 64, 128, 256, 512), "threads of a block that share a row", default=THREADS)
PACKS = Axis("PACKS", "n", (2, 3, 4, 8), "packs of each array, that a thread has of a row")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a row, as a cluster", default=1)
RAGGED = (
    Flag("ragged", "rows begin anywhere, or end so, not at multiples of a pack"),
    Flag("lined", "packs of such rows begin with a line of memory, not only with a sector"),
)
OFFSET = Flag("offset", "the result was multiplied by weights that a number was added to")


def boundary(lanes: int) -> int:
    """Of how many packs those of a row that begins anywhere begin at multiples, which does best."""
    return 1 if 64 < lanes < THREADS else SECTOR


def _derive(spec: Spec) -> dict[str, int]:
    lanes, cluster = spec["LANES"], spec["CLUSTER"]
    found = 4 if spec["rms"] else 8  # bytes
    exchange = found * (lanes // 32 + (cluster if cluster > 1 else 0)) + 8
    static = EXCHANGES * (THREADS // lanes) * (-(-exchange // 8) * 8) if lanes > 32 else 0
    if spec["ragged"] and lanes < THREADS:
        static += 4 * (THREADS // lanes) * (1 + (boundary(lanes) + 1) * spec["VEC"] * (1 + spec["bias"]))
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
    sectors = bool(spec["ragged"]) and boundary(spec["LANES"]) == SECTOR
    return {
        **rows_ring.text(spec, "float" if spec["rms"] else "float2", claimed=False),
        **text_of_weights(spec),
        "ragged": bool(spec["ragged"]),
        "sectors": sectors,
        "sorted": spec.derived["SORTED"],
        # Whole lines are asked for where that took less time: not by clusters, nor by few threads for many packs.
        "lines": spec["CLUSTER"] == 1 and not spec["rms"] and (spec["LANES"] > 64 or spec.dtype is not F32),
        "sector": (LINE if spec["lined"] else SECTOR) * spec["VEC"],
        "boundary": "BOUNDARY" if spec["lined"] else "SECTOR" if sectors else "VEC",
        "several_rows": spec["LANES"] < THREADS,
        "parted": True,
        # All packs of a row are asked for at once where that took less time: addresses are found once.
        "by_row": spec["PACKS"] == 3,
        "held": spec.derived["HELD"],  # weights, in registers
        # A row that fills shared memory is gone through as it arrives: little else is on its way.
        "arriving": spec.derived["RING"] < 2 * spec["PACKS"],
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


def _formula(spec: Spec) -> str:
    return formulas.backward(spec, offset=bool(spec["offset"]))


RING = register(
    Kernel(
        name="norm_backward_ring",
        summary="The gradient of the input of a norm, and sums for those of its weights, over many rows.",
        formula=_formula,
        axes=(LANES, PACKS, VEC, CLUSTER),
        flags=(RMS, *OWN, BIAS, OFFSET, *RAGGED),
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
            "norm_backward_ring_n3_v4_c2_bias_ragged_lined_f32",
            "norm_backward_ring_n8_v4_c2_bias_ragged_f32",
            "norm_backward_ring_n4_v8_c4_bias_ragged_f16",
        ),
    )
)
