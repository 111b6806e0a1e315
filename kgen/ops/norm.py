"""Layer, RMS and group normalisation: the public functions. Statistics are in float32."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from kgen.dtypes import F32
from kgen.operand import Operand, contiguous_strides
from kgen.ops.axes import normal_axes, others, with_axes
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.norm_plans import Normal, plan

Given = Sequence[Operand | None]


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    eps: float = 1e-5,
    return_stats: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias, where mean and variance are those along the axes.

    Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450.

    Parameters
    ----------
    x : array
        float32, float16 or bfloat16, of any shape and strides, in any library's array that `causal_dot_product` takes.
    weight, bias : array, optional
        Of the shape that x has along the axes; float32, float16 or bfloat16, both of one dtype, which may differ from
        that of x.
    axis : int or tuple of ints
        Along which to normalise.
    eps : float
        Added to the variance, which is the biased one: the mean of squares about the mean.
    return_stats : bool
        Return the mean and 1 / sqrt(variance + eps), too, as `layer_norm_backward` takes them.
    out : array, optional
        Where to write the result; may be x itself.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the shape, dtype and kind of x; with `return_stats` a tuple of it, mean and rstd, which are float32 and
    have the other axes of x. Bit for bit the same from call to call.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        For arguments that do not fit together, each naming the argument, what came and what is taken.
    CaptureError
        At the first call of its kind, when that is within a CUDA graph capture.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.layer_norm(np.array([[1, 3], [5, 5]], "f"), eps=0.0 + 1e-12)
    array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """
    if return_stats:
        y, mean, rstd = _layer_norm((x, None, weight, bias), (out, None, None), (axis, eps, True), stream)
        return y, mean, rstd
    return _layer_norm((x, None, weight, bias), (out,), (axis, eps, False), stream)[0]


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    residual: Any = None,
    return_rstd: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x / sqrt(mean(x^2) + eps) * (weight_offset + weight), where the mean is that along the axes.

    Zhang and Sennrich, Root mean square layer normalization, arXiv:1910.07467.

    Parameters
    ----------
    x, weight, axis, eps, out, stream
        As in `layer_norm`.
    weight_offset : float
        Added to the weights, which some models (Gemma) keep as their distance from 1.
    residual : array, optional
        Of the shape and dtype of x: what is normalised is x + residual, rounded to that dtype.
    return_rstd : bool
        Return 1 / sqrt(mean(x^2) + eps), too.

    Returns
    -------
    array of the shape, dtype and kind of x; a tuple of it, x + residual where there is a residual, and rstd where that
    is wanted, in float32 and with the other axes of x. Bit for bit the same from call to call.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, CaptureError
        As in `layer_norm`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.rms_norm(np.array([3, 4, 0, 0], "f"), np.full(4, 5, "f"))
    array([6., 8., 0., 0.], dtype=float32)
    """
    outs = (out, *((None,) if residual is not None else ()), *((None,) if return_rstd else ()))
    results = _rms_norm((x, residual, weight, None), outs, (axis, eps, weight_offset, return_rstd), stream)
    return tuple(results) if len(results) > 1 else results[0]


def fused_add_rms_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """residual += x, in place; returns `rms_norm(residual, weight)` along the last axis, in one pass over both.

    `out` may be x itself, as in the inference servers that this is for. The sum is rounded to the dtype of the arrays
    before it is normalised, as if the two steps were made one after the other.

    >>> import numpy as np, kgen
    >>> residual = np.array([1, 4, 0, 0], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.fused_add_rms_norm(np.array([2, 0, 0, 0], "f"), residual), residual
    (array([1.2, 1.6, 0. , 0. ], dtype=float32), array([3., 4., 0., 0.], dtype=float32))
    """
    return _fused_add_rms_norm((x, residual, weight, None), (out, residual), (eps, weight_offset), stream)[0]


def group_norm(
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    return_stats: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """`layer_norm` of each group of channels, with a weight and a bias for each channel.

    Wu and He, Group normalization, arXiv:1803.08494.

    Parameters
    ----------
    x : array [N, C, ...]
        As in `layer_norm`.
    groups : int
        How many groups of neighbouring channels there are; divides C.
    weight, bias : array [C], optional
        As in `layer_norm`.
    eps, return_stats, out, stream
        As in `layer_norm`; mean and rstd are [N, groups].

    Returns, raises
        As `layer_norm`.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.group_norm(np.array([[1, 3, 10, 30]], "f"), 2, np.array([1, 1, 2, 2], "f"), eps=1e-12)
    array([[-1.,  1., -2.,  2.]], dtype=float32)
    """
    if return_stats:
        y, mean, rstd = _group_norm((x, weight, bias), (out, None, None), (groups, eps, True), stream)
        return y, mean, rstd
    return _group_norm((x, weight, bias), (out,), (groups, eps, False), stream)[0]


def check_numbers(op: str, **values: object) -> None:
    """TypeError where a parameter is no real number."""
    for name, value in values.items():
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{op}: {name} is a {type(value).__name__}; it takes a real number")


def check_weights(op: str, x: Operand, weights: Given, shape: tuple[int, ...]) -> None:
    """Raise where weight or bias is not of this shape, or the two differ in dtype."""
    present = [weight for weight in weights if weight is not None]
    for weight in present:
        if weight.shape != shape:
            raise ValueError(f"{op}: {weight.argument} has shape {weight.shape}; for x of {x.shape} it takes {shape}")
        if weight.dtype is not present[0].dtype:
            raise TypeError(
                f"{op}: {present[0].argument} is {present[0].dtype.numpy_name} and {weight.argument} "
                f"{weight.dtype.numpy_name}; they must have one dtype"
            )


def _normed(op: str, given: Given, axis: object) -> tuple[Operand, tuple[int, ...]]:
    """x and the axes; raises what does not fit."""
    x, residual, *weights = given
    assert x is not None
    axes = normal_axes(op, axis, len(x.shape))
    if axis is None or not axes:
        raise TypeError(f"{op}: axis is {axis!r}; it takes an integer or a tuple of them")
    shape = tuple(x.shape[a] for a in axes)
    if 0 in shape:
        raise ValueError(f"{op}: x has shape {x.shape}, with nothing along axis {axis} to normalise")
    check_weights(op, x, weights, shape)
    if residual is not None and (residual.shape != x.shape or residual.dtype is not x.dtype):
        raise (ValueError if residual.shape != x.shape else TypeError)(
            f"{op}: residual is {residual.dtype.numpy_name} of shape {residual.shape}; "
            f"it takes those of x, {x.dtype.numpy_name} and {x.shape}"
        )
    return x, axes


def spread(weight: Operand | None, x: Operand, axes: tuple[int, ...]) -> Operand | None:
    """A weight with the axes of x: 1 for those along which it does not vary."""
    if weight is None:
        return None
    steps = dict(zip(axes, weight.strides))
    shape = tuple(size if axis in steps else 1 for axis, size in enumerate(x.shape))
    return _as(weight, shape, tuple(steps.get(axis, 0) for axis in range(len(shape))))


def _as(operand: Operand, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
    return Operand(
        operand.ptr, shape, strides, operand.dtype, operand.device, operand.kind, operand.argument, None, operand.owner
    )


def _prepare_rows(given: Given, results: Sequence[Operand], axis: object, normal: Normal) -> Plan:
    x, residual, weight, bias = given
    assert x is not None
    axes = normal_axes(normal.op, axis, len(x.shape))
    operands = (x, residual, spread(weight, x, axes), spread(bias, x, axes))
    written = [r if r.shape == x.shape else with_axes(r, x, axes) for r in results]
    return plan(operands, written, axes, normal)


def _layer_results(op: str, given: Given, axis: object, eps: float, return_stats: bool) -> Results:
    x, axes = _normed(op, given, axis)
    check_numbers(op, eps=eps)
    rest = tuple(x.shape[a] for a in others(x, axes))
    return [(x.shape, x.dtype), *([(rest, F32)] * 2 if return_stats else [])]


def _prepare_layer(
    op: str, given: Given, results: Sequence[Operand], axis: object, eps: float, return_stats: bool
) -> Plan:
    return _prepare_rows(given, results, axis, Normal(op, False, float(eps), 0.0, return_stats))


def _rms_results(op: str, given: Given, axis: object, eps: float, weight_offset: float, return_rstd: bool) -> Results:
    x, axes = _normed(op, given, axis)
    check_numbers(op, eps=eps, weight_offset=weight_offset)
    rest = tuple(x.shape[a] for a in others(x, axes))
    total = [(x.shape, x.dtype)] if given[1] is not None else []
    return [(x.shape, x.dtype), *total, *([(rest, F32)] if return_rstd else [])]


def _prepare_rms(
    op: str,
    given: Given,
    results: Sequence[Operand],
    axis: object,
    eps: float,
    weight_offset: float,
    return_rstd: bool,
) -> Plan:
    return _prepare_rows(given, results, axis, Normal(op, True, float(eps), float(weight_offset), return_rstd))


def _fused_results(op: str, given: Given, eps: float, weight_offset: float) -> Results:
    return _rms_results(op, given, -1, eps, weight_offset, False)


def _prepare_fused(op: str, given: Given, results: Sequence[Operand], eps: float, weight_offset: float) -> Plan:
    return _prepare_rms(op, given, results, -1, eps, weight_offset, False)


def _group_results(op: str, given: Given, groups: int, eps: float, return_stats: bool) -> Results:
    x = given[0]
    assert x is not None
    check_numbers(op, eps=eps)
    if not isinstance(groups, numbers.Integral):
        raise TypeError(f"{op}: groups is a {type(groups).__name__}; it takes an integer")
    if len(x.shape) < 2:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes at least two axes, [N, C, ...]")
    if groups < 1 or x.shape[1] % groups or 0 in x.shape[1:]:
        raise ValueError(f"{op}: {groups} groups cannot be made of the channels of x, {x.shape}")
    check_weights(op, x, given[1:], (x.shape[1],))
    return [(x.shape, x.dtype), *([((x.shape[0], int(groups)), F32)] * 2 if return_stats else [])]


def _prepare_group(
    op: str, given: Given, results: Sequence[Operand], groups: int, eps: float, return_stats: bool
) -> Plan:
    x, weight, bias = given
    assert x is not None
    channels, space = x.shape[1] // groups, x.shape[2:]
    ones = (1,) * len(space)

    def grouped(operand: Operand) -> Operand:
        (first, second), rest = operand.strides[:2], operand.strides[2:]
        shape = (x.shape[0], int(groups), channels, *space)
        return _as(operand, shape, (first, second * channels, second, *rest))

    def per_channel(vector: Operand | None) -> Operand | None:
        if vector is None:
            return None
        step = vector.strides[0]
        return _as(vector, (1, int(groups), channels, *ones), (0, step * channels, step, *(0 for _ in space)))

    axes = tuple(range(2, 3 + len(space)))
    view = grouped(x)
    stats = [_as(r, (*r.shape, 1, *ones), (*contiguous_strides(r.shape), 0, *ones)) for r in results[1:]]
    normal = Normal(op, False, float(eps), 0.0, return_stats, int(groups), math.prod(space))
    found = plan((view, None, per_channel(weight), per_channel(bias)), (grouped(results[0]), *stats), axes, normal)

    def launch(pointers: Sequence[int], stream: int) -> None:
        found.launch((pointers[0], 0, *pointers[1:]), stream)

    return found._replace(launch=launch)


def _row_operator(name: str, options: tuple[str, ...], results: Any, prepare: Any, needs: tuple[str, ...]) -> Operator:
    arguments = ("x", "residual", "weight", "bias")
    optional = tuple(name for name in arguments if name not in needs)
    return Operator(
        name, arguments, options, results, prepare, optional=optional, mixed=True, rows=False, in_place=True
    )


_layer_norm = _row_operator("layer_norm", ("axis", "eps", "return_stats"), _layer_results, _prepare_layer, ("x",))
_rms_norm = _row_operator(
    "rms_norm", ("axis", "eps", "weight_offset", "return_rstd"), _rms_results, _prepare_rms, ("x",)
)
_fused_add_rms_norm = _row_operator(
    "fused_add_rms_norm", ("eps", "weight_offset"), _fused_results, _prepare_fused, ("x", "residual")
)
_group_norm = Operator(
    "group_norm",
    ("x", "weight", "bias"),
    ("groups", "eps", "return_stats"),
    _group_results,
    _prepare_group,
    optional=("weight", "bias"),
    mixed=True,
    rows=False,
    in_place=True,
)
