"""Casts, and 8-bit codes with scales: x is about q * scale, with a scale for a tensor, a row, or a block of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgen.arrays import adopt
from kgen.dtypes import E4M3, E5M2, F32, FP8, I8, DType
from kgen.ops.composed import Call, calling
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.operator import Elementwise
from kgen.ops.elementwise.storage import Coded, element_dtype
from kgen.ops.moving.quantize_scales import CAST, quantize_groups, quantize_scale
from kgen.ops.options import whole
from kgen.results import allocate, give_back
from kgen.streams import stream_for

CODES = (E4M3, E5M2, I8)

_divide = Elementwise(Function("quantize", ("x", "scale"), "x / scale"), storage=True)
_round = Elementwise(Function("quantize", ("x", "scale"), "rint(fmin(fmax(x / scale, -127), 127))"), storage=True)
_multiply = Elementwise(Function("dequantize", ("q", "scale"), "q * scale"), storage=True)


def _calls_of_cast(x: Any, dtype: Any, *, code: Any = None, out: Any = None, stream: Any = None) -> Iterator[Call]:
    yield Call(CAST._operator, (x,), (_with_code("cast", dtype, code), None))


@calling(_calls_of_cast)
def cast(x: Any, dtype: Any, *, code: Any = None, out: Any = None, stream: Any = None) -> Any:
    """Convert `x` to another element type, like `astype`, also from and to the 8-bit floats e4m3 and e5m2.

    Parameters
    ----------
    x : array of any shape and strides
        Floats (including float8_e4m3fn and float8_e5m2), integers or bool.
    dtype : str or dtype
        The new type: a name ("e4m3", "float16"), or a NumPy or torch dtype. Floats are rounded to nearest even. Numbers
        beyond the range of an 8-bit float become its largest number, with their sign; NaN stays NaN. As in NumPy, what
        an integer type gets from NaN or from a float beyond its range is not defined.
    code : "e4m3" or "e5m2", optional
        What the bytes of a uint8 array stand for. CuPy has no 8-bit floats, and gets uint8 arrays where they result.
    out, stream : optional
        As in `elementwise`.

    Returns an array of x's kind and shape. Raises TypeError for an x that is not an array, or an unknown dtype.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.cast(np.array([1.03, 1000.0], "f"), "e4m3").tolist()
    [1.0, 448.0]
    """
    return CAST(x, out=out, dtype=_with_code("cast", dtype, code), stream=stream)


def _calls_of_quantize(
    x: Any, dtype: Any = "e4m3", scale: Any = None, *, axis: int | None = None, block: int | None = None,
    stream: Any = None,
) -> Iterator[Call]:  # fmt: skip
    target = _target(dtype, scale, axis, block)
    if scale is None and axis is not None:
        yield Call(quantize_groups, (x,), (target, whole("quantize", "axis", axis), block))
        return
    if scale is None:
        yield Call(quantize_scale, (x,), (target,))
        like = adopt(x, "quantize", "x")
        chosen = stream_for(like.kind, [like], stream)
        scale = give_back(allocate(like.kind, (), F32, like.device, chosen), chosen)
    elementwise = _round if target is I8 else _divide
    yield Call(elementwise._operator, (x, scale), (target, None))


@calling(_calls_of_quantize)
def quantize(
    x: Any, dtype: Any = "e4m3", scale: Any = None, *, axis: int | None = None, block: int | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """8-bit codes q and scales such that x is about q * scale: q is x / scale, rounded to nearest even and saturated.

    Parameters
    ----------
    x : array [..., N]
        float32, float16 or bfloat16, of any strides.
    dtype : "e4m3", "e5m2" or "int8"
        8-bit floats are ml_dtypes' types in NumPy and torch's own in torch; CuPy, which has none, gets uint8 bytes.
    scale : number, or array of floats that broadcasts with x, optional
        By default the largest magnitude among the elements that share a scale, divided by the largest code (448, 57344,
        127); 1 if they are all 0, or if there are none. An infinity makes its scale infinite. NaN is ignored, and stays
        NaN except in int8, where it becomes -127.
    axis : int, optional
        The axis along which elements share a scale: -1 gives one per row. The scale has the shape of x, with 1 for that
        axis. By default there is one scale, of shape (). Not looked at if a scale is given.
    block : int, optional
        With axis=-1: every block of so many adjacent elements of a row has its own scale, of shape
        [..., ceil(N / block)].

    Returns
    -------
    (q, scale) of x's kind; a scale that was passed is returned as it is.

    Raises
    ------
    TypeError, ValueError
        For other dtypes or blocks, or an axis that x does not have (numpy.exceptions.AxisError).

    Examples
    --------
    >>> import numpy as np, kgen
    >>> x = np.array([[1, -2], [0, 127]], "f")
    >>> with kgen.backend("cpu"):
    ...     q, scale = kgen.quantize(x, "int8", axis=-1)
    ...     q, kgen.dequantize(q, scale).round(2)
    (array([[  64, -127],
           [   0,  127]], dtype=int8), array([[  1.01,  -2.  ],
           [  0.  , 127.  ]], dtype=float32))
    """
    target = _target(dtype, scale, axis, block)
    if scale is None and axis is not None:
        q, scale = quantize_groups((x,), (None, None), (target, whole("quantize", "axis", axis), block), stream)
        return q, scale
    if scale is None:
        (scale,) = quantize_scale((x,), (None,), (target,), stream)
    q = (_round if target is I8 else _divide)(x, scale, dtype=target, stream=stream)
    return q, scale


def _target(dtype: Any, scale: Any, axis: Any, block: Any) -> DType:
    """The type of the codes; raises for one that codes do not have, and for options that do not go together."""
    target = element_dtype("quantize", dtype, CODES)
    if block is not None:
        if whole("quantize", "block", block) < 1 or axis is None:
            raise ValueError(f"quantize: block is {block}; it takes a positive number of neighbours, with axis=-1")
        if scale is not None:
            raise ValueError("quantize: with a given scale there is no block; reshape x to [..., blocks, block]")
    return target


def _calls_of_dequantize(
    q: Any, scale: Any, *, code: Any = None, dtype: Any = "float32", out: Any = None, stream: Any = None
) -> Iterator[Call]:
    yield Call(_multiply._operator, (q, scale), (_with_code("dequantize", dtype, code), None))


@calling(_calls_of_dequantize)
def dequantize(
    q: Any, scale: Any, *, code: Any = None, dtype: Any = "float32", out: Any = None, stream: Any = None
) -> Any:
    """q * scale, computed in float32 and rounded once to `dtype`.

    Parameters
    ----------
    q : array
        e4m3, e5m2 or int8; or uint8, if `code` is given.
    scale : number, or array of floats that broadcasts with q
        For blocks, pass q reshaped to [..., blocks, block], and scale[..., None].
    code : "e4m3" or "e5m2", optional
        What the bytes of a uint8 array stand for (CuPy has no 8-bit floats).
    dtype, out, stream : optional
        As in `elementwise`.

    Returns an array of q's kind and of the common shape. Raises what `elementwise` raises.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.dequantize(np.array([64, -127], "i1"), 0.25)
    array([ 16.  , -31.75], dtype=float32)
    """
    return _multiply(q, scale, out=out, dtype=_with_code("dequantize", dtype, code), stream=stream)


def _with_code(op: str, dtype: Any, code: Any) -> Any:
    """The option of a cast: the type of the result, and with it what bytes stand for."""
    return dtype if code is None else Coded(dtype, element_dtype(op, code, FP8, "code"))
