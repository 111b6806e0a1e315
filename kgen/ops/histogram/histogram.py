"""Counting: `bincount` of indices and `histogram` of numbers, with NumPy's counts, edges and errors.

Counts are integers, and exact. Sums of weights are in fixed point (fixed.py), and as reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kgen.arrays import adopt
from kgen.dtypes import F64, I64, DType
from kgen.operand import INT_MAX
from kgen.ops.composed import Call, calling
from kgen.ops.histogram.counts import FIRST_GUESS
from kgen.ops.histogram.counts import bincount as _bincount
from kgen.ops.histogram.counts import bincount_and_greatest as _bincount_and_greatest
from kgen.ops.histogram.counts import histogram as _histogram
from kgen.ops.histogram.edges import edges_of, own_edges, placed
from kgen.ops.histogram.extremes import extremes
from kgen.ops.histogram.kernels import ELEMENTS
from kgen.ops.histogram.weights import density as _density
from kgen.ops.histogram.weights import weighted_bincount as _weighted_bincount
from kgen.ops.histogram.weights import weighted_histogram as _weighted_histogram
from kgen.ops.kinds import remember
from kgen.ops.options import whole
from kgen.results import allocate, give_back
from kgen.streams import stream_for

_REMEMBERED = 256
_bins_of: dict[tuple[object, int], int] = {}  # by dtype and size: how many bins the next such array may take
_table_of: dict[Any, Any] = {}  # by kind of call: the table of edges of bins of one width, where x is
_PLAIN = (float, int)


def _calls_of_bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out: Any = None, stream: Any = None
) -> Iterator[Call]:
    bins = max(minlength, FIRST_GUESS if length is None else length)
    if length is None:
        of_x = "" if weights is not None else f"; again, if there are more than {bins} of them"
        yield Call(_bincount_and_greatest, (x,), (bins,), f"; the host waits for the greatest element{of_x}")
    if weights is not None:
        yield Call(_weighted_bincount, (x, weights), (bins,))
    elif length is not None:
        yield Call(_bincount, (x,), (bins,))


@calling(_calls_of_bincount)
def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out: Any = None, stream: Any = None
) -> Any:
    """Count how often each non-negative integer occurs in `x`, like `numpy.bincount`: int64, max(x) + 1 bins or more.

    x          a one-dimensional array of integers
    weights    float64 or float32, one per element: returns their sums (float64) instead of counts. They are added in
               fixed point, so that any order gives the same bits: of each, what is below 2^-93 of the largest
               magnitude among all of them is lost. Millions of them in more bins than fit in shared memory are sorted
               first, in scratch memory of about their size (`kgen.workspace`)
    minlength  the least number of bins
    length     the exact number of bins; elements that are negative or not below it are not counted. The host does not
               wait, so the call can be captured in a CUDA graph. Without `length` it waits once, to learn the maximum
    out        where to write the results; needs `length`, and must not overlap x

    Raises ValueError for negative elements (if `length` is None), weights of another shape, and arrays that are not
    one-dimensional; TypeError for elements that are not integers.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.bincount(np.array([1, 3, 1]))
    array([0, 2, 0, 1])
    """
    minlength = whole("bincount", "minlength", minlength, 0, INT_MAX)
    if length is not None:
        return _count_into(x, weights, max(whole("bincount", "length", length, 0, INT_MAX), minlength), out, stream)
    if out is not None:
        raise ValueError("bincount: out is given and length is not; how many results there are depends on x")
    size = math.prod(getattr(x, "shape", ()))
    kind = (getattr(x, "dtype", None), size)
    guess = max(minlength, _bins_of.get(kind, FIRST_GUESS))
    counts, greatest = _bincount_and_greatest((x,), (None, None), (guess,), stream)
    top = int(greatest) if size else -1
    if top < 0 and size:
        raise ValueError("bincount: x has elements that are negative, or beyond int64; it takes indices of bins")
    bins = max(top + 1, minlength)
    if bins > INT_MAX:
        raise ValueError(f"bincount: x has the element {top}; it takes up to {INT_MAX} bins")
    if len(_bins_of) >= _REMEMBERED:
        _bins_of.clear()
    # One far element must not make all later calls reserve bins up to it: no more than there are elements.
    _bins_of[kind] = max(min(top + 1, size), FIRST_GUESS)
    if weights is None and bins <= guess:
        return counts[:bins]
    return _count_into(x, weights, bins, None, stream)


def _calls_of_histogram(
    x: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None, *, stream: Any = None
) -> Iterator[Call]:
    operand = adopt(x, "histogram", "x", ELEMENTS)
    counted = not np.ndim(bins) and hasattr(bins, "__index__")
    if counted and range is None and 0 not in operand.shape:
        yield Call(extremes, (x,), (), "; the host waits for them")
        range = (0, 1)
    found = edges_of(operand, bins, range, stream)
    size, chosen = found.bins, stream_for(operand.kind, [operand], stream)

    def array(count: int, dtype: DType) -> Any:
        return give_back(allocate(operand.kind, (count,), dtype, operand.device, chosen), chosen)

    table, nbytes = array(size + 3, F64), 8 * (size + 3)
    if weights is None:
        yield Call(_histogram, (x, table), (size, found.uniform), nbytes=nbytes)
    else:
        yield Call(_weighted_histogram, (x, table, weights), (size, found.uniform), nbytes=nbytes)
    if density:
        counts = array(size, I64 if weights is None else F64)
        yield Call(_density, (counts, table), (), nbytes=nbytes + 8 * size)


@calling(_calls_of_histogram)
def histogram(
    x: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    density: bool | None = None,
    *,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Count the elements of `x` in bins, like `numpy.histogram`; returns the counts and the edges of the bins.

    x        an array of any shape
    bins     the number of bins of equal width; or their edges, which must not decrease and are read on the host. They
             are compared in float64, which rounds integers beyond 2^53
    range    the outer edges, by default the minimum and maximum of x (which the host waits for). Elements outside, and
             NaN, are not counted; the last bin includes its upper edge
    weights  float64 or float32, of x's shape: returns their sums (float64, in fixed point as in `bincount`) instead of
             counts (int64)
    density  whether to divide the results by their total and the widths of the bins (in float64, even if the edges are
             float32, where NumPy rounds the widths to float32)

    Edges have NumPy's type and values. Raises ValueError if there are no bins, edges decrease, bounds are not finite or
    not in order, or weights have another shape; TypeError for bins that are neither a number nor edges.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.histogram(np.array([1.0, 2.0, 1.0]), bins=[0, 1, 2, 3])
    (array([0, 2, 1]), array([0, 1, 2, 3]))
    """
    kind = _kind_of(x, bins, range)
    if kind in _table_of and weights is None and not density:
        return _histogram((x, _table_of[kind]), (None, None), (bins, True), stream)
    operand = adopt(x, "histogram", "x", ELEMENTS)
    found = edges_of(operand, bins, range, stream)
    chosen = stream_for(operand.kind, [operand], stream)
    table, edges = placed(found, operand, chosen)
    if kind is not None and found.uniform and found.plain:
        remember(_table_of, kind, table)
    options, written = (found.bins, found.uniform), None
    if weights is not None:
        (result,) = _weighted_histogram((x, table, weights), (None,), options, stream)
    elif found.uniform:
        result, written = _histogram((x, table), (None, None), options, stream)
    else:
        (result,) = _histogram((x, table), (None,), options, stream)
    if density:
        (result,) = _density((result, table), (None,), (), stream)
    return result, written if written is not None and found.plain else own_edges(found, edges, chosen)


def _kind_of(x: Any, bins: Any, bounds: Any) -> tuple[object, ...] | None:
    """What decides the table of edges, for a number of bins between two of Python's numbers."""
    if bins.__class__ is not int or bounds.__class__ is not tuple or len(bounds) != 2:
        return None
    low, high = bounds
    if low.__class__ not in _PLAIN or high.__class__ not in _PLAIN:
        return None
    try:
        device = getattr(x.device, "id", x.device)  # CuPy's devices have no hash
        return x.__class__, x.dtype, device, bins, low, high, low.__class__, high.__class__
    except AttributeError:
        return None


def _count_into(x: Any, weights: Any, bins: int, out: Any, stream: Any) -> Any:
    if weights is None:
        (result,) = _bincount((x,), (out,), (bins,), stream)
    else:
        (result,) = _weighted_bincount((x, weights), (out,), (bins,), stream)
    return result
