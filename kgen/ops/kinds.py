"""What a kind of call is, and what is remembered of one, so that the next call of its kind is recognised and launched.

Shapes, strides, dtypes, alignment, options, device: for CuPy arrays on the current device they are read in about two
microseconds. Only the pointers may differ within a kind, and with them whether `out` overlaps an input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kgen.operand import Operand, extent
from kgen.streams import gpu


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
    results: tuple[tuple[tuple[int, ...], Any], ...]  # shape and NumPy dtype
    spans: tuple[tuple[int, int], ...]  # from each array's pointer on
    twins: frozenset[tuple[int, int]]  # results and inputs that may be one and the same array


REMEMBERED = 4096
"""Kinds of calls that an operator remembers; it then starts afresh, so that a server may meet new shapes for ever."""


ALIGNMENT = 16
"""Bytes of the widest load. Each array's place among them is part of a kind: each may be loaded in its own way."""


def remember(kept: dict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any) -> None:
    if len(kept) >= REMEMBERED:
        kept.clear()
    kept[key] = value


def signature(cupy: Any, arrays: tuple[Any, ...], options: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """What identifies a kind of call, and the pointers; an empty key unless all arrays are CuPy's on this device."""
    kind = cupy.ndarray
    parts: list[Any] = [options]
    pointers = []
    for array in arrays:
        if array is None:
            parts.append(None)
            pointers.append(0)
            continue
        if type(array) is not kind:
            return (), []
        pointer = array.data.ptr
        pointers.append(pointer)
        # What flags.c_contiguous reads, at a sixth of its cost; contiguous strides follow from the shape.
        parts += (array.shape, array._c_contiguous or array.strides, array.dtype.num, pointer % ALIGNMENT)
    if _device_count() > 1:
        device = cupy.cuda.runtime.getDevice()
        if any(array.data.device_id != device for array in arrays if array is not None):
            return (), []
        parts.append(device)
    return tuple(parts), pointers


@functools.cache
def _device_count() -> int:
    return int(gpu().cuda.runtime.getDeviceCount())


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
    made = tuple((result.shape, result.dtype.numpy) for result in results)
    return Met(plan, made, tuple(_span(operand) if operand else (0, 0) for operand in operands), frozenset(twins))


def _layout(operand: Operand | None) -> Any:
    return operand and (operand.shape, operand.strides, operand.dtype)


def _span(operand: Operand) -> tuple[int, int]:
    low, high = extent(operand.shape, operand.strides)
    return low * operand.dtype.itemsize, high * operand.dtype.itemsize
