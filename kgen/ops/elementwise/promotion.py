"""Which element type a result has: NumPy's rules (NEP 50), with bfloat16 in them as JAX has it.

NumPy has no rule for bfloat16 with wide integers: here it absorbs integers, and with float16 gives float32.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kgen.dtypes import BF16, BOOL, F16, F32, F64, FLOATS, FP8, I64, INTEGERS, SIGNED, DType, dtype_of

FLOATING = (*FLOATS, F64)
ANY = (*FLOATS, F64, *INTEGERS, BOOL)
"""The types that elementwise operators take."""

_ORDER = {**dict.fromkeys((*FLOATING, *FP8), 3), **{t: 2 if t.name.startswith("i") else 1 for t in INTEGERS}, BOOL: 0}


@dataclass(frozen=True)
class Weak:
    """The type of a Python number, which gives way to that of the array it meets."""

    name: str

    @property
    def numpy_name(self) -> str:
        """What messages call it."""
        return f"a Python {self.name}"


INT, FLOAT = Weak("int"), Weak("float")
Type = DType | Weak


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The smallest type that both may go into.

    >>> promote(dtype_of("i32"), F32).name, promote(BF16, F16).name, promote(BF16, dtype_of("i64")).name
    ('f64', 'f32', 'bf16')
    """
    if a is b:
        return a
    if a in FP8 or b in FP8:  # 8 bits are for storage: arithmetic begins at float32
        wider = [t for t in (a, b) if t not in FP8]
        return wider[0] if wider and wider[0] in FLOATING else F32
    if BF16 in (a, b):
        other = b if a is BF16 else a
        return F32 if other is F16 else other if other in FLOATING else BF16
    return dtype_of(np.promote_types(a.numpy, b.numpy))


def floating(dtype: DType) -> DType:
    """What a function of real numbers gives: 8-bit integers become float16, 16-bit ones float32, wider ones float64."""
    if dtype in FLOATING:
        return dtype
    return {1: F16, 2: F32}.get(dtype.itemsize, F64)


def castable(source: DType, target: DType) -> bool:
    """Whether NumPy's "same_kind" lets one become the other: not a float an integer, not a signed number an unsigned.

    >>> castable(F64, F16), castable(F32, dtype_of("i32"))
    (True, False)
    """
    return _ORDER[source] <= _ORDER[target]


def arithmetic(dtype: DType) -> str:
    """The C++ type in which numbers of a type are computed: narrower floats are widened to float."""
    return F32.c if dtype in (*FLOATS, *FP8) else dtype.c


def join(a: Type, b: Type) -> Type:
    """The type in which two meet, by NEP 50.

    >>> from kgen.dtypes import I8
    >>> join(F32, FLOAT).name, join(I8, INT).name, join(I8, FLOAT).name, join(BOOL, INT).name
    ('f32', 'i8', 'f64', 'i64')
    """
    if isinstance(a, DType) and isinstance(b, DType):
        return promote(a, b)
    if isinstance(a, Weak) and isinstance(b, Weak):
        return FLOAT if FLOAT in (a, b) else INT
    strong, weak = (a, b) if isinstance(a, DType) else (b, a)
    assert isinstance(strong, DType)
    if strong in FLOATING or (weak is INT and strong is not BOOL):
        return strong
    return F64 if weak is FLOAT else I64


def common(types: Sequence[Type]) -> Type:
    """The type in which several meet."""
    return functools.reduce(join, types)


def real(types: Sequence[Type]) -> Type:
    """The type in which a function of several real numbers computes them: integers become floats before they meet.

    >>> from kgen.dtypes import I8, I16
    >>> real([dtype_of("u8"), I8]).name, common([dtype_of("u8"), I8]) is I16, real([I8, FLOAT]).name
    ('f16', True, 'f64')
    """
    together = common(types)
    if isinstance(together, Weak) or together in FLOATING:
        return together
    whole = [join(t, INT) if INT in types else t for t in types if isinstance(t, DType)]
    return common([floating(t) for t in whole if isinstance(t, DType)])


def quotient(types: Sequence[Type]) -> Type:
    """The type in which numbers are divided: float64 for integers."""
    together = common(types)
    return FLOAT if isinstance(together, Weak) else together if together in FLOATING else F64


def bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a type of integers.

    >>> from kgen.dtypes import I8
    >>> bounds(I8)
    (-128, 127)
    """
    bits = 8 * dtype.itemsize
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)


def beyond(value: int, dtype: DType) -> int:
    """-1 for an integer below all that a type of integers holds, 1 for one above, 0 for one that it holds.

    >>> from kgen.dtypes import I8
    >>> beyond(-129, I8), beyond(127, I8), beyond(128, I8)
    (-1, 0, 1)
    """
    low, high = bounds(dtype)
    return (value > high) - (value < low)


def check_range(title: str, value: int, dtype: DType) -> None:
    """NumPy's error for a Python integer that a type cannot hold; what is too large for a float is infinite in one."""
    if dtype not in INTEGERS:
        if abs(value) >= 1 << 1024:
            raise OverflowError(f"{title}: Python integer of {value.bit_length()} bits is too large for a float")
        return
    if beyond(value, dtype):
        raise OverflowError(f"{title}: Python integer {value} out of bounds for {dtype.numpy_name}")


def describe(types: Mapping[str, Type]) -> str:
    """Parameters with their types, for headers: "x f16, y f32, alpha float"."""
    return ", ".join(f"{name} {kind.name}" for name, kind in types.items())
