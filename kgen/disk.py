"""Folders and files on a disk that may be read-only, full, remote, or about to lose power.

What exists is left as it is: nobody's folder changes its mode, nobody's file is opened to be written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path


def listing(folder: Path) -> Iterator[Path]:
    """What is in a folder, in the order of the names; nothing for one that cannot be read."""
    with suppress(OSError):
        yield from sorted(folder.iterdir(), key=str)


def make(folder: Path, mode: int) -> None:
    """Make a folder and what is missing above it; what exists keeps its mode."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            with suppress(FileExistsError):  # somebody else made it; or it is a file, and the next step will say so
                path.mkdir(mode)


def write_synced(folder: Path, files: Mapping[str, bytes], mode: int) -> None:
    """Write and sync: a power cut may then lose a rename, which is a miss, but not keep the rename of empty files."""
    folder.mkdir(mode)
    for name, data in files.items():
        with open(folder / name, "xb", opener=lambda path, flags: os.open(path, flags, mode & 0o666)) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    with suppress(OSError):  # Windows and some network disks cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        with suppress(OSError):
            os.fsync(descriptor)
        os.close(descriptor)
