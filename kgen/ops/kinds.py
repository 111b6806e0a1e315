"""What a kind of call is, and what is remembered of one, so that the next call of its kind is recognised and launched.

Shapes, strides, dtypes, alignment, options, device (libraries.py reads them). Only the pointers may differ within a
kind, and with them whether `out` overlaps an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kgen.operand import Operand, extent


class Plan(NamedTuple):
    """What a call, or a part of one, does on one device.

    launch   queues it: pointers of the inputs, then of the results; a stream
    steps    the launches in words, and
    why      those, for people
    """

    launch: Callable[[Sequence[int], int], None]
    steps: tuple[str, ...]
    why: str


class Met(NamedTuple):
    """What a call of a kind that was met before needs: the plan, the results, the bytes that each array touches."""

    plan: Plan
    device: int
    results: tuple[tuple[tuple[int, ...], Any], ...]  # shape, and dtype as the library has it
    spans: tuple[tuple[int, int], ...]  # from each array's pointer on
    twins: frozenset[tuple[int, int]]  # results and inputs that may be one and the same array


REMEMBERED = 4096
"""Kinds of calls that an operator remembers; it then starts afresh, so that a server may meet new shapes for ever."""


def remember(kept: dict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any) -> None:
    if len(kept) >= REMEMBERED:
        kept.clear()
    kept[key] = value


def apart(pointers: Sequence[int], met: Met, inputs: int) -> bool:
    """Whether every result that was passed lies wholly before or after all else, or is an input, where it may be."""
    spans = met.spans
    for at in range(inputs, len(pointers)):
        pointer = pointers[at]
        if pointer:
            low, high = pointer + spans[at][0], pointer + spans[at][1]
            for other in range(at):
                start = pointers[other]
                if low < start + spans[other][1] and start + spans[other][0] < high:
                    if start == pointer and (at, other) in met.twins:
                        continue
                    return False
    return True


def meeting(plan: Plan, given: Sequence[Operand | None], results: Sequence[Operand], in_place: bool) -> Met:
    operands = (*given, *results)
    twins = [
        (at, other)
        for at in range(len(given), len(operands))
        for other, x in enumerate(given)
        if in_place and x and _layout(operands[at]) == _layout(x)
    ]
    made = tuple((result.shape, result.array.dtype) for result in results)
    return Met(
        plan,
        results[0].device,
        made,
        tuple(_span(operand) if operand else (0, 0) for operand in operands),
        frozenset(twins),
    )


def _layout(operand: Operand | None) -> Any:
    return operand and (operand.shape, operand.strides, operand.dtype)


def _span(operand: Operand) -> tuple[int, int]:
    low, high = extent(operand.shape, operand.strides)
    return low * operand.dtype.itemsize, high * operand.dtype.itemsize
