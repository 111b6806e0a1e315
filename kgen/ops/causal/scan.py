"""A causal scan as plain values."""

from __future__ import annotations

from typing import NamedTuple

from kgen.dtypes import DType

Strides = tuple[int, int, int]

WIDEST = 16
"""Bytes of the widest load."""


class Scan(NamedTuple):
    """o[t] = sum over s <= t of (q[t] . k[s]) v[s] for each head; over s >= t with `reverse`.

    The operator, its mirror image in time, and the three scans of its gradient, which exchange the operands' roles, are
    all of this form. Strides are in elements over batch, head, time; every row starts at a multiple of `align` bytes.
    """

    batch: int
    heads: int
    length: int
    e: int
    m: int
    dtype: DType
    q: Strides
    k: Strides
    v: Strides
    o: Strides
    align: int
    reverse: bool

    @property
    def sequences(self) -> int:
        """How many independent sequences there are: heads of the whole batch."""
        return self.batch * self.heads

    def loads(self, elements: int) -> bool:
        """Whether rows may be read and written so many elements at once."""
        return elements * self.dtype.itemsize <= self.align
