"""The kernels of linear attention in chunks of time steps, on tensor cores, with at most one gate per head and step.

One primitive serves both passes, as `gated_scan` does, with the roles of kgen.ops.gated.scan_kernels:

    o[t] = z[t]^T S + sum over s <= t within t's chunk of (z[t] . x[s]) y[s],    S = S + sum of x[s] y[s]^T

each decayed by the gates between.
"""

from __future__ import annotations

from typing import Any

from kgen.arch import Arch
from kgen.dtypes import BF16, F16, F32
from kgen.ops.gated.kernels import offset_type
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

STAGES = 3
SUM_THREADS = 256

_HALF, _FLOAT = 2, 4  # bytes
_SIGNALS = 32  # bytes of mbarriers
_HALF_AN_SM = 113 * 1024  # bytes of shared memory of which a multiprocessor of Hopper has twice as many


def _up(nbytes: int) -> int:
    """To whole lines of shared memory."""
    return -(-nbytes // 128) * 128


def _geometry(spec: Spec) -> dict[str, int]:
    k, v, c, outer, gate = (spec[name] for name in ("K", "V", "C", "outer", "GATE"))
    scaled = spec.dtype is F16
    parts = 2 if spec["fine"] else 1
    warps = spec["WARPS"]
    stage = _HALF * c * (k * (1 if outer else 2) + v)
    prepared = 0 if outer else _HALF * parts * c * max(c, 64) + _FLOAT * c * (scaled * 2 + spec["products"])
    prepared += _FLOAT * (c * (1 if outer else 2) + 1) if gate else 0
    sums = _FLOAT * (2 * c + c // 16 + (0 if outer else c * 17)) if gate else 0
    smem = STAGES * stage + 2 * _up(prepared) + _SIGNALS + 2 * sums
    return {
        "THREADS": 32 * (warps + c // 16),
        "STATE_WARPS": warps,
        "GROUPS": v // 16 // warps,
        "AT_ONCE": c // 32 if k * (v // warps) >= 128 * 32 else c // 16,
        "LOADERS": c // 16,
        "PARTS": parts,
        "RESIDENT": 2 if smem <= _HALF_AN_SM and k * v <= 128 * 64 else 1,
        "DYNAMIC_SMEM": smem,
    }


def _text(spec: Spec) -> dict[str, Any]:
    """What the template asks beside the axes.

    meets        whether loaders make something of a chunk, so that they wait for one another
    mapped       arrays with the room and the count of their columns
    longer_rows  whether a row has more pieces than the loaders have threads
    """
    mapped = [("z", "K", "rows"), ("x", "K", "rows")][spec["outer"] :]
    if spec["turned"]:
        mapped = [("y", "V", "columns_left")]
    scaled = spec.dtype is F16
    factors = ["state_read_scale" if scaled else "read_scale"]
    factors += ["made.read[row]"] if spec["GATE"] else []
    factors += ["made.scale[row]"] if scaled else []
    with_slope = bool(spec["turned"] and not spec["outer"])
    return {
        "mma_type": spec.dtype.name,
        "scaled": scaled,
        "read_factor": " * ".join(factors),
        "hands_over": False,
        "meets": bool(spec["GATE"]) or not spec["outer"],
        "offset_type": offset_type(spec),
        "mapped": mapped if spec["FEATURE"] else [],
        "longer_rows": _HALF * spec["K"] // spec["BYTES"] > 32 * spec.derived["LOADERS"],
        "with_slope": with_slope,
        "with_own": bool(spec["products"]) or with_slope,
    }


def _problem(spec: Spec) -> str | None:
    if spec["outer"] and (spec["wide"] or spec["products"]):
        return "states have no results"
    if spec["V"] // 16 // spec["WARPS"] not in (1, 2):
        return "a warp holds 16 or 32 columns"
    if spec["fine"] and spec["outer"] and not spec["GATE"]:
        return "without a gate states are sums of products of inputs, which are exact"
    if spec["K"] * spec["V"] > 128 * 128:
        return "such a state needs more registers than a block has"
    if spec["K"] == 256 and spec["C"] == 64:
        return "such chunks need more shared memory than a block has"
    if spec["FEATURE"] and spec["GATE"]:
        return "features other than the inputs themselves go with no gate"
    if spec["FEATURE"] == 1 and spec.dtype is BF16:
        return "elu + 1 needs more bits than a bfloat16 has"
    if spec["turned"] and not spec["FEATURE"]:
        return "without a map it does not matter where features lie"
    if not spec["GATE"] and (spec["gfloat"] or spec["adjoint"] or spec["products"]):
        return "what is not there has no type, no order and no gradient"
    return None


CHUNK = register(
    Kernel(
        name="gated_chunk",
        summary="Linear attention with at most one gate per head and time step, in chunks on the tensor cores, the "
        "state in registers.",
        formula="o[t] = z[t]^T S + sum over s <= t within t's chunk of (z[t] . x[s]) y[s]\n"
        "S    = sum over s of the chunks before t's of x[s] y[s]^T,    each decayed by the gates between",
        axes=(
            Axis("K", "k", (64, 128, 256), "room for columns of z and x; the true count comes at run time"),
            Axis("V", "v", (64, 128), "columns of y of a block"),
            Axis("C", "c", (32, 64), "time steps of a chunk", default=64),
            Axis("WARPS", "w", (4, 8), "that hold the state"),
            Axis("FEATURE", "f", (0, 1, 2), "features of queries and keys: as they are, elu + 1, relu", default=0),
            Axis("GATE", "g", (0, 1), "gates: none, one per time step", default=0),
            Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
            Axis("BYTES", "b", (16, 8, 4, 2), "that are loaded at once; 2: rows of any stride", default=16),
        ),
        flags=(
            Flag("outer", "only the states: what each piece of a sequence adds"),
            Flag("adjoint", "a gradient's scan: a time step decays the state after it was added"),
            Flag("turned", "queries and keys lie along y and the result, not along z and x, and are mapped there"),
            Flag("products", "also each result times what it is the gradient of, for the gradient of gates"),
            Flag("wide", "results are floats"),
            Flag(
                "fine",
                "the state and the scores enter products in two parts, of 16 or 22 bits together, not of 8 or 11",
            ),
            Flag("gfloat", "gates are floats"),
        ),
        dtypes=(F16, BF16),
        derive=_geometry,
        check=_problem,
        text=_text,
        grid="(ceil(columns / V) * segments * heads * sequences): one block per tile of columns and segment of time",
        origin="Katharopoulos et al., Transformers are RNNs, 2020, in the chunked form of Hua et al., Transformer "
        "Quality in Linear Time, 2022; Yang et al., Gated Linear Attention Transformers, 2024",
        min_arch=Arch(8, 0),
        defaults=(
            "gated_chunk_k128_v128_w8_fine_bf16",
            "gated_chunk_k128_v128_w8_bf16",
            "gated_chunk_k128_v128_w8_outer_bf16",
            "gated_chunk_k64_v64_w4_g1_f16",
            "gated_chunk_k64_v64_w4_g1_adjoint_products_fine_bf16",
        ),
    )
)

PREFIX = register(
    Kernel(
        name="gated_chunk_prefix",
        summary="The states before the pieces of a sequence, each in place of what the piece before it adds.",
        formula="S[p + 1] = decay[p] S[p] + D[p + 1]",
        axes=(),
        flags=(Flag("gated", "a piece leaves a part of the state only"),),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": SUM_THREADS},
        grid="(ceil(numbers / (4 * THREADS)) * heads * sequences): one thread per four numbers of a state",
        origin="the second pass of a segmented scan",
        defaults=("gated_chunk_prefix_gated_f32",),
    )
)

STATE = register(
    Kernel(
        name="gated_chunk_state",
        summary="A state from the order of its caller into that of the registers of a scan in chunks, or back.",
        formula="packed = state",
        axes=(),
        flags=(Flag("unpack", "from the order of registers to the caller's"),),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": SUM_THREADS},
        grid="(ceil(numbers / (4 * THREADS)) * heads * sequences): one thread per four numbers of a state",
        origin="a permutation",
        defaults=("gated_chunk_state_f32", "gated_chunk_state_unpack_f32"),
    )
)

TURN = register(
    Kernel(
        name="gated_chunk_turn",
        summary="States from the order of registers of one scan into that of another, whose rows are its columns.",
        formula="turned = state^T",
        axes=(),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": SUM_THREADS},
        grid="(ceil(numbers / (4 * THREADS)) * slots * heads * sequences): one thread per four numbers of a state",
        origin="a permutation",
        defaults=("gated_chunk_turn_f32",),
    )
)

SLOPE = register(
    Kernel(
        name="gated_chunk_slope",
        summary="The gradient of gates, one per head and time step, from what the scans of dq and dk leave for it.",
        formula="dg[t + 1] = dg[t] + k[t] . dk[t] - q[t] . dq[t],    and S . dS at the beginning of each segment",
        axes=(
            Axis("C", "c", (32, 64), "time steps of which pieces of a sequence consist", default=64),
            Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
        ),
        flags=(Flag("wide", "results are floats"), Flag("gfloat", "gates are floats, and so are results")),
        dtypes=(F16, BF16),
        derive=lambda spec: {"THREADS": SUM_THREADS, "STATIC_SMEM": SUM_THREADS // 32 * 16},
        check=lambda spec: "results are floats already" if spec["wide"] and spec["gfloat"] else None,
        text=lambda spec: {"outer": False, "offset_type": offset_type(spec)},
        grid="(segments * heads * sequences): one block per segment of time",
        origin="Yang et al., Gated Linear Attention Transformers, 2024, with sums that restart",
        defaults=("gated_chunk_slope_bf16",),
    )
)
