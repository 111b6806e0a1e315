"""What the templates of kernels on rows need beside numbers: qualifiers, types, and expressions that flags decide."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import BF16, F16, F32, DType
from kgen.ops import rows
from kgen.spec import Spec

WEIGHT_TYPES = {F32: "wfloat", F16: "whalf", BF16: "wbf"}
"""The flag that says of which type weights are, where that is not the type of the rows."""

ALIGNED = {
    "CLUSTER": 1,
    "ragged": False,
    "shifted": False,
    "edged": False,
    "looped": False,
    "any_weights": False,
    "kept": False,
    "filled": False,
    "carried": False,
}
"""For kernels without such flags: a block has a row to itself, and all packs begin at multiples of a pack."""

_MERGES = {
    "float": {"Max": "fmaxf(a, b)", "Sum": "a + b"},
    "float2": {"Sum": "make_float2(a.x + b.x, a.y + b.y)"},
}


def text_of_rows(
    spec: Spec,
    *reductions: str,
    weights: bool = False,
    pairs: bool = False,
    joined: bool = False,
    carried: bool = False,
    masked: bool = False,
    sectors: bool = False,
) -> dict[str, Any]:
    """For the kernels on `rows.AXES`, with the reductions over a row that they use: "Max", "Sum".

    `weights`: whether vectors that begin anywhere go with the packs; `pairs`: reductions are of two numbers at once;
    `joined`: those over a warp are of one, and what warps have found is two; `carried`: what threads have added up is
    carried on as doubles; `masked`: what a mask says of packs begins anywhere, as weights do; `sectors`:
    packs begin with a sector of the result, and those of a warp are neighbours.
    """
    reduced = "float2" if pairs or joined else "float"
    merges = _MERGES["float2" if pairs else "float"]
    resident = spec.derived["RESIDENT"]
    bounds = f"__launch_bounds__({spec.threads}, {resident})" if resident else f"__launch_bounds__({spec.threads})"
    return {
        "bounds": f"__cluster_dims__(CLUSTER, 1, 1) {bounds}\n   " if spec["CLUSTER"] > 1 else bounds,
        "shared": spec["LANES"] > 32,
        "warps_pair": spec["LANES"] & (spec["LANES"] - 1) == 0,
        "turns": spec["looped"],
        "reduced": reduced,
        "merges": {name: merges[name] for name in reductions},
        "joined": joined,
        "carried": carried,
        "edged": bool(spec["ragged"] or spec["shifted"]),
        "any_weights": bool(spec["ragged"]) and weights,
        "margin": rows.margin(spec, weights=weights or masked),
        "edges": rows.edges(spec, weights=weights or masked, sectors=sectors),
        "sectors": sectors,
        "in_two": False,
        "filled": True,
    }


def weight_of(spec: Spec) -> DType:
    """The type of the weights, of those kernels that have some."""
    return next((dtype for dtype, flag in WEIGHT_TYPES.items() if spec[flag]), spec.dtype)


def text_of_weights(spec: Spec) -> dict[str, Any]:
    """For the kernels that multiply rows by weights, of their own type or another."""
    weight = weight_of(spec)
    return {
        "weight_type": weight.c,
        "half_weights": weight is F16 and spec.dtype is not F16,
        "bfloat16_weights": weight is BF16 and spec.dtype is not BF16,
        "weight_to_float": {F16: "__half2float(x)", BF16: "__bfloat162float(x)"}.get(weight, "x"),
        "weights_alignment": min(spec["VEC"] * weight.itemsize, rows.VECTOR),
    }


def off_mean(spec: Spec, number: str) -> str:
    """A number of a row less the mean; the root mean square is taken about zero."""
    return number if spec["rms"] else f"{number} - mean"


def centred(spec: Spec, number: str) -> str:
    """The same, as a factor."""
    return number if spec["rms"] else f"({off_mean(spec, number)})"


def affine(spec: Spec, weight: str = "weight_of(weights, i)", bias: str = "weight_of(biases, i)") -> str:
    """What becomes of `normal`, a normalised number, by weight and bias."""
    result = "normal"
    if spec["weight"]:
        result += f" * (weight_offset + {weight})" if spec["rms"] else f" * {weight}"
    return f"{result} + {bias}" if spec["bias"] else result


def affine_of_edge(spec: Spec, at: str = "", *, gathered: bool = False) -> str:
    """The same of a number outside of packs; `gathered`: what goes with its channel lies in shared memory."""
    if gathered:
        return affine(spec, "edge_channel.weight", "edge_channel.bias")
    return affine(spec, f"weight_to_float(edge_weight{at})", f"weight_to_float(edge_bias{at})")


def affine_of_packs(spec: Spec) -> str:
    """The same of packs, where the weight of a channel is in it already."""
    if spec["channels"]:
        return "normal + shift" if spec["bias"] else "normal"
    return affine(spec)
