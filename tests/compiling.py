"""What many tests compile is compiled once in a run: PTX of a text, and the headers of kernels and of CUDA.

Nothing else changes: the PTX is the same to the byte, and g++ takes a precompiled header only where its flags agree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from unittest import mock

from kgen import nvrtc
from kgen.cpu import compiler
from kgen.errors import ToolchainError


@contextmanager
def ptx_once(kept: Path) -> Iterator[None]:
    """PTX of a text is kept in a folder for all processes of a run: with checks, without, or to be counted.

    A process parses CUDA's headers for the first text that includes them, which is half of the time of a small kernel.
    """
    ask = nvrtc._nvrtc_call
    kept.mkdir(exist_ok=True)

    def remembered(text: str, name: str, options: tuple[str, ...], result: str) -> tuple[bytes, str]:
        if result != "getPTX" or not text:
            return ask(text, name, options, result)
        path = kept / sha256("\0".join((nvrtc.compiler_id(), text, name, *options)).encode()).hexdigest()
        with suppress(FileNotFoundError):
            return path.read_bytes(), ""
        parsed = "#include <" in text and threading.current_thread() is threading.main_thread()
        made, log = ask(text, name, (*options, "--pch") if parsed else options, result)
        aside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        aside.write_bytes(made)
        aside.rename(path)
        return made, log

    with mock.patch.object(nvrtc, "_nvrtc_call", remembered):
        yield


@contextmanager
def headers_precompiled(folder: Path) -> Iterator[None]:
    """g++ finds the headers of kernels in a folder for all processes of a run, parsed with and without checks.

    That takes 20 ms less for each library, a fifth of a small one.
    """
    with suppress(ToolchainError):
        if "clang" not in compiler._version() and not folder.exists():
            _precompile(folder)
    with mock.patch.object(compiler, "RUNTIME", folder if folder.exists() else compiler.RUNTIME):
        yield


def _precompile(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.copytree(compiler.RUNTIME, aside)
    header, parsed = aside / "kernel.h", aside / "kernel.h.gch"
    parsed.mkdir()
    every = aside / "every.h"
    every.write_text("".join(f'#include "{path.relative_to(aside)}"\n' for path in (header, *aside.glob("ops/*.h"))))
    for defines in ((), ("-DKG_CHECKED",)):
        command = [*compiler.compiler(), *compiler.flags(), *defines, f"-I{aside}", "-x", "c++-header", str(every)]
        subprocess.run([*command, "-o", str(parsed / ("checked" if defines else "plain"))], check=True)
    with suppress(OSError):  # another process was faster
        aside.rename(folder)
