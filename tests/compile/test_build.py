"""The build: a cubin is compiled once, found again by all that decides it and by nothing else, and damage heals."""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import kgen
from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.build import Built, build, build_many, find, store
from kgen.dtypes import F16, F32
from kgen.errors import ArchError, CacheWarning, CompileError, JitDisabledError, KgenError, SpecError, TemplateError
from kgen.nvrtc import Flags
from kgen.recipe import recipe
from kgen.render import render
from kgen.spec import Kernel, Spec

MakeKernel = Callable[..., Kernel]
RunPython = Callable[..., str]

SM_80, SM_90A = Arch.parse("sm_80"), Arch.parse("sm_90a")
KEYS = import_module("kgen.build")._key

TOY_PLUS_PIECE = """\
{% include "common/piece.cuh.j2" %}
extern "C" __global__ void {{ symbol }}() {}
"""


@pytest.fixture
def spec(make_kernel: MakeKernel) -> Spec:
    return make_kernel().spec(N=64, reverse=True, dtype=F16)


@pytest.fixture
def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(*args: object) -> None:
        raise AssertionError("compiled, though it was in the store")

    return lambda: monkeypatch.setattr(nvrtc, "compile_source", refuse)


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    """The store warns once in a process, and each test is to see its own."""
    warned = import_module("kgen.store")._warned
    before = set(warned)
    warned.clear()
    yield
    warned.clear()
    warned.update(before)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_second_build_comes_from_disk_and_is_equal(spec: Spec, forbid_compiling: Callable[[], None]) -> None:
    first = build(spec, SM_90A)
    forbid_compiling()
    second = build(spec, SM_90A)
    assert (first.origin, second.origin) == ("compiled", "disk")
    assert first.milliseconds > 0
    for part in ("source", "arch", "cubin", "resources", "compiler", "milliseconds", "path", "spec"):
        assert getattr(first, part) == getattr(second, part), part


def test_what_is_built_is_the_specs_kernel(spec: Spec) -> None:
    built = build(spec, SM_90A)
    assert built.spec is spec
    assert built.source == render(spec)
    assert built.cubin == nvrtc.compile_source(render(spec), SM_90A).cubin
    assert spec.symbol.encode() in built.cubin


def test_an_entry_holds_the_source_the_cubin_and_the_account(spec: Spec, cache_dir: Path) -> None:
    built = build(spec, SM_90A, flags=Flags(lineinfo=True))
    assert built.path is not None
    assert built.path.is_relative_to(cache_dir)
    assert built.path.name.startswith(f"{spec.name}-")
    assert (built.path / "kernel.cu").read_text() == built.source.text
    assert (built.path / "kernel.cubin").read_bytes() == built.cubin
    meta = json.loads((built.path / "meta.json").read_text())
    assert meta["symbol"] == spec.symbol
    assert meta["resources"] == built.resources.as_dict()
    assert meta["compiler"] == nvrtc.compiler_id()
    assert "--generate-line-info" in meta["flags"]


def test_force_compiles_what_is_there(spec: Spec) -> None:
    first, forced = build(spec, SM_90A), build(spec, SM_90A, force=True)
    assert forced.origin == "compiled"
    assert forced.cubin == first.cubin
    assert build(spec, SM_90A).origin == "disk"


# The key


