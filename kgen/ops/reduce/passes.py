"""One pass of a reduction, and what its kernels are told of it, whether they go along rows or down columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kgen.dtypes import FLOATS, DType
from kgen.ops.reduce.axes import Kept, Layout
from kgen.ops.reduce.kernels import KERNELS, LOAD_BYTES, result_axes, summed
from kgen.ops.reduce.text import rounded_once
from kgen.spec import Spec

LEVELS = 4
"""Kept axes that a kernel walks; of further ones each index is a launch."""
NAIVE = {"naive": (1, 1), "vec4": (4, 1), "vec8": (8, 1), "vec16": (16, 1)}
"""The ladder: elements of a load, and loads in flight."""
BUSY = 1024
"""Rows for each multiprocessor, from which on blocks of many keep it busy."""


class Pass(NamedTuple):
    """One kernel's work: an axis reduced, from elements of one type to results of another."""

    op: str
    dtype: DType
    out: DType
    layout: Layout
    low: int  # bits of addresses that are not zero: how aligned the source is
    divisor: float
    sms: int
    algorithm: str | None
    early: bool  # whether the device lets blocks begin where those of the kernel before end


def length_of(axes: Layout) -> int:
    return axes.reduced[0].size if axes.reduced else 1


def of_one_type(one: Pass) -> bool:
    """Whether floats are reduced to floats of their own type, or to places, by a kernel that nobody named."""
    return one.dtype in FLOATS and (one.out is one.dtype or not summed(one.op)) and one.algorithm is None


def many_in_line(one: Pass, rows: int, inside: Sequence[Kept]) -> bool:
    """Whether rows are many, and lie one behind the other from a multiple of a load on."""
    length, stride = one.layout.reduced[0] if one.layout.reduced else (1, 1)
    aligned = not (one.low | one.layout.start * one.dtype.itemsize) % LOAD_BYTES
    dense = len(inside) == 1 and inside[0].stride == length and stride == 1
    return aligned and dense and rows >= BUSY * one.sms


def spec_of(one: Pass, form: int, **axes: int | bool) -> Spec:
    return KERNELS[one.op][form].spec(dtype=one.dtype, **axes, **result_axes(one.op, one.dtype, one.out))


def levels(inside: Sequence[Kept]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes of all kept axes but the outermost, and the strides of all, filled up with axes of size 1."""
    full = [*inside[:1], *[Kept(1, 0, 0)] * (LEVELS - len(inside)), *inside[1:]]
    return (
        tuple(axis.size for axis in full[1:]),
        tuple(axis.stride for axis in full),
        tuple(axis.out for axis in full),
    )


def divisor_of(one: Pass) -> tuple[float, ...]:
    """What a kernel of sums is told to divide by, or, where sums are doubles to be rounded, to multiply by."""
    if not summed(one.op):
        return ()
    if not rounded_once(one.op, one.dtype, one.out):
        return (one.divisor,)
    return (1 / one.divisor if one.divisor else math.inf,)  # a mean of nothing is 0 times infinity, a NaN
