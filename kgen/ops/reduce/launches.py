"""The launches of one pass of a reduction: along rows or down columns, whichever reads neighbours in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from kgen.launch import Step
from kgen.ops.reduce import flat
from kgen.ops.reduce.axes import Kept
from kgen.ops.reduce.column_launches import down_columns
from kgen.ops.reduce.passes import LEVELS, Pass, length_of
from kgen.ops.reduce.row_launches import along_rows


class Launch(NamedTuple):
    """A step, and how many bytes into its source and its target it begins."""

    step: Step
    source: int
    target: int
    partials: int  # bytes in which its blocks meet
    groups: int  # of blocks that meet


def launches(one: Pass) -> Iterator[Launch]:
    """The launches of a pass: one, but for kept axes that are too many for the kernel."""
    kept = one.layout.kept
    columns = _columns(one)
    others = tuple(axis for axis in kept if axis is not columns)
    outside, inside = others[: max(0, len(others) - LEVELS)], others[max(0, len(others) - LEVELS) :]
    while math.prod(axis.size for axis in inside) >= 1 << 31:
        outside, inside = (*outside, inside[0]), inside[1:]
    step, partials = along_rows(one, inside) if columns is None else down_columns(one, columns, inside)
    for index in itertools.product(*(range(axis.size) for axis in outside)):
        source = one.layout.start + sum(i * axis.stride for i, axis in zip(index, outside))
        target = sum(i * axis.out for i, axis in zip(index, outside))
        groups = _groups(step) if partials else 0
        yield Launch(step, source * one.dtype.itemsize, target * _out_bytes(one), partials, groups)


def _out_bytes(one: Pass) -> int:
    return 8 if one.op.startswith("arg") else one.out.itemsize


def _columns(one: Pass) -> Kept | None:
    """The axis along which columns lie, where its elements are nearer to each other than those of the reduced axis.

    None where there is nothing to reduce, whatever its strides: each result is that of an empty row.
    """
    kept, reduced = one.layout.kept, one.layout.reduced
    stride = reduced[0].stride if reduced else 0
    columns = min(kept, key=lambda axis: abs(axis.stride) or 1 << 62, default=Kept(1, 1, 1))
    nearer = 0 < abs(stride) <= abs(columns.stride) or columns.stride == 0
    empty = length_of(one.layout) == 0
    if (reduced and nearer) or empty or not kept or columns.size >= 1 << 31:
        return None
    return columns


def _groups(step: Step) -> int:
    """Of blocks that meet."""
    if step.spec.kernel in flat.FLAT.values():
        return flat.COUNTERS
    return step.blocks // step.ints[0]
