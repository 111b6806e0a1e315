"""Sums, products, extremes, their places, and means, over any axes: NumPy's rules, one reading of the input.

Sums of float16 and bfloat16 are accumulated in float32 and rounded once. Those of float32 are accumulated in double,
or in two floats where double arithmetic is slow, and rounded once. Those of float64 are accumulated in double, and
those of integers in 64 bits, modulo 2^64. Every order of combining is fixed by shape, strides and alignment: the same
input gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kgen.dtypes import I64
from kgen.operand import Operand
from kgen.ops.axes import normal_axes
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.options import whole
from kgen.ops.reduce.kernels import ELEMENTS, FORMULAS, summed
from kgen.ops.reduce.passes import NAIVE
from kgen.ops.reduce.plan import plan_reduction
from kgen.ops.reduce.types import type_of_result

ALGORITHMS = tuple(NAIVE)


def sum(  # NumPy's name
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """The sum of `x` over `axis`, like `numpy.sum`.

    x          an array of any dtype, shape and strides
    axis       an int, a tuple of ints, or None for all axes
    dtype      of the result; by default x's for floats, int64 for bool and signed integers, uint64 for unsigned ones
    out        where to write the result; of its shape and dtype, and apart from x
    keepdims   whether the reduced axes stay, with size 1
    algorithm  None for the fastest; or "naive" (one element per thread), "vec4", "vec8" or "vec16", for comparison
    stream     the CUDA stream to run on, by default the current one of x's library

    A float32 sum is off by at most half a unit in its last place plus 2^-40 of the sum of all magnitudes. An empty sum
    is 0. Raises AxisError for an axis that x does not have, TypeError and ValueError for other arguments that do not
    fit.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.sum(np.arange(6, dtype="f4").reshape(2, 3), axis=1)
    array([ 3., 12.], dtype=float32)
    """
    (result,) = _sum.call((x,), (out,), (axis, dtype, keepdims, algorithm), stream)
    return result


def prod(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """The product of `x` over `axis`, like `numpy.prod`; 1 if empty. The rest is as in `sum`."""
    (result,) = _prod.call((x,), (out,), (axis, dtype, keepdims, algorithm), stream)
    return result


def mean(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """The arithmetic mean of `x` over `axis`, like `numpy.mean`; float64 for integers, NaN if empty.

    A float32 mean is rounded once, like a sum: the sum is multiplied by the reciprocal of the count before. Parameters
    and errors are those of `sum`.
    """
    (result,) = _mean.call((x,), (out,), (axis, dtype, keepdims, algorithm), stream)
    return result


def max(
    x: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """The largest element of `x` over `axis`, like `numpy.max`; NaN if there is one.

    Parameters and errors are those of `sum`, without `dtype`; also ValueError if there are no elements.
    """
    (result,) = _max.call((x,), (out,), (axis, keepdims, algorithm), stream)
    return result


def min(
    x: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """The smallest element of `x` over `axis`, like `numpy.min`; NaN if there is one. See `max`."""
    (result,) = _min.call((x,), (out,), (axis, keepdims, algorithm), stream)
    return result


def argmax(x: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False, stream: Any = None) -> Any:
    """The first index (int64) of the largest element along `axis`, or of NaN, like `numpy.argmax`.

    `axis` is an int, or None for the index into the flattened array. Other parameters and errors are those of `max`.
    """
    (result,) = _argmax.call((x,), (out,), (axis, keepdims), stream)
    return result


def argmin(x: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False, stream: Any = None) -> Any:
    """The first index (int64) of the smallest element along `axis`, or of NaN, like `numpy.argmin`. See `argmax`."""
    (result,) = _argmin.call((x,), (out,), (axis, keepdims), stream)
    return result


def reduce(x: Any, op: str = "sum", width: int = 32, *, out: Any = None, stream: Any = None) -> Any:
    """Reduce every `width` adjacent elements of a vector: what a warp (32) or a block does, by itself.

    op     "sum", "prod", "max", "min", "argmax" or "argmin", like the functions of these names
    width  any number that divides the length of `x`, not only powers of two

    Results have the types that these functions give. Raises ValueError for other operations, lengths and widths.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.reduce(np.arange(6, dtype="f4"), "max", width=3)
    array([2., 5.], dtype=float32)
    """
    (result,) = _reduce.call((x,), (out,), (op, width), stream)
    return result


def _shape(x: Operand, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if at in axes else size for at, size in enumerate(x.shape))
    return tuple(size for at, size in enumerate(x.shape) if at not in axes)


def _results_of_sum(
    op: str, given: Sequence[Operand], axis: Any, dtype: Any, keepdims: bool, algorithm: str | None
) -> Results:
    (x,) = given
    _check_algorithm(op, x, algorithm)
    return [(_shape(x, normal_axes(op, axis, len(x.shape)), keepdims), type_of_result(op, x, dtype))]


def _results_of_extreme(
    op: str, given: Sequence[Operand], axis: Any, keepdims: bool, algorithm: str | None = None
) -> Results:
    (x,) = given
    if op.startswith("arg") and axis is not None:
        whole(op, "axis", axis)
    _check_algorithm(op, x, algorithm)
    axes = normal_axes(op, axis, len(x.shape))
    shape = _shape(x, axes, keepdims)
    if math.prod(x.shape[at] for at in axes) == 0:
        raise ValueError(f"{op}: x has shape {x.shape}, which is empty along axis {axis}; there is no such element")
    return [(shape, I64 if op.startswith("arg") else x.dtype)]


def _check_algorithm(op: str, x: Operand, algorithm: str | None) -> None:
    if algorithm is None:
        return
    if algorithm not in NAIVE:
        raise ValueError(f"{op}: algorithm is {algorithm!r}; it takes None or one of {', '.join(ALGORITHMS)}")
    if NAIVE[algorithm][0] not in (1, 16 // x.dtype.itemsize):
        raise ValueError(f"{op}: {algorithm} is not a load of 16 bytes for {x.dtype.numpy_name}")


def _prepare_sum(
    op: str,
    given: Sequence[Operand],
    results: Sequence[Operand],
    axis: Any,
    dtype: Any,
    keepdims: bool,
    algorithm: str | None,
) -> Plan:
    (x,), (out,) = given, results
    axes = normal_axes(op, axis, len(x.shape))
    count = math.prod(x.shape[at] for at in axes) if op == "mean" else 1
    return plan_reduction("sum" if op == "mean" else op, x, out, axes, float(count), algorithm)


def _prepare_extreme(
    op: str,
    given: Sequence[Operand],
    results: Sequence[Operand],
    axis: Any,
    keepdims: bool,
    algorithm: str | None = None,
) -> Plan:
    (x,), (out,) = given, results
    return plan_reduction(op, x, out, normal_axes(op, axis, len(x.shape)), 1.0, algorithm)


def _results_of_groups(name: str, given: Sequence[Operand], op: str, width: int) -> Results:
    (x,) = given
    if op not in FORMULAS:
        raise ValueError(f"{name}: op is {op!r}; it takes one of {', '.join(FORMULAS)}")
    width = whole(name, "width", width, 1)
    if len(x.shape) != 1 or x.shape[0] % width:
        raise ValueError(f"{name}: x has shape {x.shape}; it takes a vector of a multiple of {width} elements")
    kind = type_of_result(op, x, None) if summed(op) else I64 if op.startswith("arg") else x.dtype
    return [((x.shape[0] // width,), kind)]


def _prepare_groups(name: str, given: Sequence[Operand], results: Sequence[Operand], op: str, width: int) -> Plan:
    (x,), (out,) = given, results
    shape, strides = (x.shape[0] // width, width), (width * x.strides[0], x.strides[0])
    return plan_reduction(op, x.view(shape, strides), out, (1,), 1.0)


def _operator(op: str) -> Operator:
    if op == "mean" or summed(op):
        options: tuple[str, ...] = ("axis", "dtype", "keepdims", "algorithm")
        return Operator(op, ("x",), options, _results_of_sum, _prepare_sum, takes=ELEMENTS, rows=False)
    options = ("axis", "keepdims") if op.startswith("arg") else ("axis", "keepdims", "algorithm")
    return Operator(op, ("x",), options, _results_of_extreme, _prepare_extreme, takes=ELEMENTS, rows=False)


_sum, _prod, _mean, _max, _min, _argmax, _argmin = map(_operator, (*tuple(FORMULAS)[:2], "mean", *tuple(FORMULAS)[2:]))
_reduce = Operator("reduce", ("x",), ("op", "width"), _results_of_groups, _prepare_groups, takes=ELEMENTS, rows=False)
