"""Arrays as a repeated call reads them: what identifies its kind, new results, the stream, at the least cost.

CuPy arrays and torch tensors are read so. Any other kind of array goes the way of a first call every time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from typing import Any, Protocol

from kgen.streams import gpu, torch_stream

Key = tuple[Any, ...]

ALIGNMENT = 16
"""Bytes of the widest load. Each array's place among them is part of a kind: each may be loaded in its own way."""


class Library(Protocol):
    def signature(self, arrays: tuple[Any, ...], options: Key) -> tuple[Key, list[int]]:
        """What identifies a kind of call, and the pointers; an empty key where a call must be looked at closely."""

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int, like: Any) -> tuple[Any, int]:
        """A new result, and its pointer; `like` is an array of the same layout, or None."""

    def stream(self, device: int) -> int:
        """The current stream."""


@functools.cache
def library(kind: Hashable) -> Library | None:
    """How arrays of this very type are read; None for those that have no short way."""
    cupy, torch = (sys.modules.get(name) for name in ("cupy", "torch"))
    if cupy is not None and kind is cupy.ndarray:
        return CupyArrays(cupy)
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return TorchTensors(torch)
    return None


class CupyArrays:
    """CuPy arrays on the current device."""

    def __init__(self, cupy: Any) -> None:
        self._kind = cupy.ndarray
        self._stream = cupy.cuda.get_current_stream
        self._device = cupy.cuda.runtime.getDevice if device_count() > 1 else None

    def signature(self, arrays: tuple[Any, ...], options: Key) -> tuple[Key, list[int]]:
        kind = self._kind
        parts: list[Any] = [options]
        pointers = []
        for array in arrays:
            if array is None:
                parts.append(None)
                pointers.append(0)
                continue
            if array.__class__ is not kind:
                return (), []
            pointer = array.data.ptr
            pointers.append(pointer)
            # What flags.c_contiguous reads, at a sixth of its cost; contiguous strides follow from the shape.
            parts += (array.shape, array._c_contiguous or array.strides, array.dtype.num, pointer % ALIGNMENT)
        if self._device is not None:
            device = self._device()
            for array in arrays:
                if array is not None and array.data.device_id != device:
                    return (), []
            parts.append(device)
        return tuple(parts), pointers

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int, like: Any) -> tuple[Any, int]:
        array = self._kind(shape, dtype)
        return array, array.data.ptr

    def stream(self, device: int) -> int:
        pointer: int = self._stream().ptr
        return pointer


class TorchTensors:
    """Torch tensors on the current device that record no gradient."""

    def __init__(self, torch: Any) -> None:
        self._kinds = (torch.Tensor, torch.nn.Parameter)
        self._empty = torch.empty
        self._empty_like = torch.empty_like
        self._grad_enabled = torch.is_grad_enabled
        self._place = functools.cache(functools.partial(torch.device, "cuda"))
        self.stream = torch_stream()
        self._device = gpu().cuda.runtime.getDevice if device_count() > 1 else None

    def signature(self, arrays: tuple[Any, ...], options: Key) -> tuple[Key, list[int]]:
        kinds = self._kinds
        parts: list[Any] = [options]
        pointers = []
        device = -1
        for x in arrays:
            if x is None:
                parts.append(None)
                pointers.append(0)
                continue
            if type(x) not in kinds or (x.requires_grad and self._grad_enabled()):
                return (), []
            try:
                pointer = x.data_ptr()
                # A device of -1 is the host, whose tensors are refused at every call, so never met.
                device = x.get_device()
                parts += (x.shape, x.is_contiguous() or x.stride(), x.dtype, device, pointer % ALIGNMENT)
            except (RuntimeError, NotImplementedError):  # no plain strided memory
                return (), []
            pointers.append(pointer)
        if self._device is not None and device != self._device():
            return (), []
        return tuple(parts), pointers

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int, like: Any) -> tuple[Any, int]:
        if like is not None:  # at half the cost
            array = self._empty_like(like)
        else:
            array = self._empty(shape, dtype=dtype, device=self._place(device))
        return array, array.data_ptr()


def device_count() -> int:
    return int(gpu().cuda.runtime.getDeviceCount())
