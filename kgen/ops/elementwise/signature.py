"""How a function is called, and the C++ that it is then."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kgen.dtypes import DType
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.program import Program, write
from kgen.ops.elementwise.promotion import Type, Weak


@dataclass(frozen=True)
class Signature:
    """How a function is called: the type of each parameter, whether it is an array or one number, and of the result.

    dtype   what the arrays become first, and the result in the end; None: what NumPy's rules give
    cast    what the result becomes in the end, and nothing before
    """

    types: tuple[Type, ...]
    arrays: tuple[bool, ...]
    dtype: DType | None = None
    cast: DType | None = None


@functools.lru_cache(maxsize=4096)
def program(function: Function, signature: Signature) -> Program:
    """The C++ of a function as it is called."""
    return write(function, signature.types, signature.dtype, signature.cast)


def uniform(function: Function, defaults: Mapping[str, float], dtype: DType) -> Signature:
    """All operands are arrays of one type, parameters with defaults are numbers."""
    arrays = tuple(p not in defaults for p in function.parameters)
    return Signature(tuple(dtype if array else Weak("float") for array in arrays), arrays)
