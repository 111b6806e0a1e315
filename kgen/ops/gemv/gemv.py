"""A matrix times a vector, y = alpha op(A) x + beta y: for any strides, and for matrices that are quantized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kgen.dtypes import F32, FLOATS, DType, listed
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.gemv.plan import plan
from kgen.ops.gemv.product import Product, Scale
from kgen.ops.gemv.types import QUANTIZED, VALUES, WEIGHTS
from kgen.ops.options import check_real


def gemv(
    a: Any,
    x: Any,
    y: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans: bool = False,
    scale: Any = None,
    out: Any = None,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """alpha a @ x + beta y, or alpha a.T @ x + beta y.

    Parameters
    ----------
    a : array [M, K]
        float32, float16, bfloat16 or float64, or a quantized matrix of int8, float8_e4m3fn or float8_e5m2. It may have
        any strides; if it is contiguous along either axis, it is read at the speed of the memory.
    x : array [K], with `trans` [M]
        Of the dtype of `a`; with a quantized matrix, float32, float16 or bfloat16.
    y : array [M], with `trans` [K], optional
        Of the dtype of x. Not read if beta is 0.
    alpha, beta : float
        Each pair of values is planned and remembered separately, so they should not change with every call.
    trans : bool
        Multiply by the transposed matrix.
    scale : array, optional
        The scales of a quantized matrix, in float32: [] or [1] for all of it, [M] or [M, 1] for one per row, [M, G] for
        one per each of G equal blocks of a row.
    out : array, optional
        Where to write the result. It must not overlap an input, but may be `y`.
    algorithm : str, optional
        The name of a specialization, such as "gemv_v4_l32_r1_u1_f32"; by default chosen by the problem.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array [M], with `trans` [K], of the inputs' kind and of the dtype of x. The order of summation depends on the shape
    only, so the same input gives the same bits. float16, bfloat16 and quantized matrices accumulate in float32, float64
    in double. float32 accumulates in double, or in pairs of floats where double arithmetic is slow, and is rounded
    once: a result is off by at most half a unit in its last place plus n^2 2^-48 of the sum of all magnitudes, where n
    is the number of products that a thread adds, usually a few hundred.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted.
    SpecError
        A ValueError: for an algorithm that does not exist or does not take this problem.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.gemv(np.array([[1, 2], [3, 4], [5, 6]], "f"), np.array([1, 10], "f"))
    array([21., 43., 65.], dtype=float32)
    """
    result: Any = _gemv.call((a, x, y, scale), (out,), (alpha, beta, trans, algorithm), stream)[0]
    return result


def _gemv_results(
    op: str, given: Sequence[Operand | None], alpha: float, beta: float, trans: bool, algorithm: str | None
) -> Results:
    a, x, y, scale = given
    assert a and x
    check_real(op, alpha=alpha, beta=beta)
    if beta and y is None:
        raise ValueError(f"{op}: beta is {beta} and there is no y to multiply by it")
    if len(a.shape) != 2 or len(x.shape) != 1:
        raise ValueError(f"{op}: a has shape {a.shape} and x {x.shape}; it takes a matrix and a vector")
    rows, depth = a.shape[::-1] if trans else a.shape
    if x.shape != (depth,):
        side = "rows" if trans else "columns"
        raise ValueError(f"{op}: x has shape {x.shape}; with a {a.shape}, of {depth} {side}, it takes ({depth},)")
    _check_types(op, a.dtype, x)
    if y and y.shape != (rows,):
        raise ValueError(f"{op}: y has shape {y.shape}; the result has ({rows},)")
    if y and y.dtype is not x.dtype:
        raise TypeError(f"{op}: y is {y.dtype.numpy_name} and x {x.dtype.numpy_name}; both must have one dtype")
    if scale:
        _check_scale(op, a, scale)
    return [((rows,), x.dtype)]


def _prepare_gemv(
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    alpha: float,
    beta: float,
    trans: bool,
    algorithm: str | None,
) -> Plan:
    a, x, y, scale = given
    (out,) = results
    assert a and x
    rows, depth = a.shape[::-1] if trans else a.shape
    over_results, over_products = a.strides[::-1] if trans else a.strides
    product = Product(
        a,
        x,
        out,
        rows,
        depth,
        1,
        (over_results, over_products, 0),
        (x.strides[0], 0),
        ((y or out).strides[0], 0),
        (out.strides[0], 0),
        float(alpha),
        float(beta),
        scale=_scale(op, a, scale, trans) if scale else None,
    )
    return plan(product, algorithm, op)


def _check_types(op: str, weight: DType, x: Operand) -> None:
    takes = FLOATS if weight in QUANTIZED else (weight,)
    if x.dtype not in takes:
        raise TypeError(
            f"{op}: x is {x.dtype.numpy_name}; with a matrix of {weight.numpy_name} it takes {listed(takes)}"
        )


def _check_scale(op: str, a: Operand, scale: Operand) -> None:
    if a.dtype not in QUANTIZED:
        raise TypeError(f"{op}: scale is for a quantized matrix, and a is {a.dtype.numpy_name}")
    rows, depth = a.shape
    if scale.shape in ((), (1,), (rows,), (rows, 1)):
        return
    if len(scale.shape) == 2 and scale.shape[0] == rows and scale.shape[1] and depth % scale.shape[1] == 0:
        return
    raise ValueError(
        f"{op}: scale has shape {scale.shape}; with a {a.shape} it takes (), (1,), ({rows},), ({rows}, 1), "
        f"or ({rows}, G) for a G that divides {depth}"
    )


def _scale(op: str, a: Operand, scale: Operand, trans: bool) -> Scale:
    """How a kernel finds the scale of a number of the matrix."""
    if math.prod(scale.shape) == 1:
        return Scale(0, 0, 0, False)
    if len(scale.shape) == 1 or scale.shape[1] == 1:
        return Scale(scale.strides[0], 0, 0, inner=trans)
    if a.strides[1] != 1 and a.shape[1] > 1 and a.shape[0]:
        raise ValueError(f"{op}: scales of blocks are for a matrix whose rows are contiguous, and a has {a.strides}")
    row, step = scale.strides
    return Scale(row, step, a.shape[1] // scale.shape[1], inner=False, across=trans)


_gemv = Operator(
    "gemv",
    ("a", "x", "y", "scale"),
    ("alpha", "beta", "trans", "algorithm"),
    _gemv_results,
    _prepare_gemv,
    takes={"a": WEIGHTS, "x": VALUES, "y": VALUES, "scale": (F32,)},
    optional=("y", "scale"),
    mixed=True,
    rows=False,
    in_place=("y",),
)
