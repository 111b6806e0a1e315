"""Mode "article": the kernels with which these operators began, cut as they were, to be read and timed beside ours.

GLA in five kernels over chunks of 16 time steps, and RWKV6 with one warp for each tile of the state, as
flash-linear-attention had them in 2024. What was wrong is right here: no load lies out of bounds, any size will do, the
upper triangle of the scores is never raised to a power, sums and states are in float32, though with 16-bit inputs GLA's
decayed queries and keys, and the state where it is read, are rounded as they were. What the form itself cannot do
stays: exponents are differences of sums over a chunk, so gates must be finite, and where the sum over 16 steps reaches
-n, decays have a relative error of n 2^-24 (RWKV6 has no such limit). Forward only.
"""

from __future__ import annotations

from collections.abc import Mapping

from kgen.arch import Arch
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.ops.calls import Plan
from kgen.ops.gated.checks import Arrays, Options
from kgen.ops.gated.plan import Problem, Program, Rows
from kgen.ops.gated.sums import add_sum
from kgen.registry import register
from kgen.spec import Flag, Kernel, Spec

CHUNK = 16
FEATURES = 64
COLUMNS = 64
TILE = 32
_GLA = "Yang et al., Gated Linear Attention Transformers, 2024; flash-linear-attention's kernels of that year"


def _kernel(
    name: str, summary: str, formula: str, grid: str, derived: Mapping[str, int], *flags: Flag, origin: str = _GLA
) -> Kernel:
    default = f"{name}_bf16"
    return register(
        Kernel(
            name, summary, formula, (), lambda spec: derived, flags=flags, grid=grid, origin=origin, defaults=(default,)
        )
    )


_CUT = {"CHUNK": CHUNK, "FEATURES": FEATURES}
_FLOAT_BYTES = 4

CUMSUM = _kernel(
    "gla_decay_cumsum",
    "Gates of GLA, summed up within each chunk, as logarithms to the base of 2.",
    "b[i] = (g[first of the chunk] + ... + g[i]) / ln 2",
    "(ceil(features / FEATURES) * ceil(length / CHUNK) * sequences)",
    _CUT | {"THREADS": 32},
    Flag("gfloat", "gates are floats"),
)
PREPARE = _kernel(
    "gla_prepare_qg_kg",
    "Queries of GLA decayed from where their chunk begins, and keys to where it ends.",
    "qg[i] = scale q[i] 2^b[i]\nkg[i] = k[i] 2^(b[last of the chunk] - b[i])",
    "(ceil(features / FEATURES) * ceil(length / CHUNK) * sequences)",
    _CUT | {"THREADS": 32},
)


def _fused_geometry(spec: Spec) -> dict[str, int]:
    rows = 3 * CHUNK * (FEATURES + 8) * spec.dtype.itemsize if spec.dtype is not F32 else 2 * CHUNK * FEATURES * 4
    return _CUT | {"COLUMNS": COLUMNS, "THREADS": COLUMNS, "STATIC_SMEM": rows + FEATURES * _FLOAT_BYTES}


FUSED = register(
    Kernel(
        "gla_fused_chunk",
        "What the queries of GLA read of the state at the beginning of their chunk, and the state.",
        "o[i] = qg[i] S\nS = diag(2^b[last of the chunk]) S + sum of kg[i] v[i]^T, chunk after chunk",
        (),
        _fused_geometry,
        text=lambda spec: {"tensor": spec.dtype is not F32},
        grid="(ceil(values / COLUMNS) * ceil(features / FEATURES) * sequences)",
        origin=_GLA,
        min_arch=Arch(8, 0),  # the shape of its products of matrices
        defaults=("gla_fused_chunk_f32", "gla_fused_chunk_bf16"),
    )
)
INNER = _kernel(
    "gla_inner_chunk",
    "The scores of the tokens of a chunk of GLA for one another.",
    "A[i, j] = scale sum over features of q[i] k[j] 2^(b[i] - b[j]) for j <= i, else 0",
    "(ceil(features / FEATURES) * ceil(length / CHUNK) * sequences)",
    _CUT | {"THREADS": 128, "STATIC_SMEM": 2 * CHUNK * FEATURES * _FLOAT_BYTES},
)
COMBINE = _kernel(
    "gla_combine",
    "The result of GLA: what was read of the state, and of the tokens of the same chunk.",
    "o[i] = sum of the parts of o[i] + sum over j <= i of A[i, j] v[j]",
    "(ceil(values / COLUMNS) * ceil(length / CHUNK) * sequences)",
    {"CHUNK": CHUNK, "COLUMNS": COLUMNS, "THREADS": COLUMNS, "STATIC_SMEM": CHUNK * CHUNK * _FLOAT_BYTES},
)
RECURRENT = _kernel(
    "rwkv6_recurrent",
    "RWKV6's recurrence, one warp for each tile of the state.",
    "o[t] = scale r[t]^T (S[t - 1] + diag(u) k[t] v[t]^T)\nS[t] = diag(e^w[t]) S[t - 1] + k[t] v[t]^T",
    "(ceil(values / TILE) * ceil(features / TILE) * sequences)",
    {"TILE": TILE, "THREADS": TILE, "STATIC_SMEM": TILE * 4 * _FLOAT_BYTES},
    Flag("wfloat", "gates are floats"),
    Flag("ufloat", "the bonus is floats"),
    origin="Peng et al., Eagle and Finch: RWKV, 2024; flash-linear-attention's fused_recurrent_rwkv6 of that year",
)


