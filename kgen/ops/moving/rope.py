"""Rotary position embedding: every pair of features of a token is turned by an angle that grows with its position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import F32, FLOATS, I32, I64, DType
from kgen.launch import Step, bind, picked
from kgen.operand import Operand, aligned
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.layout import AXES, check_axes, outer_strides
from kgen.ops.options import check_real, whole
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

_INT_MAX = 2**31 - 256
THREADS, UNROLL = 256, 4
BLOCKS = 3
"""That an SM holds at once."""
WAVES = 4
"""Of blocks, at least, for which the heads of a token are shared by several."""

ROPE = register(
    Kernel(
        name="rope",
        summary="Rotary position embedding.",
        formula="(x[2i], x[2i + 1]) turned by p base^(-2i / R), or (x[i], x[i + R / 2]), for i < R / 2",
        axes=(
            Axis("PAIRS", "p", (1, 2, 4, 8), "neighbouring pairs of features of a thread"),
            Axis("INDEX_BYTES", "n", (0, 4, 8), "bytes of a position; 0: tokens count from zero", default=0),
        ),
        flags=(
            Flag("interleaved", "a pair is two neighbours; without it, two features half of them apart"),
            Flag("tables", "sines and cosines are given"),
            Flag("inverse", "turns back: the gradient's rotation"),
        ),
        derive=lambda spec: {
            "THREADS": THREADS,
            "BLOCKS": BLOCKS,
            "UNROLL": UNROLL * (1 + spec["interleaved"]),
            "PACK_BYTES": _pack_bytes(spec["PAIRS"], spec["interleaved"], spec.dtype),
        },
        check=lambda spec: _problem(spec),
        grid="(ceil(B T D / (2 PAIRS THREADS)) * parts of the heads)",
        origin="Su et al., RoFormer (2021); halves as in GPT-NeoX",
        defaults=("rope_p4_f32", "rope_p8_n8_tables_bf16", "rope_p4_interleaved_f16"),
    )
)


def _pack_bytes(pairs: int, interleaved: int, dtype: DType) -> int:
    """What a thread loads at once: neighbouring features, of which a pair has two or one."""
    return pairs * (1 + interleaved) * dtype.itemsize


def _problem(spec: Spec) -> str | None:
    nbytes = _pack_bytes(spec["PAIRS"], spec["interleaved"], spec.dtype)
    return f"{nbytes} bytes are more than the 16 that a thread can load at once" if nbytes > 16 else None


def rope(
    x: Any,
    positions: Any = None,
    *,
    base: float = 10000.0,
    cos: Any = None,
    sin: Any = None,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    inverse: bool = False,
    layout: str = "bhtd",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Rotary position embedding: rotate feature pair i of the token at position p by the angle p base^(-2i / R).

    Parameters
    ----------
    x : array [B, H, T, D]
        Queries or keys, with an even number of features; float32, float16 or bfloat16, of any strides.
    positions : array [T] or [B, T], optional
        The position of each token; int32 or int64. By default 0, 1, ..., T - 1.
    base : float
        Used if no tables are given. Angles are reduced in float64, so that large positions keep all their digits.
    cos, sin : array [P, R / 2], optional
        Tables in float32, with row p for position p: P must exceed every position. They may have any strides.
    rotary_dim : int, optional
        R: how many features are rotated, an even number; the others are copied. By default D, or as in the tables.
    interleaved : bool
        Pair i consists of features 2i and 2i + 1, as in RoFormer; by default of i and i + R / 2, as in GPT-NeoX and
        Llama.
    inverse : bool
        Rotate by the negative angle, as the gradient with respect to x needs.
    layout : "bhtd" or "bthd"
        The order of the axes: "bthd" is [B, T, H, D].
    out : array, optional
        Where to write the result; it may be x.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the kind, shape and dtype of x. The rotation is computed in float32 and rounded once.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> q = np.ones((1, 1, 2, 2), "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.rope(q).round(3)
    array([[[[ 1.   ,  1.   ],
             [-0.301,  1.382]]]], dtype=float32)
    """
    options = (base, rotary_dim, interleaved, inverse, layout)
    result: Any = _rope.call((x, positions, cos, sin), (out,), options, stream)[0]
    return result


def _turned(op: str, x: Operand, cos: Operand | None, rotary_dim: int | None) -> int:
    """How many features are turned."""
    width = x.shape[3]
    if width % 2:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes an even number of features")
    if rotary_dim is None and cos:
        if len(cos.shape) != 2 or cos.shape[1] > width // 2:
            raise ValueError(f"{op}: cos has shape {cos.shape}; to turn up to {width} features it takes [P, R / 2]")
        return 2 * cos.shape[1]
    turned = width if rotary_dim is None else whole(op, "rotary_dim", rotary_dim)
    if turned % 2 or not 0 <= turned <= width:
        raise ValueError(
            f"{op}: {turned} of the {width} features of x would be turned; it takes an even number of them"
        )
    return turned


