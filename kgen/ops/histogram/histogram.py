"""Counting: `bincount` of indices and `histogram` of numbers, with NumPy's counts, edges and errors.

Counts are integers, and exact. Sums of weights are in fixed point (histogram_weights.py), and as reproducible.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kgen.arrays import adopt
from kgen.dtypes import F64, I64, DType
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.composed import Call, calling
from kgen.ops.histogram.edges import edges_of, own_edges, placed
from kgen.ops.histogram.extremes import extremes
from kgen.ops.histogram.kernels import ELEMENTS, HISTOGRAM, INDICES, blocks_for, cut_for, edge_of, map_of, vector_for
from kgen.ops.histogram.memory import Line
from kgen.ops.histogram.weights import density as _density
from kgen.ops.histogram.weights import weighted_bincount as _weighted_bincount
from kgen.ops.histogram.weights import weighted_histogram as _weighted_histogram
from kgen.results import allocate, give_back
from kgen.scratch import fill
from kgen.streams import stream_for

FIRST_GUESS = 896
"""Bins to count before the maximum is known: as many as fit with a counter for every lane."""
_REMEMBERED = 256
_bins_of: dict[tuple[object, int], int] = {}  # by dtype and size: how many bins the last such array took


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
    """How often each non-negative integer occurs in `x`, as `numpy.bincount`: int64, max(x) + 1 of them or `minlength`.

    x          a vector of integers
    weights    float64 or float32, one for each element: their sums (float64) instead of counts
    minlength  the least number of bins
    length     the exact number of bins: what is negative or not below it is not counted, and the host waits for
               nothing, so that the call fits a CUDA graph. Without it the host waits once, to learn the maximum
    out        where to write the `length` results, which it needs; apart from x

    Raises ValueError for negative elements (where `length` is None), weights of another shape, and arrays of other than
    one dimension; TypeError for elements that are no integers.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.bincount(np.array([1, 3, 1]))
    array([0, 2, 0, 1])
    """
    minlength = _natural("bincount", "minlength", minlength)
    if length is not None:
        return _count_into(x, weights, max(_natural("bincount", "length", length), minlength), out, stream)
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
    if len(_bins_of) >= _REMEMBERED:
        _bins_of.clear()
    _bins_of[kind] = max(top + 1, FIRST_GUESS)
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
    size, chosen = len(found.edges) - 1, stream_for(operand.kind, [operand], stream)

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
    """Counts of `x` in bins, and the edges of those, as `numpy.histogram`.

    x        an array of any shape
    bins     their number, all of one width; or their edges, which must not decrease, and are read on the host
    range    the outer edges, by default the extremes of x (for which the host waits). What lies outside is not counted,
             nor is NaN; the last bin includes its upper edge
    weights  float64 or float32, of x's shape: their sums (float64) instead of counts (int64)
    density  whether results are divided by their total and the widths of bins (float64, also where edges are float32,
             whose widths NumPy rounds to float32)

    Edges have NumPy's type and values. Raises ValueError for no bins, edges that decrease, bounds not finite or not
    in order, and weights of another shape; TypeError for bins that are neither a number nor edges.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.histogram(np.array([1.0, 2.0, 1.0]), bins=[0, 1, 2, 3])
    (array([0, 2, 1]), array([0, 1, 2, 3]))
    """
    operand = adopt(x, "histogram", "x", ELEMENTS)
    found = edges_of(operand, bins, range, stream)
    chosen = stream_for(operand.kind, [operand], stream)
    table, edges = placed(found, operand, chosen)
    options, written = (len(found.edges) - 1, found.uniform), None
    if weights is not None:
        (result,) = _weighted_histogram((x, table, weights), (None,), options, stream)
    elif found.uniform:
        result, written = _histogram((x, table), (None, None), options, stream)
    else:
        (result,) = _histogram((x, table), (None,), options, stream)
    if density:
        (result,) = _density((result, table), (None,), (), stream)
    return result, written if written is not None and found.plain else own_edges(found, edges, chosen)


def _count_into(x: Any, weights: Any, bins: int, out: Any, stream: Any) -> Any:
    if weights is None:
        (result,) = _bincount((x,), (out,), (bins,), stream)
    else:
        (result,) = _weighted_bincount((x, weights), (out,), (bins,), stream)
    return result


def _natural(op: str, argument: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {argument} is {value!r}; it takes an int") from None
    if number < 0:
        raise ValueError(f"{op}: {argument} is {number}; it takes none below 0")
    return number


def _one_axis(op: str, x: Operand) -> None:
    if len(x.shape) != 1:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes one dimension")


def _bincount_results(op: str, given: Sequence[Operand], length: int | None) -> Results:
    _one_axis(op, given[0])
    return [((FIRST_GUESS if length is None else length,), I64)]


def _greatest_results(op: str, given: Sequence[Operand], length: int) -> Results:
    _one_axis(op, given[0])
    return [((length,), I64), ((), I64)]


def _histogram_results(op: str, given: Sequence[Operand], bins: int, uniform: bool) -> Results:
    return [((bins,), I64), ((bins + 1,), edge_of(given[0].dtype))] if uniform else [((bins,), I64)]


def _plan(x: Operand, results: Sequence[Operand], uniform: bool | None) -> Plan:
    """One launch into zeros; inputs are x and perhaps a table of edges, results the counts, and what else it tells."""
    counts = results[0]
    device, bins = counts.device, counts.shape[0]
    line = Line(x)
    cut = cut_for(bins, device)
    spec = HISTOGRAM.spec(
        SMEM=cut.kib,
        COPIES=cut.copies,
        VEC=vector_for(x.dtype, line.step),
        dtype=x.dtype,
        packed=cut.packed,
        greatest=uniform is None and len(results) > 1,
        **map_of(uniform),
    )
    blocks = blocks_for(spec, cut, line.length, device)
    pointers = 1 + (uniform is not None) + len(results)
    about = (bins, cut.per_pass, cut.passes) if cut.packed else (bins,)
    step = Step(spec, blocks, pointers, about, (line.length, line.step))
    (run,) = bind([step], device)
    summed = results[:1] if uniform else results
    zeroed = [(at - len(results), 8 * math.prod(result.shape)) for at, result in enumerate(summed)]

    def launch(arrays: Sequence[int], stream: int) -> None:
        for at, nbytes in zeroed:
            fill(arrays[at], 0, nbytes, device, stream)
        at_x, held = line.ready(arrays[0], stream)
        run((at_x, *arrays[1:]), stream)
        del held

    why = f"{bins} bins in {cut.passes} passes, {cut.copies} counters each, {cut.kib} KiB of a block"
    return Plan(launch, (str(step),), why)


def _prepare_bincount(op: str, given: Sequence[Operand], results: Sequence[Operand], length: int | None) -> Plan:
    return _plan(given[0], results, None)


def _prepare_histogram(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int, uniform: bool) -> Plan:
    return _plan(given[0], results, uniform)


_bincount_and_greatest = Operator("bincount", ("x",), ("length",), _greatest_results, _prepare_bincount, takes=INDICES)
_bincount = Operator("bincount", ("x",), ("length",), _bincount_results, _prepare_bincount, takes=INDICES)
_histogram = Operator(
    "histogram",
    ("x", "table"),
    ("bins", "uniform"),
    _histogram_results,
    _prepare_histogram,
    takes={"x": ELEMENTS, "table": (F64,)},
    mixed=True,
    rows=False,
)
