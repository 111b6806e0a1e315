"""C++ -> shared library: finds a compiler on this machine and says what decides the bytes that it makes."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from kgen.config import config
from kgen.errors import CompileError, ToolchainError

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "runtime"

_FLAGS = (
    *("-std=c++17", "-fPIC", "-w", "-fno-exceptions", "-fno-rtti", "-fno-sanitize=all"),
    # What PTX means by its types: wrapping integers, registers that are read as another type, no contraction.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fwrapv", "-fsigned-char"),
)
_SYSTEM = ("-lm", "-lpthread", "-lrt")
_FEW = ("-nostdlib", "-lm", "-lgcc")
"""All that shapes may call: with what programs usually have, linking takes 20 ms more."""
_RUNNERS = frozenset(("run", "check"))
_RUNNERS |= {"calls", "cells", "checks", "clocks", "endless", "fiber", "launch", "listed", "machine", "places"}
_RUNNERS |= {"runtime", "shadow"}
"""Folders, and headers without their ending, that run lists and shapes and decide nothing of them."""
_HINT = "KGEN_CXX is the command of a C++ compiler, such as g++ or clang++"
_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"}


@functools.cache
def compiler() -> tuple[str, ...]:
    """The command of a C++ compiler: KGEN_CXX, else g++ or clang++, else Zig's from its wheel.

    Raises ToolchainError where there is none.
    """
    chosen = config().cxx
    if chosen:
        command = tuple(shlex.split(chosen))
        if not command or shutil.which(command[0]) is None:
            raise ToolchainError(f"KGEN_CXX names {chosen}, which is no command here", hint=_HINT)
        return command
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    raise ToolchainError(
        "the CPU executor needs a C++ compiler, and finds neither g++ nor clang++ nor the wheel ziglang",
        hint="apt install g++, or pip install ziglang, or set KGEN_CXX",
    )


@functools.cache
def identity(runtime: bool = False) -> tuple[str, ...]:
    """What decides a kernel's list and its shapes, or the runtime's bytes, besides text: compiler, flags, sources."""
    return (_which(), *_FLAGS, f"x86-64-v3: {_has_v3()}", _sources(runtime))


@functools.cache
def _which() -> str:
    """Which compiler this is, by its file: that is read a hundred times faster than it tells its version."""
    path = shutil.which(compiler()[0])
    if path is None or len(compiler()) > 1:
        return _version()
    status = Path(path).stat()
    return f"{Path(path).resolve()} {status.st_size} {status.st_mtime_ns}"


@functools.cache
def _version() -> str:
    return subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def flags() -> tuple[str, ...]:
    """The compiler's options for this machine."""
    if _has_v3():
        return (*_FLAGS, "-march=x86_64_v3" if any("zig" in word for word in compiler()) else "-march=x86-64-v3")
    return _FLAGS


def build(text: str, *options: str, system: bool = True) -> bytes:
    """Compile a text to a shared library; raises CompileError with what the compiler said.

    `system`: whether it calls the system, and not only functions of mathematics.
    """
    libraries = _SYSTEM if system or "clang" in _version() else _FEW
    with TemporaryDirectory(prefix="kgen-") as folder:
        source, library = Path(folder) / "unit.cpp", Path(folder) / "unit.so"
        source.write_text(text)
        command = [*compiler(), *flags(), *options, f"-I{RUNTIME}", "-shared", str(source), "-o", str(library)]
        done = subprocess.run([*command, *libraries], capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"{compiler()[0]} refuses what the executor wrote\n{done.stderr[:4000]}"
            raise CompileError(message, log=done.stderr)
        if not library.is_file():
            raise CompileError(f"{' '.join(compiler())} says that all is well, and makes no library", hint=_HINT)
        return library.read_bytes()


def cores() -> int:
    """How many threads of this machine we may use."""
    return len(os.sched_getaffinity(0))


def host() -> str:
    """This kind of machine, as the store names it."""
    return f"host_{platform.machine().lower().replace('-', '_')}"


@functools.cache
def _has_v3() -> bool:
    try:
        with Path("/proc/cpuinfo").open() as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return platform.machine().lower() in ("x86_64", "amd64") and set(flags.split()) >= _V3


@functools.cache
def _sources(runtime: bool) -> str:
    digest = hashlib.sha256()
    for path in sorted((RUNTIME if runtime else HERE).rglob("*")):
        decides = runtime or _RUNNERS.isdisjoint((*path.relative_to(HERE).parts[:1], path.stem))
        if decides and path.suffix in (".py", ".h", ".cpp"):
            digest.update(path.read_bytes())
    return digest.hexdigest()
