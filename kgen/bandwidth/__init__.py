"""How much of the copy bandwidth the memory-bound operators reach, at shapes from narrow to wide, aligned and not.

    kgen bandwidth                            # all rows, float32 and bfloat16
    kgen bandwidth 'layer_norm *' --dtype f16
    kgen bandwidth --random 5                 # rows of five widths that no table names

Each result is compared with float64 before it is timed; a percentage is of the bandwidth of a copy of 1 GB in the same
run, for the fewest bytes that must move: each input read once, each result written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kgen.dtypes import BF16, F16, F32, DType

Array = Any
"""A CuPy array; nothing here imports CuPy before it runs."""

NBYTES = 1 << 28
"""Of the largest array of a row."""

LONG = 1 << 26
"""Numbers of a row of which there are one or two."""

BARS = {F32: 1e-6, F16: 6e-4, BF16: 4e-3}
"""Relative RMS errors up to which a result is right."""


class Problem(NamedTuple):
    """A row on the device.

    call   computes the result, or several
    exact  the same in float64
    moved  the arrays that must be read or written
    """

    call: Callable[[], Any]
    exact: Callable[[], Sequence[Array]]
    moved: Sequence[Array]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.moved)


class Row(NamedTuple):
    """What is timed: an operator at a shape, for operands of a type."""

    name: str
    shape: str
    dtype: DType
    prepare: Callable[[], Problem]

    @property
    def label(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"


def normal(*shape: int, dtype: DType, seed: int = 0, begin: int = 0) -> Array:
    """Normal numbers that begin `begin` elements behind a multiple of 256 bytes."""
    import cupy

    numbers = cupy.random.default_rng(seed).standard_normal(begin + math.prod(shape), dtype="f4").astype(dtype.numpy)
    return numbers[begin:].reshape(shape)


def rows_of(columns: int, dtype: DType) -> int:
    """How many rows of so many numbers make NBYTES."""
    return max(1, NBYTES // (columns * dtype.itemsize))


def rows(dtype: DType, widths: Sequence[int] = ()) -> Iterator[Row]:
    """All that is timed, in the order of the tables; or what has rows of some width, at these widths."""
    from kgen.bandwidth import moving, norms, products, softmaxes, sums

    if not widths:
        yield from moving.elements(dtype)
    for family in (sums.rows, softmaxes.rows, norms.rows, products.rows, moving.rows):
        yield from family(dtype, widths)
