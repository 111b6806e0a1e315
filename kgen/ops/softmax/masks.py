"""The mask of a softmax, as rows of bytes that go with those of x, or none."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.launch import picked
from kgen.operand import Operand
from kgen.ops.axes import others, part
from kgen.ops.rows_cut import Pitched
from kgen.step import Run


def mask_rows(mask: Operand, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """How many rows of a mask belong together, and the distances between two such groups and between two rows."""
    sizes, steps = part(mask, axes)
    heights, pitches = part(mask, others(mask, axes))
    if len(sizes) > 1 or (steps and steps[0] != 1) or len(heights) > 2:
        return None
    outer, inner = (0, 0, *pitches)[-2:]
    return (heights[-1] if heights else 1), outer, inner


class Masks(NamedTuple):
    """What a kernel with a mask takes besides; of a call that has none, all of it is empty."""

    inner: tuple[int, ...]  # rows of a group
    steps: tuple[int, ...]  # from a group to the next, and from a row to the next
    pitched: tuple[Pitched, ...]

    @classmethod
    def of(cls, mask: Operand | None, axes: tuple[int, ...]) -> Masks:
        """That of a mask whose rows run along `axes`."""
        groups = mask_rows(mask, axes) if mask is not None else None
        if mask is None or groups is None:
            return cls((), (), ())
        return cls(groups[:1], groups[1:], (Pitched(mask, math.gcd(*groups[1:]), 1),))

    def given(self, run: Run) -> Run:
        """A launch of a kernel that takes a mask only where there is one."""
        return run if self.pitched else picked(run, (0, -1))
