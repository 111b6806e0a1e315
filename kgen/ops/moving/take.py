"""Rows of a table by their indices: NumPy's take, and the embedding of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.arrays import adopt
from kgen.dtypes import DTYPES, I32, I64
from kgen.launch import Step, bind
from kgen.operand import INT_MAX, Ints, Operand, contiguous_strides, joined, power_of_two
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.moving.flat_kernels import TAKE_FLAT, WORD, is_short, launch_of, suits
from kgen.ops.moving.take_kernels import FEW, NONE, TAKE, THREADS
from kgen.ops.moving.transpose import contiguous_copy
from kgen.ops.options import whole
from kgen.ops.told import Told
from kgen.scratch import scratch
from kgen.streams import on, stream_for
from kgen.views import device_view

MODES = ("raise", "fill", "clip", "wrap")


class _OutOfBounds(Exception):
    """The number of the first index that is."""


def take(
    table: Any, indices: Any, axis: int | None = 0, *, mode: str = "raise", out: Any = None, stream: Any = None
) -> Any:
    """The entries of `table` along an axis at the given indices, as `numpy.take`.

    Parameters
    ----------
    table : array
        Of any number of axes and any element type that kgen knows; one without axes is a vector of one entry.
    indices : array of int32 or int64
        Of any shape.
    axis : int or None
        The axis of the table to index; None, NumPy's default, indexes the flattened table.
    mode : "raise", "fill", "clip" or "wrap"
        What happens to an index that is out of bounds. "raise", NumPy's default, waits for the device to report it, and
        cannot be captured in a CUDA graph; the others do not wait, and can. "fill" gives NaN, or all bits set in types
        without NaN. In both, negative indices count from the end. "clip" takes the nearest entry, "wrap" the index
        modulo the number of entries.
    out : array, optional
        Where to write the result; contiguous, and not overlapping an input.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array [..., *indices.shape, ...] of the table's kind and dtype: the axes of `indices` take the place of the axis.

    Raises
    ------
    IndexError
        For an index out of bounds, with mode "raise"; for any index into an axis without entries. Where nothing is to
        be taken, since another axis has no entries, indices are not looked at.
    numpy.exceptions.AxisError
        A ValueError: for an axis that the table does not have.
    TypeError, ValueError
        For other arguments that do not fit; the message says what was passed and what is accepted.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.take(np.array([10, 20, 30]), np.array([2, -1, 0]))
    array([30, 30, 10])
    """
    try:
        return _take.call((table, indices), (out,), (axis, mode), stream)[0]
    except _OutOfBounds as error:
        (at,) = error.args
    raise _out_of_bounds("take", table, indices, axis, at)


def embedding(indices: Any, table: Any, *, mode: str = "fill", out: Any = None, stream: Any = None) -> Any:
    """Rows of an embedding table: `take(table, indices, 0)`, by default without waiting for the device.

    Parameters
    ----------
    indices : array of int32 or int64
        Token numbers, of any shape; negative ones count from the end.
    table : array [N, D]
        Of any element type that kgen knows.
    mode, out, stream : optional
        As in `take`; by default an index out of bounds gives a row of NaN.

    Returns
    -------
    array [*indices.shape, D] of the table's kind and dtype.

    Raises
    ------
    IndexError, TypeError, ValueError
        As in `take`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.embedding(np.array([[1, 0]]), np.eye(3, dtype="f"))
    array([[[0., 1., 0.],
            [1., 0., 0.]]], dtype=float32)
    """
    try:
        return _embedding.call((table, indices), (out,), (mode,), stream)[0]
    except _OutOfBounds as error:
        (at,) = error.args
    raise _out_of_bounds("embedding", table, indices, 0, at)


def _out_of_bounds(op: str, table: Any, indices: Any, axis: int | None, at: int) -> IndexError:
    """What to raise for index number `at`."""
    entries, numbers = adopt(table, op, "table", _TAKES["table"]), adopt(indices, op, "indices", _TAKES["indices"])
    shape, axis = _entries(entries, axis)
    with on(numbers.device, stream_for(numbers.kind, [numbers], None)):
        value = int(device_view(numbers).reshape(-1)[at])
    return IndexError(f"{op}: index {value}, number {at}, is out of bounds for axis {axis} with size {shape[axis]}")


def _entries(table: Operand, axis: int | None) -> tuple[Ints, int]:
    """The shape of the table as it is indexed, and along which axis."""
    return ((math.prod(table.shape),), 0) if axis is None else (table.shape or (1,), axis)


def _results(op: str, given: Sequence[Operand], axis: int | None, mode: str) -> Results:
    table, indices = given
    if mode not in MODES:
        raise ValueError(f"{op}: mode is {mode!r}; it takes one of {', '.join(map(repr, MODES))}")
    entries, axis = _entries(table, axis)
    ndim, axis = len(entries), whole(op, "axis", axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim, f"{op}: axis")
    axis %= ndim
    if entries[axis] == 0 and 0 not in indices.shape:
        raise IndexError(f"{op}: table has shape {entries}, and axis {axis} no entries to take")
    shape = (*entries[:axis], *indices.shape, *entries[axis + 1 :])
    return [(shape, table.dtype)]


def _prepare(op: str, given: Sequence[Operand], results: Sequence[Operand], axis: int | None, mode: str) -> Plan:
    table, indices = given
    (out,) = results
    if any(size > 1 and s != c for size, s, c in zip(out.shape, out.strides, contiguous_strides(out.shape))):
        raise ValueError(f"{op}: out has strides {out.strides}; it takes a contiguous array, as the result is one")
    # Axes before, and those after, are one axis each to a kernel; a table or indices that are not evenly spaced so are
    # copied at every call.
    copies: list[tuple[int, Operand, Plan]] = []
    if axis is None and _flat(table.shape, table.strides) is None:
        table, plan = contiguous_copy(table)
        copies.append((0, table, plan))
    if axis is None or not table.shape:
        size, over_entries = _flat(table.shape, table.strides) or (1, 1)
        table, axis = table.view((size,), (over_entries,)), 0
    axis %= len(table.shape)
    slice_axis = _flat(table.shape[:axis], table.strides[:axis])
    row_axis = _flat(table.shape[axis + 1 :], table.strides[axis + 1 :])
    if slice_axis is None or row_axis is None:
        table, plan = contiguous_copy(table)
        copies.append((0, table, plan))
        slice_axis = _flat(table.shape[:axis], table.strides[:axis])
        row_axis = _flat(table.shape[axis + 1 :], table.strides[axis + 1 :])
    index_axis = _flat(indices.shape, indices.strides)
    if index_axis is None:
        indices, plan = contiguous_copy(indices)
        copies.append((1, indices, plan))
        index_axis = _flat(indices.shape, indices.strides)
    assert slice_axis and row_axis and index_axis
    step = _step(table, indices, out, axis, mode, slice_axis, row_axis, index_axis)
    device = out.device
    (run,) = bind([step], device)

    def copy_and_run(pointers: Sequence[int], stream: int) -> None:
        inputs, held = list(pointers[:2]), []
        for at, operand, plan in copies:
            held.append(scratch(math.prod(operand.shape) * operand.dtype.itemsize, device, stream))
            plan.launch((inputs[at], held[-1].ptr), stream)
            inputs[at] = held[-1].ptr
        run((*inputs, *pointers[2:]), stream)

    launch = copy_and_run if copies else run

    few = "told" in step.spec.flags

    def launch_and_hear(pointers: Sequence[int], stream: int) -> None:
        told = Told.of(op, 8, device, stream)
        told.hush()
        launch((*pointers, told.ptr), stream)
        first = told.hear(ahead=few)
        if first < NONE:
            raise _OutOfBounds(first)

    copied = [part for _, _, plan in copies for part in plan.steps]
    why = f"{math.prod(indices.shape)} rows move in words of {step.spec['BYTES']} bytes"
    return Plan(launch_and_hear if mode == "raise" else launch, (*copied, str(step)), why)


def _step(
    table: Operand,
    indices: Operand,
    out: Operand,
    axis: int,
    mode: str,
    slice_axis: tuple[int, int],
    row_axis: tuple[int, int],
    index_axis: tuple[int, int],
) -> Step:
    itemsize = table.dtype.itemsize
    (slices, over_slices), (width, over_columns), (count, over_indices) = slice_axis, row_axis, index_axis
    over_rows = table.strides[axis]
    word = itemsize
    if over_columns == 1 or width == 1:
        apart = (width, over_rows, over_slices if slices > 1 else 0)
        word = math.gcd(16, table.ptr, out.ptr, *(itemsize * n for n in apart))
    per_word = word // itemsize
    width //= per_word
    rows = count * slices
    if max(rows, width) > INT_MAX:
        raise ValueError(f"take: {rows} rows of {width} words are more than a kernel counts")
    flags = {"clip": mode == "clip", "wrap": mode == "wrap", "sliced": slices > 1}
    flags |= {"told": mode == "raise" and count <= FEW, "checked": mode == "raise" and count > FEW}
    sliced = ((count,), (over_slices // per_word,)) if slices > 1 else ((), ())
    pointers = 4 if mode == "raise" else 3
    if over_columns == 1 and suits(word, width, out.ptr) and (word < WORD or width < THREADS):
        flat = TAKE_FLAT.spec(BYTES=word, short=is_short(word, width), dtype=indices.dtype, **flags)
        over_rows, over_slices = over_rows // per_word, over_slices // per_word
        axes = ((table.shape[axis], over_rows), (slices, over_slices))
        longs = (*sliced[1], table.shape[axis], over_rows, over_indices)
        return launch_of(flat, pointers, rows, width, sliced[0], longs, axes)
    across = 4 if width > THREADS else 1
    lanes = min(THREADS, power_of_two(-(-width // across)))
    spec = TAKE.spec(BYTES=word, LANES=lanes, ACROSS=across, dtype=indices.dtype, **flags)
    column_tiles = -(-width // (lanes * across))
    blocks = column_tiles * -(-rows // (THREADS // lanes * spec.derived["DOWN"]))
    longs = (table.shape[axis], over_rows // per_word, over_columns if per_word == 1 else 1, over_indices)
    return Step(spec, blocks, pointers, (rows, width, column_tiles, *sliced[0]), (*sliced[1], *longs))


def _flat(shape: Ints, strides: Ints) -> tuple[int, int] | None:
    """Size and stride of the one axis that these are together; None where they are not evenly spaced."""
    axes = list(zip(*joined(shape, strides), strict=True)) or [(1, 1)]
    (size, step), *more = axes
    return None if more else (size, step)


_TAKES = {"table": tuple(DTYPES.values()), "indices": (I64, I32)}
_take = Operator(
    "take", ("table", "indices"), ("axis", "mode"), _results, _prepare, takes=_TAKES, mixed=True, rows=False
)
_embedding = Operator(
    "embedding",
    ("table", "indices"),
    ("mode",),
    lambda op, given, mode: _results(op, given, 0, mode),
    lambda op, given, results, mode: _prepare(op, given, results, 0, mode),
    takes=_TAKES,
    mixed=True,
    rows=False,
)
