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
STAGES = 3
PREFIX_THREADS = 128
DOT_THREADS = 256
SCORERS = 4
BLOCKS = 8  # of time steps, by which producers share a chunk
_HANDED_OVER = (232, 112, 56)  # registers of consumers, producers and scorers, where 16 warps leave 128 for each
_HANDED_OVER_BY_TWO = (240, 128, 0)  # and 12 warps 168


def _bytes(spec: Spec) -> int:
    """Of shared memory, as the template lays it out."""
    outer = spec.kernel.name.endswith("_state")
    features, values = spec["K"], spec["V"]
    row, v_row = 2 * (features + 8), 2 * (values + 8)
    halves = CHUNK * (row * (1 if outer else 2) + v_row + (0 if outer else 2 * (CHUNK + 8)))
    stage = halves + 4 * features + 32
    levels = 0 if outer else CHUNK * row * (2 + LEVELS) + 16
    notes = 4 * BLOCKS * features + 12 * (features // 16)
    return STAGES * stage + 2 * (levels + -(-notes // 16) * 16)


def _geometry(spec: Spec) -> dict[str, int]:
    scorers = 0 if spec.kernel.name.endswith("_state") else SCORERS
    made = {
        "THREADS": 32 * (spec["V"] // 32 + spec["K"] // 16 + scorers),
        "CHUNK": CHUNK,
        "PRODUCERS": spec["K"] // 16,
        "DYNAMIC_SMEM": _bytes(spec),
    }
    consumer, producer, scorer = (0, 0, 0) if spec["K"] < 128 else _HANDED_OVER if scorers else _HANDED_OVER_BY_TWO
    return made | {"CONSUMER_REGISTERS": consumer, "PRODUCER_REGISTERS": producer, "SCORER_REGISTERS": scorer}


def _text(spec: Spec) -> dict[str, bool | str]:
    outer = spec.kernel.name.endswith("_state")
    return {
        "outer": outer,
        "turned": False,
        "tensors": "kvg" if outer else "qkvg",
        "offset_type": {0: "", 4: "int", 8: "long long"}[spec["OFFSETS"]],
        **(dict.fromkeys(("bonus", "ufloat", "wide"), False) if outer else {"shifted": False}),
    }


def _problem(spec: Spec) -> str | None:
    if spec["K"] == 128 and spec["V"] < 128:
        return "registers are handed over by four warps or none"
    if spec.kernel.name.endswith("_state"):
        return None
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
        min_arch=Arch(9, 0),
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
        flags=(_ADJOINT, Flag("shifted", "for gradients with a bonus: a step late"), _UNALIGNED, _GFLOAT),
        dtypes=(BF16, F16),
        derive=_geometry,
        check=_problem,
        text=_text,
        grid="(ceil(values / V) * segments * heads * sequences): one block per tile of value columns of a segment",
        origin=_ORIGIN,
        min_arch=Arch(9, 0),
        defaults=("gated_chunk_vector_state_k128_v128_bf16",),
    )
)


_FACTORS = 48
"""Rows of factors: of each time step, of the blocks of 2, 4, 8 and 16 that others follow, and one of ones."""


def _turned_bytes(spec: Spec) -> int:
    room = spec["ROOM"]
    row = 2 * (room + 8)
    tiles = 4 * CHUNK * row + LEVELS * CHUNK // 2 * row
    scores = 4 * CHUNK * 16 + 16 * 48 + 4 * CHUNK
    stage = tiles + scores + 4 * _FACTORS * (room + 8) + 4 * room + 16 + 24
    notes = 4 * BLOCKS * room + 12 * (room // 16)
    arrivals = (4 if spec["gfloat"] else 2) * CHUNK * room + 6 * CHUNK * room
    bonus = 4 * room if spec["bonus"] else 0
    return 2 * (-(-stage // 16) * 16 + -(-notes // 16) * 16) + arrivals + bonus


def _turned_geometry(spec: Spec) -> dict[str, int]:
    room = spec["ROOM"]
    consumer, producer, scorer = (0, 0, 0) if room < 128 else _HANDED_OVER
    return {
        "THREADS": 32 * (room // 32 + room // 16 + SCORERS),
        "CHUNK": CHUNK,
        "PRODUCERS": room // 16,
        "DYNAMIC_SMEM": _turned_bytes(spec),
        "CONSUMER_REGISTERS": consumer,
        "PRODUCER_REGISTERS": producer,
        "SCORER_REGISTERS": scorer,
    }


def _turned_text(spec: Spec) -> dict[str, bool | str]:
    slopes = spec.kernel.name.endswith("_key")
    return {
        "slopes": slopes,
        "turned": True,
        "adjoint": slopes,
        "wide": False,
        "offset_type": {0: "", 4: "int", 8: "long long"}[spec["OFFSETS"]],
    }


def _turned(name: str, summary: str, formula: str) -> Kernel:
    return register(
        Kernel(
            name=name,
            stem="gated_chunk_vector_turned",
            summary=summary,
            formula=formula,
            axes=(Axis("ROOM", "r", (64, 128), "room for features and for values"), _AXES[2]),
            flags=(
                Flag("bonus", "a token reads the state before its gate, and itself times a bonus (RWKV6)"),
                _UNALIGNED,
                _GFLOAT,
                Flag("ufloat", "the bonus is floats"),
            ),
            dtypes=(BF16, F16),
            derive=_turned_geometry,
            check=lambda spec: "what is not there has no type" if spec["ufloat"] and not spec["bonus"] else None,
            text=_turned_text,
            grid="(segments * heads * sequences): one block per segment",
            origin=_ORIGIN,
            min_arch=Arch(9, 0),
            defaults=(f"{name}_r128_bf16",),
        )
    )


CHUNK_QUERY = _turned(
    "gated_chunk_vector_query",
    "The gradient of gated linear attention's queries, in chunks of time steps on the tensor cores.",
    "S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T\ndq[t] = S[t] do[t]",
)
CHUNK_KEY = _turned(
    "gated_chunk_vector_key",
    "The gradient of gated linear attention's keys and gates, in chunks of time steps on the tensor cores.",
    "S[t] = diag(e^g[t]) (S[t + 1] + q[t] do[t]^T)\ndk[t] = S[t] v[t],  dg[t] = dg[t + 1] + q[t] dq[t] - k[t] dk[t]",
)


DOT = register(
    Kernel(
        name="gated_dot",
        summary="How much of each token's value its own result's gradient takes.",
        formula="dots[b, h, t] = scale v[b, h, t] . do[b, h, t]",
        axes=(),
        dtypes=(BF16, F16),
        derive=lambda spec: {"THREADS": DOT_THREADS},
        grid="(ceil(batch * heads * length / WARPS)): one warp per time step",
        origin="Peng et al., Eagle and Finch: RWKV, 2024",
        min_arch=Arch(8, 0),
        defaults=("gated_dot_bf16",),
    )
)


def _states_kernel(name: str, summary: str, formula: str, unpack: bool, defaults: tuple[str, ...]) -> Kernel:
    return register(
        Kernel(
            name=name,
            stem="gated_prefix",
            summary=summary,
            formula=formula,
            axes=_AXES[:2],
            dtypes=(F32,),
            derive=lambda spec: {"THREADS": PREFIX_THREADS},
            text=lambda spec: {"unpack": unpack},
            grid="(tiles * K * V / THREADS * heads * sequences): one thread per number of a state",
            origin="the second pass of a segmented scan",
            min_arch=Arch(8, 0),
            defaults=defaults,
        )
    )


PREFIX = _states_kernel(
    "gated_prefix",
    "The states before each segment, each in place of what its segment adds.",
    "S[s + 1] = diag(decay[s]) S[s] + added[s]",
    False,
    ("gated_prefix_k128_v128_f32",),
)
UNPACK = _states_kernel(
    "gated_unpack",
    "The last state, from the tiles in which chunked scans keep it to where it is wanted.",
    "last[k, v] = S[k, v]",
    True,
    ("gated_unpack_k128_v128_f32",),
)
