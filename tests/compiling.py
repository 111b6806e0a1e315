"""What many tests compile is compiled once in a run. The PTX is the same to the byte."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from unittest import mock

from kgen import nvrtc


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