def _results(
    op: str,
    given: Sequence[Operand | None],
    base: float,
    rotary_dim: int | None,
    interleaved: bool,
    inverse: bool,
    layout: str,
) -> Results:
    x, positions, cos, sin = given
    assert x
    check_axes(op, [x], layout)
    batch, length = x.shape[0], x.shape[AXES[layout][2]]
    if positions and positions.shape not in ((length,), (batch, length)):
        raise ValueError(f"{op}: positions has shape {positions.shape}; it takes ({length},) or ({batch}, {length})")
    if (cos is None) != (sin is None):
        raise ValueError(f"{op}: {'sin' if cos is None else 'cos'} is given alone; it takes both tables or neither")
    if cos and sin:
        turned = _turned(op, x, cos, rotary_dim)
        if len(cos.shape) != 2 or cos.shape[1] != turned // 2:
            raise ValueError(f"{op}: cos has shape {cos.shape}; to turn {turned} features it takes [P, {turned // 2}]")
        if sin.shape != cos.shape:
            raise ValueError(f"{op}: sin has shape {sin.shape} and cos {cos.shape}; both must have one shape")
        if positions is None and cos.shape[0] < length:
            raise ValueError(f"{op}: cos has shape {cos.shape}; for {length} tokens it takes at least as many rows")
    else:
        _turned(op, x, None, rotary_dim)
        check_real(op, base=base)
        if not (base > 0 and math.isfinite(base)):
            raise ValueError(f"{op}: base is {base}; it takes a positive number")
    return [(x.shape, x.dtype)]


def _prepare(
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    base: float,
    rotary_dim: int | None,
    interleaved: bool,
    inverse: bool,
    layout: str,
) -> Plan:
    x, positions, cos, sin = given
    (out,) = results
    assert x
    turned, width = _turned(op, x, cos, rotary_dim), x.shape[3]
    interleaved, inverse = bool(interleaved), bool(inverse)
    heads, length = (x.shape[axis] for axis in AXES[layout][1:])
    tokens = x.shape[0] * length
    pairs = 16 // _pack_bytes(1, interleaved, x.dtype)
    while pairs > 1 and not (
        turned % (2 * pairs) == 0 == (width - turned) % (2 * pairs)
        and all(aligned(operand, _pack_bytes(pairs, interleaved, x.dtype)) for operand in (x, out))
    ):
        pairs //= 2
    spec = ROPE.spec(
        PAIRS=pairs,
        INDEX_BYTES=positions.dtype.itemsize if positions else 0,
        interleaved=interleaved,
        tables=cos is not None,
        inverse=inverse,
        dtype=x.dtype,
    )
    units = width // (2 * pairs)
    if tokens * units > _INT_MAX:
        raise ValueError(f"{op}: x has shape {x.shape}, more than {_INT_MAX} packs of features of one head")
    token_blocks = -(-tokens * units // THREADS)
    # Few tokens: the heads are shared by several blocks, though each then computes the sines anew.
    wanted = -(-WAVES * BLOCKS * multiprocessors(out.device) // token_blocks)
    head_blocks = max(1, min(-(-heads // spec.derived["UNROLL"]), wanted))
    block_heads = -(-heads // head_blocks)
    head_blocks = -(-heads // block_heads)
    ints = (tokens, length, units, turned // (2 * pairs), heads, head_blocks, block_heads)
    longs = [*outer_strides(x, layout), *outer_strides(out, layout)]
    if positions:
        longs += (0, *positions.strides) if len(positions.shape) == 1 else positions.strides
    doubles: tuple[float, ...] = ()
    if cos and sin:
        longs += (*cos.strides, *sin.strides)
    else:
        doubles = (float(base) ** (-2 / max(turned, 1)),)  # a NumPy number would keep its own, narrow type
    pointers = 2 + (positions is not None) + 2 * (cos is not None)
    step = Step(spec, token_blocks * head_blocks, pointers, ints, tuple(longs), doubles=doubles)
    (run,) = bind([step], out.device)
    at = [0, *([1] if positions else []), *([2, 3] if cos else []), 4]
    return Plan(picked(run, at), (str(step),), f"{tokens} tokens of {heads} heads turn {turned} of {width} features")


_rope = Operator(
    "rope",
    ("x", "positions", "cos", "sin"),
    ("base", "rotary_dim", "interleaved", "inverse", "layout"),
    _results,
    _prepare,
    takes={"x": FLOATS, "positions": (I64, I32), "cos": (F32,), "sin": (F32,)},
    optional=("positions", "cos", "sin"),
    mixed=True,
    in_place=True,
)
