"""What all tests share: a cache and an environment of their own, throwaway kernels, and fresh interpreters."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import kgen
from kgen import catalog, registry
from kgen.arch import OLDEST, Arch
from kgen.dtypes import FLOATS, DType
from kgen.spec import Axis, Flag, Kernel
from tests.compiling import ptx_once

HOARD = 1 << 30
"""Bytes of a GPU that a process may keep between two tests."""

ROOT = Path(kgen.__file__).resolve().parent.parent

# No deadline: the first example imports what the others find there, and a shared machine may stall any one of them.
hypothesis.settings.register_profile("kgen", print_blob=True, derandomize=False, deadline=None)
hypothesis.settings.load_profile("kgen")


@pytest.hookimpl(trylast=True)  # of what -k and -m left
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where none can be used; CuPy is imported only if there is anything to skip."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Thousands of tests are made, and all of them stay: to look for garbage among them takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _no_gpu() -> str | None:
    from kgen.device import current_device
    from kgen.errors import DeviceError

    try:
        current_device()
    except DeviceError as error:
        return str(error).splitlines()[0]
    return None


@pytest.fixture(scope="session")
def _session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all processes of a run: what one of them compiled, the others find."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cache"


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(_session_cache: Path) -> Iterator[None]:
    """What another test, or another process of the run, has compiled is not compiled again."""
    _session_cache.parent.mkdir(parents=True, exist_ok=True)
    with ptx_once(_session_cache.with_name("ptx")):
        yield


@pytest.fixture(autouse=True)
def cache_dir(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No KGEN_* variable but a cache that is empty; the session's for tests on the GPU and for users of `shared_cache`.

    `empty_cache` gives a GPU test one of its own.
    """
    for variable in [name for name in os.environ if name.startswith("KGEN_")]:
        monkeypatch.delenv(variable)
    wants = request.fixturenames
    shared = "shared_cache" in wants or (request.node.get_closest_marker("gpu") and "empty_cache" not in wants)
    chosen: Path = request.getfixturevalue("_session_cache") if shared else tmp_path / "cache"
    monkeypatch.setenv("KGEN_CACHE_DIR", str(chosen))
    return chosen


@pytest.fixture(autouse=True)
def memory_for_others(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test on the GPU, CuPy and torch give back what they hoard: other processes may share its memory."""
    yield
    cupy, torch = (sys.modules.get(name) for name in ("cupy", "torch"))
    if not request.node.get_closest_marker("gpu"):
        return
    if cupy is not None and cupy.get_default_memory_pool().total_bytes() > HOARD:
        cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None and torch.cuda.is_available() and torch.cuda.memory_reserved() > HOARD:
        torch.cuda.empty_cache()


@pytest.fixture
def shared_cache(cache_dir: Path) -> Path:
    """The cache that lives as long as the session, for tests that compile much and do not mind who compiled it."""
    return cache_dir


@pytest.fixture
def empty_cache(cache_dir: Path) -> Path:
    """A cache in which nothing was ever built."""
    return cache_dir


TOY_AXES = (Axis("N", "n", (32, 64, 128), "numbers per block"), Axis("VEC", "v", (1, 2), "numbers per load", default=1))
TOY_FLAGS = (Flag("reverse", "from the last to the first"), Flag("twice", "written twice"))

TOY_TEMPLATE = """\
{% include "common/header.j2" %}

{% include "common/convert.cuh.j2" %}

constexpr int N = {{ N }};
constexpr int VEC = {{ VEC }};

extern "C" __global__ void __launch_bounds__({{ THREADS }}) {{ symbol }}(const Element* x, Element* y)
{
    __shared__ float sums[N];
    sums[threadIdx.x] = to_float(x[threadIdx.x * VEC]);
    __syncthreads();  // the neighbour's number must have arrived
{% if reverse %}
    y[threadIdx.x] = from_float(sums[N - 1 - threadIdx.x]);
{% else %}
    y[threadIdx.x] = from_float(sums[(threadIdx.x + 1) % N]);
{% endif %}
}
"""

MakeKernel = Callable[..., Kernel]


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Whatever the test registers is forgotten afterwards."""
    catalog.kernels()  # or the built-in ones, which register but once, would be forgotten with them
    before = dict(registry._registry)
    yield
    registry._registry.clear()
    registry._registry.update(before)


@pytest.fixture
def make_kernel(tmp_path: Path, own_registry: None) -> MakeKernel:
    """Writes a template and registers a kernel for it, for this test only.

    make_kernel()                        the toy kernel: axes N and VEC (default 1), flags reverse and twice
    make_kernel("other", "text {{ N }}", axes=..., min_arch=...)
    """

    def make(
        name: str = "toy",
        template: str = TOY_TEMPLATE,
        *,
        axes: Sequence[Axis] = TOY_AXES,
        flags: Sequence[Flag] = TOY_FLAGS,
        dtypes: Sequence[DType] = FLOATS,
        derive: Callable[[Any], Mapping[str, int]] = lambda spec: {"THREADS": spec["N"], "STATIC_SMEM": 4 * spec["N"]},
        min_arch: Arch = OLDEST,
        **more: Any,
    ) -> Kernel:
        folder = tmp_path / "templates"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.cu.j2").write_text(template)
        return registry.register(
            Kernel(
                name=name,
                summary="A kernel for tests.",
                formula="y[i] = x[i + 1]",
                axes=tuple(axes),
                flags=tuple(flags),
                dtypes=tuple(dtypes),
                derive=derive,
                min_arch=min_arch,
                templates=folder,
                **more,
            )
        )

    return make


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Runs a program in a fresh interpreter, far from the checkout; returns what it printed."""

    def run(program: str, *, root: Path = ROOT, **environment: str) -> str:
        env = os.environ | {"PYTHONPATH": str(root)} | environment
        told = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        return told.stdout

    return run
