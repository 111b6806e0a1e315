"""Checked calls: inside `kgen.checked()` operators look at numbers that a plain call only hands to its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kgen.backend import HOST, gpu
from kgen.errors import CaptureError

_asked: ContextVar[bool] = ContextVar("kgen_checked", default=False)


@contextmanager
def checked() -> Iterator[None]:
    """Inside the block, linear attention operators reject values in device memory that their documentation excludes.

    This concerns `linear_attention`, `simple_gla`, `gla`, `rwkv6`, their gradients and steps. They raise ValueError for
    gates above 0, for `cu_seqlens` that decrease or do not lead from 0 to T, and for `indices` outside the pool or used
    twice. Each call waits for the device to read them, so this is for debugging, not for production or CUDA graph
    captures. It applies to the current thread or task.

    >>> import numpy as np, kgen
    >>> x = np.ones((1, 1, 3, 4), "f")
    >>> with kgen.backend("cpu"), kgen.checked():
    ...     kgen.gla(x, x, x, x)
    Traceback (most recent call last):
    ...
    ValueError: gla: g reaches 1; it takes gates of at most 0, the logarithms of decays
    """
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


def asked() -> bool:
    """Whether calls are to be checked now."""
    return _asked.get()


def refuse_capture(op: str, device: int, stream: int) -> None:
    """Raise CaptureError where a CUDA graph is being captured: nothing can be read then."""
    if device != HOST and gpu().cuda.runtime.streamIsCapturing(stream):
        raise CaptureError(
            f"{op}: kgen.checked() reads arrays, which it cannot while a CUDA graph is being captured",
            hint="capture outside of kgen.checked()",
        )
