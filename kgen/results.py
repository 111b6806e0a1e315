"""Where a kernel writes, and how that becomes what the caller gets back.

A result is of the caller's kind of array: `allocate` makes one, `check_out` vets one that the caller brought, and
`give_back` finishes either after the launch. An `out` that shares memory with an input is refused, since kernels go on
reading after they have begun to write.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from kgen.arrays import adopt, element_strides, element_type
from kgen.backend import HOST
from kgen.dtypes import DTYPES, FP8, DType
from kgen.notice import notice
from kgen.operand import Ints, Kind, Operand, contiguous_strides, one_to_one, overlaps, same_elements
from kgen.streams import current_stream, gpu, on, stream_for
from kgen.views import device_view


def allocate(kind: Kind, shape: Ints, dtype: DType, device: int, stream: int) -> Operand:
    """An uninitialised contiguous result, allocated in the order of `stream` by the caller's own library."""
    if kind == "torch":
        return _allocate_torch(shape, dtype, device, stream)
    if device == HOST:
        return adopt(notice(np.empty(shape, dtype.numpy), fresh=True), "", "the result", (dtype,))
    cupy = gpu()
    held: Any = np.uint8 if dtype in FP8 else dtype.numpy  # CuPy makes no 8-bit floats, but sees bytes as such
    if stream == current_stream("cupy", device) and device == cupy.cuda.runtime.getDevice():
        array = cupy.empty(shape, held)
    else:
        with on(device, stream):  # so that the pool gives memory that earlier work on another stream does not still use
            array = cupy.empty(shape, held)
    held = None if kind in ("numpy", "jax") else array
    return Operand(array.data.ptr, shape, contiguous_strides(shape), dtype, device, kind, "the result", held, array)


def _allocate_torch(shape: Ints, dtype: DType, device: int, stream: int) -> Operand:
    torch = sys.modules["torch"]
    torch_dtype, torch_device = _torch_place(dtype.numpy_name, device)
    if stream == current_stream("torch", device):
        array = torch.empty(shape, dtype=torch_dtype, device=torch_device)
    else:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=torch_device)):
            array = torch.empty(shape, dtype=torch_dtype, device=torch_device)
    return Operand(
        array.data_ptr(), shape, contiguous_strides(shape), dtype, device, "torch", "the result", array, array
    )


@functools.cache
def _torch_place(dtype_name: str, device: int) -> tuple[Any, Any]:
    torch = sys.modules["torch"]
    return getattr(torch, dtype_name), torch.device("cuda", device)


def give_back(result: Operand, stream: int) -> Any:
    """What the caller gets, once the kernel is queued on `stream`: the array itself where it is one on the GPU.

    Only NumPy and JAX wait for the stream: NumPy to read the result, JAX since it may reuse the memory of an input as
    soon as its last reference is gone, and knows nothing of our stream. Arrays of other libraries come back as CuPy's,
    which speak `__cuda_array_interface__` and DLPack.
    """
    if result.home is not None:
        with on(result.device, stream):
            device_view(result.home)[...] = result.owner
        return result.array
    if result.kind == "numpy" and result.device != HOST:
        with on(result.device, stream) as cupy:
            host = cupy.asnumpy(result.owner)
        if result.dtype in FP8:
            host = host.view(result.dtype.numpy)
        if result.array is None:
            return host
        result.array[...] = host
    elif result.kind == "jax" and result.array is None:
        with on(result.device, stream) as cupy:
            result.array = sys.modules["jax"].dlpack.from_dlpack(result.owner)
            cupy.cuda.runtime.streamSynchronize(stream)
    return result.array


def check_out(
    out: Any,
    shape: Ints,
    dtype: DType,
    inputs: Sequence[Operand],
    op: str,
    stream: int | None = None,
    *,
    in_place: Collection[str] = (),
    name: str = "out",
    apart: Sequence[Operand] = (),
) -> Operand:
    """The operand behind `out`: of the right library, device, shape and dtype, writable, apart from every input.

    It may be an input named in `in_place` itself, element for element, which does no harm to kernels that read no
    element after they wrote the one in its place; from the results in `apart` it must be apart even so. `stream`, by
    default the inputs' current one, is made to wait until `out` may be written. A NumPy `out` is not read: the kernel
    writes into fresh memory of the device, and `give_back` copies it. Messages call it by its `name`.
    """
    first = inputs[0]
    device = first.device
    on_host = isinstance(out, np.ndarray) and device != HOST
    operand = _host_out(out, device, op, name) if on_host else adopt(out, op, name, tuple(DTYPES.values()))
    if _library(operand.kind) != _library(first.kind):
        raise TypeError(
            f"{op}: {name} is an array of {_library(operand.kind)} and {first.argument} of {_library(first.kind)}; "
            "pass one of the same library, or omit it"
        )
    if operand.shape != shape:
        raise ValueError(f"{op}: {name} has shape {operand.shape}; the result has {shape}")
    if operand.dtype is not dtype:
        raise TypeError(
            f"{op}: {name} has dtype {operand.dtype.numpy_name}; the result has {dtype.numpy_name}, "
            "and kgen does not cast it: pass an array of that dtype"
        )
    if operand.device != device:
        raise ValueError(f"{op}: {name} is on cuda:{operand.device} and {first.argument} on cuda:{device}")
    if operand.readonly:
        why = " (JAX arrays always are)" if operand.kind == "jax" else ""
        raise ValueError(f"{op}: {name} is read-only{why}; omit it, or pass an array that can be written")
    if not one_to_one(shape, operand.strides):
        raise ValueError(
            f"{op}: {name} with shape {shape} and strides {operand.strides} holds several elements at one address "
            "(a broadcast or overlapping view); pass an array with memory of its own"
        )
    for other in (*inputs, *apart):
        itself = other.argument in in_place and other not in apart and same_elements(operand, other)
        if not itself and overlaps(operand, other):
            raise ValueError(
                f"{op}: {name} shares memory with {other.argument}; pass an array apart from it, or omit {name}"
            )
    chosen = stream_for(first.kind, [operand], stream)
    if on_host:
        landing = allocate("numpy", shape, dtype, device, chosen)
        operand.ptr, operand.strides, operand.owner = landing.ptr, landing.strides, landing.owner
    return operand


def _library(kind: Kind) -> str:
    """Who orders the work on an array: a result is to be read by the library in whose order it was written."""
    return {"torch": "torch", "jax": "JAX", "numpy": "NumPy"}.get(kind, "CuPy or its like")


def _host_out(out: np.ndarray[Any, Any], device: int, op: str, name: str) -> Operand:
    """A NumPy `out` before it has memory on the device; its strides are the host's, for the checks."""
    dtype = element_type(out.dtype, op, name, tuple(DTYPES.values()))
    strides = element_strides(0, out.strides, dtype, op, name)
    return Operand(0, out.shape, strides, dtype, device, "numpy", name, out, None, not out.flags.writeable)
