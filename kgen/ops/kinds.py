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
    """What a call of a kind that was met before needs.

    launch   the plan's
    device   where
    fresh    results to allocate: their place among all arrays, their shape, dtype as the library has it, and the place
             of an input of the same layout, or None
    pairs    results that were passed, each with an array before it: their places among all arrays, the distances of
             their pointers, in bytes, between which they overlap, and whether they may be one and the same array
    """

    launch: Callable[[Sequence[int], int], None]
    device: int
    fresh: tuple[tuple[int, tuple[int, ...], Any, int | None], ...]
    pairs: tuple[tuple[int, int, int, int, bool], ...]


REMEMBERED = 4096
"""Kinds of calls that an operator remembers; it then starts afresh, so that a server may meet new shapes for ever."""


def remember(kept: dict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any) -> None:
    if len(kept) >= REMEMBERED:
        kept.clear()
    kept[key] = value


def apart(pointers: Sequence[int], met: Met) -> bool:
    """Whether every result that was passed lies wholly before or after all else, or is an input, where it may be."""
    for result, other, low, high, twins in met.pairs:
        distance = pointers[result] - pointers[other]
        if low < distance < high and (distance or not twins):
            return False
    return True


def meeting(
    plan: Plan,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    passed: Sequence[bool],
    in_place: bool,
) -> Met:
    """What to remember of a call; `passed` tells which results the caller brought."""
    operands = (*given, *results)
    fresh, pairs = [], []
    for at, (result, brought) in enumerate(zip(results, passed, strict=True), len(given)):
        if not brought:
            like = next((place for place, x in enumerate(given) if x and _layout(x) == _layout(result)), None)
            fresh.append((at, result.shape, result.array.dtype, like))
            continue
        low, high = _span(result)
        for place, other in enumerate(operands[:at]):
            if other is not None and (place < len(given) or passed[place - len(given)]):
                first, end = _span(other)
                twins = in_place and place < len(given) and _layout(result) == _layout(other)
                pairs.append((at, place, first - high, end - low, twins))
    return Met(plan.launch, results[0].device, tuple(fresh), tuple(pairs))


def _layout(operand: Operand) -> Any:
    return operand.shape, operand.strides, operand.dtype


def _span(operand: Operand) -> tuple[int, int]:
    """The bytes that an array touches, counted from its pointer."""
    low, high = extent(operand.shape, operand.strides)
    return low * operand.dtype.itemsize, high * operand.dtype.itemsize
