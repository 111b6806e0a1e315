"""Layer, RMS and group normalisation: the public functions. Statistics are in float32."""

from __future__ import annotations

from typing import Any

from kgen.ops.calls import Operator
from kgen.ops.norm.calls import (
    fused_results,
    group_results,
    layer_results,
    prepare_fused,
    prepare_group,
    prepare_layer,
    prepare_rms,
    rms_results,
)


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
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance along the axes.

    Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450.

    Parameters
    ----------
    x : array
        float32, float16 or bfloat16, of any shape and strides: a NumPy, CuPy, torch or JAX array, or any other that
        `causal_dot_product` takes.
    weight, bias : array, optional
        Their shape is that of x along the axes. float32, float16 or bfloat16, both of the same dtype, which may differ
        from that of x.
    axis : int or tuple of ints
        The axis or axes to normalise along.
    eps : float
        Added to the variance, which is the biased one (divided by the number of elements).
    return_stats : bool
        Also return the mean and rstd = 1 / sqrt(variance + eps), as `layer_norm_backward` takes them.
    out : array, optional
        Where to write the result; it may be x.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the shape, dtype and kind of x; with `return_stats`, a tuple of it, mean and rstd, which are float32 and
    have the remaining axes of x. The same from call to call, bit for bit.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        For arguments that do not fit together; the message names the argument, what was passed and what is accepted.
    CaptureError
        At the first call of its kind, if that is made during a CUDA graph capture.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.layer_norm(np.array([[1, 3], [5, 5]], "f"), eps=1e-12)
    array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """
    if return_stats:
        y, mean, rstd = _layer_norm.call((x, weight, bias), (out, None, None), (axis, eps, True), stream)
        return y, mean, rstd
    return _layer_norm.call((x, weight, bias), (out,), (axis, eps, False), stream)[0]


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
    """x / sqrt(mean(x^2) + eps) * (weight_offset + weight), with the mean along the axes.

    Zhang and Sennrich, Root mean square layer normalization, arXiv:1910.07467.

    Parameters
    ----------
    x, weight, axis, eps, out, stream
        As in `layer_norm`.
    weight_offset : float
        Added to the weights: 1 for models that store them as weight - 1 (Gemma).
    residual : array, optional
        Has the shape and dtype of x. x + residual, rounded to that dtype, is normalised in place of x.
    return_rstd : bool
        Also return rstd = 1 / sqrt(mean(x^2) + eps).

    Returns
    -------
    array of the shape, dtype and kind of x. With a residual or `return_rstd`, a tuple of it, x + residual (if there is
    a residual) and rstd (if requested; in float32, with the remaining axes of x). The same from call to call, bit for
    bit.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, CaptureError
        As in `layer_norm`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.rms_norm(np.array([3, 4, 0, 0], "f"), np.full(4, 5, "f"), eps=1e-12)
    array([6., 8., 0., 0.], dtype=float32)
    """
    outs = (out, *((None,) if residual is not None else ()), *((None,) if return_rstd else ()))
    results = _rms_norm.call((x, residual, weight), outs, (axis, eps, weight_offset, return_rstd), stream)
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
    """Add x to residual in place, and return `rms_norm(residual, weight)` along the last axis, in one pass over both.

    `out` may be x, as inference servers use it, but not the residual. The sum is rounded to the dtype of the arrays
    before it is normalised, as if the two steps were done one after the other. Arrays, parameters and errors are those
    of `rms_norm`.

    >>> import numpy as np, kgen
    >>> residual = np.array([1, 4, 0, 0], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.fused_add_rms_norm(np.array([2, 0, 0, 0], "f"), residual, eps=1e-12), residual
    (array([1.2, 1.6, 0. , 0. ], dtype=float32), array([3., 4., 0., 0.], dtype=float32))
    """
    return _fused_add_rms_norm.call((x, residual, weight), (out, residual), (eps, weight_offset), stream)[0]


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
        The number of groups of adjacent channels; it must divide C.
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
        y, mean, rstd = _group_norm.call((x, weight, bias), (out, None, None), (groups, eps, True), stream)
        return y, mean, rstd
    return _group_norm.call((x, weight, bias), (out,), (groups, eps, False), stream)[0]


def _operator(
    name: str, arguments: str, options: str, results: Any, prepare: Any, optional: str, outs: tuple[str, ...] = ("out",)
) -> Operator:
    return Operator(
        name,
        tuple(arguments.split()),
        tuple(options.split()),
        results,
        prepare,
        optional=tuple(optional.split()),
        mixed=True,
        rows=False,
        in_place=True,
        outs=outs,
    )


_layer_norm = _operator(
    "layer_norm", "x weight bias", "axis eps return_stats", layer_results, prepare_layer, "weight bias"
)
_rms_norm = _operator(
    "rms_norm", "x residual weight", "axis eps weight_offset return_rstd", rms_results, prepare_rms, "residual weight"
)
_fused_add_rms_norm = _operator(
    "fused_add_rms_norm",
    "x residual weight",
    "eps weight_offset",
    fused_results,
    prepare_fused,
    "weight",
    ("out", "residual"),
)
_group_norm = _operator(
    "group_norm", "x weight bias", "groups eps return_stats", group_results, prepare_group, "weight bias"
)
