"""Permutations of axes as contiguous copies: axes that move together are joined, then tiles turn over or rows move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import starmap
from typing import Any

import numpy as np

from kgen.dtypes import DTYPES
from kgen.launch import bind
from kgen.operand import INT_MAX, Operand, contiguous_strides, joined
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.moving.transpose_kernels import MOST_AXES
from kgen.ops.moving.transpose_steps import Axis, move_rows, turn_tiles
from kgen.ops.options import whole


def transpose(x: Any, axes: Sequence[int] | None = None, *, out: Any = None, stream: Any = None) -> Any:
    """A contiguous copy of `x` with its axes permuted: what `numpy.ascontiguousarray(x.transpose(axes))` gives.

    Parameters
    ----------
    x : array
        Of any number of axes, any strides, and any element type that kgen knows.
    axes : sequence of int, optional
        Which axis of x each axis of the result is; negative ones count from the end. By default the axes are reversed.
    out : array, optional
        Where to write the result; contiguous, and not overlapping x.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the array's library.

    Returns
    -------
    array of the input's kind and dtype, contiguous.

    Raises
    ------
    ValueError
        For axes that are not a permutation, or an `out` that does not fit.
    numpy.exceptions.AxisError
        A ValueError: for an axis that x does not have.
    TypeError
        For x that is not an array, or has an unknown element type.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.transpose(np.ones((2, 3, 5)), (0, 2, 1)).shape
    (2, 5, 3)
    """
    if axes is not None and type(axes) is not tuple:
        axes = _plain(axes)
    result: Any = _transpose.call((x,), (out,), (axes,), stream)[0]
    return result


def _plain(axes: Any) -> tuple[Any, ...] | None:
    """The axes as a tuple, by which calls of a kind are recognised."""
    if axes is None:
        return None
    if not np.iterable(axes):
        raise TypeError(f"transpose: axes is a {type(axes).__name__}; it takes a sequence of integers, or None")
    return tuple(axes)


def _order(op: str, x: Operand, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    ndim = len(x.shape)
    if axes is None:
        return tuple(reversed(range(ndim)))
    if len(axes) != ndim:
        raise ValueError(f"{op}: axes is {axes}; x has shape {x.shape}, so it takes a permutation of its {ndim} axes")
    order = []
    for axis in axes:
        at = whole(op, "one of axes", axis)
        if not -ndim <= at < ndim:
            raise np.exceptions.AxisError(at, ndim, f"{op}: axes")
        order.append(at % ndim)
    if len(set(order)) < ndim:
        raise ValueError(f"{op}: axes is {axes}, which names an axis twice; it takes a permutation")
    return tuple(order)


def _results(op: str, given: Sequence[Operand], axes: tuple[int, ...] | None) -> Results:
    (x,) = given
    return [(tuple(x.shape[axis] for axis in _order(op, x, axes)), x.dtype)]


def contiguous_copy(x: Operand) -> tuple[Operand, Plan]:
    """The operand of a contiguous copy in memory yet to be had, and the plan that makes it."""
    copy = x.view(x.shape, contiguous_strides(x.shape), 0)
    return copy, _prepare("transpose", (x,), (copy,), tuple(range(len(x.shape))))


def _prepare(op: str, given: Sequence[Operand], results: Sequence[Operand], axes: tuple[int, ...] | None) -> Plan:
    (x,), (out,) = given, results
    if any(size > 1 and s != c for size, s, c in zip(out.shape, out.strides, contiguous_strides(out.shape))):
        raise ValueError(f"{op}: out has strides {out.strides}; it takes a contiguous array, as the result is one")
    joined = _joined(x, out, _order(op, x, axes))
    *outer, last = joined
    # The axis along which the input is read: one that moves to the last place, or the last one where it stays.
    read = min(joined, key=lambda axis: (abs(axis.source) or INT_MAX, axis is not last))
    if read is last:
        walked, step_of = _split(outer), move_rows
    else:
        outer.remove(read)
        walked, step_of = _split(outer), lambda *about: turn_tiles(read, *about)
    by_host, by_kernel = walked
    step = step_of(last, by_kernel, by_host, x, out)
    (run,) = bind([step], out.device)
    offsets = [
        (
            sum(i * axis.source for i, axis in zip(at, by_host)) * x.dtype.itemsize,
            sum(i * axis.target for i, axis in zip(at, by_host)) * x.dtype.itemsize,
        )
        for at in itertools.product(*(range(axis.size) for axis in by_host))
    ]

    def walk(pointers: Sequence[int], stream: int) -> None:
        source, target = pointers
        for over_source, over_target in offsets:
            run((source + over_source, target + over_target), stream)

    launch = walk if by_host else run
    why = "rows stay whole" if read is last else f"{last.size} x {read.size} elements turn over"
    return Plan(launch, (str(step),) * len(offsets), f"{why}, {math.prod(a.size for a in outer)} times")


def _joined(x: Operand, out: Operand, order: Sequence[int]) -> list[Axis]:
    """The axes of the result, those joined that follow each other evenly in the input too."""
    sizes, sources = ([x[at] for at in order] for x in (x.shape, x.strides))
    axes = zip(*joined(sizes, sources, out.strides), strict=True)
    return list(starmap(Axis, axes)) or [Axis(1, 1, 1)]


def _split(outer: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes that the host walks, a launch for each position, and those that a kernel walks."""
    cut = max(0, len(outer) - MOST_AXES)
    while math.prod(axis.size for axis in outer[cut:]) > INT_MAX:
        cut += 1
    return list(outer[:cut]), list(outer[cut:])


_transpose = Operator(
    "transpose",
    ("x",),
    ("axes",),
    _results,
    _prepare,
    takes=tuple(DTYPES.values()),
    rows=False,
    read=lambda inputs, options: (inputs, (_plain(*options),)),
)
