"""Which element type a result has: NumPy's rules (NEP 50), with bfloat16 in them as JAX has it.

NumPy has no rule for bfloat16 with wide integers: here it absorbs integers, and with float16 gives float32.
"""

from __future__ import annotations

import functools

import numpy as np

from kgen.dtypes import BF16, BOOL, F16, F32, F64, FLOATS, FP8, INTEGERS, DType, dtype_of

FLOATING = (*FLOATS, F64)
ANY = (*FLOATS, F64, *INTEGERS, BOOL)
"""The types that elementwise operators take."""

_ORDER = {**dict.fromkeys((*FLOATING, *FP8), 3), **{t: 2 if t.name.startswith("i") else 1 for t in INTEGERS}, BOOL: 0}


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
