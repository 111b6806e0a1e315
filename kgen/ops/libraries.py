"""Arrays as a repeated call reads them: whether they are as before, where they lie, new results, at the least cost.

CuPy arrays and torch tensors are read so. Any other kind of array goes the way of a first call every time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from kgen.operand import Ints, contiguous_strides
from kgen.streams import gpu, torch_stream


class Library(Protocol):
    """How the arrays of a library are read.

    kinds     their types
    pointer   a term of Python for where an array begins, with {} for the array
    queue     a term for the current stream of a device, which is the current one, with {} for its number
    stream    what is called so in that term
    current   gives the current device; None where there is but one
    """

    kinds: tuple[type, ...]
    pointer: str
    queue: str
    stream: Callable[[int], Any]
    current: Callable[[], int] | None

    def alike(self, arrays: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """A test of arrays by name, which only those pass that differ from these in no more than where they lie.

        It is a term of Python, and comes with the values of the other names in it.
        """

    def maker(self, shape: Ints, dtype: Any, device: int) -> Callable[[], Any]:
        """What makes contiguous arrays on the device, while it is the current one; the dtype is the library's."""


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
    pointer = "{}.data.ptr"
    queue = "stream({}).ptr"

    def __init__(self, cupy: Any) -> None:
        self.kinds: tuple[type, ...] = (cupy.ndarray,)
        self.stream = cupy.cuda.get_current_stream
        self.current = current_device()

    def alike(self, arrays: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        tests, known = [], {"ndarray": self.kinds[0]}
        for x, array in arrays.items():
            known |= {f"shape_{x}": array.shape, f"strides_{x}": array.strides, f"dtype_{x}": array.dtype}
            # _c_contiguous is what flags.c_contiguous reads, at a sixth of its cost
            layout = f"{x}._c_contiguous" if array._c_contiguous else f"{x}.strides == strides_{x}"
            tests += [f"{x}.__class__ is ndarray", f"{x}.shape == shape_{x}", layout]
            # one and the same object but for dtypes that were unpickled
            tests.append(f"({x}.dtype is dtype_{x} or {x}.dtype.num == {array.dtype.num})")
            if self.current is not None:
                tests.append(f"{x}.data.device_id == {array.data.device_id}")
        return f"({' and '.join(tests)})", known

    def maker(self, shape: Ints, dtype: Any, device: int) -> Callable[[], Any]:
        return functools.partial(self.kinds[0], shape, dtype)


class TorchTensors:
    """Torch tensors that record no gradient."""

    pointer = "{}.data_ptr()"
    queue = "stream({})"

    def __init__(self, torch: Any) -> None:
        self.kinds: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
        self.stream = torch_stream()
        self.current = current_device()
        self._torch = torch
        # With these torch's own compiler tests what its code is called with, and allocates: C++, in a fifth and in half
        # of the time. Where torch has them not, or others, Python does the same.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self._guards = getattr(guards, "TensorGuards", None)
        self._empty = getattr(guards, "_empty_strided_cuda", None)

    def alike(self, arrays: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        test = self._guard(*arrays.values())
        known = {"alike": test, "recording": self._torch.is_grad_enabled}
        alike = f"alike({', '.join(arrays)})"
        return f"({alike} and not recording())" if any(x.requires_grad for x in arrays.values()) else alike, known

    def _guard(self, *tensors: Any) -> Callable[..., bool]:
        """Passes as many different tensors of the types, dtypes, devices, shapes, strides and needs of a gradient."""
        if self._guards is not None:
            try:
                test: Callable[..., bool] = self._guards(
                    *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
                ).check
                return test
            except TypeError:
                self._guards = None
        what = [_read(tensor) for tensor in tensors]

        def guard(*tensors: Any) -> bool:
            try:
                return [_read(tensor) for tensor in tensors] == what
            except (AttributeError, RuntimeError, NotImplementedError):  # no tensor, or one without plain memory
                return False

        return guard

    def maker(self, shape: Ints, dtype: Any, device: int) -> Callable[[], Any]:
        if self._empty is not None:
            return functools.partial(self._empty, shape, contiguous_strides(shape), dtype)
        place = self._torch.device("cuda", device)
        return functools.partial(self._torch.empty, shape, dtype=dtype, device=place)


def _read(x: Any) -> tuple[Any, ...]:
    x.data_ptr()  # raises where there is none
    return type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_neg()


def current_device() -> Callable[[], int] | None:
    """What tells the current device; None where there is but one."""
    runtime = gpu().cuda.runtime
    reader: Callable[[], int] = runtime.getDevice
    return reader if runtime.getDeviceCount() > 1 else None
