"""What a watched launch may access in global memory, and which bytes of it somebody has written."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Buffer(NamedTuple):
    """Memory that a kernel may access.

    written  a number for each byte, 0 where nobody wrote it, in memory that forked processes share; None: all were
    """

    address: int
    nbytes: int
    writable: bool = True
    written: Bytes | None = None


def shared(nbytes: int) -> Bytes:
    """Zeros that this process and those that it forks see alike."""
    return np.frombuffer(mmap.mmap(-1, max(1, nbytes)), np.uint8)[:nbytes]


class Fresh:
    """Memory that an operator has allocated, and which bytes of it launches have written since."""

    def __init__(self, array: Any) -> None:
        self.array = array  # held, so that nobody else gets its addresses
        self.address, self.nbytes = int(array.ctypes.data), int(array.nbytes)
        self.written = np.zeros(self.nbytes, np.uint8)

    def within(self, buffer: Buffer) -> slice:
        """Where it lies in a buffer that holds all of it, or nothing of it."""
        start = self.address - buffer.address
        return slice(start, start + self.nbytes) if 0 <= start < buffer.nbytes else slice(0, 0)


def buffers_of(arrays: Sequence[Any], fresh: Sequence[Fresh] = ()) -> list[Buffer]:
    """The memory of arrays, those that share some together, and which of it is fresh and unwritten."""
    spans = []
    for array in arrays:
        low, high = np.lib.array_utils.byte_bounds(array)
        if array.size:
            spans.append(Buffer(low, high - low, bool(array.flags.writeable)))
    merged: list[Buffer] = []
    for span in sorted(spans):
        if merged and span.address < merged[-1].address + merged[-1].nbytes:
            last = merged.pop()
            end = max(last.address + last.nbytes, span.address + span.nbytes)
            span = Buffer(last.address, end - last.address, last.writable or span.writable)
        merged.append(span)
    return [_marked(buffer, [one for one in fresh if one.within(buffer) != slice(0, 0)]) for buffer in merged]


def _marked(buffer: Buffer, fresh: Sequence[Fresh]) -> Buffer:
    if not fresh:
        return buffer
    written = shared(buffer.nbytes)
    written[:] = 1
    for one in fresh:
        written[one.within(buffer)] = one.written
    return buffer._replace(written=written)


def remember(buffers: Sequence[Buffer], fresh: Sequence[Fresh]) -> None:
    """Take over what a launch has written of fresh memory."""
    for buffer in buffers:
        for one in fresh:
            if buffer.written is not None and (place := one.within(buffer)) != slice(0, 0):
                one.written[:] = buffer.written[place]


class Area(ctypes.Structure):
    """`kg::Area` of runtime/check.h."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("written", ctypes.c_void_p),
        ("writable", ctypes.c_uint32),
    )

    @classmethod
    def of(cls, buffer: Buffer) -> Area:
        written = None if buffer.written is None else buffer.written.ctypes.data
        return cls(buffer.address, buffer.nbytes, written, buffer.writable)
