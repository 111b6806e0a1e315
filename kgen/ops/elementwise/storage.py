"""What arrays hold: the types that callers name, and bytes in place of those that a library has not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgen.dtypes import FP8, I64, U8, U64, DType, dtype_of, listed
from kgen.errors import SpecError
from kgen.operand import Operand

_NUMPYS = {"i8": I64, "u8": U64}
"""Strings that NumPy reads otherwise than kgen's own names are read: as bytes, not bits."""


def held_as(dtype: DType, like: Operand) -> DType:
    """What a library's arrays hold for results of a type: bytes, where it knows no 8-bit floats, as CuPy does not."""
    knows = like.kind in ("torch", "numpy")
    return U8 if dtype in FP8 and not knows else dtype


def read_as(x: Operand, code: DType | None) -> DType:
    return code if code is not None and x.dtype is U8 else x.dtype


class Coded(NamedTuple):
    """The `dtype` of a result, and with it what the bytes of an operand stand for."""

    dtype: Any
    code: DType


def element_dtype(op: str, dtype: Any, takes: tuple[DType, ...], option: str = "dtype") -> DType:
    """The type that a caller's `dtype`, or another option, stands for."""
    try:
        found = _NUMPYS.get(dtype) if isinstance(dtype, str) else None
        found = found or dtype_of(dtype)
    except SpecError:
        try:
            found = dtype_of(np.dtype(dtype))
        except (TypeError, ValueError):
            raise TypeError(f"{op}: {option} is {dtype!r}, which is no type of elements") from None
    if found not in takes:
        raise TypeError(f"{op}: {option} is {found.numpy_name}; it takes {listed(takes)}")
    return found
