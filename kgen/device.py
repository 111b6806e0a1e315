"""What an operator asks about a device, the executor's included: what to compile for, how much there is of what."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kgen.arch import Arch
from kgen.backend import HOST, gpu
from kgen.errors import ArchError, DeviceError


class Facts(NamedTuple):
    """What decides how a call is cut: multiprocessors, bytes of shared memory that a block may have, architecture."""

    multiprocessors: int
    shared_memory: int
    arch: str


HOST_FACTS = Facts(4, 227 * 1024, "sm_90a")
"""The executor runs Hopper's code, and counts as a few multiprocessors, so that little work is cut into many pieces."""

_host = HOST_FACTS


def stand_for(facts: Facts) -> None:
    """Let the executor's device answer as another from now on: for a process that only asks what would be launched."""
    global _host
    _host = facts
    for answer in (device_arch, multiprocessors, shared_memory):
        answer.cache_clear()


def current_device() -> int:
    """The index of the current device; raises DeviceError, saying why, where there is none."""
    try:
        return int(gpu().cuda.runtime.getDevice())
    except DeviceError:
        raise
    except Exception as error:  # of CUDA's
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
        return Arch.parse(_host.arch)
    import cupy

    text = cupy.cuda.Device(device).compute_capability
    capability = (int(text[:-1]), int(text[-1]))
    if capability < (7, 5):
        raise ArchError(
            f"device {device} has compute capability {text}; 7.5 (Turing) is the oldest that NVRTC compiles for"
        )
    return Arch.of_device(capability)


def has_wgmma(device: int) -> bool:
    """Whether warpgroups multiply there: compute capability 9.0 has it, the executor of its code has not."""
    return (device != HOST or _host is not HOST_FACTS) and device_arch(device)[:2] == (9, 0)


@functools.cache
def multiprocessors(device: int) -> int:
    """How many SMs a device has."""
    return _host.multiprocessors if device == HOST else _attribute("cudaDevAttrMultiProcessorCount", device)


@functools.cache
def shared_memory(device: int) -> int:
    """How many bytes of shared memory a block may ask for."""
    return _host.shared_memory if device == HOST else _attribute("cudaDevAttrMaxSharedMemoryPerBlockOptin", device)


def l2_cache(device: int) -> int:
    """How many bytes the L2 cache of a GPU holds."""
    return _attribute("cudaDevAttrL2CacheSize", device)


def _attribute(name: str, device: int) -> int:
    runtime: Any = gpu().cuda.runtime
    return int(runtime.deviceGetAttribute(getattr(runtime, name), device))
