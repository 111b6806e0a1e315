"""The axes of a reduction, normalised: what is kept and what is reduced, each as few axes as its strides allow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple, TypeVar

from kgen.operand import joined


class Kept(NamedTuple):
    """An axis of the result: its size, and its stride in the input and in the result, in elements."""

    size: int
    stride: int
    out: int


class Reduced(NamedTuple):
    """An axis that is reduced, and its stride in the input."""

    size: int
    stride: int


Axis = TypeVar("Axis", Kept, Reduced)


class Layout(NamedTuple):
    """Kept and reduced axes, the outermost first, and the element of the input at which all of them begin."""

    kept: tuple[Kept, ...]
    reduced: tuple[Reduced, ...]
    start: int = 0


def layout(
    shape: Sequence[int], strides: Sequence[int], out_strides: Sequence[int], axes: Sequence[int], *, in_order: bool
) -> Layout:
    """Axes of size 1 gone, neighbours in memory merged. `out_strides` has an entry for each axis, kept or not.

    With `in_order` the reduced axes stay in their order and direction, which indices count along.
    """
    kept = [Kept(n, x, o) for at, (n, x, o) in enumerate(zip(shape, strides, out_strides)) if at not in axes and n != 1]
    reduced = [Reduced(shape[at], strides[at]) for at in axes if shape[at] != 1]
    start = 0
    if not all(axis.size for axis in reduced):
        reduced = [Reduced(0, 0)]
    elif not in_order:
        start = sum((axis.size - 1) * axis.stride for axis in reduced if axis.stride < 0)
        reduced = sorted((Reduced(n, abs(stride)) for n, stride in reduced), key=lambda axis: -axis.stride)
    kept.sort(key=lambda axis: -abs(axis.stride))
    return Layout(_merged(Kept, kept), _merged(Reduced, reduced), start)


def _merged(kind: type[Axis], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(starmap(kind, zip(*joined(*zip(*axes, strict=True)), strict=True))) if axes else ()
