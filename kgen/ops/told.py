"""Numbers that a launch tells the host: kernels write them into the host's own memory, so that nothing is copied.

To wait for them costs a synchronisation of the stream; a copy to the host would be waited for as well. To listen for
one takes 3 us less.
"""

from __future__ import annotations

import ctypes
from typing import Any

from kgen.backend import HOST
from kgen.errors import CaptureError
from kgen.notice import notice_written
from kgen.scratch import scratch
from kgen.streams import gpu

SILENCE = (1 << 64) - 1
"""What a word is that no kernel has written yet, where the host listens for it."""
_LISTENED = 1000
"""Times that the host looks: for some tens of microseconds, after which there is no hurry."""

_free: dict[int, list[Told]] = {}


class Told:
    """Bytes of the host's memory that a kernel of any device may write at `ptr`; used again once they were told."""

    __slots__ = ("_bytes", "_device", "_memory", "_stream", "_word", "ptr")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self._memory, self.ptr = memory, int(memory.ptr)
        self._bytes = (ctypes.c_char * nbytes).from_address(self.ptr)
        self._word = ctypes.c_uint64.from_address(self.ptr)
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

    def hush(self) -> None:
        """Set the first word to SILENCE, before the launch that may write it."""
        self._word.value = SILENCE
        if self._device == HOST:
            notice_written(self.ptr)

    def wait(self) -> bytes:
        """What they are once all that was queued on the stream has run."""
        self._synchronize()
        told = self._bytes.raw
        self._give_back()
        return told

    def hear(self, *, ahead: bool) -> int:
        """The first word, which was SILENCE, once all that was queued on the stream has run.

        Or `ahead` of that, as soon as a kernel has written it, which must then write it in any case, and once.
        """
        word = self._word
        try:
            for _ in range(_LISTENED if ahead else 0):
                if word.value != SILENCE:
                    break
            else:
                self._synchronize()
        except BaseException:  # an interrupt, while a kernel may yet write here
            self._synchronize()
            raise
        heard = word.value
        self._give_back()
        return heard

    def _synchronize(self) -> None:
        if self._device != HOST:
            gpu().cuda.runtime.streamSynchronize(self._stream)

    def _give_back(self) -> None:
        if self._device != HOST:
            _free.setdefault(len(self._bytes), []).append(self)
