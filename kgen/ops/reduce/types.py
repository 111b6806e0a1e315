"""Of which type a sum, a product or a mean is: NumPy's, or one that was asked for and that its rules allow."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from kgen.dtypes import BOOL, F64, I64, INTEGERS, U64, UNSIGNED, DType, dtype_of, listed
from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.ops.reduce.kernels import ELEMENTS
from kgen.ops.reduce.text import FLOATING

_PYTHON_TYPES: dict[object, DType] = {float: F64, int: I64, bool: BOOL}


def type_of_result(op: str, x: Operand, dtype: object) -> DType:
    """The type of floats, 64 bits of integers, float64 of their mean; TypeError for a `dtype` that cannot be had."""
    if dtype is None:
        if x.dtype in FLOATING:
            return x.dtype
        return F64 if op == "mean" else U64 if x.dtype in UNSIGNED else I64
    try:
        found = _PYTHON_TYPES.get(dtype) or dtype_of(_named(dtype))
    except SpecError:
        raise TypeError(f"{op}: dtype is {dtype!r}; it takes one of {listed(ELEMENTS)}") from None
    if found not in FLOATING and (found not in INTEGERS or x.dtype in FLOATING or op == "mean"):
        taken = FLOATING if x.dtype in FLOATING or op == "mean" else (*FLOATING, *INTEGERS)
        raise TypeError(f"{op}: dtype is {found.numpy_name}; a result of {x.dtype.numpy_name} is {listed(taken)}")
    return found


def _named(dtype: object) -> object:
    """A string as NumPy reads it, to which "i8" is a long integer, where NumPy can."""
    if isinstance(dtype, str):
        with suppress(TypeError):
            return np.dtype(dtype)
    return dtype
