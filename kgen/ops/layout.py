"""Where batch, head and time stand in an operator's arrays, and whether the arrays fit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgen.operand import Operand

if TYPE_CHECKING:
    from kgen.ops.causal.scan import Strides

AXES = {"bhtd": (0, 1, 2), "bthd": (0, 2, 1)}
"""The axes of batch, head and time in each layout; features are the last."""


def outer_strides(x: Operand, layout: str) -> Strides:
    """The strides over batch, head, time."""
    batch, head, time = AXES[layout]
    return x.strides[batch], x.strides[head], x.strides[time]


def check_axes(op: str, given: Sequence[Operand], layout: str) -> None:
    """Refuse a layout that does not exist, and arrays that cannot lie in it."""
    if layout not in AXES:
        raise ValueError(f"{op}: layout is {layout!r}; it takes 'bhtd' for [B, H, T, D] or 'bthd' for [B, T, H, D]")
    letters = "B, H, T" if layout == "bhtd" else "B, T, H"
    for operand in given:
        if len(operand.shape) != 4:
            raise ValueError(f"{op}: {operand.argument} has shape {operand.shape}; it takes four axes [{letters}, D]")
        if operand.shape[3] == 0 and 0 not in operand.shape[:3]:
            raise ValueError(f"{op}: {operand.argument} has shape {operand.shape}; it takes at least one feature")


def expect(op: str, given: Sequence[Operand], operand: Operand, shape: tuple[int, ...]) -> None:
    """Refuse an argument of another shape than the one that the others leave."""
    if operand.shape != shape:
        others = ", ".join(f"{x.argument} {x.shape}" for x in given if x is not operand)
        raise ValueError(f"{op}: {operand.argument} has shape {operand.shape}; with {others} it takes {shape}")
