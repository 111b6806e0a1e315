"""Device memory for the duration of one call: from CuPy's pool, in the order of the stream that uses it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.streams import gpu, on

_captured: list[Any] = []
_keeping = threading.Lock()


def scratch(nbytes: int, device: int, stream: int) -> Any:
    """Uninitialised memory (`.ptr`), to be held until the last launch that uses it is queued.

    Within the capture of a CUDA graph it is kept for ever: the graph may be replayed at any time.
    """
    if device == HOST:
        return _HostMemory(nbytes)
    cupy = gpu()
    if cupy.cuda.get_current_stream().ptr == stream:
        memory = cupy.cuda.alloc(nbytes)
    else:
        with on(device, stream):
            memory = cupy.cuda.alloc(nbytes)
    if cupy.cuda.runtime.streamIsCapturing(stream):
        with _keeping:
            _captured.append(memory)
    return memory


class _HostMemory:
    """What the executor works in: aligned as the GPU's allocator would have it."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + 255, np.uint8)
        self.ptr = -(-self._memory.ctypes.data // 256) * 256
