"""Where the compiler, NVRTC, and the CUDA headers are: in pip's wheels, or in a toolkit that the machine has."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from kgen.errors import ToolchainError

INSTALL = "pip install 'kgen[cuda13]' (or cuda12) brings CuPy, NVRTC and the CUDA headers; no toolkit, no GPU is needed"
_WHEELS = {"cupy-cuda13x": "nvidia-cuda-nvrtc", "cupy-cuda12x": "nvidia-cuda-nvrtc-cu12"}
_loading = threading.Lock()


def nvrtc() -> Any:
    """CuPy's binding of NVRTC, with the library open; raises ToolchainError where there is none."""
    with _loading:
        try:
            from cupy.cuda import nvrtc

            open_library()
            nvrtc.getVersion()  # loads the library, where it is in no wheel
        except Exception as error:
            raise ToolchainError(f"NVRTC, the compiler, cannot be loaded: {error}", hint=INSTALL) from error
        return nvrtc


def wheel_version() -> str | None:
    """The version of the wheel that CuPy takes NVRTC from, or None; nothing is loaded to tell."""
    return next((version for cupy, wheel in _WHEELS.items() if _version(cupy) and (version := _version(wheel))), None)


@functools.cache
def major_version() -> int | None:
    """Of the CUDA that CuPy's wheel is for, whose drivers load cubins of any compiler of that version; or None."""
    return next((int(cupy[-3:-1]) for cupy in _WHEELS if _version(cupy)), None)


@functools.cache
def open_library() -> None:
    """Open the wheel's library, 140 MB, where CuPy will find it open: CuPy would let no other thread run meanwhile."""
    if os.name != "posix":
        return
    for cupy_wheel, nvrtc_wheel in _WHEELS.items():
        with suppress(metadata.PackageNotFoundError):
            files = (metadata.files(nvrtc_wheel) or []) if _version(cupy_wheel) else []
            for file in files:
                if file.name.startswith("libnvrtc.so"):
                    ctypes.CDLL(None).dlopen(os.fsencode(file.locate()), os.RTLD_NOW)  # ctypes lets others run


@functools.cache
def header_folder() -> Path:
    """The folder of `cuda_fp16.h` and its like; raises ToolchainError where they are not installed."""
    try:
        from cuda import pathfinder

        found = pathfinder.find_nvidia_header_directory("cudart")
    except ImportError:
        found = None
    if found is None:
        raise ToolchainError("the CUDA headers (cuda_fp16.h) are not installed", hint=INSTALL)
    return Path(found)


def header_digest(names: Sequence[str]) -> str:
    """A hash of some of the CUDA headers, `cuda_fp16.h`, each with the `.hpp` that goes with it."""
    files = [header_folder() / name for name in names]
    return ",".join(_file_digest(file) for header in files for file in (header, header.with_suffix(".hpp")))


@functools.cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
