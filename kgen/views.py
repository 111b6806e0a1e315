"""An operand as an array of the device's library, which then copies: in place, or as rows that a kernel takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.notice import notice
from kgen.operand import Operand, contiguous_strides, extent
from kgen.streams import gpu, on


def contiguous_inner(operand: Operand, stream: int, *, write: bool = False) -> Operand:
    """`operand` if its last axis is contiguous, else a contiguous copy made on `stream`.

    With `write` the copy is uninitialised, to be written by the kernel and brought home by `results.give_back`.
    """
    shape = operand.shape
    if not shape or operand.strides[-1] == 1 or shape[-1] <= 1 or 0 in shape:
        return operand
    with on(operand.device, stream) as library:
        copy = library.empty(shape, operand.dtype.numpy)
        if not write:
            copy[...] = device_view(operand)
    return Operand(
        notice(copy).__array_interface__["data"][0] if operand.device == HOST else copy.data.ptr,
        shape,
        contiguous_strides(shape),
        operand.dtype,
        operand.device,
        operand.kind,
        operand.argument,
        operand.array,
        copy,
        operand.readonly,
        home=operand if write else None,
    )


def device_view(operand: Operand, pointer: int | None = None) -> Any:
    """An array of the device's library, NumPy's or CuPy's, over the operand's memory, whoever owns it.

    With a `pointer`, over the memory there, in the operand's layout; it is the caller's to keep alive.
    """
    itemsize = operand.dtype.itemsize
    low, high = extent(operand.shape, operand.strides)
    strides = tuple(stride * itemsize for stride in operand.strides)
    start = (operand.ptr if pointer is None else pointer) + low * itemsize
    owner = operand.owner if pointer is None else None
    if operand.device == HOST:
        memory = np.asarray(_Bytes(start, (high - low) * itemsize, owner))
        return np.ndarray(operand.shape, operand.dtype.numpy, memory, -low * itemsize, strides)
    cupy = gpu()
    owned = cupy.cuda.UnownedMemory(start, (high - low) * itemsize, owner, device_id=operand.device)
    place = cupy.cuda.MemoryPointer(owned, -low * itemsize)
    return cupy.ndarray(operand.shape, operand.dtype.numpy, memptr=place, strides=strides)


class _Bytes:
    """What NumPy needs to see host memory, and to keep its owner alive."""

    def __init__(self, pointer: int, nbytes: int, owner: Any) -> None:
        self.__array_interface__ = {"version": 3, "data": (pointer, False), "shape": (nbytes,), "typestr": "|u1"}
        self.owner = owner
