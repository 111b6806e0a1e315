"""Shelves: kernels that one machine compiled and others only read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from kgen.arch import Arch
from kgen.build import build, find, shelve
from kgen.dtypes import F16
from kgen.errors import ToolchainError
from kgen.spec import Kernel, Spec

SM_80, SM_90A = Arch.parse("sm_80"), Arch.parse("sm_90a")


@pytest.fixture
def spec(make_kernel: Callable[..., Kernel]) -> Spec:
    return make_kernel().spec(N=64, reverse=True, dtype=F16)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine looks for what others compiled."""
    monkeypatch.setenv("KGEN_SHELF", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """To a machine with this CUDA, and with another compiler, other headers, another Jinja and nothing in its cache."""

    def to(cuda: int | None) -> None:
        monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "elsewhere"))
        monkeypatch.setattr("kgen.toolkit.major_version", lambda: cuda)
        monkeypatch.setattr("kgen.nvrtc.compiler_id", lambda: f"nvrtc {cuda}.999")
        monkeypatch.setattr("kgen.toolkit.header_digest", lambda names: "others")
        monkeypatch.setattr(import_module("kgen.build"), "jinja_version", lambda: "another")

    monkeypatch.setattr("kgen.toolkit.major_version", lambda: 13)
    return to


def missing(*_: object) -> None:
    raise ToolchainError("there is none")


def test_a_shelf_serves_machines_whose_compiler_is_another_of_the_same_cuda(
    spec: Spec, shelf: Path, move: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(spec, SM_90A)
    shelve(built, shelf)
    move(13)
    monkeypatch.setattr("kgen.nvrtc.compile_source", missing)
    for served in (build(spec, SM_90A), find(spec, SM_90A)):
        assert served is not None and served.path is not None
        assert (served.cubin, served.source, served.resources) == (built.cubin, built.source, built.resources)
        assert (served.compiler, served.origin) == (built.compiler, "disk")
        assert shelf in served.path.parents


def test_a_kernel_on_a_shelf_needs_neither_compiler_nor_headers(
    spec: Spec, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelve(build(spec, SM_90A), shelf)
    for name in ("nvrtc.compiler_id", "toolkit.header_digest", "toolkit.nvrtc"):
        monkeypatch.setattr(f"kgen.{name}", missing)
    path = build(spec, SM_90A).path
    assert path is not None and shelf in path.parents


@pytest.mark.parametrize("cuda", [12, None])
def test_a_shelf_is_no_use_with_drivers_that_may_not_load_its_cubins(
    spec: Spec, shelf: Path, move: Callable[[int | None], None], cuda: int | None
) -> None:
    shelve(build(spec, SM_90A), shelf)
    move(cuda)
    assert find(spec, SM_90A) is None


def test_a_shelf_is_no_use_for_another_architecture_or_another_text(spec: Spec, shelf: Path, move: object) -> None:
    shelve(build(spec, SM_90A), shelf)
    assert find(spec, SM_90A) is not None
    assert find(spec, SM_80) is None
    assert spec.kernel.templates is not None
    template = spec.kernel.templates / spec.kernel.template
    template.write_text(template.read_text() + "\n")
    assert find(spec, SM_90A) is None


def test_a_shelf_is_only_read_and_what_is_damaged_there_is_compiled(
    spec: Spec, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in shelf.rglob("*") if path.is_file()}

    built = build(spec, SM_90A)
    shelve(built, shelf)
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "elsewhere"))
    next(shelf.rglob("kernel.cubin")).write_bytes(built.cubin[:-1])
    before = state()
    again = build(spec, SM_90A)
    assert (again.origin, again.cubin) == ("compiled", built.cubin)
    assert state() == before


def test_others_may_read_a_shelf_as_the_umask_lets_them_and_nobody_else_a_cache(spec: Spec, shelf: Path) -> None:
    before = os.umask(0o027)
    try:
        built = build(spec, SM_90A)
        shelve(built, shelf)
    finally:
        os.umask(before)
    assert built.path is not None
    (shelved,) = shelf.glob("v1/sm_90a/*")
    for entry, folders, files in ((shelved, 0o750, 0o640), (built.path, 0o700, 0o600)):
        assert {stat.S_IMODE(path.stat().st_mode) for path in (entry, *entry.parents[:3])} == {folders}
        assert {stat.S_IMODE(path.stat().st_mode) for path in entry.iterdir()} == {files}


def test_nobody_fills_a_shelf_without_knowing_for_which_cuda(
    spec: Spec, shelf: Path, move: Callable[[int | None], None]
) -> None:
    built = build(spec, SM_90A)
    move(None)
    with pytest.raises(ToolchainError, match="which CUDA"):
        shelve(built, shelf)
    assert not shelf.exists()
