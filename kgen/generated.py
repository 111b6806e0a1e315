"""generated/: the text of every chosen kernel and a manifest of them, the same bytes on every machine.

Only what rendering decides is written down here, nothing that a compiler says, so `drift` needs no compiler and finds
the same with any version of it. Cubins may lie beside the sources; they are never compared, and go when their source
changes.

    generated/manifest.json
    generated/lmha/lmha_e64_t1_f32.cu    lmha_e64_t1_f32.sm_90a.cubin
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgen.arch import Arch
from kgen.render import Source
from kgen.spec import Spec

MANIFEST = "manifest.json"
SCHEMA = 1


@dataclass(frozen=True)
class Emitted:
    """What `emit` did, as paths below the folder."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Drift:
    """One file that is not what kgen emits: "modified" (with the diff from the file to what it should be), "missing",
    or "stale" (nothing emits it)."""

    path: str
    kind: str
    diff: str


def source_path(spec: Spec) -> str:
    """Where a specialization's source lies, below the folder."""
    return f"{spec.kernel.name}/{spec.name}.cu"


def emit(sources: Iterable[Source], folder: Path, *, exactly: bool) -> Emitted:
    """Write the sources and the manifest; a file that already holds its text is not touched.

    exactly   the manifest becomes these sources and no others, and the files of those that left it are removed;
              else these are added to what it lists
    """
    listed = _entries(folder)
    wanted = _files(sources, {} if exactly else listed)
    written, unchanged = [], []
    for path, text in wanted.items():
        if _write(folder / path, text):
            written.append(path)
            _remove_cubins(folder / path)
        else:
            unchanged.append(path)
    left = {entry["source"] for entry in listed.values()} if exactly else set()
    removed = [path for path in _sources_in(folder) if path in left - wanted.keys()]
    for path in removed:
        _remove_cubins(folder / path)
        (folder / path).unlink()
    return Emitted(*(tuple(path for path in paths if path != MANIFEST) for paths in (written, unchanged, removed)))


def drift(sources: Iterable[Source], folder: Path, *, exactly: bool) -> list[Drift]:
    """What `emit` would change, and with `exactly` also the sources that nothing emits; writes nothing."""
    wanted = _files(sources, {} if exactly else _entries(folder))
    found = []
    for path, text in wanted.items():
        file = folder / path
        if not file.is_file():
            found.append(Drift(path, "missing", ""))
        elif file.read_bytes() != text.encode():
            there = file.read_bytes().decode(errors="replace")
            found.append(Drift(path, "modified", unified_diff(there, text, str(file), f"{file} (rendered now)")))
    if exactly:
        found += [Drift(path, "stale", "") for path in _sources_in(folder) if path not in wanted]
    return found


def place_cubin(spec: Spec, arch: Arch, cubin: bytes, folder: Path) -> Path:
    """Put a cubin beside its source, where profilers and disassemblers find it under the kernel's name."""
    path = (folder / source_path(spec)).with_suffix(f".{arch}.cubin")
    if not path.is_file() or path.read_bytes() != cubin:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cubin)
    return path


def unified_diff(before: str, after: str, before_name: str, after_name: str) -> str:
    """The unified diff of two texts, "" when they are equal."""
    # Split at \n alone, so that a \r or a form feed shows instead of passing for an end of line.
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), before_name, after_name, lineterm="")
    return "\n".join(lines)


def _files(sources: Iterable[Source], listed: dict[str, Any]) -> dict[str, str]:
    """Path -> text of everything that the folder should hold."""
    entries, files = dict(listed), {}
    for source in sources:
        entries[source.spec.name] = _entry(source)
        files[source_path(source.spec)] = source.text
    manifest = {"schema": SCHEMA, "kernels": entries}
    return files | {MANIFEST: json.dumps(manifest, indent=1, sort_keys=True) + "\n"}


def _entry(source: Source) -> dict[str, Any]:
    spec = source.spec
    return {
        "name": spec.name,
        "kernel": spec.kernel.name,
        "axes": {axis.name: value for axis, value in zip(spec.kernel.axes, spec.values, strict=True)},
        "flags": sorted(spec.flags),
        "dtype": spec.dtype.name,
        "symbol": spec.symbol,
        "source": source_path(spec),
        "source_sha256": source.sha256,
        "parts": dict(source.parts),
        "threads": spec.threads,
        "static_smem": spec.static_smem,
        "dynamic_smem": spec.dynamic_smem,
    }


def _entries(folder: Path) -> dict[str, Any]:
    """The manifest's entries by name; none where it is missing or not one of ours, as after a bad merge."""
    try:
        kernels = json.loads((folder / MANIFEST).read_bytes())["kernels"]
        return {name: entry for name, entry in kernels.items() if isinstance(entry["source"], str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _sources_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.cu"))


def _write(path: Path, text: str) -> bool:
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return True


def _remove_cubins(source: Path) -> None:
    for cubin in source.parent.glob(f"{source.stem}.*.cubin"):
        cubin.unlink()
