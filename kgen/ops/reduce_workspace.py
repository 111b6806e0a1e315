"""Memory in which the blocks of one launch meet: counters that are zero before and after every launch, and partials.

Launches of one stream follow one another, so a stream needs but one; a stream that is being captured gets memory of its
own for the graph, which may run beside the stream later.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.scratch import scratch
from kgen.streams import gpu, on

COUNTERS = 8192
"""Groups of blocks that may meet in one launch."""
_COUNTER_BYTES = 4 * COUNTERS
_LEAST = 1 << 18
_PER_THREAD = 2  # cudaStreamPerThread: the same number stands for a stream of each thread

_kept: dict[tuple[int, int, int], tuple[int, Any]] = {}


def workspace(nbytes: int, device: int, stream: int) -> tuple[int, int, Any]:
    """Where the partials and the counters are, and what holds that memory until the launch is queued."""
    if device == HOST:
        memory = np.zeros(_COUNTER_BYTES + nbytes + 256, np.uint8)
        base = -(-memory.ctypes.data // 256) * 256
        return base + _COUNTER_BYTES, base, memory
    if gpu().cuda.runtime.streamIsCapturing(stream):
        memory = _zeroed(nbytes, device, stream)
        return memory.ptr + _COUNTER_BYTES, memory.ptr, memory
    key = (device, stream, threading.get_ident() if stream == _PER_THREAD else 0)
    size, memory = _kept.get(key, (0, None))
    if size < nbytes or memory is None:
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        memory = _zeroed(size, device, stream)
        _kept[key] = size, memory
    return memory.ptr + _COUNTER_BYTES, memory.ptr, memory


def _zeroed(nbytes: int, device: int, stream: int) -> Any:
    memory = scratch(_COUNTER_BYTES + nbytes, device, stream)
    with on(device, stream):
        gpu().cuda.runtime.memsetAsync(memory.ptr, 0, _COUNTER_BYTES, stream)
    return memory
