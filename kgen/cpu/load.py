"""Entries of the store that are libraries of this machine -> libraries in this process."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from kgen.store import Entry

_loading = threading.Lock()
_loaded: dict[str, ctypes.CDLL] = {}


def loaded(entry: Entry) -> ctypes.CDLL:
    """The library of an entry, which is opened once; its folder may be gone since it was read."""
    with _loading:
        if entry.key not in _loaded:
            _loaded[entry.key] = _from_its_folder(entry) or _from_its_bytes(entry)
        return _loaded[entry.key]


def _from_its_folder(entry: Entry) -> ctypes.CDLL | None:
    if entry.path is not None:
        with suppress(OSError):
            return _opened(entry.path / "kernel.cubin")
    return None


def _from_its_bytes(entry: Entry) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        Path(file.name).write_bytes(entry.cubin)
        return _opened(Path(file.name))


def _opened(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)


def address(library: ctypes.CDLL, name: str) -> int:
    """Where a function or variable of a library lies."""
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found is not None
    return found
