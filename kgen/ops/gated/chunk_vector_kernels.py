"""The kernels of linear attention with a gate for each feature, in chunks of time steps on the tensor cores.

`gated_chunk_vector` walks along one segment of a sequence; where heads are few, `gated_chunk_vector_ends` finds what
each segment adds to the state, looking back from its end as far as there is decay left, and `gated_prefix` makes of
these the states before each segment. For gradients `gated_chunk_vector_state` keeps states on the way, there and back,
and `gated_chunk_vector_gradient` does the rest for all pieces between them at once.
"""

from __future__ import annotations

from kgen.arch import Arch
from kgen.dtypes import BF16, F16
from kgen.ops.gated.kernels import offset_type
from kgen.ops.gated.prefix_kernels import STATE_AXES
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

CHUNK = 32
"""Time steps of a chunk."""
PIECE = 64
"""Time steps between states that gradients take."""
WIDEST = 128
"""Features that a chunk takes."""
LEVELS = 5
STAGES = 3
SCORERS = 4
BLOCKS = 8  # of time steps, by which producers share a chunk
_HANDED_OVER = (232, 112, 56)  # registers of consumers, producers and scorers, where 16 warps leave 128 for each


def _bytes(spec: Spec) -> int:
    """Of shared memory of a scan, as the template lays it out."""
    features, values = spec["K"], spec["V"]
    row, v_row = 2 * (features + 8), 2 * (values + 8)
    stage = CHUNK * (2 * row + v_row + 2 * (CHUNK + 8)) + 4 * features + 32
    levels = CHUNK * row * (2 + LEVELS) + 16
    notes = 4 * BLOCKS * features + 12 * (features // 16)
    return STAGES * stage + 2 * (levels + _rounded(notes))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def _geometry(spec: Spec) -> dict[str, int]:
    consumer, producer, scorer = (0, 0, 0) if spec["K"] < 128 else _HANDED_OVER
    return {
        "THREADS": 32 * (spec["V"] // 32 + spec["K"] // 16 + SCORERS),
        "CHUNK": CHUNK,
        "PRODUCERS": spec["K"] // 16,
        "DYNAMIC_SMEM": _bytes(spec),
        "CONSUMER_REGISTERS": consumer,
        "PRODUCER_REGISTERS": producer,
        "SCORER_REGISTERS": scorer,
    }


def _from_end(spec: Spec) -> bool:
    return spec.kernel.name.endswith("_ends")


def _state_geometry(spec: Spec) -> dict[str, int]:
    features, values = spec["K"], spec["V"]
    from_end = _from_end(spec)
    stage = 2 * CHUNK * (features + values + 16) + 4 * features + (28 if from_end else 24)
    notes = 4 * BLOCKS * features + 12 * (features // 16)
    if from_end:
        notes += 4 * BLOCKS * features
    return {
        "THREADS": 32 * (features // 16 + features // 16),
        "CHUNK": CHUNK,
        "PIECE": PIECE,
        "PRODUCERS": features // 16,
        "DYNAMIC_SMEM": STAGES * _rounded(stage) + 2 * _rounded(notes),
    }


def _gradient_geometry(spec: Spec) -> dict[str, int]:
    room, tiles = spec["ROOM"], PIECE // 16
    groups = room // 32
    warps = tiles * groups
    row, states = 2 * (room + 8), 2 * room * room
    sums = warps * 4 * 32 * 36
    tiles_of_rows = 2 * PIECE * (row + 2 * (PIECE + 8))
    near = warps * (4 * 16 * 20 + 2 * 16 * 24 + 4 * 16)
    bonus = 4 * PIECE + 4 * tiles * room + 4 * room + 4 * tiles * room if spec["bonus"] else 0
    panel = 16 if spec["fsplit"] else 0
    smaller = panel + near + bonus + 4 * 5 * tiles * room + 16 * warps
    nbytes = max(states + 3 * PIECE * row, sums) + states + tiles_of_rows + smaller
    return {"THREADS": 32 * warps, "PIECE": PIECE, "DYNAMIC_SMEM": _rounded(nbytes)}


def _text(spec: Spec) -> dict[str, bool | str]:
    return {
        "results": not spec.kernel.name.endswith(("_state", "_ends")),
        "from_end": _from_end(spec),
        "team": False,  # that of blocks which share a sequence says otherwise
        "stateless": False,  # of this, too
        "float_results": not spec.flags.isdisjoint(("split", "fsplit")),
        "tensors": "qkvg",
        "offset_type": offset_type(spec),
    }


def _problem(spec: Spec) -> str | None:
    if spec["K"] == 128 and spec["V"] < 128:
        return "registers are handed over by four warps or none"
    return _split_problem(spec) or _bonus_problem(spec)


def _bonus_problem(spec: Spec) -> str | None:
    return "what is not there has no type" if spec["ufloat"] and not spec["bonus"] else None


def _gradient_problem(spec: Spec) -> str | None:
    if (spec["fsplit"] or spec["vsplit"]) and spec["ROOM"] < 128:
        return "parts are of as many features and values as there is room for"
    if spec["unaligned"] and spec["fours"]:
        return "what is loaded one by one is not loaded in fours"
    return _bonus_problem(spec)


def _ends_problem(spec: Spec) -> str | None:
    if spec["K"] == 128 and spec["V"] < 128:
        return "the scan that goes on from there does not take it"
    return _split_problem(spec)


def _state_problem(spec: Spec) -> str | None:
    if spec["K"] != spec["V"]:
        return "gradients take states with room for as many features as values"
    return _split_problem(spec)


def _split_problem(spec: Spec) -> str | None:
    return "parts are of as many features as there is room for" if "split" in spec.flags and spec["K"] < 128 else None


_AXES = (
    *STATE_AXES,
    Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
)
_BONUS = Flag("bonus", "a token reads the state before its gate, and itself times a bonus (RWKV6)")
_UFLOAT = Flag("ufloat", "the bonus is floats")
_UNALIGNED = Flag("unaligned", "rows begin anywhere, and elements lie apart: they are loaded one by one")
_FOURS = Flag("fours", "rows consist of fours of neighbours, not of eights")
_GFLOAT = Flag("gfloat", "gates are floats")
_SPLIT = Flag(
    "split", "features are more than K: a block takes a part of them, whose results are floats, yet to be summed"
)
_PANELS = Flag("split", "features are more than K: a block takes a part of them; states are kept in panels")
_FSPLIT = Flag("fsplit", "features are more than ROOM: a block takes a panel, whose dv is floats, yet to be summed")
_VSPLIT = Flag("vsplit", "values are more than ROOM: a block takes one panel of them after the other")
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
        flags=(_BONUS, _UNALIGNED, _GFLOAT, _UFLOAT, _SPLIT),
        dtypes=(BF16, F16),
        derive=_geometry,
        check=_problem,
        text=_text,
        grid="(tiles * segments * heads * sequences): one block per K features by V values of a segment's state",
        origin=_ORIGIN,
        min_arch=Arch(9, 0),
        defaults=(
            "gated_chunk_vector_k128_v128_bf16",
            "gated_chunk_vector_k128_v128_split_bf16",
            "gated_chunk_vector_k64_v64_bonus_f16",
        ),
    )
)

CHUNK_ENDS = register(
    Kernel(
        name="gated_chunk_vector_ends",
        stem="gated_chunk_vector_state",
        summary="What segments of a sequence make of the state of gated linear attention, from their ends.",
        formula="sum of e^(g[t + 1] + ... + g[T]) k[t] v[t]^T, and the product of all e^g[t]",
        axes=_AXES,
        flags=(_UNALIGNED, _GFLOAT, _PANELS),
        dtypes=(BF16, F16),
        derive=_state_geometry,
        check=_ends_problem,
        text=_text,
        grid="(tiles * slots * heads * sequences): one block per K features by V values of a slot's state",
        origin=_ORIGIN,
        min_arch=Arch(9, 0),
        defaults=("gated_chunk_vector_ends_k128_v128_bf16", "gated_chunk_vector_ends_k128_v128_split_bf16"),
    )
)

CHUNK_STATE = register(
    Kernel(
        name="gated_chunk_vector_state",
        summary="The states of gated linear attention along segments of a sequence, kept on the way for gradients.",
        formula="S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T",
        axes=_AXES,
        flags=(_UNALIGNED, _GFLOAT, _PANELS),
        dtypes=(BF16, F16),
        derive=_state_geometry,
        check=_state_problem,
        text=_text,
        grid="(tiles * segments * heads * sequences): one block per K features by V values of a segment's state",
        origin=_ORIGIN,
        min_arch=Arch(9, 0),
        defaults=("gated_chunk_vector_state_k128_v128_bf16", "gated_chunk_vector_state_k128_v128_split_bf16"),
    )
)

CHUNK_GRADIENT = register(
    Kernel(
        name="gated_chunk_vector_gradient",
        summary="The gradients of gated linear attention, in chunks of time steps on the tensor cores.",
        formula=(
            "S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T,  R[t] = diag(e^g[t + 1]) R[t + 1] + q[t] do[t]^T\n"
            "dq[t] = S[t] do[t],  dk[t] = R[t] v[t],  dv[t] = R[t]^T k[t],  dg[t] = e^g[t] sum(S[t - 1] R[t])"
        ),
        axes=(Axis("ROOM", "r", (64, 128), "room for features and for values"), _AXES[2]),
        flags=(_BONUS, _UNALIGNED, _FOURS, _GFLOAT, _UFLOAT, _FSPLIT, _VSPLIT),
        dtypes=(BF16, F16),
        derive=_gradient_geometry,
        check=_gradient_problem,
        text=_text,
        grid="(parts * pieces * heads): one block per piece of 64 time steps, of ROOM features",
        origin=_ORIGIN,
        min_arch=Arch(9, 0),
        defaults=(
            "gated_chunk_vector_gradient_r128_bf16",
            "gated_chunk_vector_gradient_r128_fsplit_vsplit_bf16",
            "gated_chunk_vector_gradient_r64_bonus_f16",
        ),
    )
)
