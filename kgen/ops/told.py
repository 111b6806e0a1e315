"""Numbers that a launch tells the host: kernels write them into the host's own memory, so that nothing is copied.

To wait for them costs a synchronisation of the stream; a copy to the host would be waited for as well.
"""

from __future__ import annotations

import ctypes
from typing import Any

from kgen.backend import HOST
from kgen.errors import CaptureError
from kgen.notice import notice_written
from kgen.scratch import scratch
from kgen.streams import gpu

_free: dict[int, list[Told]] = {}


class Told:
    """Bytes of the host's memory that a kernel of any device may write at `ptr`; used again after `wait`."""

    __slots__ = ("_bytes", "_device", "_memory", "_stream", "ptr")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self._memory, self.ptr = memory, int(memory.ptr)
        self._bytes = (ctypes.c_char * nbytes).from_address(self.ptr)
        self._device = self._stream = 0

    @classmethod
    def of(cls, op: str, nbytes: int, device: int, stream: int) -> Told:
        """Memory that no other call has now; CaptureError where the operator could not wait for the stream."""
        if device == HOST:
            told = cls(scratch(nbytes, HOST, stream, kept=True), nbytes)
        else:
            if gpu().cuda.runtime.streamIsCapturing(stream):
                raise CaptureError(f"{op}: the host waits for the device, and a CUDA graph is being captured")
            try:
                told = _free[nbytes].pop()
            except (KeyError, IndexError):
                told = cls(gpu().cuda.alloc_pinned_memory(nbytes), nbytes)
        told._device, told._stream = device, stream
        return told

    def fill(self, byte: int) -> None:
        """Set all of them, before the launch that may write some."""
        ctypes.memset(self.ptr, byte, len(self._bytes))
        if self._device == HOST:
            notice_written(self.ptr)

    def wait(self) -> bytes:
        """What they are once all that was queued on the stream has run."""
        if self._device == HOST:
            return self._bytes.raw
        gpu().cuda.runtime.streamSynchronize(self._stream)
        told = self._bytes.raw
        _free.setdefault(len(told), []).append(self)
        return told