def test_the_key_changes_with_everything_that_decides_the_cubin(
    make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = make_kernel()
    one, other = recipe(kernel.spec(N=64, dtype=F16)), recipe(kernel.spec(N=128, dtype=F16))
    flags = [Flags(), Flags(lineinfo=True), Flags(extra=("--use_fast_math",))]
    keys = [KEYS(one, SM_90A, each) for each in flags]
    keys += [KEYS(other, SM_90A, Flags()), KEYS(one, SM_80, Flags()), KEYS(one, Arch.parse("sm_90"), Flags())]
    monkeypatch.setattr(toolkit, "header_digest", lambda text: "another")
    keys.append(KEYS(one, SM_90A, Flags()))
    monkeypatch.setattr(nvrtc, "compiler_id", lambda: "nvrtc 99.0")
    keys.append(KEYS(one, SM_90A, Flags()))
    assert len(set(keys)) == len(keys)


def test_another_compiler_does_not_find_what_this_one_built(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    build(spec, SM_90A)
    monkeypatch.setattr(nvrtc, "compiler_id", lambda: "nvrtc 99.0")
    assert build(spec, SM_90A).origin == "compiled"


def test_the_key_changes_with_nothing_else(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forbid_compiling: Callable[[], None]
) -> None:
    build(spec, SM_90A)
    forbid_compiling()
    for variable in ("HOME", "USER", "TMPDIR", "CUDA_PATH", "PYTHONHASHSEED"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kgen, "__version__", "99.0")
    os.utime(tmp_path / "templates/toy.cu.j2", (1, 1))
    assert build(spec, SM_90A).origin == "disk"


KEY = """
import kgen
from kgen.build import _key
from kgen.nvrtc import Flags
from kgen.recipe import recipe
print(*(_key(recipe(spec), kgen.Arch.parse("sm_90a"), Flags()) for spec in kgen.select()))
"""


def test_the_key_is_the_same_in_every_process(run_python: RunPython) -> None:
    assert len({run_python(KEY, PYTHONHASHSEED=seed) for seed in ("0", "7")}) == 1


def test_an_edited_template_misses_and_the_old_text_still_hits(spec: Spec, tmp_path: Path) -> None:
    template = tmp_path / "templates/toy.cu.j2"
    text = template.read_text()
    build(spec, SM_90A)
    for edited, origin in [(text + "// edited\n", "compiled"), (text, "disk")]:
        template.write_text(edited)
        built = build(spec, SM_90A)
        assert built.origin == origin
        assert built.source.text.endswith("// edited\n") == (edited != text)


@pytest.mark.parametrize("piece", ["piece.cuh.j2", "header.j2"])
def test_an_edited_piece_misses(make_kernel: MakeKernel, tmp_path: Path, piece: str) -> None:
    spec = make_kernel(template=TOY_PLUS_PIECE.replace("piece.cuh.j2", piece)).spec(N=64, dtype=F32)
    (tmp_path / "templates/common").mkdir()
    for text in ("// one\n", "// two\n"):
        (tmp_path / "templates/common" / piece).write_text(text)
        assert build(spec, SM_90A).origin == "compiled"
        assert build(spec, SM_90A).origin == "disk"


@pytest.mark.parametrize("change", [{"summary": "Another."}, {"derive": lambda spec: {"THREADS": 32}}])
def test_another_declaration_misses(make_kernel: MakeKernel, change: dict[str, object]) -> None:
    kernel = make_kernel()
    build(kernel.spec(N=64, dtype=F32), SM_90A)
    changed = Kernel(**{**vars(kernel), **change})
    assert build(changed.spec(N=64, dtype=F32), SM_90A).origin == "compiled"


def test_another_renderer_does_not_find_what_this_one_built(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    build(spec, SM_90A)
    monkeypatch.setattr("kgen.recipe._code", lambda: "another")
    assert build(spec, SM_90A).origin == "compiled"


def test_another_jinja_does_not_find_what_this_one_built(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    build(spec, SM_90A)
    monkeypatch.setattr(import_module("kgen.build"), "jinja_version", lambda: "another")
    assert build(spec, SM_90A).origin == "compiled"


def test_the_key_covers_the_headers_that_the_text_includes(make_kernel: MakeKernel) -> None:
    for source in map(recipe, (*kgen.select(), make_kernel().spec(N=64, dtype=F16))):
        text = render(source.spec).text
        assert set(re.findall(r"#include <(.*)>", text)) <= set(source.toolkit_headers)


def test_find_gives_what_was_built_and_never_compiles(
    spec: Spec, make_kernel: MakeKernel, forbid_compiling: Callable[[], None]
) -> None:
    built = build(spec, SM_90A)
    forbid_compiling()
    found = find(spec, SM_90A)
    assert found is not None
    assert (found.cubin, found.source, found.origin) == (built.cubin, built.source, "disk")
    assert find(spec, SM_80) is None
    (make_kernel("toylost").templates / "toylost.cu.j2").unlink()
    assert find(kgen.parse("toylost_n64_f32"), SM_90A) is None


def test_a_disk_hit_loads_neither_the_compiler_nor_the_renderer(run_python: RunPython, cache_dir: Path) -> None:
    name = next(spec.name for spec in kgen.select() if spec.dtype is F16)
    built = build(kgen.parse(name), SM_90A)
    program = f"import sys, kgen; built = kgen.build(kgen.parse({name!r}), kgen.Arch.parse('sm_90a'))\n"
    program += "print(built.origin, len(built.cubin), *({'cupy', 'jinja2'} & sys.modules.keys()))"
    assert run_python(program).split() == ["disk", str(len(built.cubin))]


# Settings


def test_with_jit_off_a_miss_says_which_command_to_run(
    spec: Spec, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, forbid_compiling: Callable[[], None]
) -> None:
    monkeypatch.setenv("KGEN_JIT", "off")
    forbid_compiling()
    with pytest.raises(JitDisabledError, match=r"toy_n64_reverse_f16 for sm_90a is not in .*KGEN_JIT=off") as caught:
        build(spec, SM_90A)
    assert caught.value.hint == "KGEN_JIT=on kgen build toy_n64_reverse_f16 --arch sm_90a"
    assert str(cache_dir) in str(caught.value)


def test_with_jit_off_a_hit_is_served(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    build(spec, SM_90A)
    monkeypatch.setenv("KGEN_JIT", "off")
    assert build(spec, SM_90A).origin == "disk"


def test_the_store_is_where_the_environment_says_now(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(spec, SM_90A)
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "other"))
    assert store().root == tmp_path / "other"
    assert build(spec, SM_90A).origin == "compiled"


# Damage


@pytest.mark.parametrize("file", ["kernel.cubin", "kernel.cu", "meta.json"])
def test_a_damaged_entry_heals_with_one_warning(spec: Spec, file: str) -> None:
    first = build(spec, SM_90A)
    assert first.path is not None
    damaged = first.path / file
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"nonsense!")
    with pytest.warns(CacheWarning, match="damaged") as caught:
        healed = build(spec, SM_90A)
    assert len(caught) == 1
    assert healed.origin == "compiled"
    assert healed.cubin == first.cubin
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(spec, SM_90A).origin == "disk"


def test_a_cache_that_cannot_be_written_still_builds(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way\n")
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "file/cache"))
    with pytest.warns(CacheWarning, match="KGEN_CACHE_DIR") as caught:
        first, second = build(spec, SM_90A), build(spec, SM_90A)
    assert len(caught) == 1
    assert (first.origin, second.origin) == ("compiled", "compiled")
    assert first.path is second.path is None
    assert first.cubin == second.cubin


def test_what_fails_to_compile_leaves_nothing_behind(make_kernel: MakeKernel, cache_dir: Path) -> None:
    with pytest.raises(CompileError):
        build(make_kernel(template="nonsense\n").spec(N=64, dtype=F32), SM_90A)
    assert files(cache_dir) == []


# Many at once


def test_many_builds_keep_their_order_and_put_failures_in_their_place(make_kernel: MakeKernel) -> None:
    toy, new = make_kernel(), make_kernel("toynew", min_arch=SM_90A)
    broken, lost = make_kernel("toybroken", "nonsense\n"), make_kernel("toylost", "{{ LOST }}\n")
    specs = [kernel.spec(N=64, dtype=F32) for kernel in (broken, toy, lost, new)]
    specs.append(toy.spec(N=128, dtype=F32))
    results = build_many(specs, [SM_80, SM_90A], jobs=3)
    assert [type(result) for result in results] == [
        *(CompileError, Built, TemplateError, ArchError, Built),
        *(CompileError, Built, TemplateError, Built, Built),
    ]
    assert [(result.spec, result.arch) for result in results if isinstance(result, Built)] == [
        *((specs[1], SM_80), (specs[4], SM_80)),
        *((specs[1], SM_90A), (specs[3], SM_90A), (specs[4], SM_90A)),
    ]


def test_many_builds_tell_of_each_once_as_it_ends(make_kernel: MakeKernel) -> None:
    kernel, broken = make_kernel(), make_kernel("toybroken", "nonsense\n")
    specs = [*(kernel.spec(N=n, dtype=F32) for n in (32, 64)), broken.spec(N=32, dtype=F32)]
    told: list[tuple[Spec, Arch, Built | KgenError]] = []
    callers = set()

    def progress(spec: Spec, arch: Arch, result: Built | KgenError) -> None:
        told.append((spec, arch, result))
        callers.add(threading.current_thread())

    results = build_many(specs, [SM_80, SM_90A], progress=progress)
    work = [(spec, arch) for arch in (SM_80, SM_90A) for spec in specs]
    assert sorted(((s.name, a) for s, a, _ in told)) == sorted((s.name, a) for s, a in work)
    assert all(results[work.index((spec, arch))] is result for spec, arch, result in told)
    assert callers == {threading.main_thread()}


def test_many_builds_take_iterators(make_kernel: MakeKernel) -> None:
    kernel = make_kernel()
    results = build_many((kernel.spec(N=n, dtype=F32) for n in (32, 64)), iter([SM_80, SM_90A]))
    assert len(results) == 4


def test_many_builds_find_what_one_build_left(make_kernel: MakeKernel) -> None:
    spec = make_kernel().spec(N=64, dtype=F32)
    build(spec, SM_80)
    (again,) = build_many([spec], [SM_80])
    (forced,) = build_many([spec], [SM_80], force=True)
    assert isinstance(again, Built)
    assert isinstance(forced, Built)
    assert (again.origin, forced.origin) == ("disk", "compiled")


def test_threads_render_in_turn_and_compile_side_by_side(
    make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [make_kernel(name=f"scale_{number}").spec(N=64, dtype=F16) for number in range(3)]
    building = import_module("kgen.build")
    render_recipe, compile_source = building.render_recipe, building.nvrtc.compile_source
    alone, together = threading.Lock(), threading.Barrier(len(specs), timeout=30)

    def rendering(*given: object) -> object:
        assert alone.acquire(blocking=False)
        try:
            threading.Event().wait(0.02)
            return render_recipe(*given)
        finally:
            alone.release()

    def compiling(*given: object) -> object:
        together.wait()
        return compile_source(*given)

    monkeypatch.setattr(building, "render_recipe", rendering)
    monkeypatch.setattr(building.nvrtc, "compile_source", compiling)
    assert all(isinstance(one, Built) for one in build_many(specs, [SM_80], jobs=len(specs)))


def test_no_builds_are_no_results() -> None:
    assert build_many([], [SM_80]) == []


def test_an_error_that_is_none_of_ours_is_raised(make_kernel: MakeKernel) -> None:
    def derive(spec: Spec) -> dict[str, int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build_many([make_kernel(derive=derive).spec(N=64, dtype=F32)], [SM_80])


def test_a_name_in_place_of_a_specialization_is_met_with_how_to_parse_it() -> None:
    with pytest.raises(SpecError, match="build: spec is 'lmha_e64_t1_f32'; it takes a Spec") as caught:
        build("lmha_e64_t1_f32", SM_90A)  # type: ignore[arg-type]
    assert caught.value.hint == "kgen.parse gives the specialization of a name"
    with pytest.raises(SpecError, match="render: spec is 'lmha_e64_t1_f32'; it takes a Spec"):
        kgen.render("lmha_e64_t1_f32")  # type: ignore[arg-type]
    with pytest.raises(ArchError, match="build: arch is 'sm_90a'; it takes an Arch"):
        build(kgen.parse("lmha_e64_t1_f32"), "sm_90a")  # type: ignore[arg-type]


def test_what_is_no_name_is_refused_as_one() -> None:
    with pytest.raises(SpecError, match="parse: name is 3"):
        kgen.parse(3)  # type: ignore[arg-type]
    with pytest.raises(ArchError, match="90 is no GPU architecture"):
        Arch.parse(90)  # type: ignore[arg-type]
