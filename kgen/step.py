"""A launch as plain values: a kernel, its blocks and its arguments, laid in memory as the driver reads them."""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from kgen.spec import Spec

Run = Callable[[Sequence[int], int], None]
"""A launch with everything fixed but its pointers and the stream."""


def single(value: float) -> float:
    """A number that a float holds: beyond its range it becomes infinite, as in NumPy."""
    return math.copysign(math.inf, value) if abs(value) > 3.4028235677973366e38 else value


class Step(NamedTuple):
    """A launch as plain values: which kernel, on how many blocks, with which arguments.

    A kernel takes its pointers first, then its ints, floats, long longs and doubles. The blocks of a `cooperative`
    launch all run at once, and may wait for one another.
    """

    spec: Spec
    blocks: int
    pointers: int
    ints: tuple[int, ...] = ()
    longs: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    doubles: tuple[float, ...] = ()
    cooperative: bool = False

    def packed(self) -> tuple[list[int], bytes]:
        """Where each argument lies in a buffer of all of them, and the bytes of those after the pointers."""
        at = 8 * self.pointers
        offsets = list(range(0, at, 8))
        tail = b""
        for values, code, size in (
            (self.ints, "i", 4),
            (tuple(single(value) for value in self.floats), "f", 4),
            (self.longs, "q", 8),
            (self.doubles, "d", 8),
        ):
            start = -(-len(tail) // size) * size
            offsets += [at + start + size * i for i in range(len(values))]
            tail = tail.ljust(start, b"\0") + struct.pack(f"={len(values)}{code}", *values)
        return offsets, tail

    def __str__(self) -> str:
        return f"{self.spec.name} on {self.blocks} block{'s' if self.blocks != 1 else ''}"


Frame = tuple[Any, Any, Callable[[], int]]
"""What a launch needs for itself while it is made: slots for the pointers among its arguments; its stream, whose value
is to be set; and a function that makes it and returns a CUresult, 0 if all went well.

It is a plain tuple, which Python unpacks in half the time that a named one takes.
"""


class Parts(NamedTuple):
    """What a launch does, for code that has it written out and saves the call (`kgen.ops.again`).

    A frame is borrowed from `frames`, or made; the pointers at these `places` among those that come are written into
    its slots, a null pointer for None, and the stream into its queue; then the launch is made, and the frame goes back.
    """

    frames: list[Frame]
    make: Callable[[], Frame]
    places: Sequence[int | None]


_parts: WeakKeyDictionary[Run, Parts] = WeakKeyDictionary()


def parts(run: Run) -> Parts | None:
    """Those of one launch; None where it is more, or nobody has said."""
    return _parts.get(run)


def consists(run: Run, of: Parts) -> Run:
    """Say so of a launch."""
    _parts[run] = of
    return run


def picked(run: Run, places: Sequence[int], nulls: int = 0) -> Run:
    """A launch of the pointers at these places among those that come, and of so many null pointers after them."""
    behind = (0,) * nulls
    pick = operator.itemgetter(*places)

    def one(pointers: Sequence[int], stream: int) -> None:
        run((pick(pointers), *behind), stream)

    def several(pointers: Sequence[int], stream: int) -> None:
        run(pick(pointers) + behind, stream)

    found = one if len(places) == 1 else several
    inner = parts(run)
    if inner is not None:
        taken = (*places, *[None] * nulls)
        consists(found, inner._replace(places=[None if place is None else taken[place] for place in inner.places]))
    return found


def shifted(run: Run, ends: Sequence[int]) -> Run:
    """A launch of the pointers that come, each moved on by so many bytes."""
    if not any(ends):
        return run
    return lambda pointers, stream: run([pointer + end for pointer, end in zip(pointers, ends)], stream)


def arguments(step: Step) -> tuple[Any, Any]:
    """Slots for the pointers of a launch, and the addresses of all its arguments, of which these slots come first."""
    offsets, tail = step.packed()
    buffer = ctypes.create_string_buffer(bytes(8 * step.pointers) + tail)
    base = ctypes.addressof(buffer)
    addresses = (ctypes.c_void_p * len(offsets))(*(base + offset for offset in offsets))
    return (ctypes.c_uint64 * step.pointers).from_buffer(buffer), addresses
