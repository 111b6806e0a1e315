"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for word, text in fences if word == language]


def test_the_example_of_an_own_kernel_renders_and_compiles(tmp_path):
    (tmp_path / "saxpy.cu.j2").write_text(blocks("jinja")[0])
    (tmp_path / "my_kernels.py").write_text(next(block for block in blocks("python") if "kgen.register" in block))
    ran = subprocess.run([sys.executable, "my_kernels.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("// saxpy_v4_f32 ")
    assert "Resources(registers=" in ran.stdout
    assert "nothing to report" in ran.stdout  # of its run on the executor


def test_the_example_of_an_own_kernel_reaches_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "saxpy.cu.j2").write_text(blocks("jinja")[0])
    (tmp_path / "my_kernels.py").write_text(next(block for block in blocks("python") if "kgen.register" in block))
    monkeypatch.setenv("KGEN_KERNELS", str(tmp_path / "my_kernels.py"))
    command = [sys.executable, "-m", "kgen", "build", "saxpy_*", "--arch", "sm_90a", "--out", str(tmp_path / "out")]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "// saxpy" not in ran.stdout  # what the file prints as a program
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.cu")) == [
        "saxpy_v1_f32.cu",
        "saxpy_v2_f32.cu",
        "saxpy_v4_f32.cu",
    ]


COMMANDS = [line for text in blocks("") for line in text.splitlines() if line.startswith("kgen ")]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.split()[1] in ("list", "show", "diff", "doctor")])
def test_the_commands_that_it_shows_exist(line):
    words = [word for word in line.partition("#")[0].split()[1:] if word != "--sass"]
    subprocess.run([sys.executable, "-m", "kgen", *words], check=True, capture_output=True)


def test_every_public_function_and_variable_is_named():
    import kgen
    from kgen.config import Config

    for name in ("causal_dot_product", "causal_dot_product_backward", "linear_state", "query_state", "explain"):
        assert f"{name}(" in README or f"kgen.{name}" in README
        assert hasattr(kgen, name)
    for variable in re.findall(r"KGEN_[A-Z_]+", Config.__doc__ or ""):
        assert f"`{variable}`" in README
