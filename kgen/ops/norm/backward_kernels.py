"""The kernels behind the gradients of a norm: of x row by row, of the weights as sums over the rows."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows
from kgen.ops.norm import formulas
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows_text import ALIGNED, WEIGHT_TYPES, centred, text_of_rows, text_of_weights
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

HELD = 24  # numbers of each row in a thread's registers
SUMMED = 16  # of them, where the thread adds up what the gradients of the weights are made of, too; more of narrow rows
TOGETHER = {1024: 8, 512: 20, 384: HELD}  # threads of a multiprocessor that have registers for so many
FETCHING = 512  # of them, at most, where they fetch rows ahead: more bytes on their way would be none the faster
SUM_LANES = 8  # of a row, at least, for sums
TOTAL_THREADS = 512
STAGES = Axis("STAGES", "s", (1, 2, 3), "rows of a thread that are on their way while it works on one", default=1)
BIAS = Flag("bias", "the gradient of a bias, too")
OWN = tuple(Flag(word, f"the weights are {dtype.c}") for dtype, word in WEIGHT_TYPES.items())


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if own and not spec["weight"]:
        return "there are no weights"
    if spec["sums"] and (not spec["weight"] or spec["LANES"] < SUM_LANES):
        return "a thread adds up what it has of the columns of a weight"
    if spec["STAGES"] > 1 and not (spec["sums"] and spec["looped"]):
        return "several rows are on their way to blocks that take them in turn, and add up their sums"
    if spec["bias"] and not spec["sums"]:
        return "the gradient of a bias is a sum, too"
    if spec["sums"] and spec["PACKS"] * spec["VEC"] > HELD:
        return f"a thread has no registers for more than {HELD} sums"
    if spec["STAGES"] > 1 and spec["LANES"] > together(spec):
        return f"so many numbers of a thread are fetched ahead by at most {together(spec)} threads"
    return rows.check(spec, HELD, SUM_LANES if spec["STAGES"] > 1 else rows.BLOCK)


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows.derive(spec, fetched=2, pairs=not spec["rms"])
    if not spec["sums"]:
        return derived if spec["looped"] else {**derived, "RESIDENT": 0}
    numbers = spec["PACKS"] * spec["VEC"]
    if spec["STAGES"] > 1:
        derived["THREADS"] = beside(spec) * spec["LANES"]
        derived["STATIC_SMEM"] *= beside(spec)
        derived["DYNAMIC_SMEM"] = spec["STAGES"] * 2 * rows.VECTOR * spec["PACKS"] * derived["THREADS"]
    # Sums leave by shared memory, those of the weights and then those of the bias.
    derived["DYNAMIC_SMEM"] = max(derived["DYNAMIC_SMEM"], 4 * derived["THREADS"] * numbers)
    side_by_side = derived["THREADS"] // spec["LANES"]
    if side_by_side > 1 and (spec["ragged"] or spec["shifted"]):
        loose = rows.edges(spec, weights=False, sectors=sectors(spec))
        derived["STATIC_SMEM"] += 4 * side_by_side * (1 + spec["LANES"] * loose)
    room = rows.SHARED // (derived["DYNAMIC_SMEM"] + rows.RESERVED)
    return {**derived, "RESIDENT": max(1, min(together(spec) // derived["THREADS"], room))}


def together(spec: Spec) -> int:
    """Threads of a multiprocessor that have registers for what each keeps of its columns."""
    numbers = spec["PACKS"] * spec["VEC"]
    most = next(threads for threads, most in TOGETHER.items() if numbers <= most)
    if spec["STAGES"] > 1:
        return min(most, FETCHING)
    # More have no registers for what a lane has of both ends, too.
    return min(most, 768) if spec["LANES"] <= 32 and spec["ragged"] else most


def beside(spec: Spec) -> int:
    """Rows of a block that fetches several ahead: as many as fill a multiprocessor, so that sums have few parts.

    Rows that begin anywhere do better with two blocks where a warp has one, and by themselves where four or more do.
    """
    if spec["CLUSTER"] > 1 or (spec["ragged"] and spec["LANES"] >= rows.BLOCK):
        return 1
    return together(spec) // spec["LANES"] // (2 if spec["ragged"] and spec["LANES"] == 32 else 1)


def sectors(spec: Spec) -> bool:
    """Whether packs begin with a sector of memory wherever rows begin, so that no two warps have parts of one."""
    return bool(spec["ragged"]) and spec["STAGES"] > 1


def _text(spec: Spec) -> dict[str, Any]:
    factor = "(weight_offset + weight)" if spec["rms"] else "weight"
    less = "number * slope" if spec["rms"] else "fmaf(number - mean, slope, sum)"
    upstream = f"dy * {factor}" if spec["weight"] else "dy"
    gradient = f"rstd * fmaf(dy, {factor}, -{less})" if spec["weight"] else f"rstd * (dy - {less})"
    # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
    folded = spec.dtype is not F32 and not spec["rms"]
    by_warp = spec.threads == spec["LANES"]  # a row is that of the whole block
    return {
        **text_of_rows(
            spec,
            "Sum",
            weights=bool(spec["weight"]) and not spec["sums"],
            pairs=not spec["rms"],
            sectors=sectors(spec),
        ),
        **text_of_weights(spec),
        "turns": spec["looped"] or spec["sums"],
        "row_type": "unsigned" if spec["sums"] else "long long",
        "staged": bool(spec["looped"]),
        "filling": bool(spec["looped"]),
        "filled": not spec["looped"] or spec.threads > spec["LANES"],
        "by_warp": by_warp,
        "asked": "__shfl_sync(0xffffffff, next_%s, 0)" if by_warp else "row < rows ? next_%s : 0.0f",
        "channels": False,
        "lines": spec["looped"] and spec["CLUSTER"] == 1 and not spec["rms"],  # asked for where that took less time
        "folded": folded,
        "normal": "fmaf(number, rstd, of_zero)" if folded else centred(spec, "number") + " * rstd",
        "upstream": upstream,
        "gradient": f"fmaf(rstd, {upstream}, fmaf(number, pull, push))" if folded else gradient,
        "sum_type": "double" if spec.dtype is F32 else "float",
    }


def _derive_total(spec: Spec) -> dict[str, int]:
    lanes = spec["LANES"]
    depth = TOTAL_THREADS // lanes
    slices = min(depth, TOTAL_THREADS // 32)  # a warp adds up what its lanes have of a column
    shared = 8 * lanes * slices if depth > 1 else 0
    return {"THREADS": TOTAL_THREADS, "DEPTH": depth, "SLICES": slices, "STATIC_SMEM": shared}


def _formula(spec: Spec) -> str:
    return formulas.backward(spec, weight=bool(spec["weight"]), sums=bool(spec["sums"]))


BACKWARD = register(
    rows.RowKernel(
        name="norm_backward",
        summary="The gradient of the input of a norm along rows that stay in registers.",
        formula=_formula,
        axes=(*rows.AXES, STAGES),
        flags=(
            RMS,
            Flag("weight", "the result was multiplied by a vector"),
            *OWN,
            Flag("sums", "the sums over rows of which the gradient of the vector is made, too"),
            BIAS,
            *rows.FLAGS,
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="a row, or many, for each block, for each cluster of blocks, or for LANES neighbouring threads",
        origin="the chain rule",
        defaults=(
            "norm_backward_t128_n4_v4_f32",
            "norm_backward_t32_n2_v8_weight_sums_bias_bf16",
            "norm_backward_t32_n2_v4_weight_sums_bias_ragged_f32",
            "norm_backward_t256_n2_v8_s2_rms_weight_sums_looped_bf16",
            "norm_backward_t64_n2_v8_s2_rms_weight_sums_ragged_looped_f16",
        ),
    )
)

WEIGHTS = register(
    Kernel(
        name="norm_weights",
        summary="The gradients of the weights of a norm: sums over parts of the rows.",
        formula=lambda spec: (
            f"dweight[i] = sum over rows of dy[i] {'x[i]' if spec['rms'] else '(x[i] - mean)'} rstd"
            + (",  dbias[i] = sum over rows of dy[i]" if spec["bias"] else "")
        ),
        axes=(
            Axis("LANES", "t", (8, 16, 32), "threads side by side", default=16),
            Axis("DEPTH", "d", (8, 16, 32), "threads that share a column", default=16),
            rows.VEC,
        ),
        flags=(RMS, BIAS),
        derive=lambda spec: {
            "THREADS": spec["LANES"] * spec["DEPTH"],
            "STATIC_SMEM": 4 * (1 + spec["bias"]) * spec["DEPTH"] * spec["LANES"] * spec["VEC"],
        },
        text=lambda spec: {**ALIGNED, "centred": centred(spec, "float_of(value, i)")},
        check=lambda spec: (
            "no load is wider than 16 bytes" if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR else None
        ),
        grid="a block for each strip of columns and part of the rows",
        origin="the chain rule",
        defaults=("norm_weights_v4_bias_f32",),
    )
)

TOTAL = register(
    Kernel(
        name="norm_total",
        summary="The gradients of the weights of a norm, from those of the parts of its rows.",
        formula="dweight[i] = sum over the parts",
        axes=(Axis("LANES", "t", (8, 32, 128, 512), "columns of a block, side by side", default=32),),
        flags=(BIAS,),
        derive=_derive_total,
        grid="a block for LANES columns, of the weights and then of the bias",
        origin="the second pass of a segmented sum",
        defaults=("norm_total_bias_f32", "norm_total_t512_bias_bf16"),
    )
)
