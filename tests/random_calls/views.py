"""Arrays of a call: views, of random strides and beginnings, of memory that is otherwise poison."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Protocol

import numpy as np

from kgen.dtypes import BOOL, DType, dtype_of
from kgen.operand import contiguous_strides
from tests.random_calls.compare import Wrong, bits_of
from tests.random_calls.draw import Array, Draw, Shape

GUARD = 77
"""What lies beside results. It is no NaN, which a kernel that reads poison would write."""
BEHIND = 64
"""Elements behind a view, which show what is written past its end."""
FAR = 1 << 20
"""Elements from which on strides are not doubled: the memory would only be large."""


def poison(dtype: DType) -> float:
    """What shows in a result if it is read, or was never overwritten: NaN, where there is one."""
    if dtype.numpy.kind in "fV":  # V: the floats of ml_dtypes
        return math.nan
    return 1 if dtype == BOOL else 100


class Layout(NamedTuple):
    """A view of a flat memory, in elements."""

    shape: Shape
    strides: Shape
    offset: int
    length: int

    def of(self, memory: Array) -> Array:
        """The view of a NumPy array, by way of its bits: NumPy strides no 8-bit floats."""
        strides = [stride * memory.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(bits_of(memory)[self.offset :], self.shape, strides)
        return view.view(memory.dtype)

    def __str__(self) -> str:
        shape = str(list(self.shape))
        if self.strides == contiguous_strides(self.shape) and not self.offset:
            return shape
        return f"{shape} strides {self.strides} at {self.offset}"


def plain(shape: Shape) -> Layout:
    """Contiguous, from the memory's beginning, with nothing behind."""
    return Layout(shape, contiguous_strides(shape), 0, max(1, math.prod(shape)))


def behind(where: Layout, offset: int) -> Layout:
    """The same, beginning so much later, and with room behind."""
    return where._replace(offset=where.offset + offset, length=where.length + offset + BEHIND)


def repeated(where: Layout, axis: int) -> Layout:
    """With the same elements at every place along an axis."""
    return where._replace(strides=tuple(0 if i == axis else stride for i, stride in enumerate(where.strides)))


def layout(draw: Draw, shape: Shape, *, reverses: bool = False) -> Layout:
    """Axes in any order, elements or rows apart, beginning anywhere; no two elements at one place.

    `reverses`: some axes may go backwards through memory.
    """
    order = draw.shuffled(range(len(shape))) if draw.chance(0.2) else range(len(shape))
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step * (1 if step > FAR or draw.chance(0.85) else draw.pick(2, 3))
        step = strides[axis] * max(1, shape[axis])
        step += draw.pick(1, 3, 8, 16) if draw.chance(0.15) else 0
    offset = draw.pick(0, 0, 0, 1, 2, 3, 5, 8, 16) + draw.pick(0, 64)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    length = offset + max(0, extent) + BEHIND
    for axis in range(len(shape)):
        if reverses and draw.chance(0.1):
            offset += max(0, shape[axis] - 1) * strides[axis]
            strides[axis] = -strides[axis]
    return Layout(shape, tuple(strides), offset, length)


class Device(Protocol):
    """Where arrays lie.

    most      the numbers of the largest one
    reverses  whether axes may go backwards through memory
    """

    most: int
    reverses: bool

    def put(self, memory: Array) -> Any:
        """A copy of a flat array."""

    def view(self, memory: Any, layout: Layout) -> Any:
        """What an operator is given of such a copy."""

    def fetch(self, array: Any) -> Array:
        """An operator's result, or memory, on the host; waits for it."""


class Host:
    """NumPy arrays, for the CPU executor."""

    reverses = True

    def __init__(self, most: int) -> None:
        self.most = most

    def put(self, memory: Array) -> Any:
        return memory.copy()

    def view(self, memory: Any, layout: Layout) -> Any:
        return layout.of(memory)

    def fetch(self, array: Any) -> Array:
        return np.asarray(array)


class Gpu:
    """torch tensors on its current GPU."""

    reverses = False

    def __init__(self, most: int) -> None:
        self.most = most

    def put(self, memory: Array) -> Any:
        import torch

        return torch.from_numpy(memory.view(np.uint8)).cuda().view(getattr(torch, memory.dtype.name))

    def view(self, memory: Any, layout: Layout) -> Any:
        return memory.as_strided(layout.shape, layout.strides, layout.offset)

    def fetch(self, array: Any) -> Array:
        if isinstance(array, np.ndarray):  # such as edges of a histogram, which are made on the host
            return array
        torch = sys.modules["torch"]
        # One element is contiguous whatever its stride is, which a view of bytes asks about.
        flat = array.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).cpu().numpy()
        return flat.view(dtype_of(array.dtype).numpy).reshape(tuple(array.shape))  # type: ignore[no-any-return]


class View:
    """One array of a call: on its device, and on the host as it was before.

    writable  whether the call may write it; what lies beside it may not be written in any case
    """

    def __init__(self, device: Device, values: Array, where: Layout, *, writable: bool = False) -> None:
        self.dtype: DType = dtype_of(values.dtype)
        self.where = where
        self.writable = writable
        self._device = device
        self._before = np.full(where.length, GUARD if writable else poison(self.dtype), values.dtype)
        where.of(self._before)[...] = values
        self._memory = device.put(self._before)
        self.given = device.view(self._memory, where)

    @property
    def values(self) -> Array:
        """As they were before the call."""
        return self.where.of(self._before)

    @property
    def exact(self) -> Array:
        """As they were before the call, in float64."""
        return self.values.astype(np.float64)

    def now(self) -> Array:
        """The values that the call left behind."""
        return self.where.of(self._device.fetch(self._memory))

    def check(self, name: str) -> None:
        """Raise `Wrong` where something was written that should not have been."""
        now = self._device.fetch(self._memory)
        changed = bits_of(now) != bits_of(self._before)
        if self.writable:
            self.where.of(changed)[...] = False
        if changed.any():
            places = np.flatnonzero(changed)
            what = f"memory beside {name}" if self.writable else f"{name}, which is only read, or memory beside it"
            raise Wrong(f"wrote {len(places)} elements of {what}, from {places[0] - self.where.offset} on")

    def __str__(self) -> str:
        return f"{self.dtype}{self.where}"
