"""Python's and NumPy's numbers among the operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import dtype_of
from kgen.ops.elementwise.promotion import ANY, FLOAT, INT, Type

_TAKEN = {kind.numpy for kind in ANY}
NUMBERS = frozenset({bool, int, float, type(None), *(t for t in np.sctypeDict.values() if np.dtype(t) in _TAKEN)})
"""The classes of these, and that of None; numbers of other types are operands, which say what they are."""
Number = tuple[str, str]
"""A number as its type and its text: 1, 1.0 and True are equal and do not mean the same."""
MISSING: Number = ("missing", "")
"""In the place of an operand that was left out."""


def number_of(value: Any) -> Number:
    kind = value.__class__
    if kind is float:
        return "float", repr(value)
    if kind is int:
        return "int", str(value)
    if isinstance(value, bool | np.bool_):
        return "bool", str(int(value))
    return str(value.dtype.name), repr(float(value)) if value.dtype.kind == "f" else str(int(value))


def type_of(number: Number | None) -> Type:
    assert number is not None
    return {"int": INT, "float": FLOAT}.get(number[0]) or dtype_of(number[0])


def value_of(number: Number) -> int | float:
    try:
        return int(number[1])
    except ValueError:
        return float(number[1])


def beyond_int64(number: Number | None) -> bool:
    """Whether it is a Python integer that no int64 brings to a kernel."""
    return number is not None and number[0] == "int" and not -(1 << 63) <= int(number[1]) < 1 << 63
