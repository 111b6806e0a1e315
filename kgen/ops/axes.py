"""Axes: named as NumPy names them, and arrays seen as rows, whatever their shape, where strides allow it.

Nothing is copied unless strides leave no choice; then every operand that needs it is copied once (`staged`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kgen.operand import Ints, Operand, contiguous_strides, joined
from kgen.ops.calls import Plan
from kgen.scratch import scratch
from kgen.streams import on
from kgen.views import device_view

ALIGNED = 256  # bytes; where the parts of scratch memory begin


class Rows(NamedTuple):
    """An array as `rows` rows of `columns` neighbours each, the beginnings of two rows `pitch` elements apart."""

    rows: int
    columns: int
    pitch: int


class Planes(NamedTuple):
    """An array as `planes` matrices of `length` by `columns`; columns are neighbours, strides are in elements."""

    planes: int
    length: int
    columns: int
    plane: int
    step: int


def normal_axes(op: str, axis: object, ndim: int) -> Ints:
    """The axes that `axis` names, ascending: an integer, a tuple of them, or None for all.

    An array without axes takes a plain 0 or -1 as well, as NumPy's sums do. Raises TypeError, AxisError and ValueError
    as NumPy does.

    >>> normal_axes("softmax", (-1, 0), 3)
    (0, 2)
    """
    if axis is None:
        return tuple(range(ndim))
    axes = []
    for one in axis if isinstance(axis, tuple) else (axis,):
        try:
            index = operator.index(one)
            if isinstance(one, bool):  # an integer to Python, but no axis to NumPy: keepdims in its place
                raise TypeError
        except TypeError:
            raise TypeError(
                f"{op}: axis is {axis!r}; it takes an integer, a tuple of integers, or None for all axes"
            ) from None
        if ndim == 0 and one is axis and index in (0, -1):
            return ()
        if not -ndim <= index < ndim:
            raise np.exceptions.AxisError(index, ndim, op)
        axes.append(index % ndim)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{op}: axis is {axis!r}, which names an axis twice")
    return tuple(sorted(axes))


def part(operand: Operand, axes: Sequence[int]) -> tuple[Ints, ...]:
    """The fewest axes that are these of an operand."""
    return joined(tuple(operand.shape[a] for a in axes), tuple(operand.strides[a] for a in axes))


def others(operand: Operand, axes: Ints) -> Ints:
    """The axes that are not among `axes`."""
    return tuple(axis for axis in range(len(operand.shape)) if axis not in axes)


def as_rows(operand: Operand, axes: Ints) -> Rows | None:
    """The operand as rows that run along `axes`, or None where its strides do not allow that."""
    sizes, steps = part(operand, axes)
    heights, pitches = part(operand, others(operand, axes))
    if len(sizes) > 1 or (steps and steps[0] != 1) or len(heights) > 1:
        return None
    return Rows(math.prod(heights), math.prod(sizes), pitches[0] if pitches else math.prod(sizes))


def as_planes(operand: Operand, axes: Ints) -> Planes | None:
    """The operand as matrices whose first axis is `axes`, or None; the last axis must be another, of neighbours."""
    sizes, steps = part(operand, axes)
    before, pitches = part(operand, range(axes[0]))
    after, inner = part(operand, range(axes[-1] + 1, len(operand.shape)))
    adjacent = axes == tuple(range(axes[0], axes[-1] + 1))
    if not adjacent or len(sizes) != 1 or len(before) > 1 or len(after) != 1 or inner[0] != 1:
        return None
    return Planes(math.prod(before), sizes[0], after[0], pitches[0] if pitches else 0, steps[0])


def with_axes(result: Operand, operand: Operand, axes: Ints) -> Operand:
    """A result of a reduction over `axes` with these put back, as axes of size 1."""
    kept = iter(result.strides if len(result.shape) < len(operand.shape) else ())
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(operand.shape))
    strides = tuple(0 if axis in axes else next(kept, 0) for axis in range(len(shape)))
    if len(result.shape) == len(operand.shape):
        strides = result.strides
    return result.view(shape, strides)


def rows_last(operand: Operand, axes: Ints, address: int) -> Operand:
    """A contiguous stand-in at `address`, with `axes` behind the others."""
    shape = tuple(operand.shape[axis] for axis in (*others(operand, axes), *axes))
    return operand.view(shape, contiguous_strides(shape), address)


def staged(
    operands: Sequence[Operand | None],
    inputs: int,
    axes: Ints,
    fits: Sequence[bool],
    build: Callable[[Sequence[Operand | None], Ints], Plan],
) -> Plan:
    """A plan that takes contiguous copies, `axes` last, of the operands that do not fit, and brings results home.

    The first `inputs` operands are read, the others written. `build` plans for operands whose axes are all in the same
    order; those that fit are passed as they are, with their axes moved.
    """
    if all(fits):
        return build(operands, axes)
    at = 0
    copied: dict[int, tuple[int, Operand, Operand]] = {}  # where the copy lies, the operand and its stand-in
    seen: list[Operand | None] = []
    for index, operand in enumerate(operands):
        if operand is None or fits[index]:
            seen.append(operand and _moved(operand, axes))
            continue
        seen.append(stand_in := rows_last(operand, axes, ALIGNED))
        copied[index] = (at, _moved(operand, axes), stand_in)
        at += -(-math.prod(operand.shape) * operand.dtype.itemsize // ALIGNED) * ALIGNED
    present = next(operand for operand in seen if operand)
    ndim = len(present.shape)
    plan = build(seen, tuple(range(ndim - len(axes), ndim)))
    device = present.device

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(at, device, stream)
        used = list(pointers)
        for index, (place, _, _) in copied.items():
            used[index] = memory.ptr + place
        with on(device, stream):
            for index, (_, original, stand_in) in copied.items():
                if index < inputs:
                    device_view(stand_in, used[index])[...] = device_view(original, pointers[index])
        plan.launch(used, stream)
        with on(device, stream):
            for index, (_, original, stand_in) in copied.items():
                if index >= inputs:
                    device_view(original, pointers[index])[...] = device_view(stand_in, used[index])

    copies = ", ".join(original.argument for _, original, _ in copied.values())
    return Plan(launch, plan.steps, f"{plan.why}; copied, since strides leave no choice: {copies}")


def _moved(operand: Operand, axes: Ints) -> Operand:
    order = (*others(operand, axes), *axes)
    return operand.view(tuple(operand.shape[a] for a in order), tuple(operand.strides[a] for a in order))
