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
from typing import Any

from kgen.config import BACKENDS, ConfigError, config
from kgen.errors import DeviceError
from kgen.notice import notice as notice  # beside HOST, for who allocates there

HOST = -1

_chosen: ContextVar[str | None] = ContextVar("kgen_backend", default=None)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Inside the block, NumPy arrays are computed on the "gpu" or the "cpu"; "auto" means the GPU if there is one.

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


def device_for_numpy(*, quiet: bool = False) -> int:
    """The device that computes NumPy arrays now; with "gpu" on a machine that has none, DeviceError.

    Where nobody chose the executor it says so once, in a warning, unless `quiet`.
    """
    name = _chosen.get() or config().backend
    if name == "cpu":
        return HOST
    if name == "auto" and not _gpu_usable():
        if not quiet:
            _say_once()
        return HOST
    return int(gpu().cuda.runtime.getDevice())


@functools.cache
def cupy() -> Any:
    """The CuPy module, imported on first use: it takes 0.4 s, and listing or rendering kernels does not need it."""
    try:
        import cupy
    except ImportError as error:
        hint = "pip install 'kgen[cuda13]', or kgen[cuda12] for an older driver"
        raise DeviceError(f"operators need CuPy ({error})", hint=hint) from None
    return cupy


@functools.cache
def gpu() -> Any:
    """The CuPy module, on a machine that has a GPU."""
    module = cupy()
    if not module.cuda.is_available():
        raise DeviceError(
            "no NVIDIA GPU is usable here",
            hint="check the driver with nvidia-smi; the CPU executor computes NumPy arrays without one "
            "(KGEN_BACKEND=cpu, or auto)",
        )
    return module


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
