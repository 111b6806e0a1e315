"""The kernel that reads states, o = q S in float32 on the plain cores, and the tile that suits a problem."""

from __future__ import annotations

from kgen.device import multiprocessors
from kgen.launch import Step, bind
from kgen.operand import Operand, aligned
from kgen.ops.calls import Plan
from kgen.ops.layout import AXES, outer_strides
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

# By TOKENS: time steps and columns of a thread, features at once, and the threads among which the registers of a
# multiprocessor are to be divided; sums and the loads in flight take most of them.
CUT = {16: (4, 4, 16, 512), 64: (8, 4, 8, 512), 128: (8, 8, 8, 384)}


def _geometry(spec: Spec) -> dict[str, int]:
    tokens, columns = spec["TOKENS"], spec["COLUMNS"]
    own_tokens, own_columns, features, resident = CUT[tokens]
    threads = tokens // own_tokens * (columns // own_columns)
    return {
        "THREADS": threads,
        "BLOCKS": resident // threads,
        "FEATURES": features,
        "OWN_TOKENS": own_tokens,
        "OWN_COLUMNS": own_columns,
        "STATIC_SMEM": 2 * 4 * features * (tokens + 4 + columns),  # two buffers of q and of the state
    }


QUERY = register(
    Kernel(
        name="lmha_query",
        summary="What queries read from finished states: a matrix product in float32 for each head.",
        formula="o[t] = S^T q[t]",
        axes=(
            Axis("TOKENS", "t", (16, 64, 128), "time steps of a block"),
            Axis("COLUMNS", "m", (32, 64), "value columns of a block"),
            Axis("VEC", "v", (1, 4), "consecutive elements that are loaded and stored at once", default=4),
        ),
        derive=_geometry,
        grid="(ceil(M / COLUMNS) * ceil(T / TOKENS) * H * B): one block per tile of the result",
        origin="the register-tiled matrix product of every BLAS",
        defaults=("lmha_query_t128_m64_f32", "lmha_query_t64_m64_bf16"),
    )
)


def plan_query(q: Operand, state: Operand, o: Operand, layout: str) -> Plan:
    """One launch of the tile that suits the problem."""
    heads, length = (q.shape[axis] for axis in AXES[layout][1:])
    features, columns = state.shape[2:]
    sequences = state.shape[0] * heads
    sms = multiprocessors(o.device)
    tokens = 16 if length <= 32 else 128
    # The columns that leave the fewest idle in the last tile; the widest of those.
    tile = min((64, 32), key=lambda tile: -(-columns // tile) * tile)
    if tokens == 128 and sequences * -(-length // tokens) * -(-columns // tile) < 2 * sms:
        tokens = 64
    wide = all(aligned(x, 4 * x.dtype.itemsize) for x in (q, state, o)) and features % 4 == 0 and columns % 4 == 0
    spec = QUERY.spec(TOKENS=tokens, COLUMNS=tile, VEC=4 if wide else 1, dtype=q.dtype)
    blocks = sequences * -(-length // tokens) * -(-columns // tile)
    strides = (*outer_strides(q, layout), *state.strides[:3], *outer_strides(o, layout))
    step = Step(spec, blocks, 3, (heads, length, features, columns), strides)
    why = f"{sequences} sequences of {length} time steps by {columns} columns occupy {sms} multiprocessors"
    return Plan(bind([step], o.device)[0], (str(step),), why)
