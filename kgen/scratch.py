"""Device memory for the duration of one call: from CuPy's pool, in the order of the stream that uses it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.driver import library
from kgen.notice import notice, notice_written
from kgen.streams import gpu, on

_ALIGNED = 256  # bytes, as CuPy's pool has it
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

_asked: ContextVar[list[int] | None] = ContextVar("kgen_scratch_asked", default=None)
_captured: list[Any] = []
_keeping = threading.Lock()


def scratch(nbytes: int, device: int, stream: int, *, kept: bool = False) -> Any:
    """Uninitialised memory (`.ptr`), to be held until the last launch that uses it is queued.

    Within the capture of a CUDA graph it is kept for ever: the graph may be replayed at any time. What the caller has
    `kept` for later calls is not listed.
    """
    asked = _asked.get()
    if asked is not None and not kept:
        asked.append(nbytes)
    if device == HOST:
        return _HostMemory(nbytes)
    cupy = gpu()
    if cupy.cuda.runtime.streamIsCapturing(stream):
        with on(device, stream), allocating_in_a_capture(), _keeping:
            memory = cupy.cuda.alloc(nbytes)
            _captured.append(memory)
        return memory
    if cupy.cuda.get_current_stream().ptr == stream:
        return cupy.cuda.alloc(nbytes)
    with on(device, stream):
        return cupy.cuda.alloc(nbytes)


class Sections:
    """Arrays of so many bytes in one piece of scratch memory, each at a multiple of 256 bytes.

    On the host each has memory of its own, so that checks see where it ends.
    """

    def __init__(self, sizes: Sequence[int], device: int) -> None:
        self._sizes, self._device = tuple(sizes), device
        *self._starts, self._nbytes = accumulate((-(-size // _ALIGNED) * _ALIGNED for size in sizes), initial=0)

    def take(self, stream: int) -> tuple[list[int], Any]:
        """Their addresses, and what to hold until the last launch that uses them is queued."""
        if self._device == HOST:
            each = [scratch(size, HOST, stream) for size in self._sizes]
            return [memory.ptr for memory in each], each
        memory = scratch(self._nbytes, self._device, stream) if self._nbytes else None
        base = memory.ptr if memory else 0
        return [base + start for start in self._starts], memory


def fill(ptr: int, byte: int, nbytes: int, device: int, stream: int) -> None:
    """Set so many bytes from an address on, in the order of the stream."""
    if device == HOST:
        ctypes.memset(ptr, byte, nbytes)
        notice_written(ptr)
    else:
        gpu().cuda.runtime.memsetAsync(ptr, byte, nbytes, stream)


@contextmanager
def listing() -> Iterator[list[int]]:
    """Inside the block, the bytes of each piece of scratch memory are listed, and kernels that are bound stand idle."""
    made: list[int] = []
    token = _asked.set(made)
    try:
        yield made
    finally:
        _asked.reset(token)


def idle() -> bool:
    """Whether kernels that are bound now are never to run."""
    return _asked.get() is not None


@contextmanager
def allocating_in_a_capture() -> Iterator[None]:
    """Let this thread allocate while it captures a graph, which torch's way of capturing forbids otherwise."""
    exchange = library().cuThreadExchangeStreamCaptureMode
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


class _HostMemory:
    """What the executor works in: aligned as the GPU's allocator would have it."""

    def __init__(self, nbytes: int) -> None:
        self._memory = notice(aligned(nbytes), fresh=True)
        self.ptr = self._memory.ctypes.data


def aligned(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Host memory that begins at a multiple of 256 bytes; all of it, and nothing else, may be used."""
    memory = np.empty(nbytes + _ALIGNED - 1, np.uint8)
    skipped = -memory.ctypes.data % _ALIGNED
    return memory[skipped : skipped + nbytes]
