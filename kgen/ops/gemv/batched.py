"""Matrices times vectors, batch by batch as NumPy broadcasts their leading axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.operand import Operand, joined
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.gemv.plan import plan
from kgen.ops.gemv.product import Product
from kgen.ops.gemv.types import VALUES


def matvec(a: Any, x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Matrix-vector products: a[..., m, k] x[..., k] summed over k; the leading axes broadcast as in NumPy.

    Parameters
    ----------
    a : array [..., M, K]
        float32, float16, bfloat16 or float64, of any strides.
    x : array [..., K]
        Of the same dtype.
    out, stream : optional
        As in `gemv`.

    Returns
    -------
    array [..., M] of the inputs' kind and dtype, as accurate as `gemv`.

    Raises
    ------
    TypeError, ValueError
        As in `gemv`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.matvec(np.ones((8, 3, 2), "f"), np.ones((8, 2), "f")).shape
    (8, 3)
    """
    result: Any = _matvec.call((a, x), (out,), (), stream)[0]
    return result


def _matvec_results(op: str, given: Sequence[Operand]) -> Results:
    a, x = given
    if len(a.shape) < 2 or len(x.shape) < 1:
        raise ValueError(f"{op}: a has shape {a.shape} and x {x.shape}; it takes [..., M, K] and [..., K]")
    if a.shape[-1] != x.shape[-1]:
        raise ValueError(f"{op}: x has shape {x.shape}; with a {a.shape} its last axis must be {a.shape[-1]} long")
    return [((*_broadcast(op, a, x), a.shape[-2]), a.dtype)]


def _broadcast(op: str, a: Operand, x: Operand) -> tuple[int, ...]:
    """The leading axes of the result; ValueError as NumPy raises it."""
    try:
        return np.broadcast_shapes(a.shape[:-2], x.shape[:-1])
    except ValueError:
        raise ValueError(f"{op}: the leading axes of a {a.shape} and x {x.shape} do not broadcast") from None


def _prepare_matvec(op: str, given: Sequence[Operand], results: Sequence[Operand]) -> Plan:
    """One launch for the leading axes that one stride can walk, and as many such as the others need."""
    a, x = given
    (out,) = results
    lead = out.shape[:-1]
    strides = [_lead_strides(operand, lead, inner) for operand, inner in ((a, 2), (x, 1), (out, 1))]
    axes = list(zip(*joined(lead, *strides), strict=True))
    batches, *batch = axes.pop() if axes else (1, 0, 0, 0)
    product = Product(
        a,
        x,
        out,
        a.shape[-2],
        a.shape[-1],
        batches,
        (a.strides[-2], a.strides[-1], batch[0]),
        (x.strides[-1], batch[1]),
        (0, 0),
        (out.strides[-1], batch[2]),
        1.0,
        0.0,
        a_outer=math.gcd(*(stride[0] for _, *stride in axes)),
        x_outer=math.gcd(*(stride[1] for _, *stride in axes)),
    )
    made = plan(product, None, op)
    offsets = [(0, 0, 0)]
    for size, *stride in axes:
        offsets = [
            (at[0] + i * stride[0], at[1] + i * stride[1], at[2] + i * stride[2]) for at in offsets for i in range(size)
        ]
    itemsize = out.dtype.itemsize

    def launch(at: Sequence[int], stream: int) -> None:
        a, x, out = at
        for over_a, over_x, over_out in offsets:
            pointers = (a + over_a * itemsize, x + over_x * itemsize, 0, 0, out + over_out * itemsize)
            made.launch(pointers, stream)

    return Plan(launch, made.steps * len(offsets), made.why)


def _lead_strides(operand: Operand, lead: tuple[int, ...], inner: int) -> tuple[int, ...]:
    """The strides of an operand over the leading axes of the result; 0 along those that it lacks or repeats."""
    shape, strides = operand.shape[:-inner], operand.strides[:-inner]
    own = tuple(0 if size == 1 else stride for size, stride in zip(shape, strides))
    return (0,) * (len(lead) - len(own)) + own


_matvec = Operator("matvec", ("a", "x"), (), _matvec_results, _prepare_matvec, takes=VALUES, rows=False)
