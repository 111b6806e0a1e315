"""The public face: what users, their editors and their type checkers find in `kgen`."""

from __future__ import annotations

import ast
import inspect
import rlcompleter
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import kgen
from kgen.ops.elementwise import activations

ROOT = Path(kgen.__file__).parent.parent
OPERATORS = sorted(name for name, module in kgen._FACE.items() if module.startswith("ops."))


@pytest.mark.parametrize("name", sorted(kgen._FACE))
def test_every_public_name_is_what_its_module_calls_so(name: str) -> None:
    assert getattr(kgen, name) is getattr(import_module(f"kgen.{kgen._FACE[name]}"), name)
    assert name in dir(kgen)
    assert name in kgen.__all__


def test_type_checkers_are_told_of_exactly_the_public_names() -> None:
    tree = ast.parse((Path(kgen.__file__)).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    told = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "or the name is private to type checkers"
            told[alias.name] = str(node.module).removeprefix("kgen.")
    assert told == {**kgen._FACE, **dict.fromkeys(kgen._SUBMODULES, "kgen")}


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kgen' has no attribute 'nonsense'"):
        kgen.nonsense  # noqa: B018


def test_build_and_render_stay_functions_when_their_modules_are_imported(run_python: Callable[..., str]) -> None:
    program = "import kgen; kgen.kernels(); import kgen.build, kgen.render; from kgen.build import build\n"
    assert run_python(program + "print(callable(kgen.render), kgen.build is build)") == "True True\n"


def test_submodules_that_the_readme_names_need_no_import_of_their_own(run_python: Callable[..., str]) -> None:
    program = "import kgen; print(kgen.layers.RWKV6TimeMixing.__name__, kgen.autograd.relu.__name__)"
    assert run_python(program) == "RWKV6TimeMixing relu\n"


# What an editor shows


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_a_function_with_a_docstring_and_the_types_of_its_arguments(name: str) -> None:
    function = getattr(kgen, name)
    assert inspect.isfunction(function)
    assert inspect.getdoc(function)
    assert getattr(kgen, function.__name__) is function, "and help() calls it so"
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_a_prompt_completes_every_public_name() -> None:
    found = rlcompleter.Completer({"kgen": kgen}).attr_matches("kgen.")
    public = {f"kgen.{name}" for name in kgen.__all__ if not name.startswith("_")}
    assert {text.partition("(")[0] for text in found} >= public


# What a type checker is told


def test_type_checkers_are_told_the_operands_of_each_elementwise_function() -> None:
    tree = ast.parse(Path(activations.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    told = {n.name: n.args for n in block.body if isinstance(n, ast.FunctionDef)}
    for name in activations.NAMED:
        signature = inspect.signature(getattr(kgen, name)).parameters.values()
        operands = [p for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [(a.arg, ast.unparse(a.annotation or a)) for a in told[name].args] == [
            (p.name, p.annotation) for p in operands
        ]
        defaults = [p.default for p in operands if p.default is not p.empty]
        assert [ast.literal_eval(default) for default in told[name].defaults] == defaults
    assert told.keys() == activations.NAMED.keys()
    options = next(n for n in block.body if isinstance(n, ast.ClassDef)).body[1:]
    given = inspect.signature(kgen.add).parameters.values()
    assert {ast.unparse(n) for n in options} == {f"{p.name}: {p.annotation}" for p in given if p.default is None}


def calls(name: str) -> list[str]:
    """Lines of a user's: a call that is right, and one that is not, where any could be wrong."""
    parameters = inspect.signature(getattr(kgen, name)).parameters.values()
    operands = ", ".join("x" for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
    right = [f"kgen.{name}({operands}{', stream=None' if any(p.name == 'stream' for p in parameters) else ''})"]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return right if open_ended else [*right, f"kgen.{name}({operands}, nonsense=1)  # type: ignore[call-arg]"]


def test_mypy_accepts_calls_of_every_operator_and_refuses_arguments_that_it_has_not(tmp_path: Path) -> None:
    """A `type: ignore` that hides nothing is an error by itself."""
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    lines = [line for name in OPERATORS if name not in ("checked", "elementwise") for line in calls(name)]
    lines += ['kgen.elementwise("x + 1", x=x)', 'kgen.elementwise("x + 1")(x)', "kgen.layers.RWKV6TimeMixing"]
    lines += ["with kgen.checked():", "    kgen.autograd.gla(x, x, x, x)"]
    script = tmp_path / "user.py"
    script.write_text("\n".join(["from typing import Any", "import kgen", "x: Any = None", *lines, ""]))
    # As `make lint` calls it, so that what it found out about kgen is known here.
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(script)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
