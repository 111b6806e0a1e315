"""The driver's cuLaunchKernelEx, which CuPy does not bind: a launch with attributes, in no more time than CuPy's.

An attribute lets a kernel begin while the one before it in its stream ends, from Hopper on: programmatic dependent
launch. It saves 1.3 to 2 us of each launch that follows another. The kernel waits itself until what was written before
it is there (`common/after_previous.cuh.j2`), so only kernels that do may be launched so.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from kgen.backend import gpu

IN_GRAPHS = 12030
"""The oldest driver that captures such launches."""
_COOPERATIVE, _OVERLAP = 2, 6  # CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a value that is an int: the first of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_uint64 * 8))


class Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("number_of_attributes", ctypes.c_uint),
    )


def configuration(
    blocks: int, threads: int, smem: int, *, cooperative: bool = False, overlaps: bool = False
) -> Configuration:
    """A launch of so many blocks of so many threads, with so many bytes of dynamic shared memory."""
    ids = [_COOPERATIVE] * cooperative + [_OVERLAP] * overlaps
    attributes = (_Attribute * len(ids))(*(_Attribute(of, (1,)) for of in ids))
    grid, block = (blocks, 1, 1), (threads, 1, 1)
    return Configuration(grid, block, smem, None, attributes, len(ids))


@functools.cache
def library() -> ctypes.CDLL:
    """The driver's own library; OSError where there is none."""
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def launch(configuration: Configuration, function: int, addresses: Any) -> tuple[Any, Callable[[], int]]:
    """A launch that can be repeated: its stream, whose `value` is to be set, and a function that makes it; a CUresult.

    The arguments are converted here, once, and not by ctypes in every call, which saves 0.2 to 0.3 us.
    """
    stream = ctypes.c_void_p.from_buffer(configuration, Configuration.stream.offset)
    start = library().cuLaunchKernelEx
    return stream, functools.partial(
        start, ctypes.byref(configuration), ctypes.c_void_p.from_param(function), ctypes.byref(addresses), None
    )


@functools.cache
def captures_overlaps() -> bool:
    """Whether the driver takes a launch that overlaps, in a CUDA graph, too."""
    version: Any = gpu().cuda.runtime.driverGetVersion()
    return int(version) >= IN_GRAPHS
