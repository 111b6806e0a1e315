"""Columns of rows that begin at odd addresses, as columns of fewer and longer rows that begin at multiples of a load.

So many rows, one behind the other in memory, are seen as one that they are aligned: what is left of them, and the few
rows before and after, are rows of a small matrix of accumulators, which is reduced in a second launch.
"""

from __future__ import annotations

import math

from kgen.dtypes import DType
from kgen.ops.reduce.axes import Kept, Layout, Reduced
from kgen.ops.reduce.kernels import LOAD_BYTES, accumulator, in_one_pass
from kgen.ops.reduce.launches import LANES, Pass

FROM = 1 << 26
"""Bytes of the matrix: what a further launch or two cost, on the host, too, is then little."""
WIDEST = 1 << 18
"""Columns of the longer rows."""
DEEP = 64
"""Of these rows, at least."""
FILLED = 0.9
"""The share of the lanes of their kernel that have columns, at least."""


def folded(one: Pass, address: int) -> tuple[list[tuple[Pass, int]], Pass, int] | None:
    """For a pass over a matrix at this address: passes and where in scratch memory they write, the last pass, and how
    many bytes that memory has; None where rows are aligned, or the matrix is too small.
    """
    kind = accumulator(one.op, one.dtype, one.out)
    layout, itemsize = one.layout, one.dtype.itemsize
    if len(layout.kept) != 1 or len(layout.reduced) != 1 or one.op.startswith("arg") or one.algorithm:
        return None
    (size, stride, out), (length, pitch) = layout.kept[0], layout.reduced[0]
    start = address + layout.start * itemsize
    vec = LOAD_BYTES // itemsize
    aligned = not (start % LOAD_BYTES or size % vec)
    if aligned or vec == 1 or (stride, pitch) != (1, size) or length * size * itemsize < FROM:
        return None
    ahead = next((n for n in range(vec) if not (start + n * size * itemsize) % LOAD_BYTES), None)
    rows = _rows_of_a_row(size, vec)
    if ahead is None or rows is None or not in_one_pass(one.op, kind, one.out):
        return None
    long = (length - ahead) // rows
    if long < DEEP:
        return None

    width, behind = rows * size, length - ahead - long * rows
    parts = [(_part(one, kind, width, long, ahead * size, 0), 0)]
    for count, begin, place in ((ahead, 0, rows), (behind, ahead + long * rows, rows + ahead)):
        if count:
            parts.append((_part(one, kind, count * size, 0, begin * size, itemsize), place * size * kind.itemsize))
    small = Layout((Kept(size, 1, out),), (Reduced(rows + ahead + behind, size),))
    last = Pass(one.op, kind, one.out, small, 0, one.divisor, one.sms, None)
    return parts, last, (rows + ahead + behind) * size * kind.itemsize


def _rows_of_a_row(size: int, vec: int) -> int | None:
    """How many rows make one that is a multiple of a load and fills the lanes of a block."""
    rows = vec // math.gcd(vec, size)
    tile = max(LANES) * vec
    while rows * size <= WIDEST:
        if rows * size >= FILLED * -(-rows * size // tile) * tile:
            return rows
        rows *= 2
    return None


def _part(one: Pass, kind: DType, width: int, length: int, begin: int, low: int) -> Pass:
    """Columns of `length` numbers each, or of one that is only converted, from an element of the source on."""
    reduced = (Reduced(length, width),) if length else ()
    layout = Layout((Kept(width, 1, 1),), reduced, one.layout.start + begin)
    return Pass(one.op, one.dtype, kind, layout, low, 1, one.sms, None)
