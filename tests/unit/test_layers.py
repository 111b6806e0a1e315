"""The layers: imports go one way, and nothing heavy is imported before it is used."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kgen

PACKAGE = Path(kgen.__file__).parent

# From the bottom up. A module may import what stands above its own line here, and its neighbours on the line.
LAYERS = (
    ("errors",),
    ("config", "dtypes", "arch", "notice"),
    ("spec",),
    ("declared", "hints"),
    ("registry",),
    ("recipe",),
    ("render",),
    ("toolkit",),
    ("nvrtc",),
    ("disk",),
    ("store",),
    ("build",),
    ("cpu",),
    ("backend", "driver"),
    ("device", "operand", "streams", "arrays", "views", "results", "scratch", "fork", "step", "launch"),
    ("ops",),
    ("catalog",),
    ("kgen",),  # the public face
    ("torch_graph", "autograd", "layers"),
    ("reference", "gated_reference", "checking"),
    ("samples",),
    (
        "occupancy",
        "timing",
        "benchmarks",
        "bench",
        "bench_hosts",
        "bench_table",
        "bandwidth",
        "report",
        "generated",
        "doctor",
        "usual",
    ),
    ("commands", "cli", "__main__"),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
HEAVY = {"cupy", "cupyx", "cupy_backends", "torch", "jax", "triton", "fla", "fast_transformers"}

MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [path.relative_to(PACKAGE).as_posix() for path in MODULES]


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "kgen" if first == "__init__" else first


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(node: ast.AST, *, into_functions: bool) -> Iterator[tuple[str, int]]:
    """Every module that is imported at run time, with the line; `from a import b` is a.b, which may be a name in a."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from imports(ast.Module(child.orelse, []), into_functions=into_functions)
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from ((f"{child.module}.{alias.name}", child.lineno) for alias in child.names)
        elif into_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(child, into_functions=into_functions)


def target(name: str) -> str | None:
    """The layer that an import leads to; None outside kgen."""
    top, _, rest = name.partition(".")
    if top != "kgen":
        return None
    first = rest.partition(".")[0]
    return first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file() else "kgen"


def test_every_module_has_a_layer() -> None:
    assert {layer_of(path) for path in MODULES} <= HEIGHT.keys()


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_module_imports_no_layer_above_its_own_not_even_within_a_function(path: Path) -> None:
    own = layer_of(path)
    found = [(target(name), name, line) for name, line in imports(parsed(path), into_functions=True)]
    upward = [f"line {line}: {name}" for layer, name, line in found if layer and HEIGHT[layer] > HEIGHT[own]]
    assert upward == []


def test_the_store_knows_of_errors_and_the_disk_only() -> None:
    found = imports(ast.parse((PACKAGE / "store.py").read_text()), into_functions=True)
    assert {target(name) for name, _ in found} - {None} == {"errors", "disk"}


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_no_module_imports_an_array_library_before_it_needs_it(path: Path) -> None:
    found = imports(parsed(path), into_functions=False)
    assert [f"line {line}: {name}" for name, line in found if name.partition(".")[0] in HEAVY] == []


def test_importing_kgen_imports_neither_numpy_nor_cupy_nor_jinja(run_python: Callable[..., str]) -> None:
    program = "import sys, kgen; print([x for x in ('numpy', 'cupy', 'jinja2', 'click') if x in sys.modules])"
    assert run_python(program) == "[]\n"


def test_a_call_imports_what_it_is_made_of_and_no_other_operator(run_python: Callable[..., str]) -> None:
    program = """
import sys, ml_dtypes, numpy, kgen, kgen.launch
x = numpy.zeros((1, 1, 64, 64), ml_dtypes.bfloat16)
with kgen.backend("cpu"), kgen.launch.listing_steps():
    kgen.gla(x, x, x, x)
    kgen.gla_backward(x, x, x, x, x)
others = ("elementwise", "reduce.reduce", "gated.article", "gated.chunk", "gated.states", "gated.step", "gated.examine")
print([name for name in (*(f"kgen.ops.{x}" for x in others), "jinja2", "concurrent.futures") if name in sys.modules])
"""
    assert run_python(program) == "[]\n"


def test_importing_every_module_imports_no_array_library(run_python: Callable[..., str]) -> None:
    names = [".".join(("kgen", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in MODULES]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    program = f"import sys, importlib\nfor name in {names}: importlib.import_module(name)\n"
    assert run_python(program + f"print(sorted({HEAVY} & sys.modules.keys()))") == "[]\n"
