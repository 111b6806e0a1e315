"""The kernels that normalise rows: those that stay in registers, and those of any length, which are read twice."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows
from kgen.ops.norm import formulas
from kgen.ops.rows_text import (
    ALIGNED,
    WEIGHT_TYPES,
    affine_of_edge,
    affine_of_packs,
    centred,
    off_mean,
    text_of_rows,
    text_of_weights,
    weight_of,
)
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

HELD = 40  # numbers of a row in a thread's registers

ACROSS = Flag("across", "a pack may end in another channel than it begins in")
AFFINE = (
    Flag("weight", "the result is multiplied by a vector"),
    Flag("bias", "a vector is added to the result"),
    Flag("channels", "weight and bias have one number for each channel of a group"),
    ACROSS,
    Flag("wfloat", "weight and bias are float"),
    Flag("whalf", "weight and bias are __half"),
    Flag("wbf", "weight and bias are __nv_bfloat16"),
)
GROUPED = Flag("grouped", "weight and bias go along as many rows as there are groups, one after another")
RMS = Flag("rms", "the mean is taken to be zero")
RESIDUAL = Flag("residual", "what is normalised is the sum of two arrays, which is stored")


def check_affine(spec: Spec) -> str | None:
    """Why a combination of AFFINE is illegal, or None."""
    own = [dtype for dtype, flag in WEIGHT_TYPES.items() if spec[flag]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if (own or spec["channels"]) and not (spec["weight"] or spec["bias"]):
        return "there are no weights"
    if spec["across"] and not spec["channels"]:
        return "there are no channels"
    if spec["rms"] and (spec["bias"] or spec["channels"]):
        return "without a mean there is neither a bias nor a group"
    return None


def vectors(spec: Spec) -> list[str]:
    """What goes with the columns of a row."""
    return [] if spec["channels"] else affines(spec)


def affines(spec: Spec) -> list[str]:
    """Which of weight and bias there are."""
    return [name for name in ("weight", "bias") if spec[name]]


def _kept(spec: Spec) -> int:
    """Bytes of weights for a pack that a block keeps, since it needs them for many rows; 0 where there is no room."""
    kept = len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize
    room = rows.SHARED // (rows.threads(spec) * spec["PACKS"]) - rows.VECTOR
    return kept if spec["looped"] and kept <= room else 0


def _gathered(spec: Spec) -> bool:
    """Whether a block gathers the weights of its group's channels in shared memory.

    That takes less time where packs of eight begin anywhere, and may end in another channel.
    """
    wide = spec["LANES"] > 32 and spec["CLUSTER"] == 1 and not spec["looped"]
    return bool(spec["ragged"] and spec["across"]) and wide and spec.dtype is not F32


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows.derive(spec, kept=_kept(spec))
    if _gathered(spec):
        derived["CHANNELS"] = spec["LANES"] * spec["PACKS"] + 1  # each is as wide as a pack, at least
        derived["STATIC_SMEM"] += derived["CHANNELS"] * F32.itemsize * len(affines(spec))
    plain = not (spec["rms"] or spec["ragged"] or spec["shifted"] or spec["looped"])
    if plain and spec["LANES"] == rows.WIDEST and spec["CLUSTER"] == 1 and spec["PACKS"] <= 4 and spec["VEC"] == 8:
        derived["RESIDENT"] = 3  # 40 registers hold packs of 16 bits; while one row meets, others are on their way
    return derived


def _text_of_rows(spec: Spec) -> dict[str, Any]:
    along = vectors(spec)
    return {
        **text_of_rows(spec, "Sum", weights=bool(along) and not _kept(spec), carried=spec.dtype is F32),
        **text_of_weights(spec),
        "in_two": rows.in_two(spec),
        "vectors": along,
        "kept": _kept(spec) > 0,
        "early": rows.single(spec) and not _kept(spec),
        "centred": centred(spec, "float_of(value[pack], i)"),
        "off": off_mean(spec, "float_of(value[pack], i)"),
        "affines": affines(spec),
        "gathered": _gathered(spec),
        "ahead": bool(spec["across"]) and (_gathered(spec) or (bool(spec["looped"]) and spec.dtype is not F32)),
        "affine": affine_of_packs(spec),
        "edge_centred": centred(spec, "edge[i]"),
        "edge_off": off_mean(spec, "edge[i]"),
        "edge_affine": affine_of_edge(spec, "[i]", gathered=_gathered(spec)),
    }


def _text_of_parts(spec: Spec) -> dict[str, Any]:
    shared = {**ALIGNED, "filled": spec["residual"], **text_of_weights(spec)}
    return {**shared, "centred": "value[pack][i]", "affines": affines(spec), "affine": affine_of_packs(spec)}


def _check_rows(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and (spec["shifted"] or (spec["ragged"] and not spec["across"])):
        return "the packs of a group are read as they are written, and end anywhere where they begin so"
    if spec["grouped"] and not vectors(spec):
        return "there are no weights along the rows"
    if spec["grouped"] and (spec["rms"] or spec["looped"]):
        return "a group's rows have a mean, and are short"
    if spec["residual"] and spec["looped"]:
        return "rows that are taken in turn are those of one array"
    return check_affine(spec) or rows.check(spec, HELD, looped_lanes=8)


NORM = register(
    rows.RowKernel(
        name="norm",
        summary="Normalises rows, which stay in registers.",
        formula=formulas.forward,
        axes=rows.AXES,
        flags=(
            RMS,
            RESIDUAL,
            *AFFINE,
            GROUPED,
            *rows.FLAGS,
        ),
        derive=_derive,
        text=_text_of_rows,
        check=_check_rows,
        grid="a row for each block, for each cluster of blocks, or for LANES neighbouring threads",
        origin="Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467",
        defaults=(
            "norm_t128_n8_v4_weight_bias_f32",
            "norm_t128_n4_v8_rms_weight_bf16",
            "norm_t96_n5_v4_weight_bias_ragged_f32",
            "norm_t128_n4_v8_rms_residual_weight_bf16",
            "norm_t512_n5_v4_weight_bias_channels_f32",
            "norm_t256_n4_v8_weight_bias_channels_across_ragged_bf16",
            "norm_t4_n2_v8_weight_bias_grouped_bf16",
        ),
    )
)


def _check_split(spec: Spec) -> str | None:
    if spec["partial"] and any(spec[flag.name] for flag in AFFINE):
        return "a part's moments are what they are, whatever comes of them"
    if spec["residual"] and not (spec["partial"] and spec["rms"]):
        return "a residual is added at the first reading, for an RMS norm"
    if spec["across"]:
        return "packs lie within channels"
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    return check_affine(spec)


SPLIT = register(
    Kernel(
        name="norm_split",
        summary="Normalises rows of any length in two launches, each of which reads them.",
        formula=formulas.forward,
        axes=(
            Axis("LANES", "t", (128, 256, 512), "threads of a block", default=512),
            Axis("PACKS", "n", (1, 2, 4, 8, 16), "packs that a thread has in flight", default=4),
            rows.VEC,
        ),
        flags=(
            RMS,
            Flag("partial", "only the moments of the parts; without it, what follows from them"),
            Flag("residual", "the moments are those of the sum of two arrays, which is stored"),
            *AFFINE,
        ),
        derive=lambda spec: {"THREADS": spec["LANES"], "STATIC_SMEM": spec["LANES"] // 32 * 12},
        text=_text_of_parts,
        check=_check_split,
        grid="a block for each part of a row",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=("norm_split_v8_partial_bf16", "norm_split_v8_weight_bias_channels_bf16"),
    )
)
