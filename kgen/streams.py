"""Which CUDA stream a call runs on, and how it waits for work that other libraries queued elsewhere.

A stream is a plain integer here (a cudaStream_t), as launches take it: 0 is the legacy default stream, 2 the
per-thread one. Nothing in this module blocks the host.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.backend import cupy as cupy
from kgen.backend import gpu as gpu
from kgen.operand import Kind, Operand


def stream_pointer(stream: Any) -> int:
    """The cudaStream_t behind an int, a CuPy or torch stream, or any object with `__cuda_stream__()`.

    >>> stream_pointer(1) == stream_pointer(0) == 0  # two spellings of the legacy default stream
    True
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        pointer = stream
    elif hasattr(stream, "__cuda_stream__"):
        _, pointer = stream.__cuda_stream__()
    elif hasattr(stream, "cuda_stream"):  # torch before it spoke the protocol
        pointer = stream.cuda_stream
    elif type(stream).__module__.partition(".")[0] == "cupy" and hasattr(stream, "ptr"):  # CuPy 13
        pointer = stream.ptr
    else:
        raise TypeError(
            f"stream is a {type(stream).__name__}; it takes an int, a CuPy or torch stream, "
            "or an object with __cuda_stream__()"
        )
    return 0 if pointer == 1 else int(pointer)


def current_stream(kind: str, device: int, stream: Any = None) -> int:
    """`stream` where one is given, else the stream that the arrays' own library would use on this device now."""
    if stream is not None:
        return stream_pointer(stream)
    pointer = torch_stream()(device) if kind == "torch" else int(cupy().cuda.get_current_stream(device).ptr)
    return 0 if pointer == 1 else pointer


def torch_stream() -> Callable[[int], int]:
    """What gives torch's current stream on a device."""
    torch = sys.modules["torch"]
    # The public way builds a Stream object, 1.7 us against 0.07; Triton's launcher calls the same function.
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def wait(stream: int, source: int, device: int) -> None:
    """Lets what comes next on `stream` start only after what is on `source` now."""
    runtime = gpu().cuda.runtime
    with gpu().cuda.Device(device):
        event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
        try:
            runtime.eventRecord(event, source)
            runtime.streamWaitEvent(stream, event)
        finally:
            runtime.eventDestroy(event)  # the driver frees it once it has happened


def stream_for(kind: Kind, operands: Sequence[Operand], stream: Any = None) -> int:
    """The stream to launch on: `stream`, or the current one of the arrays' library.

    It is made to wait for operands whose contents become ready on another. With an explicit `stream`, arrays of the
    library that leads the call are the caller's to order, as everywhere in CuPy and torch.
    """
    device = operands[0].device
    if device == HOST:
        if stream is not None:
            stream_pointer(stream)  # what is no stream on a GPU is none here
        return 0  # the executor computes at once
    chosen = current_stream(kind, device, stream)
    for operand in operands:
        source = operand.ready
        if source is None and operand.kind != kind and operand.kind in ("cupy", "torch"):
            source = current_stream(operand.kind, device)  # torch beside CuPy: each has a current stream of its own
        if source is not None and source != chosen:
            wait(chosen, source, device)
    return chosen


class _Borrowed:
    """A stream of somebody else, told in the protocol that CuPy reads."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


@contextmanager
def on(device: int, stream: int) -> Iterator[Any]:
    """Inside the block CuPy allocates and copies on this device and stream; on the host, NumPy does."""
    if device == HOST:
        yield np
        return
    module = gpu()
    kind = module.cuda.Stream
    # ExternalStream is deprecated since CuPy 14; CuPy 13 has nothing else.
    borrow = getattr(kind, "from_external", None)
    queue = borrow(_Borrowed(stream)) if borrow else module.cuda.ExternalStream(stream, device)
    with module.cuda.Device(device), queue:
        yield module
