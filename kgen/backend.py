"""Where NumPy arrays are computed: on the GPU, where there is one, or by the CPU executor.

A device is an integer: CUDA's ordinal, or HOST for the executor, which runs the same kernels on host memory. Arrays on
a GPU are computed there in any case.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from kgen.config import BACKENDS, ConfigError, config

HOST = -1

_chosen: ContextVar[str | None] = ContextVar("kgen_backend", default=None)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Inside the block NumPy arrays are computed by "gpu", "cpu", or, with "auto", by the GPU where there is one.

    It overrides KGEN_BACKEND, for this thread or task.

    >>> with backend("cpu"):
    ...     device_for_numpy()
    -1
    """
    if name not in BACKENDS:
        raise ConfigError(f"{name!r} is no backend", hint=f"one of {', '.join(BACKENDS)}")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


@dataclass
class Noticed:
    """Host memory that operators were given or took: `arrays`, and those among them that nobody has written yet."""

    arrays: list[Any] = field(default_factory=list)
    fresh: list[Any] = field(default_factory=list)


_noticed: ContextVar[Noticed | None] = ContextVar("kgen_noticed", default=None)


@contextmanager
def noticing() -> Iterator[Noticed]:
    """Inside the block the memory that operators use is listed, for who watches launches on the host."""
    token = _noticed.set(noticed := Noticed())
    try:
        yield noticed
    finally:
        _noticed.reset(token)


def notice(array: Any, *, fresh: bool = False) -> Any:
    """Say of a NumPy array that a launch on the host may use it; a fresh one is filled with NaNs for who watches."""
    noticed = _noticed.get()
    if noticed is not None:
        noticed.arrays.append(array)
        if fresh and array.size:
            array.reshape(-1).view("u1")[...] = 0xFF  # an array of no axes has no other type
            noticed.fresh.append(array)
    return array


def device_for_numpy() -> int:
    """The device that computes NumPy arrays now; with "gpu" on a machine that has none, DeviceError."""
    name = _chosen.get() or config().backend
    if name == "cpu":
        return HOST
    if name == "auto" and not _gpu_usable():
        _say_once()
        return HOST
    from kgen.streams import gpu

    return int(gpu().cuda.runtime.getDevice())


@functools.cache
def _gpu_usable() -> bool:
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


@functools.cache
def _say_once() -> None:
    warnings.warn(
        "kgen finds no GPU here: NumPy arrays are computed by its CPU executor, rightly but slowly "
        "(KGEN_BACKEND=cpu says that this is meant)",
        RuntimeWarning,
        stacklevel=2,
    )
