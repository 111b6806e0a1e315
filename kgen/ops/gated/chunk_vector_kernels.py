"""The kernels of linear attention with a gate for each feature, in chunks of time steps on the tensor cores.

`gated_chunk_vector` walks along one segment of a sequence; where heads are few, `gated_chunk_vector_state` finds what
each segment adds to the state, and `gated_prefix` makes of these the states before each segment.
"""

from __future__ import annotations

from kgen.arch import Arch
from kgen.dtypes import BF16, F16, F32
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

CHUNK = 32
"""Time steps of a chunk."""
WIDEST = 128
"""Features that a chunk takes."""
LEVELS = 5
PREFIX_THREADS = 128
_HANDED_OVER = (240, 128)  # registers of consumers and producers, where 12 warps leave 168 for each


def _bytes(spec: Spec) -> int:
    """Of shared memory, as the template lays it out: two stages and the producers' workspace."""
    outer = spec.kernel.name.endswith("_state")
    features, values = spec["K"], spec["V"]
    row, v_row = 2 * (features + 8), 2 * (values + 8)
    tail = 4 * features + 4 * (features // 64) + 12
    stage = CHUNK * (row * (1 if outer else 2) + v_row + (0 if outer else 2 * (CHUNK + 8))) + tail
    stage = -(-stage // 8) * 8 + 16
    workspace = (0 if outer else (2 + LEVELS) * CHUNK * row) + 16 * features + 12 * (features // 16)
    return 2 * (-(-stage // 16) * 16) + -(-workspace // 16) * 16


def _geometry(spec: Spec) -> dict[str, int]:
    hands_over = spec["K"] == spec["V"] == 128
    return {
        "THREADS": 32 * (spec["K"] // 16 + spec["V"] // 32),
        "CHUNK": CHUNK,
        "PRODUCERS": spec["K"] // 16,
        "CONSUMER_REGISTERS": _HANDED_OVER[0] if hands_over else 0,
        "PRODUCER_REGISTERS": _HANDED_OVER[1] if hands_over else 0,
        "DYNAMIC_SMEM": _bytes(spec),
    }


def _text(spec: Spec) -> dict[str, bool | str]:
    outer = spec.kernel.name.endswith("_state")
    return {
        "outer": outer,
        "offset_type": {0: "", 4: "int", 8: "long long"}[spec["OFFSETS"]],
        "minus_infinity": "0xff80" if spec.dtype is BF16 else "0xfc00",
        **(dict.fromkeys(("bonus", "ufloat", "wide"), False) if outer else {}),
    }


def _problem(spec: Spec) -> str | None:
    if spec["bonus"] and spec["adjoint"]:
        return "with a bonus the gradient's scan is the scan itself"
    if spec["ufloat"] and not spec["bonus"]:
        return "what is not there has no type"
    return None


_AXES = (
    Axis("K", "k", (64, 128), "room for features of q and k; the true count comes at run time"),
    Axis("V", "v", (32, 64, 128), "value columns of a block, 32 for each warp that multiplies"),
    Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
)
_ADJOINT = Flag("adjoint", "a gradient's scan: a step decays the state after it was added")
_UNALIGNED = Flag("unaligned", "rows begin anywhere, and elements lie apart: they are loaded one by one")
_GFLOAT = Flag("gfloat", "gates are floats")
_ORIGIN = (
    "Yang et al., Gated Linear Attention Transformers, 2024, with decays by a binary tree of products in place of the "
    "paper's two levels of differences"
)

CHUNK_SCAN = register(
    Kernel(
        name="gated_chunk_vector",
        summary="Linear attention with a gate for each feature, in chunks of time steps on the tensor cores.",
        formula="S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T\no[t] = q[t]^T S",
        axes=_AXES,
        flags=(
            Flag("bonus", "a token reads the state before its gate, and itself times a bonus (RWKV6)"),
            _ADJOINT,
            Flag("wide", "results are floats"),
            _UNALIGNED,
            _GFLOAT,
            Flag("ufloat", "the bonus is floats"),
        ),
        dtypes=(BF16, F16),
        derive=_geometry,
        check=_problem,
        text=_text,
        grid="(ceil(values / V) * segments * heads * sequences): one block per tile of value columns of a segment",
        origin=_ORIGIN,
        min_arch=Arch(8, 0),
        defaults=("gated_chunk_vector_k128_v128_bf16", "gated_chunk_vector_k64_v64_bonus_f16"),
    )
)

CHUNK_STATE = register(
    Kernel(
        name="gated_chunk_vector_state",
        stem="gated_chunk_vector",
        summary="What each segment of a sequence adds to the state of gated linear attention, and how it decays it.",
        formula="S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T from S = 0, and the product of all e^g[t]",
        axes=_AXES,
        flags=(_ADJOINT, _UNALIGNED, _GFLOAT),
        dtypes=(BF16, F16),
        derive=_geometry,
        text=_text,
        grid="(ceil(values / V) * segments * heads * sequences): one block per tile of value columns of a segment",
        origin=_ORIGIN,
        min_arch=Arch(8, 0),
        defaults=("gated_chunk_vector_state_k128_v128_bf16",),
    )
)

PREFIX = register(
    Kernel(
        name="gated_prefix",
        summary="The states before each segment, each in place of what its segment adds.",
        formula="S[s + 1] = diag(decay[s]) S[s] + added[s]",
        axes=(),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": PREFIX_THREADS},
        grid="(ceil(features * values / THREADS) * heads * sequences): one thread per number of a state",
        origin="the second pass of a segmented scan",
        min_arch=Arch(8, 0),
        defaults=("gated_prefix_f32",),
    )
)
