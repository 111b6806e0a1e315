"""Compiled kernels on disk, under a key that is a hash of everything that decides their bytes.

The invariant: a folder that can be seen is whole. An entry is written and synced aside, appears by one rename and goes
by one rename. So there are no locks, nothing to repair after a crash, nothing lost by who loses a race. Checksums show
what a disk does later: a load gives the bytes that were published, or None. The state of the disk never raises.

    <root>/v1/sm_90a/softmax_e128_w4_f16-3f9c1a2b7d04/   kernel.cu  kernel.cubin  meta.json
    <root>/v1/tmp/<pid>-<random>/                        being written, or being removed
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from kgen.disk import listing, make, write_synced
from kgen.errors import CacheWarning

SCHEMA = 1
SOURCE, CUBIN, META = "kernel.cu", "kernel.cubin", "meta.json"
# Arch (of a GPU, or of the host for the CPU executor), name, key: none can leave its folder.
_PLACE = r"(sm_[0-9]{2,3}[a-z]?|host_[a-z0-9_]{1,30})/([A-Za-z0-9_]{1,200})-([0-9a-f]{12})"
_HOUR_SECONDS = 3600  # a last use is recorded to the hour, so a hot load writes nothing; older staging is a leftover

# What reading a damaged entry raises. Any other OSError (no permission, a stale handle) proves nothing against it.
_DAMAGE = (ValueError, KeyError, TypeError, RecursionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)
_warned: set[Path] = set()


def content_key(**fields: str | bytes | Sequence[str]) -> str:
    """The sha256 of labelled values, in whatever order they are given."""
    digest = sha256(b"kgen %d\n" % SCHEMA)
    for label, value in sorted(fields.items()):
        kind = "bytes" if isinstance(value, bytes) else "str" if isinstance(value, str) else "list"
        parts = value if kind == "list" else [value]
        # A length before each part, or ["ab", "c"] would meet ["a", "bc"], and a flag the end of the field before it.
        for part in (label, kind, str(len(parts)), *parts):
            data = part if isinstance(part, bytes) else str.encode(part)
            digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()


@dataclass(frozen=True)
class Entry:
    """One compiled kernel; `path` is its folder, None when it could not be written."""

    name: str
    arch: str
    key: str
    source: str = field(repr=False)
    cubin: bytes = field(repr=False)
    meta: Mapping[str, Any] = field(repr=False)
    path: Path | None


class Record(NamedTuple):
    """What a listing tells of an entry without reading it; `key` is cut to what the folder's name has of it."""

    name: str
    arch: str
    key: str
    bytes: int
    used: float  # seconds since 1970, exact to the hour
    path: Path


