"""Arrays of different shapes as one problem: the common shape, and the fewest axes that say how each is walked."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from kgen.operand import Ints, Operand, contiguous_strides, joined


class Layout(NamedTuple):
    """Axes in the order of the result's memory, the slowest first, and each operand's strides over them in elements.

    An operand that is repeated along an axis has the stride 0 there. No two neighbouring axes can be made one.
    """

    sizes: Ints
    strides: tuple[Ints, ...]

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    def straight(self, operand: int) -> bool:
        """Whether an operand's memory is in the order of the axes, without gaps."""
        return self.strides[operand] == contiguous_strides(self.sizes)


def common_shape(op: str, operands: Sequence[Operand]) -> Ints:
    """The shape that all operands are broadcast to; ValueError names those that do not fit."""
    shape: Ints = ()
    for operand in operands:
        rank = max(len(shape), len(operand.shape))
        a, b = ((1,) * (rank - len(x)) + x for x in (shape, operand.shape))
        if any(m != n and 1 not in (m, n) for m, n in zip(a, b)):
            shapes = ", ".join(f"{x.argument} {x.shape}" for x in operands)
            raise ValueError(f"{op}: the shapes of {shapes} cannot be broadcast together")
        shape = tuple(n if m == 1 else m for m, n in zip(a, b))
    return shape


def layout(result: Operand, operands: Sequence[Operand]) -> Layout:
    """How the operands and, last, the result are walked."""
    strides = tuple(_spread(x.shape, x.strides, result.shape) for x in (*operands, result))
    return collapse(result.shape, strides)


@functools.lru_cache(maxsize=4096)
def collapse(shape: Ints, strides: tuple[Ints, ...]) -> Layout:
    """The fewest axes; the last of `strides` is the result's, whose memory sets their order.

    >>> collapse((3, 4, 5), ((20, 5, 1), (0, 5, 1), (20, 5, 1)))
    Layout(sizes=(3, 20), strides=((20, 1), (0, 1), (20, 1)))
    """
    order = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: -abs(strides[-1][axis]))
    sizes, *steps = joined([shape[axis] for axis in order], *([s[axis] for axis in order] for s in strides))
    if not sizes:
        return Layout((1,), ((1,),) * len(strides))
    return Layout(sizes, tuple(steps))


def _spread(shape: Ints, strides: Ints, wide: Ints) -> Ints:
    """Strides over the axes of a wider shape."""
    lacking = len(wide) - len(shape)
    return (0,) * lacking + tuple(0 if size == 1 else stride for size, stride in zip(shape, strides))
