"""The edges of bins, as NumPy has them, and on the device the table of them that kernels read.

A table begins with two numbers for bins of one width: how many there are in a unit of x, and by how many bins a
quotient may be off. Tables of bins of one width stay on the device, so that a repeated call copies nothing from the
host.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kgen.dtypes import BF16, BOOL, F64, dtype_of
from kgen.errors import SpecError
from kgen.operand import INT_MAX, Operand
from kgen.ops.histogram.extremes import extremes
from kgen.ops.histogram.memory import duplicate, upload
from kgen.results import give_back
from kgen.streams import gpu, stream_for

Table = np.ndarray[Any, Any]
_SINGLE, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_REMEMBERED = 64
_on_device: dict[tuple[object, ...], tuple[Any, Operand]] = {}


class Edges(NamedTuple):
    """Edges on the host, the table of them, and, for bins of one width, what they are remembered by.

    plain   whether they are of the type that kernels give them: bounds of NumPy's types may make it a wider one
    """

    edges: Table
    table: Table
    width: tuple[object, ...] = ()
    plain: bool = False

    @property
    def bins(self) -> int:
        """How many bins there are: none without edges, as with one."""
        return max(0, len(self.edges) - 1)

    @property
    def uniform(self) -> bool:
        """Whether bins are of one width."""
        return bool(self.width)


def edges_of(operand: Operand, bins: Any, bounds: Any, stream: Any) -> Edges:
    """The edges that `bins`, and perhaps the extremes of x, stand for; TypeError and ValueError as NumPy's."""
    dtype = _SINGLE if operand.dtype is BF16 else _BYTE if operand.dtype is BOOL else operand.dtype.numpy
    try:
        if type(bins) is not int and np.ndim(bins):
            return _given(_on_host(bins), bounds, dtype)
        count = _number_of(bins)
        low, high = _extremes(operand, stream) if bounds is None else _pair(bounds)
        return _uniform(count, low, high, dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"histogram: {error}") from None


def _number_of(bins: Any) -> int:
    try:
        number = operator.index(bins)
    except TypeError:
        what = f"bins is {bins!r}; it takes their number or their edges, and chooses neither itself"
        raise TypeError(what) from None
    if number > INT_MAX:
        raise ValueError(f"bins is {number}; it takes up to {INT_MAX} of them")
    return number


def _given(bins: Table, bounds: Any, dtype: np.dtype[Any]) -> Edges:
    try:
        dtype_of(bins.dtype)
    except SpecError:
        raise TypeError(f"bins has dtype {bins.dtype}; edges are real numbers of up to 64 bits") from None
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, bounds)
    table = _table(edges, 0.0, 0.0)
    if np.isnan(table).any():  # what is not in order with anything: NumPy counts less than nothing there
        raise ValueError("bins has an edge that is NaN; edges must not decrease")
    return Edges(edges, table)


def _pair(bounds: Any) -> tuple[Any, Any]:
    try:
        low, high = bounds
    except (TypeError, ValueError) as error:
        raise type(error)(f"range is {bounds!r}; it takes a pair of numbers, the outer edges") from None
    return _bound(low), _bound(high)


def _bound(number: Any) -> Any:
    """A number that has a hash: an array without axes, which is what `kgen.min` returns, has none."""
    return _on_host(number)[()] if hasattr(number, "shape") else number


def _on_host(values: Any) -> Table:
    """Numbers as NumPy reads them, which looks into no GPU's memory."""
    if hasattr(values, "cpu"):  # torch's
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values  # which NumPy does not know
    elif hasattr(values, "device") and hasattr(values, "get"):  # CuPy's
        values = values.get()
    return np.asarray(values)


def placed(found: Edges, like: Operand, stream: int) -> tuple[Any, Operand | None]:
    """The table as an array of the kind that `like` is, and the edges on its device, None for the host."""
    if like.kind == "numpy":
        return found.table, None
    key = (like.kind, like.device, *found.width)
    kept = _on_device.get(key) if found.uniform else None
    if kept is None:
        table = upload(found.table, like, F64, stream)
        table = table.array if table.array is not None else table.owner  # JAX's own arrays may have no float64
        kept = table, upload(found.edges, like, dtype_of(found.edges.dtype), stream)
        if found.uniform:
            gpu().cuda.runtime.streamSynchronize(stream)  # other streams will read them
            if len(_on_device) >= _REMEMBERED:
                _on_device.clear()
            _on_device[key] = kept
    return kept


def own_edges(found: Edges, placed: Operand | None, stream: int) -> Any:
    """The edges as an array of the caller's own."""
    if placed is None:
        return found.edges.copy()
    return give_back(duplicate(placed, stream) if found.uniform else placed, stream)


def _extremes(operand: Operand, stream: Any) -> tuple[Any, Any]:
    """Of all elements, for which the host waits; NumPy's choice where there are none."""
    if 0 in operand.shape:
        return 0, 1
    low, high = extremes(operand, stream_for(operand.kind, [operand], stream))
    if not np.isfinite([low, high]).all():
        raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    return low, high


@lru_cache(maxsize=_REMEMBERED, typed=True)
def _uniform(bins: int, low: Any, high: Any, dtype: np.dtype[Any]) -> Edges:
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, (low, high))
    wide = edges.astype(np.float64)
    with np.errstate(all="ignore"):
        per_unit = bins / (wide[-1] - wide[0])
        # Edges are rounded to x's type: a quotient tells the bin but for so much.
        off = np.abs((wide - wide[0]) * per_unit - np.arange(bins + 1)).max() + 1e-12 * bins
    width = (bins, low, high, type(low), type(high), dtype.str)
    plain = edges.dtype == np.result_type(dtype, 0.0)
    return Edges(edges, _table(edges, float(per_unit), float(off)), width if off < 1 else (), plain)


def _table(edges: Table, per_unit: float, off: float) -> Table:
    return np.concatenate([[per_unit, off], edges.astype(np.float64)])
