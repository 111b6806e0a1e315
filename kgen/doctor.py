"""Is everything here that kgen needs? Each part is tried, not just looked for, and what fails comes with its fix."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import kgen
from kgen import catalog, nvrtc, report
from kgen.arch import OLDEST
from kgen.build import shelf, store
from kgen.config import ConfigError, config
from kgen.dtypes import BF16, F16, DType
from kgen.errors import KgenError
from kgen.recipe import BUILTIN_TEMPLATES
from kgen.render import Source, render
from kgen.spec import Kernel

_CUDA = "pip install 'kgen[cuda13]' (or 'kgen[cuda12]' for a driver older than 580)"
_INSPECT = "pip install 'kgen[inspect]'"


@dataclass(frozen=True)
class Check:
    """One part: `required` if nothing can be rendered or compiled without it."""

    name: str
    ok: bool
    detail: str
    fix: str
    required: bool


def checks() -> list[Check]:
    """Every part in the order in which they need one another."""
    parts: list[tuple[str, Callable[[], str], str, bool]] = [
        ("python", lambda: f"{platform.python_version()} on {platform.platform(terse=True)}", "", True),
        ("kgen", lambda: f"{kgen.__version__} in {Path(kgen.__file__).parent}", "", True),
        ("numpy", lambda: metadata.version("numpy"), "pip install numpy", True),
        ("templates", _templates, "unset KGEN_TEMPLATES and KGEN_KERNELS, or mend what they name", True),
        ("cupy", _cupy, _CUDA, True),
        ("compiler", _compiler, _CUDA, True),
        ("cuda_fp16.h", lambda: _header(F16), _CUDA, True),
        ("cuda_bf16.h", lambda: _header(BF16), _CUDA, True),
        ("nvdisasm", lambda: _tool("nvdisasm"), _INSPECT, False),
        ("cuobjdump", lambda: _tool("cuobjdump"), _INSPECT, False),
        (
            "executor",
            _executor,
            "apt install g++, or pip install ziglang; without a GPU it computes",
            False,
        ),
        ("gpu", _gpu, "none is needed: the executor computes NumPy arrays; arrays on a GPU need its driver", False),
        ("cache", _cache, "set KGEN_CACHE_DIR to a folder of your own", False),
        ("shelf", _shelf, "name a folder that `kgen build --shelf` has filled, or unset KGEN_SHELF", False),
        ("jit", _jit, "unset KGEN_JIT", False),
    ]
    return [_checked(*part) for part in parts]


def table(checks: list[Check]) -> str:
    """A line a check, and the fix below what is missing."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{'ok' if check.ok else 'missing':7}  {check.name:{width}}  {check.detail}")
        if not check.ok:
            lines.append(f"{'':7}  {'':{width}}  fix: {check.fix}")
    return "\n".join(lines)


def _checked(name: str, look: Callable[[], str], fix: str, required: bool) -> Check:
    try:
        return Check(name, True, look(), "", required)
    except Exception as error:  # a broken installation fails in any way it likes
        if isinstance(error, ConfigError) and error.hint:  # no part is at fault, but a variable that all of them read
            fix = error.hint
        first = (str(error) or type(error).__name__).splitlines()[0]  # the rest is a hint, or noise
        return Check(name, False, first, fix, required)


def _templates() -> str:
    specs = catalog.select()
    for spec in specs:
        render(spec)
    return f"{len(specs)} default kernels render, from {config().templates or BUILTIN_TEMPLATES}"


def _cupy() -> str:
    import cupy

    return str(cupy.__version__)


def _compiler() -> str:
    archs = nvrtc.supported_archs()
    return f"{nvrtc.compiler_id()}, {archs[0]} to {archs[-1]}"


def _header(dtype: DType) -> str:
    """Compiles a kernel of four lines that includes it."""
    kernel = Kernel("probe", "", "", (), lambda spec: {"THREADS": 32}, dtypes=(dtype,))
    spec = kernel.spec()
    text = (
        f'#include <{dtype.header}>\nextern "C" __global__ void {spec.symbol}({dtype.c}* x) {{\n  *x = *x + *x;\n}}\n'
    )
    binary = nvrtc.compile_source(Source(spec, text, ()), OLDEST)
    return f"compiles, {binary.milliseconds:.0f} ms"


def _tool(name: str) -> str:
    found = report.find_tool(name)
    if found is None:
        raise KgenError("not installed; kgen sass and kgen diff --sass need one of the two")
    return str(found)


def _executor() -> str:
    from kgen.cpu.compiler import compiler

    return f"kernels run on this machine's processor, through {' '.join(compiler())}"


def _gpu() -> str:
    import cupy

    from kgen.device import current_device, device_arch

    device = current_device()
    name = cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
    cuda = cupy.cuda.runtime.driverGetVersion()
    return f"{name}, kernels for {device_arch(device)}, driver for CUDA {cuda // 1000}.{cuda % 1000 // 10}"


def _cache() -> str:
    facts = store().info()
    root = Path(facts["path"])
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise KgenError(f"cannot write to {existing}; kernels are compiled anew in every process")
    limit = report.size(facts["limit_bytes"])
    return f"{root}, {facts['entries']} entries, {report.size(facts['bytes'])} of {limit}"


def _shelf() -> str:
    facts = shelf().info()
    if facts["entries"]:
        return f"{facts['path']}, {facts['entries']} entries"
    if os.environ.get("KGEN_SHELF"):
        raise KgenError(f"no kernels in {facts['path']}: first uses compile")
    return "none: first uses compile"


def _jit() -> str:
    if not config().jit:
        raise KgenError("off (KGEN_JIT=off): a kernel that is in no cache is an error")
    return "on"
