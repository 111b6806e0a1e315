"""The wheel holds all that a checkout does, and works where no checkout is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import kgen
from kgen.arch import Arch
from kgen.build import build, shelve
from kgen.render import render

SM_80 = Arch.parse("sm_80")
SHELVED = next(iter(kgen.select("relu")))
ROOT = Path(kgen.__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="there is no checkout to make a wheel of"),
    pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools, which makes the wheel, is not installed"),
    pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed"),
]


def pip(*arguments: str | Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy, since setuptools leaves its own folders behind."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("kgen", "templates", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "cubins"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KGEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        shelve(build(SHELVED, SM_80), copy / "kgen/cubins")
    pip("wheel", copy, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out)
    (made,) = out.glob("kgen-*.whl")
    return made


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kgen installed into it."""
    target = tmp_path_factory.mktemp("site")
    pip("install", wheel, "--no-deps", "--no-index", "--target", target)
    return target


def installed(program: str, site: Path) -> str:
    """What a program prints that finds kgen in `site`, and neither in the working folder nor through PYTHONPATH."""
    started = f"import sys; sys.path.insert(0, {str(site)!r})\n{program}"
    told = subprocess.run([sys.executable, "-I", "-c", started], cwd=site, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_a_wheel_holds_every_file_every_template_and_nothing_else(wheel: Path) -> None:
    kinds = (".py", ".md", ".h", ".cpp")
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kgen").rglob("*") if path.suffix in kinds}
    templates = {
        f"kgen/templates/{path.relative_to(ROOT / 'templates')}" for path in (ROOT / "templates").rglob("*.j2")
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    cubins = {name for name in held if name.startswith("kgen/cubins/")}
    assert held == files | templates | cubins | {"kgen/py.typed"}
    assert sorted(name.rpartition("/")[2] for name in cubins) == ["kernel.cu", "kernel.cubin", "meta.json"]


def test_an_installed_kgen_compiles_nothing_that_its_wheel_brought(site: Path) -> None:
    program = f"""
import os, kgen
os.environ["KGEN_JIT"] = "off"
print(kgen.build(kgen.parse({SHELVED.name!r}), kgen.Arch.parse("sm_80")).path)
"""
    assert (site / "kgen/cubins") in Path(installed(program, site).strip()).parents


def test_an_installed_kgen_renders_what_the_checkout_does(site: Path) -> None:
    program = "import kgen; print(kgen.__file__); print(*(kgen.render(spec).sha256 for spec in kgen.select()))"
    file, digests = installed(program, site).splitlines()
    assert Path(file) == site / "kgen/__init__.py"
    assert digests.split() == [render(spec).sha256 for spec in kgen.select()]


def test_an_installed_kgen_finds_its_own_templates(site: Path) -> None:
    assert installed("from kgen.recipe import BUILTIN_TEMPLATES as b; print(b)", site) == f"{site / 'kgen/templates'}\n"


def test_the_command_and_the_version_are_those_of_the_package(site: Path) -> None:
    program = """
from importlib.metadata import distribution
kgen = distribution("kgen")
(command,) = [entry for entry in kgen.entry_points if entry.name == "kgen"]
print(kgen.version, callable(command.load()))
"""
    assert installed(program, site) == f"{kgen.__version__} True\n"
