"""Python's and NumPy's numbers among the operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import dtype_of
from kgen.ops.elementwise.promotion import FLOAT, INT, Type

NUMBERS = frozenset({bool, int, float, type(None), *np.sctypeDict.values()})
Number = tuple[str, str]
"""A number as its type and its text: 1, 1.0 and True are equal and do not mean the same."""


def number_of(value: Any) -> Number:
    if value.__class__ is float:
        return "float", value.hex()
    if isinstance(value, bool | np.bool_):
        return "bool", str(int(value))
    if isinstance(value, np.generic):
        return str(value.dtype.name), value.item().hex() if value.dtype.kind == "f" else str(int(value))
    return ("int", str(value)) if isinstance(value, int) else ("float", float(value).hex())


def type_of(number: Number | None) -> Type:
    assert number is not None
    return {"int": INT, "float": FLOAT}.get(number[0]) or dtype_of(number[0])


def value_of(number: Number) -> int | float:
    return int(number[1]) if "0x" not in number[1] and number[1].lstrip("-").isdigit() else float.fromhex(number[1])
