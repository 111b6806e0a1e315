"""The catalog: kernels are found by being there, in kgen/ops, in the user's file, or in the registry."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import kgen
from kgen import catalog
from kgen.errors import SpecError
from kgen.spec import Kernel

DECLARATION = """\
from kgen import Axis, Kernel, register

register(Kernel("{name}", "", "", (Axis("N", "n", (1, 2), "numbers"),), lambda spec: {{"THREADS": 32}}))
"""

pytestmark = pytest.mark.usefixtures("own_registry")


def test_a_module_in_ops_is_found_by_being_there(run_python: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh/newcomer.py").write_text(DECLARATION.format(name="newcomer"))
    program = "import kgen.ops; kgen.ops.__path__.append('fresh'); print('newcomer' in kgen.kernels())"
    assert run_python(program) == "True\n"


def test_a_name_is_found_without_asking_for_the_kernels_first(run_python: Callable[..., str]) -> None:
    program = "import kgen; print(kgen.parse('lmha_low_occupancy_e128_w4_c4_f16'))"
    assert run_python(program) == "lmha_low_occupancy_e128_w4_c4_f16\n"
    assert run_python("import kgen; print(kgen.select('lmha_low_*_f16')[0].kernel.name)") == "lmha_low_occupancy\n"


def test_the_users_file_declares_more_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DECLARATION.format(name="mine"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGEN_KERNELS", "mine.py")
    assert "mine" in kgen.kernels()
    assert [spec.name for spec in kgen.select("mine", "dtype=f16")] == ["mine_n1_f16", "mine_n2_f16"]


def test_the_users_file_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, count = tmp_path / "counting.py", tmp_path / "count"
    file.write_text(f"open({str(count)!r}, 'a').write('x')\n")
    monkeypatch.setenv("KGEN_KERNELS", str(file))
    kgen.kernels()
    kgen.kernels()
    assert count.read_text() == "x"


@pytest.mark.parametrize("name", ["nowhere.py", "kernels.txt", "."])
def test_a_users_file_that_is_no_python_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels.txt").write_text("hello\n")
    monkeypatch.setenv("KGEN_KERNELS", str(tmp_path / name))
    with pytest.raises(SpecError, match=r"KGEN_KERNELS names .*, which is no Python file") as caught:
        kgen.kernels()
    assert str((tmp_path / name).resolve()) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\n\nos.nonsense\n", "line 3: AttributeError: module 'os' has no attribute 'nonsense'"),
        ("import absent_module\n", "line 1: ModuleNotFoundError: No module named 'absent_module'"),
        ("x = = 1\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
    ],
)
def test_a_users_file_that_fails_is_named_with_the_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    monkeypatch.setenv("KGEN_KERNELS", str(file))
    with pytest.raises(SpecError) as caught:
        kgen.kernels()
    assert str(caught.value).startswith(f"KGEN_KERNELS names {file}, which fails") and told in str(caught.value)


def test_the_order_of_kernels_does_not_depend_on_what_was_imported_first(run_python: Callable[..., str]) -> None:
    program = "import kgen; print(*kgen.kernels())"
    assert run_python(program) == run_python(f"import kgen.ops.moving.transpose; {program}")


def test_no_word_selects_the_default_build(make_kernel: Callable[..., Kernel]) -> None:
    make_kernel(defaults=("toy_n64_f16", "toy_n32_reverse_f32"))
    chosen = [spec.name for spec in kgen.select()]
    assert chosen == [name for kernel in kgen.kernels().values() for name in kernel.defaults]
    at = chosen.index("toy_n64_f16")
    assert chosen[at : at + 2] == ["toy_n64_f16", "toy_n32_reverse_f32"]


def test_pairs_alone_narrow_every_kernel() -> None:
    chosen = kgen.select("dtype=bf16", "e=64")
    assert {spec.dtype.name for spec in chosen} == {"bf16"}
    assert {spec["E"] for spec in chosen} == {64}
    assert len({spec.kernel.name for spec in chosen}) > 1


def test_kernels_may_not_be_changed_through_the_listing() -> None:
    catalog.kernels().clear()
    assert catalog.kernels()


@pytest.mark.parametrize("module", ["dtypes", "spec", "catalog", "registry", "render", "arch"])
def test_examples_in_docstrings_are_true(module: str) -> None:
    assert doctest.testmod(import_module(f"kgen.{module}")).failed == 0
