"""What an operator asks about a device, the executor's included: what to compile for, how much there is of what."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kgen.arch import Arch
from kgen.backend import HOST, gpu
from kgen.errors import ArchError, DeviceError

HOST_MULTIPROCESSORS = 4
"""The executor counts as a few, so that little work is cut into many pieces."""

HOST_SHARED_MEMORY = 227 * 1024
"""Bytes, as on Hopper, whose code the executor runs."""


def current_device() -> int:
    """The index of the current device; raises DeviceError, saying why, where there is none."""
    try:
        return int(gpu().cuda.runtime.getDevice())
    except Exception as error:
        raise DeviceError(f"no GPU can be used here: {error}", hint="kgen doctor says what is missing") from error


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device current, at no cost where it is already."""
    if device == HOST:
        yield
        return
    import cupy

    if cupy.cuda.runtime.getDevice() == device:
        yield
    else:
        with cupy.cuda.Device(device):
            yield


@functools.cache
def device_arch(device: int) -> Arch:
    """What to compile for on a device; raises ArchError for one older than any that NVRTC knows."""
    if device == HOST:
        return Arch.parse("sm_90a")
    import cupy

    text = cupy.cuda.Device(device).compute_capability
    capability = (int(text[:-1]), int(text[-1]))
    if capability < (7, 5):
        raise ArchError(
            f"device {device} has compute capability {text}; 7.5 (Turing) is the oldest that NVRTC compiles for"
        )
    return Arch.of_device(capability)


@functools.cache
def multiprocessors(device: int) -> int:
    """How many SMs a device has."""
    return HOST_MULTIPROCESSORS if device == HOST else _attribute("cudaDevAttrMultiProcessorCount", device)


@functools.cache
def shared_memory(device: int) -> int:
    """How many bytes of shared memory a block may ask for."""
    return HOST_SHARED_MEMORY if device == HOST else _attribute("cudaDevAttrMaxSharedMemoryPerBlockOptin", device)


def l2_cache(device: int) -> int:
    """How many bytes the L2 cache of a GPU holds."""
    return _attribute("cudaDevAttrL2CacheSize", device)


def _attribute(name: str, device: int) -> int:
    runtime: Any = gpu().cuda.runtime
    return int(runtime.deviceGetAttribute(getattr(runtime, name), device))
