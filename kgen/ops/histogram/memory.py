"""Small transfers around the counting kernels: zeros, tables from the host, and arrays of any strides as a line."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.dtypes import DType
from kgen.notice import notice_written
from kgen.operand import Operand, contiguous_strides
from kgen.ops.calls import Plan
from kgen.ops.reduce.axes import layout
from kgen.ops.reduce.plan import plan_reduction
from kgen.results import allocate
from kgen.scratch import scratch
from kgen.streams import gpu, on

_HOST_TO_DEVICE, _ON_DEVICE = 1, 3


def upload(values: np.ndarray[Any, Any], like: Operand, dtype: DType, stream: int) -> Operand:
    """A copy of a host array in an array of the kind that `like` is; the host's may change as soon as this returns."""
    target = allocate(like.kind, values.shape, dtype, like.device, stream)
    source = np.ascontiguousarray(values, dtype.numpy)
    if like.device == HOST:
        ctypes.memmove(target.ptr, source.ctypes.data, source.nbytes)
        notice_written(target.ptr)
    elif source.nbytes:
        with on(like.device, stream):  # from pageable memory: staged before the call returns
            gpu().cuda.runtime.memcpyAsync(target.ptr, source.ctypes.data, source.nbytes, _HOST_TO_DEVICE, stream)
    return target


def duplicate(values: Operand, stream: int) -> Operand:
    """A copy on the same device, which is a GPU."""
    copy = allocate(values.kind, values.shape, values.dtype, values.device, stream)
    nbytes = math.prod(values.shape) * values.dtype.itemsize
    gpu().cuda.runtime.memcpyAsync(copy.ptr, values.ptr, nbytes, _ON_DEVICE, stream)
    return copy


class Line:
    """An array of any strides as `length` elements `step` apart, from `start` on; if need be after a copy.

    The order of elements is that of memory, which counting does not mind, or with `in_order` C's.
    """

    def __init__(self, x: Operand, *, in_order: bool = False) -> None:
        axes = tuple(range(len(x.shape)))
        found = layout(x.shape, x.strides, (0,) * len(axes), axes, in_order=in_order)
        self.copy: Plan | None = None
        self.nbytes = 0
        self.start = found.start * x.dtype.itemsize
        self.length, self.step = found.reduced[0] if found.reduced else (1, 1)
        if len(found.reduced) > 1:
            self.length, self.step, self.start = int(np.prod(x.shape)), 1, 0
            self.nbytes = self.length * x.dtype.itemsize
            strides = contiguous_strides(x.shape)
            flat = x.view(x.shape, strides, 0)
            self.copy = plan_reduction("max", x, flat, (), 1.0)  # of one element each
        self.device = x.device

    def ready(self, pointer: int, stream: int) -> tuple[int, Any]:
        """Where the first element is, and what holds the copy, if there is one, until the next launch is queued."""
        if self.copy is None:
            return pointer + self.start, None
        memory = scratch(self.nbytes, self.device, stream)
        self.copy.launch((pointer, memory.ptr), stream)
        return memory.ptr, memory
