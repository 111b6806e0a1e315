"""What many tests compile is compiled once in a run. The PTX is the same to the byte."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

from kgen import nvrtc


@contextmanager
def ptx_once(kept: Path) -> Iterator[None]:
    """PTX of a text is kept in a folder for all processes of a run: with checks, without, or to be counted.

    NVRTC has it, too, of a kernel that it compiles to a cubin for Hopper, and most of the work is the same. A process
    parses CUDA's headers for the first text that includes them, which is half of the time of a small kernel.
    """
    ask = nvrtc._nvrtc_call
    kept.mkdir(exist_ok=True)

    def path_of(text: str, name: str, options: tuple[str, ...]) -> Path:
        return kept / sha256("\0".join((nvrtc.compiler_id(), text, name, *options)).encode()).hexdigest()

    def keep(path: Path, made: bytes) -> None:
        aside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        aside.write_bytes(made)
        aside.rename(path)

    def remembered(text: str, name: str, options: tuple[str, ...], *results: str) -> tuple[Any, ...]:
        if results == ("getCUBIN",) and {*OF_A_CUBIN} <= {*options}:
            cubin, ptx, log = ask(text, name, options, "getCUBIN", "getPTX")
            keep(path_of(text, name, of_its_ptx(options)), ptx)
            return cubin, log
        if results != ("getPTX",) or not text:
            return ask(text, name, options, *results)
        path = path_of(text, name, options)
        with suppress(FileNotFoundError):
            return path.read_bytes(), ""
        parsed = "#include <" in text and threading.current_thread() is threading.main_thread()
        made, log = ask(text, name, (*options, "--pch") if parsed else options, *results)
        keep(path, made)
        return made, log

    with mock.patch.object(nvrtc, "_nvrtc_call", remembered):
        yield


LINED = nvrtc.Flags(lineinfo=True)
"""What tests compile default kernels with, so that the executor's PTX comes of it."""
OF_A_CUBIN = ("--gpu-architecture=sm_90a", "--generate-line-info")
"""Beside such a cubin lies the PTX that the executor runs."""


def of_its_ptx(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(option.replace("=sm_", "=compute_") for option in options if "ptxas" not in option)
