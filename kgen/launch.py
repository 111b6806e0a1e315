"""Built -> callable: loads a cubin onto a device once, and launches it.

A loaded kernel stays loaded for the life of the process: a CUDA graph or another thread may hold it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kgen.arch import Arch
from kgen.build import build
from kgen.errors import ArchError, CaptureError, DeviceError
from kgen.spec import Spec

_MAX_DYNAMIC_SMEM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_LIMIT = 48 * 1024  # bytes of shared memory that a launch gets without asking


class Launcher:
    """One specialization on one device.

    Called with a grid, the kernel's arguments and a stream pointer. Pointers and `long long` arguments are Python ints,
    `int` arguments numpy.int32, `float` numpy.float32: CuPy passes each with the width of its type.
    """

    __slots__ = ("block", "function", "module", "smem", "spec")

    def __init__(self, spec: Spec, cubin: bytes) -> None:
        from cupy.cuda import driver
        from cupy.cuda.function import Module

        self.spec = spec
        self.module = Module()
        # From the bytes that were verified, not from the file: nobody can change them in between.
        self.module.load(cubin)
        self.function = self.module.get_function(spec.symbol)
        self.block = (spec.threads, 1, 1)
        self.smem = spec.dynamic_smem
        if self.smem + spec.static_smem > _STATIC_LIMIT:
            driver.funcSetAttribute(self.function.ptr, _MAX_DYNAMIC_SMEM, self.smem)

    def __call__(self, grid: tuple[int, ...], args: Sequence[Any], stream: int | None = None) -> None:
        """Launch asynchronously on a stream (a cudaStream_t; None: CuPy's current one); no entry of `grid` may be 0."""
        self.function(grid, self.block, args, self.smem, None if stream is None else _Stream(stream))


class _Stream:
    """What CuPy's launch asks of a stream."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


_launchers: dict[tuple[Spec, int], Launcher] = {}
_loading = threading.Lock()


def load(spec: Spec, device: int | None = None) -> Launcher:
    """The launcher of a specialization on a device (default: the current one), compiling and loading at the first call.

    Raises CaptureError when that first call comes while a CUDA graph is being captured, DeviceError where there is no
    GPU or the driver refuses the cubin, and what `kgen.build` raises.
    """
    import cupy

    if device is None:
        device = current_device()
    found = _launchers.get((spec, device))
    if found is not None:
        return found
    if cupy.cuda.get_current_stream().is_capturing():
        raise CaptureError(
            f"{spec.name} is not loaded yet, and a CUDA graph is being captured",
            hint="call the operator once on arrays of the same kind before the capture",
        )
    # The build runs outside the lock, so that several threads compile different kernels side by side.
    arch = device_arch(device)
    built = build(spec, arch)
    with _loading, cupy.cuda.Device(device):
        if (spec, device) not in _launchers:
            try:
                _launchers[spec, device] = Launcher(spec, built.cubin)
            except cupy.cuda.driver.CUDADriverError as error:
                raise DeviceError(
                    f"device {device} refuses {spec.name} for {arch}: {error}",
                    hint=f"built by {built.compiler}; a driver older than that compiler cannot load its cubins: "
                    "update the driver, or install an older nvidia-cuda-nvrtc",
                ) from error
        return _launchers[spec, device]


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device current, at no cost where it is already."""
    import cupy

    if cupy.cuda.runtime.getDevice() == device:
        yield
    else:
        with cupy.cuda.Device(device):
            yield


def device_arch(device: int) -> Arch:
    """What to compile for on a device; raises ArchError for one older than any that NVRTC knows."""
    import cupy

    text = cupy.cuda.Device(device).compute_capability
    capability = (int(text[:-1]), int(text[-1]))
    if capability < (7, 5):
        raise ArchError(
            f"device {device} has compute capability {text}; 7.5 (Turing) is the oldest that NVRTC compiles for"
        )
    return Arch.of_device(capability)


def current_device() -> int:
    """The index of the current device; raises DeviceError, saying why, where there is none."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDevice())
    except Exception as error:
        raise DeviceError(f"no GPU can be used here: {error}", hint="kgen doctor says what is missing") from error
