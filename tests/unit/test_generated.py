"""generated/ holds what rendering decides, the same bytes everywhere, and drift from it is found without a compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.generated import MANIFEST, drift, emit, place_cubin, source_path, unified_diff
from kgen.render import Source, render
from kgen.spec import Axis, Flag, Kernel

TEMPLATE = """// {{ name }}
extern "C" __global__ void {{ symbol }}(float* x) {
  x[threadIdx.x] *= {{ VEC }};
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "scale.cu.j2").write_text(TEMPLATE)
    axes, flags = (Axis("VEC", "v", (1, 2, 4), "elements"),), (Flag("reverse", "backwards"),)
    return Kernel("scale", "", "", axes, lambda spec: {"THREADS": 64}, flags, templates=templates)


@pytest.fixture
def sources(kernel: Kernel) -> list[Source]:
    return [render(kernel.spec(VEC=vec, dtype="f32")) for vec in (1, 2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "generated"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_emits_each_text_under_its_kernel_and_name(sources: list[Source], folder: Path) -> None:
    done = emit(sources, folder, exactly=True)
    assert done.written == ("scale/scale_v1_f32.cu", "scale/scale_v2_f32.cu")
    assert (folder / "scale" / "scale_v2_f32.cu").read_text() == sources[1].text


def test_a_second_emit_touches_nothing(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = emit(sources, folder, exactly=True)
    assert (done.written, len(done.unchanged), done.removed) == ((), 2, ())
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_the_bytes_do_not_depend_on_the_order_or_the_place(sources: list[Source], tmp_path: Path) -> None:
    emit(sources, tmp_path / "one", exactly=True)
    emit(sources[::-1], tmp_path / "two" / "deeper", exactly=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "two" / "deeper")


def test_the_manifest_says_what_rendering_decides_and_nothing_of_a_compiler(kernel: Kernel, folder: Path) -> None:
    source = render(kernel.spec(VEC=4, reverse=True, dtype="f16"))
    emit([source], folder, exactly=True)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["kernels"]["scale_v4_reverse_f16"] == {
        "name": "scale_v4_reverse_f16",
        "kernel": "scale",
        "axes": {"VEC": 4},
        "flags": ["reverse"],
        "dtype": "f16",
        "symbol": "kgen_scale_v4_reverse_f16",
        "source": "scale/scale_v4_reverse_f16.cu",
        "source_sha256": source.sha256,
        "parts": dict(source.parts),
        "threads": 64,
        "static_smem": 0,
        "dynamic_smem": 0,
    }


def test_no_drift_right_after_an_emit(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    assert drift(sources, folder, exactly=True) == []


def test_drift_needs_no_compiler(sources: list[Source], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise AssertionError("the compiler was asked")

    monkeypatch.setattr(toolkit, "nvrtc", missing)
    monkeypatch.setattr(nvrtc, "compiler_id", missing)
    emit(sources, folder, exactly=True)
    assert drift(sources, folder, exactly=True) == []


def test_an_edited_file_drifts_and_shows_the_lines(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    file = folder / source_path(sources[0].spec)
    file.write_text(file.read_text().replace("*= 1", "*= 3"))
    (found,) = drift(sources, folder, exactly=True)
    assert (found.path, found.kind) == ("scale/scale_v1_f32.cu", "modified")
    assert "-  x[threadIdx.x] *= 3;" in found.diff and "+  x[threadIdx.x] *= 1;" in found.diff


def test_other_line_endings_are_drift_and_visible(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    file = folder / source_path(sources[0].spec)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    (found,) = drift(sources, folder, exactly=True)
    assert "\r" in found.diff


def test_a_deleted_and_a_stray_file_drift(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    (folder / source_path(sources[0].spec)).unlink()
    (folder / "scale" / "scale_v9_f32.cu").write_text("// mine")
    found = {each.path: each.kind for each in drift(sources, folder, exactly=True)}
    assert found == {"scale/scale_v1_f32.cu": "missing", "scale/scale_v9_f32.cu": "stale"}


@pytest.mark.parametrize("text", ["", "<<<<<<< ours", "[]", '{"kernels": [1]}', '{"kernels": {"a": 1}}'])
def test_a_mangled_manifest_drifts_and_the_next_emit_mends_it(sources: list[Source], folder: Path, text: str) -> None:
    emit(sources, folder, exactly=True)
    (folder / MANIFEST).write_text(text)
    assert [each.path for each in drift(sources, folder, exactly=True)] == [MANIFEST]
    emit(sources, folder, exactly=True)
    assert drift(sources, folder, exactly=True) == []


def test_what_left_the_set_is_removed_with_its_cubins_and_nobody_elses_file_is(
    sources: list[Source], folder: Path
) -> None:
    emit(sources, folder, exactly=True)
    cubin = place_cubin(sources[1].spec, Arch.parse("sm_90a"), b"cubin", folder)
    mine = folder / "scale" / "mine.cu"
    mine.write_text("// mine")
    done = emit(sources[:1], folder, exactly=True)
    assert done.removed == ("scale/scale_v2_f32.cu",)
    assert not cubin.exists() and mine.exists()


def test_adding_keeps_what_the_manifest_lists(sources: list[Source], folder: Path) -> None:
    emit(sources[:1], folder, exactly=True)
    emit(sources[1:], folder, exactly=False)
    assert drift(sources, folder, exactly=True) == []
    assert drift(sources[:1], folder, exactly=False) == []


def test_a_cubin_goes_when_its_source_changes(sources: list[Source], folder: Path) -> None:
    emit(sources, folder, exactly=True)
    old, other = (place_cubin(source.spec, Arch.parse("sm_80"), b"cubin", folder) for source in sources)
    assert old.name == "scale_v1_f32.sm_80.cubin"
    changed = Source(sources[0].spec, sources[0].text + "// new\n", sources[0].parts)
    emit([changed, sources[1]], folder, exactly=True)
    assert not old.exists() and other.exists()


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a\nb\n", "a\nb\n", "x", "y") == ""