class Store:
    """The entries below a folder, which need not exist; over `limit_bytes` the least recently used are dropped.

    What is written is for us alone, or for whom the umask lets read it where the store is not `private`.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None, *, private: bool = True) -> None:
        self.root, self.limit_bytes, self._top = root, limit_bytes, root / f"v{SCHEMA}"
        self._mode = 0o700 if private else 0o777
        self._total: int | None = None  # bytes in the store as far as we know; None: count at the next publish

    def read(self, name: str, arch: str, key: str) -> Entry | None:
        """The entry as it was published, or None; changes nothing on the disk."""
        entry = self.read_folder(self._path(name, arch, key))
        # Another key may be alike in the digits that the folder's name has of it.
        return entry if entry is not None and entry.key == key else None

    def load(self, name: str, arch: str, key: str) -> Entry | None:
        """What `read` finds, which counts as used; a damaged entry is removed, with one warning."""
        path, entry = self._path(name, arch, key), self.read(name, arch, key)
        if entry is None:
            if problem := self._problem(path):
                self._discard(path)
                _warn_once(path, f"dropped the damaged cache entry {path}: {problem}")
            return None
        with suppress(OSError):  # a read-only cache is as good to load from
            if not 0 <= time.time() - (path / META).stat().st_mtime < _HOUR_SECONDS:
                os.utime(path / META)
        return entry

    def named(self, name: str, arch: str) -> Iterator[Path]:
        """The folders of all entries of a name."""
        for path in listing(self._top / arch):
            if path.name.rpartition("-")[0] == name:
                yield path

    def read_folder(self, path: Path) -> Entry | None:
        """The entry in a folder that `named` gave, or None."""
        try:
            return self._read(path)
        except (*_DAMAGE, OSError, MemoryError):
            return None

    def publish(self, name: str, arch: str, key: str, source: str, cubin: bytes, meta: Mapping[str, Any]) -> Entry:
        """Write an entry if the disk lets us. What returns holds the bytes given, never those of who was faster."""
        path, text = self._path(name, arch, key), source.encode()
        own = {"schema": SCHEMA, "name": name, "arch": arch, "key": key, "cubin_bytes": len(cubin)}
        own |= {"source_sha256": sha256(text).hexdigest(), "cubin_sha256": sha256(cubin).hexdigest()}
        # Through JSON and back, so that who publishes and who loads see the same (a tuple is a list).
        facts = json.loads(json.dumps({**own, **meta, **own}, allow_nan=False))
        facts.pop("seal", None)
        entry = Entry(name, arch, key, source, cubin, facts, path)
        seal = content_key(place=path.parts[-2:], meta=json.dumps(facts, sort_keys=True))
        sealed = json.dumps({**facts, "seal": seal}, indent=2).encode()
        self._sweep()
        try:
            with self._aside() as aside:
                make(path.parent, self._mode)
                write_synced(aside / path.name, {SOURCE: text, CUBIN: cubin, META: sealed}, self._mode)
                (aside / path.name).rename(path)
        except OSError as problem:
            if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):  # somebody was faster: all is well
                return entry
            _warn_once(self.root, f"kernels are not kept in {self.root} ({problem.strerror}); set KGEN_CACHE_DIR")
            return replace(entry, path=None)
        if self.limit_bytes is not None:
            self._make_room(self.limit_bytes, path, len(text) + len(cubin) + len(sealed))
        return entry

    def entries(self) -> list[Record]:
        """All entries, by arch and name."""
        now, records = time.time(), []
        for path in [path for folder in listing(self._top) for path in listing(folder)]:
            with suppress(OSError):  # it may be gone since it was listed
                if match := re.fullmatch(_PLACE, f"{path.parent.name}/{path.name}"):
                    stats = {file.name: file.lstat() for file in path.iterdir()}
                    # A clock that jumped must not keep an entry for ever; one without meta.json is the first to go.
                    used = min(stats[META].st_mtime, now) if META in stats else 0.0
                    size = sum(status.st_size for status in stats.values())
                    records.append(Record(match[2], match[1], match[3], size, used, path))
        return records

    def verify(self) -> list[tuple[Record, str]]:
        """The damaged entries, each with what is wrong; removes nothing."""
        return [(record, problem) for record in self.entries() if (problem := self._problem(record.path))]

    def trim(self, limit_bytes: int, keep: Path | None = None) -> list[Record]:
        """Remove what was unused for longest until the rest fits, sparing the folder `keep`; returns the removed."""
        records = sorted(self.entries(), key=lambda record: record.used)
        total, removed = sum(record.bytes for record in records), []
        for record in records:
            if total > limit_bytes and record.path != keep and self._discard(record.path):
                removed.append(record)
                total -= record.bytes
        return removed

    def clear(self) -> list[Record]:
        """Remove every entry; returns the removed."""
        return [record for record in self.entries() if self._discard(record.path)]

    def info(self) -> dict[str, Any]:
        sizes = [record.bytes for record in self.entries()]
        return {"path": str(self.root), "entries": len(sizes), "bytes": sum(sizes), "limit_bytes": self.limit_bytes}

    def _path(self, name: str, arch: str, key: str) -> Path:
        if not re.fullmatch(_PLACE + "[0-9a-f]{52}", f"{arch}/{name}-{key}"):
            raise ValueError(f"not the name, arch and key of a cache entry: {name!r}, {arch!r}, {key!r}")
        return self._top / arch / f"{name}-{key[:12]}"

    def _read(self, path: Path) -> Entry:
        """The entry in this folder, proven to the last byte; raises one of _DAMAGE, or what kept us from reading."""
        facts = dict(json.loads((path / META).read_bytes()))
        # Sealed, with its place: or a flipped bit in the symbol, or another kernel's folder, would be believed.
        if facts.pop("seal") != content_key(place=path.parts[-2:], meta=json.dumps(facts, sort_keys=True)):
            raise ValueError(f"{META} is not what was written here")
        text, cubin = (path / SOURCE).read_bytes(), (path / CUBIN).read_bytes()
        if [sha256(data).hexdigest() for data in (text, cubin)] != [facts["source_sha256"], facts["cubin_sha256"]]:
            raise ValueError(f"{SOURCE} or {CUBIN} is not what was written")
        return Entry(facts["name"], facts["arch"], facts["key"], text.decode(), cubin, facts, path)

    def _problem(self, path: Path) -> str | None:
        """What is damaged in this folder; None when nothing is, or nobody can say."""
        with suppress(OSError, MemoryError):
            before = path.lstat()
            try:
                self._read(path)
            except _DAMAGE as problem:
                after = path.lstat()  # another folder by now? Then we read some of each, and neither need be damaged
                if (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns):
                    return repr(problem)
        return None

    def _make_room(self, limit_bytes: int, path: Path, size: int) -> None:
        # Walking a full cache can cost more than a compile: count once, then add, and free an eighth at a time.
        self._total = self.info()["bytes"] if self._total is None else self._total + size
        if self._total > limit_bytes:
            self.trim(limit_bytes - limit_bytes // 8, keep=path)
            self._total = None

    @contextmanager
    def _aside(self) -> Iterator[Path]:
        """A folder that nobody looks into, a rename away from the entries; removed in the end with all it holds."""
        make(self._top / "tmp", self._mode)
        folder = mkdtemp(prefix=f"{os.getpid()}-", dir=self._top / "tmp")
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _discard(self, path: Path) -> bool:
        """Out of sight by one rename, and only then removed: nobody sees half of it."""
        with suppress(OSError), self._aside() as aside:  # somebody else removed it, or the disk is read-only
            path.rename(aside / path.name)
            return True
        return False

    def _sweep(self) -> None:
        for path in listing(self._top / "tmp"):
            with suppress(OSError):
                if abs(time.time() - path.lstat().st_mtime) > _HOUR_SECONDS:  # either sign: clocks are set back, too
                    self._discard(path)  # not just removed: a writer that only slept would publish what remains of it


def _warn_once(subject: Path, message: str) -> None:
    if subject not in _warned:
        _warned.add(subject)
        warnings.warn(message, CacheWarning, stacklevel=3)
