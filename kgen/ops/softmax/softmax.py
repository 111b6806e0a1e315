"""Softmax, its logarithm, and the logarithm of the sum of exponentials: the public functions.

Every number is subtracted from the greatest of its row before the exponential, as in SciPy; what decides between the
kernels is in plans.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.dtypes import BOOL, F32, FLOATS, DType, dtype_of
from kgen.operand import Operand
from kgen.ops.axes import normal_axes, others, with_axes
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.options import check_real
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.plans import plan


def softmax(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    scale: float = 1,
    causal: bool = False,
    mask: Any = None,
    algorithm: str | None = None,
    out: Any = None,
    dtype: Any = None,
    stream: Any = None,
) -> Any:
    """exp(scale x) divided by its sum along an axis, like `scipy.special.softmax`.

    Parameters
    ----------
    x : array
        float32, float16 or bfloat16, of any shape and strides: a NumPy, CuPy, torch or JAX array, or any other that
        `causal_dot_product` takes.
    axis : int, tuple of ints, or None
        The axis along which the result sums to 1; None normalises over the whole array.
    scale : float
        x is multiplied by it first.
    causal : bool
        The last two axes are queries and keys, and x[..., i, j] is left out for j > i + (keys - queries): the last
        query sees all keys. The axis must be the last one.
    mask : array of bool, optional
        Broadcasts to the shape of x. Elements where it is False are left out: their probability is 0.
    algorithm : str, optional
        "softmax" keeps rows in registers; "softmax_online" (Milakov and Gimelshein, arXiv:1805.02867) finds maximum and
        sum in one pass, and reads x twice; "softmax_columns" works along an axis other than the last. Also the name of
        one specialization of these. By default chosen by the shape.
    out : array, optional
        Where to write the result; may be x itself.
    dtype : optional
        The dtype of the result: that of x (the default) or float32.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the shape and kind of x. All arithmetic is in float32. A row is NaN if it contains NaN or +inf, if all of
    it is -inf, or if all of it is left out. Results below 2^-126 may be 0. The same from call to call, bit for bit.

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
    ...     kgen.softmax(np.array([[0, 0], [0, np.log(3)]], "f"), axis=-1).round(3)
    array([[0.5 , 0.5 ],
           [0.25, 0.75]], dtype=float32)
    """
    result: Any = _softmax.call((x, mask), (out,), (axis, scale, causal, algorithm, dtype), stream)[0]
    return result


def log_softmax(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    scale: float = 1,
    causal: bool = False,
    mask: Any = None,
    algorithm: str | None = None,
    out: Any = None,
    dtype: Any = None,
    stream: Any = None,
) -> Any:
    """The logarithm of `softmax`, computed without going through it; like `scipy.special.log_softmax`.

    Parameters, result and errors are those of `softmax`; elements that are left out become -inf.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.log_softmax(np.array([0, 1000], "f"))
    array([-1000.,     0.], dtype=float32)
    """
    result: Any = _log_softmax.call((x, mask), (out,), (axis, scale, causal, algorithm, dtype), stream)[0]
    return result


def logsumexp(
    a: Any,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: Any = None,
    dtype: Any = None,
    stream: Any = None,
) -> Any:
    """log(sum(exp(a))) along an axis, like `scipy.special.logsumexp`.

    Parameters
    ----------
    a : array
        Like the x of `softmax`.
    axis : int, tuple of ints, or None
        The axis or axes to sum along; None sums over the whole array.
    keepdims : bool
        Keep these axes in the result, with size 1.
    out, dtype, stream : optional
        As in `softmax`.

    Returns
    -------
    array of the kind of a, without the axes summed over: NaN if an element is NaN, otherwise inf if one is inf, and
    -inf if all are -inf.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, CaptureError
        As in `softmax`; ValueError, too, where there is nothing to sum, of which SciPy from 1.15 on says -inf.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.logsumexp(np.zeros((2, 4), "f"), axis=1, keepdims=True)
    array([[1.3862944],
           [1.3862944]], dtype=float32)
    """
    result: Any = _logsumexp.call((a,), (out,), (axis, keepdims, dtype), stream)[0]
    return result


def _result_dtype(op: str, x: Operand, dtype: object) -> DType:
    """That of x, or float32."""
    if dtype is None:
        return x.dtype
    try:
        wanted = dtype_of(dtype)
    except ValueError:
        wanted = None
    if wanted not in (x.dtype, F32):
        taken = "float32" if x.dtype is F32 else f"{x.dtype.numpy_name}, that of {x.argument}, or float32"
        raise TypeError(f"{op}: dtype is {dtype!r}; it takes {taken}")
    return wanted or x.dtype


def _check(op: str, given: Sequence[Operand | None], axes: tuple[int, ...], scale: object, causal: bool) -> Operand:
    x, mask = given
    assert x is not None
    check_real(op, scale=scale)
    if causal and (len(x.shape) < 2 or axes != (len(x.shape) - 1,)):
        raise ValueError(
            f"{op}: causal takes the last of at least two axes, queries and keys; "
            f"the axes are {axes} of the shape {x.shape}"
        )
    if mask is not None:
        behind = x.shape[len(x.shape) - len(mask.shape) :]
        if len(mask.shape) > len(x.shape) or any(m not in (1, n) for m, n in zip(mask.shape, behind)):
            raise ValueError(f"{op}: mask has shape {mask.shape}, which does not broadcast to that of x, {x.shape}")
    return x


def _results(
    op: str,
    given: Sequence[Operand | None],
    axis: object,
    scale: float,
    causal: bool,
    algorithm: str | None,
    dtype: object,
) -> Results:
    x = given[0]
    assert x is not None
    x = _check(op, given, normal_axes(op, axis, len(x.shape)), scale, causal)
    return [(x.shape, _result_dtype(op, x, dtype))]


def _prepare(
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    axis: object,
    scale: float,
    causal: bool,
    algorithm: str | None,
    dtype: object,
) -> Plan:
    x, mask = given
    assert x is not None
    axes = normal_axes(op, axis, len(x.shape))
    return plan(x, mask, results[0], axes, Wanted(op, float(scale), causal, mask is not None), algorithm)


def _sum_results(op: str, given: Sequence[Operand], axis: object, keepdims: bool, dtype: object) -> Results:
    (a,) = given
    axes = normal_axes(op, axis, len(a.shape))
    if any(a.shape[n] == 0 for n in axes):
        raise ValueError(f"{op}: a has shape {a.shape}, with nothing along axis {axis} to take the maximum of")
    kept = set(others(a, axes))
    shape = tuple(size if n in kept else 1 for n, size in enumerate(a.shape) if keepdims or n in kept)
    return [(shape, _result_dtype(op, a, dtype))]


def _prepare_sum(
    op: str, given: Sequence[Operand], results: Sequence[Operand], axis: object, keepdims: bool, dtype: object
) -> Plan:
    (a,) = given
    axes = normal_axes(op, axis, len(a.shape))
    return plan(a, None, with_axes(results[0], a, axes), axes, Wanted(op, 1.0, False, False), None)


def _operator(name: str) -> Operator:
    return Operator(
        name,
        ("x", "mask"),
        ("axis", "scale", "causal", "algorithm", "dtype"),
        _results,
        _prepare,
        takes={"x": FLOATS, "mask": (BOOL,)},
        optional=("mask",),
        mixed=True,
        rows=False,
        in_place=True,
    )


_softmax = _operator("softmax")
_log_softmax = _operator("log_softmax")
_logsumexp = Operator("logsumexp", ("a",), ("axis", "keepdims", "dtype"), _sum_results, _prepare_sum, rows=False)
