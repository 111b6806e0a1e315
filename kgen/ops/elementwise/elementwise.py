"""Elementwise operators: a function of numbers, made a function of arrays that broadcast, like NumPy's ufuncs.

kgen.relu(x)                                      functions by name (kgen/ops/elementwise/activations.py)
kgen.elementwise("x * sigmoid(y) + 2", x=x, y=y)  an expression, at once
f = kgen.elementwise("silu(gate) * up")           or prepared, to be called again and again
f(gate, up, out=out)
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

from kgen.dtypes import F32
from kgen.ops.elementwise.expression import ExpressionError, Function, operands
from kgen.ops.elementwise.operator import OPTIONS, Elementwise
from kgen.ops.elementwise.program import write

MAX_OPERANDS = 12


@functools.lru_cache(maxsize=1024)
def _prepared(expression: str, names: tuple[str, ...]) -> Elementwise:
    if not names or len(names) > MAX_OPERANDS:
        raise ExpressionError(f"elementwise: {expression!r} has {len(names)} operands; it takes 1 to {MAX_OPERANDS}")
    for name in names:
        if name in OPTIONS or not name.isascii() or name.startswith("_"):
            raise ExpressionError(
                f"elementwise: {expression!r}: an operand cannot be called {name!r}; use another name"
            )
    function = Function("elementwise", names, expression)
    with suppress(TypeError, OverflowError):  # which other types of operands may not give
        write(function, (F32,) * len(names))
    return Elementwise(function)


def elementwise(expression: str, /, **operands_and_options: Any) -> Any:
    """Compute an expression on the elements of arrays; or, given no operands, prepare it to be called later.

    Parameters
    ----------
    expression : str
        Python's arithmetic, comparisons and conditional expressions, the constants pi, inf and nan, and functions (exp,
        sqrt, tanh, erf, where, maximum, sigmoid, every activation of kgen and more). Named steps may come first,
        separated by semicolons: "e = exp(-abs(x)); x / (1 + e)". It is compiled, never run as Python.
    **operands : arrays or numbers
        By the names that the expression uses; a prepared expression also takes them in order of first use. Arrays are
        NumPy, CuPy, torch or JAX arrays (or anything that speaks DLPack) of float32, float16, bfloat16, float64, any
        integer type or bool, with any strides; their shapes broadcast, and at least one operand is an array. Numbers
        follow NumPy 2 (NEP 50): a Python number takes the type of the arrays, a NumPy scalar keeps its own.
    out : array, optional
        Where to write the result, whose shape and dtype it has. It may be one of the operands, but must not overlap one
        in any other way.
    dtype : optional
        The operands are converted to it first, and it is the type of the result. By default types follow NumPy's
        rules, and JAX's for bfloat16: with float16 it gives float32, with integers it stays bfloat16.
    algorithm : str, optional
        One specialization by name, such as `relu_v1_f32`, for arrays of one type; by default the fastest.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the operands' kind; without operands, the prepared expression. float16 and bfloat16 are computed in float32
    and rounded once.

    Raises
    ------
    ExpressionError
        A ValueError: the expression cannot be read, or uses something that expressions do not have.
    TypeError, ValueError, OverflowError
        As NumPy raises them, naming the operator, the argument, what was passed and what is accepted.
    CaptureError
        At the first call of its kind, if that is made during a CUDA graph capture.

    Examples
    --------
    >>> import numpy, kgen
    >>> x = numpy.arange(4, dtype="f")
    >>> with kgen.backend("cpu"):
    ...     kgen.elementwise("2 * x if x > 1 else x / 2", x=x)
    array([0. , 0.5, 4. , 6. ], dtype=float32)
    >>> elementwise("silu(gate) * up")
    <elementwise elementwise(gate, up): silu(gate) * up>
    """
    prepared = _read(expression)
    if any(name not in OPTIONS for name in operands_and_options):
        return prepared(**operands_and_options)
    if operands_and_options:
        raise TypeError(
            f"elementwise: {expression!r} came without operands; it takes {', '.join(prepared.function.parameters)}"
        )
    return prepared


def _read(expression: str) -> Elementwise:
    return _prepared(expression, operands(expression))


elementwise.__dict__.update(  # what `kgen.explain` and `kgen.workspace` ask of a call with operands
    explain=lambda expression, /, **named: _read(expression).explain(**named),
    workspace=lambda expression, /, **named: _read(expression).workspace(**named),
)
