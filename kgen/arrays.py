"""Turns what a caller holds into the operand of a kernel: a pointer with shape, strides, element type and device.

CuPy and torch arrays are read by their own attributes, which takes about a microsecond; everything else comes through
`__cuda_array_interface__` or DLPack. No GPU array is copied here. NumPy arrays are copied to the device, as a
convenience, or read in place by the CPU executor (`kgen.backend`). Results go back through `kgen.results`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from kgen.backend import HOST, device_for_numpy
from kgen.dtypes import FLOATS, FP8, DType, dtype_of, listed
from kgen.notice import notice
from kgen.operand import Ints, Kind, Operand, contiguous_strides, elements
from kgen.streams import current_stream, gpu, stream_pointer

Dtypes = tuple[DType, ...]


def adopt(x: Any, op: str, argument: str, takes: Dtypes = FLOATS) -> Operand:
    """The operand behind `x`; TypeError names the operator, the argument, what came and what is taken."""
    try:
        adopter = _ADOPTERS[type(x)]
    except KeyError:
        adopter = _adopter(x, op, argument, takes)
    return adopter(x, op, argument, takes)


# How each kind of array is read. --------------------------------------------------------------------------------------


def _cupy(x: Any, op: str, argument: str, takes: Dtypes) -> Operand:
    dtype = element_type(x.dtype, op, argument, takes)
    data = x.data
    ptr = data.ptr
    strides = element_strides(ptr, x.strides, dtype, op, argument)
    return Operand(ptr, x.shape, strides, dtype, data.device_id, "cupy", argument, x, x)


def _torch(x: Any, op: str, argument: str, takes: Dtypes) -> Operand:
    if not x.is_cuda:
        raise TypeError(
            f"{op}: {argument} is a torch tensor on {x.device}; move it to the GPU with .cuda(), "
            "or pass .numpy() to have it copied there and the result back"
        )
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"{op}: {argument} requires grad, which kgen.autograd records and kgen does not; "
            f"call kgen.autograd.{op} if that is there, pass {argument}.detach(), or call under torch.no_grad()"
        )
    dtype = element_type(x.dtype, op, argument, takes)
    try:
        ptr, strides = x.data_ptr(), x.stride()
        if x.is_neg():
            raise NotImplementedError("it is negated only when it is read; call .resolve_neg()")
    except (RuntimeError, NotImplementedError) as error:  # sparse, quantized, fake tensors
        raise TypeError(f"{op}: {argument} is a torch tensor without plain strided memory: {error}") from None
    return Operand(ptr, tuple(x.shape), strides, dtype, x.get_device(), "torch", argument, x, x)


def _host(x: np.ndarray[Any, Any], op: str, argument: str, takes: Dtypes) -> Operand:
    dtype = element_type(x.dtype, op, argument, takes)
    ptr = notice(x).__array_interface__["data"][0]
    strides = element_strides(ptr, x.strides, dtype, op, argument)
    return Operand(ptr, x.shape, strides, dtype, HOST, "numpy", argument, x, x, not x.flags.writeable)


def _numpy(x: np.ndarray[Any, Any], op: str, argument: str, takes: Dtypes) -> Operand:
    if device_for_numpy() == HOST:
        return _host(x, op, argument, takes)
    dtype = element_type(x.dtype, op, argument, takes)  # before the copy
    cupy = gpu()
    # CuPy copies no 8-bit floats, but sees bytes as such.
    copy = cupy.asarray(x.view(np.uint8), order="C").view(x.dtype) if dtype in FP8 else cupy.asarray(x, order="C")
    operand = _cupy(copy, op, argument, takes)
    operand.kind, operand.array, operand.readonly = "numpy", x, not x.flags.writeable
    operand.ready = current_stream("numpy", operand.device)
    return operand


def _dlpack(x: Any, op: str, argument: str, takes: Dtypes, kind: Kind = "dlpack", readonly: bool = False) -> Operand:
    try:
        device_type = int(x.__dlpack_device__()[0])
    except (AttributeError, TypeError) as error:
        what = f"{op}: {argument} is a {_name(x)} with a malformed __dlpack_device__"
        raise TypeError(f"{what}: {type(error).__name__}: {error}") from None
    if device_type not in (2, 13):  # kDLCUDA, kDLCUDAManaged
        raise TypeError(
            f"{op}: {argument} is a {_name(x)} that is not on a CUDA GPU (DLPack device type {device_type}); "
            "move it there, or pass a NumPy array to have it copied"
        )
    try:
        view = gpu().from_dlpack(x)  # the producer makes CuPy's current stream wait for the contents
    except (BufferError, TypeError, ValueError) as error:
        raise TypeError(f"{op}: {argument} is a {_name(x)} that DLPack cannot hand over: {error}") from error
    operand = _cupy(view, op, argument, takes)
    operand.kind, operand.array, operand.readonly = kind, x, readonly
    operand.ready = current_stream(kind, operand.device)
    return operand


def _jax(x: Any, op: str, argument: str, takes: Dtypes) -> Operand:
    return _dlpack(x, op, argument, takes, "jax", readonly=True)


def _cai(x: Any, op: str, argument: str, takes: Dtypes) -> Operand:
    interface = x.__cuda_array_interface__
    try:
        key: Any = np.dtype(interface["typestr"])
        (ptr, readonly), shape, strides = interface["data"], tuple(interface["shape"]), interface.get("strides")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"{op}: {argument} has a malformed __cuda_array_interface__"
        raise TypeError(f"{what}: {type(error).__name__}: {error}") from None
    if key.kind == "V":  # bfloat16 and plain bytes share a type string
        key = getattr(x, "dtype", None)
        if key is None and hasattr(x, "__dlpack__"):
            return _dlpack(x, op, argument, takes)
        if key is None:
            raise TypeError(
                f"{op}: {argument} has the type string {interface['typestr']!r}, which may be bfloat16 or plain bytes; "
                "give the object a dtype attribute, or __dlpack__"
            )
    dtype = element_type(key, op, argument, takes)
    if interface.get("mask") is not None:
        raise TypeError(f"{op}: {argument} is a masked array; fill it first")
    ptr = 0 if 0 in shape else int(ptr or 0)
    if not ptr and 0 not in shape:
        raise ValueError(f"{op}: {argument} has shape {shape} and a null pointer")
    if strides is not None:
        strides = element_strides(ptr, tuple(strides), dtype, op, argument)
    ready = interface.get("stream")
    if ready == 0:
        raise ValueError(
            f"{op}: {argument} names stream 0, which __cuda_array_interface__ forbids as ambiguous; "
            "1 is the legacy default stream, 2 the per-thread one"
        )
    return Operand(
        ptr,
        shape,
        contiguous_strides(shape) if strides is None else strides,
        dtype,
        _device_of(ptr, op, argument),
        "cai",
        argument,
        x,
        x,
        readonly=bool(readonly),
        ready=None if ready is None else stream_pointer(ready),
    )


def _device_of(ptr: int, op: str, argument: str) -> int:
    runtime = gpu().cuda.runtime
    device: int = runtime.pointerGetAttributes(ptr).device if ptr else runtime.getDevice()
    if device < 0:
        raise TypeError(f"{op}: {argument} points to memory that is no GPU's")
    return device


def element_type(key: Any, op: str, argument: str, takes: Dtypes) -> DType:
    """The `DType` of a NumPy or torch dtype; TypeError where the operator does not take it."""
    dtype = _DTYPES.get(key)
    if dtype is None and getattr(key, "isnative", True):  # or it is byte-swapped
        with suppress(ValueError):
            dtype = _DTYPES.setdefault(key, dtype_of(key))
    if dtype is None or dtype not in takes:
        raise TypeError(f"{op}: {argument} has dtype {key}; it takes {listed(takes)}{_conversion(key, dtype, takes)}")
    return dtype


def _conversion(key: Any, known: DType | None, takes: Dtypes) -> str:
    """How numbers of another dtype become some that are taken, in words; nothing where what they mean would be lost."""
    if known is None and getattr(key, "kind", "f") not in "iufO":
        return ""  # complex numbers, times, texts, records
    if str(key).startswith("torch."):
        return "" if getattr(key, "is_complex", False) else f" (convert with .to(torch.{takes[0].numpy_name}))"
    # The same one where it came with its bytes swapped.
    target = next((dtype for dtype in takes if dtype.numpy_name == key.name), takes[0])
    return f" (convert with .astype({target.numpy_name!r}))"


def _adopter(x: Any, op: str, argument: str, takes: Dtypes) -> Callable[[Any, str, str, Dtypes], Operand]:
    """The reader for a type of array; known by name, so that no library is imported which the caller does not use."""
    cls = type(x)
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in cls.__mro__}
    if "numpy.MaskedArray" in names:
        raise TypeError(f"{op}: {argument} is a masked array; fill it first")
    if "jax.Tracer" in names:
        raise TypeError(f"{op}: {argument} is being traced by JAX; call it outside jit, grad and vmap")
    for name, adopter in _BY_NAME.items():
        if name in names:
            return _ADOPTERS.setdefault(cls, adopter)
    if hasattr(x, "__cuda_array_interface__"):
        return _cai
    if hasattr(x, "__dlpack__"):
        return _dlpack
    return _refuse


def _refuse(x: Any, op: str, argument: str, takes: Dtypes) -> NoReturn:
    raise TypeError(
        f"{op}: {argument} is a {_name(x)}; it takes an array of {listed(takes)}: NumPy, CuPy, torch, JAX, "
        "or any object with __cuda_array_interface__ or __dlpack__"
    )


def element_strides(ptr: int, byte_strides: Ints, dtype: DType, op: str, argument: str) -> Ints:
    """Strides in elements; ValueError where elements are not at multiples of their size, as the GPU needs them."""
    itemsize = dtype.itemsize
    try:
        if ptr % itemsize:
            raise ValueError(f"its first element is not at a multiple of the element size, {itemsize}")
        return elements(byte_strides, itemsize)
    except ValueError as error:
        raise ValueError(f"{op}: {argument} has a layout that no kernel takes: {error}; pass a copy") from None


def _name(x: Any) -> str:
    cls = type(x)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


_BY_NAME: dict[str, Callable[[Any, str, str, Dtypes], Operand]] = {
    "cupy.ndarray": _cupy,
    "torch.Tensor": _torch,
    "numpy.ndarray": _numpy,
    "jax.Array": _jax,
    "jaxlib.ArrayImpl": _jax,  # before jax.Array became its base
}
_ADOPTERS: dict[type, Callable[[Any, str, str, Dtypes], Operand]] = {}
_DTYPES: dict[Any, DType] = {}  # by NumPy or torch dtype object, never by type string