def plan(op: str, program: Program, p: Problem, arrays: Arrays, options: Options, *rows: Rows) -> Plan:
    """q, k, v and o as rows: the launches of `gla`, or of `rwkv6`, as the article has them."""
    q, k, v, o = rows
    if p.gate != 2:
        raise ValueError(f"{op}: mode='article' exists for gla and rwkv6")
    if options.reverse or arrays.offsets:
        wanted = "reverse" if options.reverse else "cu_seqlens"
        raise ValueError(f"{op}: mode='article' takes no {wanted}; 'auto' does")
    g = p.gate_rows
    assert g
    for x in (q, k, v, g):
        if x.heads != p.heads:
            raise ValueError(f"{op}: mode='article' takes as many heads of each array; {x.name} has {x.heads}")
    initial, last = (name if name in p.states else "nothing" for name in ("initial_state", "state"))
    states = (*p.states.get("initial_state", (0, 0, 0, 0)), *p.states.get("state", (0, 0, 0, 0)))
    if p.bonus:
        _add_recurrent(program, p, (q, k, v, g, o), (initial, last), states)
    else:
        _add_five(program, p, (q, k, v, g, o), (initial, last), states)
    return program.plan(f"the article's kernels were asked for: {p.shared} sequences of {p.length} time steps")


def _add_five(
    program: Program, p: Problem, rows: tuple[Rows, ...], ends: tuple[str, str], states: tuple[int, ...]
) -> None:
    q, k, v, g, o = rows
    halves = p.dtype is not F32
    chunks, tiles, columns = -(-p.length // CHUNK), -(-p.features // FEATURES), -(-p.values // COLUMNS)
    numbers = p.numbers(p.features)
    b = program.room("b", numbers)
    qg, kg = (program.room(name, -(-numbers * p.dtype.itemsize // F32.itemsize)) for name in ("qg", "kg"))
    scores = program.room("scores", tiles * p.shared * chunks * CHUNK * CHUNK)
    parts = program.room("parts", tiles * p.numbers(p.values))
    along = p.shared * chunks * tiles
    gfloat = halves and p.gate_type is F32
    shape, whole = (p.heads, p.length, p.features), (p.shared, p.heads, p.length, p.features)
    cumsum = Step(CUMSUM.spec(gfloat=gfloat, dtype=p.dtype), along, 2, shape, g.strides)
    program.add(cumsum, (g.name, b))
    qk = (*q.strides, *k.strides)
    program.add(Step(PREPARE.spec(dtype=p.dtype), along, 5, shape, qk, (p.scale,)), (q.name, k.name, b, qg, kg))
    fused = Step(FUSED.spec(dtype=p.dtype), p.shared * tiles * columns, 7, (*whole, p.values), (*v.strides, *states))
    program.add(fused, (qg, kg, v.name, b, *ends, parts))
    program.add(Step(INNER.spec(dtype=p.dtype), along, 4, whole, qk, (p.scale,)), (q.name, k.name, b, scores))
    sizes = (p.shared, p.heads, p.length, p.values, tiles)
    combine = Step(COMBINE.spec(dtype=p.dtype), p.shared * chunks * columns, 4, sizes, (*v.strides, *o.strides))
    program.add(combine, (parts, scores, v.name, o.name))


def _add_recurrent(
    program: Program, p: Problem, rows: tuple[Rows, ...], ends: tuple[str, str], states: tuple[int, ...]
) -> None:
    q, k, v, g, o = rows
    halves = p.dtype is not F32
    tiles, columns = -(-p.features // TILE), -(-p.values // TILE)
    parts = program.room("parts", tiles * p.numbers(p.values))
    spec = RECURRENT.spec(wfloat=halves and p.gate_type is F32, ufloat=halves and p.bonus_type is F32, dtype=p.dtype)
    strides = (*q.strides, *k.strides, *v.strides, *g.strides, *p.bonus_strides, *states)
    sizes = (p.shared, p.heads, p.length, p.features, p.values)
    step = Step(spec, p.shared * tiles * columns, 8, sizes, strides, (p.scale,))
    program.add(step, (q.name, k.name, v.name, g.name, "u", *ends, parts))
    add_sum(program, parts, o, (p.batch, p.heads, p.length, p.values), p.dtype, p.heads, tiles)
