"""Counting: `bincount` of indices and `histogram` of numbers, with NumPy's counts, edges and errors.

Counts are integers, and exact. Sums of weights are in fixed point (histogram_weights.py), and as reproducible.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kgen.arrays import adopt
from kgen.dtypes import BF16, BOOL, F64, I64, DType, dtype_of
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.histogram.kernels import ELEMENTS, HISTOGRAM, INDICES, blocks_for, cut_for, map_of, vector_for
from kgen.ops.histogram.memory import Line, upload
from kgen.ops.histogram.weights import density as _density
from kgen.ops.histogram.weights import weighted_bincount as _weighted_bincount
from kgen.ops.histogram.weights import weighted_histogram as _weighted_histogram
from kgen.ops.reduce import reduce
from kgen.results import give_back
from kgen.scratch import fill
from kgen.streams import stream_for

Table = np.ndarray[Any, Any]

FIRST_GUESS = 896
"""Bins to count before the maximum is known: as many as fit with a counter for every lane."""
_REMEMBERED = 256
_bins_of: dict[tuple[object, int], int] = {}  # by dtype and size: how many bins the last such array took


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
    density  whether results are divided by their total and the widths of bins (float64)

    Edges have NumPy's type and values. Raises ValueError for no bins, edges that decrease, bounds not finite or not
    in order, and weights of another shape; TypeError for bins that are neither a number nor edges.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.histogram(np.array([1.0, 2.0, 1.0]), bins=[0, 1, 2, 3])
    (array([0, 2, 1]), array([0, 1, 2, 3]))
    """
    operand = adopt(x, "histogram", "x", ELEMENTS)
    edges, table, uniform = _edges(x, operand, bins, range, stream)
    chosen = stream_for(operand.kind, [operand], stream)
    on_device = table if operand.kind == "numpy" else upload(table, operand, F64, chosen).array
    count = len(edges) - 1
    if weights is None:
        (result,) = _histogram((x, on_device), (None,), (count, uniform), stream)
    else:
        (result,) = _weighted_histogram((x, on_device, weights), (None,), (count, uniform), stream)
    if density:
        (result,) = _density((result, on_device), (None,), (), stream)
    if operand.kind == "numpy":
        return result, edges.copy()
    return result, give_back(upload(edges, operand, dtype_of(edges.dtype), chosen), chosen)


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


def _edges(x: Any, operand: Operand, bins: Any, bounds: Any, stream: Any) -> tuple[Table, Table, bool]:
    """The edges as NumPy has them, the table that kernels read, and whether bins are of one width."""
    if isinstance(bins, str):
        raise TypeError(
            f"histogram: bins is {bins!r}; it takes their number or their edges, and chooses neither itself"
        )
    numpys: dict[DType, Any] = {BF16: np.dtype(np.float32), BOOL: np.dtype(np.uint8)}
    dtype = numpys.get(operand.dtype, operand.dtype.numpy)
    try:
        if np.ndim(bins) or not hasattr(bins, "__index__"):
            on_host = bins.get() if hasattr(bins, "get") else bins.cpu() if hasattr(bins, "cpu") else bins
            edges = np.histogram_bin_edges(np.empty(0, dtype), np.asarray(on_host), bounds)
            return edges, _table(edges, 0.0, 0.0), False
        if bounds is None:
            bounds = _extremes(x, operand, stream)
        low, high = bounds
        return _uniform(operator.index(bins), low, high, dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"histogram: {error}") from None


def _extremes(x: Any, operand: Operand, stream: Any) -> tuple[Any, Any]:
    """Of all elements, for which the host waits; NumPy's choice where there are none."""
    if 0 in operand.shape:
        return 0, 1
    scalar = np.float32 if operand.dtype is BF16 else np.uint8 if operand.dtype is BOOL else operand.dtype.numpy.type
    low, high = (scalar(found(x, stream=stream).item()) for found in (reduce.min, reduce.max))
    return low, high


@lru_cache(maxsize=64)
def _uniform(bins: int, low: Any, high: Any, dtype: np.dtype[Any]) -> tuple[Table, Table, bool]:
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, (low, high))
    wide = edges.astype(np.float64)
    with np.errstate(all="ignore"):
        per_unit = bins / (wide[-1] - wide[0])
        # Edges are rounded to x's type: a quotient tells the bin but for so much.
        off = np.abs((wide - wide[0]) * per_unit - np.arange(bins + 1)).max() + 1e-12 * bins
    even = bool(off < 1)
    return edges, _table(edges, float(per_unit), float(off)), even


def _table(edges: Table, per_unit: float, off: float) -> Table:
    return np.concatenate([[per_unit, off], edges.astype(np.float64)])


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
    return [((bins,), I64)]


def _plan(x: Operand, results: Sequence[Operand], uniform: bool | None) -> Plan:
    """One launch into zeros; inputs are x and perhaps a table of edges, results the counts and perhaps the greatest."""
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
        greatest=len(results) > 1,
        **map_of(uniform),
    )
    blocks = blocks_for(spec, cut, line.length, device)
    pointers = 1 + (uniform is not None) + len(results)
    about = (bins, cut.per_pass, cut.passes) if cut.packed else (bins,)
    step = Step(spec, blocks, pointers, about, (line.length, line.step))
    (run,) = bind([step], device)

    def launch(arrays: Sequence[int], stream: int) -> None:
        for pointer, result in zip(arrays[-len(results) :], results):
            fill(pointer, 0, 8 * math.prod(result.shape), device, stream)
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
