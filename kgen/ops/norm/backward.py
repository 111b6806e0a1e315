"""The gradients of layer_norm and rms_norm, from the statistics that the forward pass returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.dtypes import F32, FLOATS
from kgen.operand import Operand
from kgen.ops.axes import normal_axes, others, with_axes
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.norm.backward_plans import plan
from kgen.ops.norm.calls import check_weights, normed_axes, spread
from kgen.ops.options import check_real

Given = Sequence[Operand | None]


def layer_norm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The gradients of `layer_norm`: dx and, if there is a weight, dweight and dbias.

    Parameters
    ----------
    dy, x : array
        The gradient with respect to the result, and the input; of the same shape and dtype, float32, float16 or
        bfloat16.
    mean, rstd : array of float32
        As `layer_norm` returns them with `return_stats`.
    weight : array, optional
        As in `layer_norm`.
    axis, stream
        As in `layer_norm`.
    out : array, optional
        Where to write dx.

    Returns
    -------
    dx of the shape, dtype and kind of x; with a weight, a tuple of dx, dweight and dbias, the latter two of the
    weight's shape and dtype. The same from call to call, bit for bit: no sum depends on the order in which blocks run.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, CaptureError
        As `layer_norm`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> x, dy, weight = np.array([[1, 3]], "f"), np.array([[1, 0]], "f"), np.ones(2, "f")
    >>> with kgen.backend("cpu"):
    ...     y, mean, rstd = kgen.layer_norm(x, weight, eps=1e-12, return_stats=True)
    ...     kgen.layer_norm_backward(dy, x, mean, rstd, weight)[1:]
    (array([-1.,  0.], dtype=float32), array([1., 0.], dtype=float32))
    """
    outs = (out, None, None) if weight is not None else (out,)
    results = _layer_norm_backward.call((dy, x, mean, rstd, weight), outs, (axis,), stream)
    return tuple(results) if len(results) > 1 else results[0]


def rms_norm_backward(
    dy: Any,
    x: Any,
    rstd: Any,
    weight: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    weight_offset: float = 0.0,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The gradients of `rms_norm`: dx and, if there is a weight, dweight.

    Parameters, results and errors are those of `layer_norm_backward`, without a mean and a bias.

    >>> import numpy as np, kgen
    >>> x = np.array([[3, 4]], "f")
    >>> with kgen.backend("cpu"):
    ...     y, rstd = kgen.rms_norm(x, eps=0.0, return_rstd=True)
    ...     kgen.rms_norm_backward(x, x, rstd).round(4)
    array([[0., 0.]], dtype=float32)
    """
    outs = (out, None) if weight is not None else (out,)
    results = _rms_norm_backward.call((dy, x, rstd, weight), outs, (axis, weight_offset), stream)
    return tuple(results) if len(results) > 1 else results[0]


def _results(op: str, given: Given, axis: object, weight_offset: float = 0.0) -> Results:
    dy, x, *statistics, weight = given
    assert dy is not None and x is not None
    axes = normed_axes(op, axis, x)
    check_real(op, weight_offset=weight_offset)
    if dy.shape != x.shape or dy.dtype is not x.dtype:
        raise (ValueError if dy.shape != x.shape else TypeError)(
            f"{op}: dy is {dy.dtype.numpy_name} of shape {dy.shape} and x {x.dtype.numpy_name} of {x.shape}; "
            "they must be alike"
        )
    shape = tuple(x.shape[a] for a in axes)
    if 0 in shape:
        raise ValueError(f"{op}: x has shape {x.shape}, with nothing along axis {axis}")
    rest = tuple(x.shape[a] for a in others(x, axes))
    for statistic in statistics:
        if statistic is not None and statistic.shape != rest:
            raise ValueError(
                f"{op}: {statistic.argument} has shape {statistic.shape}; for x of {x.shape} it takes {rest}"
            )
    check_weights(op, x, (weight,), shape)
    if weight is None:
        return [(x.shape, x.dtype)]
    return [(x.shape, x.dtype), *([(shape, weight.dtype)] * len(statistics))]


def _prepare(op: str, given: Given, results: Sequence[Operand], axis: object, weight_offset: float = 0.0) -> Plan:
    dy, x, *known, weight = given
    assert x is not None
    axes = normal_axes(op, axis, len(x.shape))
    statistics = [with_axes(s, x, axes) for s in known if s]
    gradients = [spread(result, x, axes) for result in results[1:]]
    operands = (dy, x, *statistics, spread(weight, x, axes), results[0], *gradients)
    return plan(operands, len(given), axes, float(weight_offset))


_TAKES = {"dy": FLOATS, "x": FLOATS, "mean": (F32,), "rstd": (F32,), "weight": FLOATS}
_layer_norm_backward = Operator(
    "layer_norm_backward",
    ("dy", "x", "mean", "rstd", "weight"),
    ("axis",),
    _results,
    _prepare,
    takes=_TAKES,
    optional=("weight",),
    mixed=True,
    rows=False,
)
_rms_norm_backward = Operator(
    "rms_norm_backward",
    ("dy", "x", "rstd", "weight"),
    ("axis", "weight_offset"),
    _results,
    _prepare,
    takes=_TAKES,
    optional=("weight",),
    mixed=True,
    rows=False,
)
