"""Memory in which the blocks of one launch meet: counters that are zero before and after every launch, and partials.

Launches of one stream follow one another, so a stream needs but one set. A launch that is being captured gets counters
of its own, since its graph may run beside anything later.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kgen.backend import HOST, notice
from kgen.scratch import aligned, allocating_in_a_capture, scratch
from kgen.streams import gpu

COUNTERS = 8192
"""Groups of blocks that may meet in one launch."""
_SLAB = 1 << 18
_TOGETHER = 64  # counters: each set begins at a multiple of 256 bytes, since it may hold messages that are stored whole
_LEAST = 1 << 18
_PER_THREAD = 2  # cudaStreamPerThread: the same number stands for a stream of each thread

_kept: dict[tuple[int, int, int], tuple[int, Any, int, int]] = {}
_slabs: dict[int, tuple[Any, int]] = {}
_taking = threading.Lock()


def workspace(nbytes: int, groups: int, device: int, stream: int) -> tuple[int, int, Any]:
    """Where the partials and the counters of so many groups are, and what holds the memory until the launch is queued.

    Both are for the work that follows on `stream`.
    """
    if device == HOST:
        partials, zeros = notice(aligned(nbytes), fresh=True), notice(np.zeros(groups, np.uint32), counters=True)
        return partials.ctypes.data, zeros.ctypes.data, (partials, zeros)
    if gpu().cuda.runtime.streamIsCapturing(stream):
        memory = scratch(nbytes, device, stream)
        return memory.ptr, _zeros(groups, device), memory
    key = (device, stream, threading.get_ident() if stream == _PER_THREAD else 0)
    size, memory, counters, count = _kept.get(key, (0, None, 0, 0))
    if size < nbytes or memory is None or count < groups:
        if size < nbytes or memory is None:
            size = max(_LEAST, 1 << (nbytes - 1).bit_length())
            memory = scratch(size, device, stream, kept=True)
        if count < groups:
            count = max(COUNTERS, groups)
            counters = _zeros(count, device)
        _kept[key] = size, memory, counters, count
    return memory.ptr, counters, memory


def _zeros(count: int, device: int) -> int:
    """Counters that nobody else has, now or later."""
    count = -(-count // _TOGETHER) * _TOGETHER
    with _taking:
        slab, used = _slabs.get(device, (None, _SLAB))
        if used + count > _SLAB:
            cupy = gpu()
            with cupy.cuda.Device(device), allocating_in_a_capture(), cupy.cuda.Stream(non_blocking=True) as own:
                slab, used = cupy.zeros(max(_SLAB, count), np.uint32), 0
                own.synchronize()  # once: other streams must find the zeros
            _full.append(slab)
        _slabs[device] = slab, used + count
        assert slab is not None
        return int(slab.data.ptr) + 4 * used


_full: list[Any] = []  # every slab, for ever: a graph may be replayed at any time
