"""Source + Arch -> Binary, by NVRTC: needs neither a GPU nor a toolkit, only the compiler's wheel.

The compiler sees the text and nothing else of ours: no folder of this machine is searched for kgen's files, so the text
tells the whole truth about the cubin. Registers, spills and shared memory are the assembler's own account.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kgen import registry, toolkit
from kgen.arch import Arch
from kgen.errors import ArchError, CompileError, KgenError, ToolchainError
from kgen.recipe import recipe
from kgen.render import Source

_FEWER = "--minimal"
"""Leaves out the names of textures and of the runtime, which no kernel of ours uses: NVRTC begins 8 to 15 ms sooner,
and the cubins are the same."""
_CONTEXT_LINES = 2
_ERRORS_SHOWN = 5


class Flags(NamedTuple):
    """What a build may ask of the compiler beyond the architecture."""

    lineinfo: bool = False
    extra: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options; none names a path, so they may be part of a cache key."""
        base = ("--std=c++17", "--device-as-default-execution-space", "--no-source-include", "--ptxas-options=-v")
        return (*base, _FEWER, *(("--generate-line-info",) if self.lineinfo else ()), *self.extra)


PLAIN = Flags()


class Resources(NamedTuple):
    """What a kernel takes: registers, spills and stack of a thread, shared memory of a block; sizes in bytes."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_smem: int

    def as_dict(self) -> dict[str, int]:
        return self._asdict()


class Binary(NamedTuple):
    """A compiled kernel."""

    name: str
    symbol: str
    arch: Arch
    cubin: bytes
    resources: Resources
    compiler: str
    milliseconds: float


def compile_source(source: Source, arch: Arch, flags: Flags = PLAIN) -> Binary:
    """Compile one kernel; safe to call from several threads, which then compile side by side.

    Raises CompileError with the generated lines around the fault, ArchError for an architecture that this NVRTC or this
    kernel does not take, ToolchainError where there is no NVRTC.
    """
    spec = source.spec
    if arch < spec.kernel.min_arch:
        raise ArchError(f"{spec.name} needs {spec.kernel.min_arch} or later, not {arch}")
    options = (f"--gpu-architecture={arch}", *flags.options, *_includes(source.text))
    started = time.perf_counter()
    cubin, log = _run(source.text, f"kgen/{spec.name}.cu", options, arch, spec.name)
    elapsed = (time.perf_counter() - started) * 1e3
    entries = re.findall(r"Compiling entry function '(\w+)'", log)
    if entries and spec.symbol not in entries:
        raise CompileError(
            f"{spec.name}: the text has no kernel {spec.symbol}, but {', '.join(entries)}",
            hint=f'{spec.kernel.template} must declare it as extern "C" __global__ void {{{{ symbol }}}}(...)',
        )
    return Binary(spec.name, spec.symbol, arch, cubin, _resources(log), compiler_id(), round(elapsed, 1))


def compile_ptx(text: str, title: str, arch: Arch) -> str:
    """The PTX of a text, with the lines that its instructions come from; raises what `compile_source` raises."""
    target = f"--gpu-architecture={str(arch).replace('sm', 'compute')}"
    flags = Flags(lineinfo=True).options
    options = (target, *(flag for flag in flags if "ptxas" not in flag), *_includes(text))
    try:
        ptx, _ = _compiled(text, f"kgen/{title}.cu", options, "getPTX")
        return str(ptx.decode().rstrip("\0"))
    except _Refused as refusal:
        raise _explained(text, title, arch, refusal.log) from None


@functools.cache
def compiler_id() -> str:
    """Which compiler this is, to the build: part of every cache key.

    The wheel's version where CuPy takes NVRTC from a wheel (that loads nothing, so a cache hit costs no compiler); else
    the banner that the library writes into its output.
    """
    if version := toolkit.wheel_version():
        return f"nvrtc {version}"
    ptx = _nvrtc_call("", "empty.cu", ("--gpu-architecture=compute_80",), "getPTX")[0]
    banner = b"".join(line for line in ptx.splitlines() if line.startswith(b"//"))
    return f"nvrtc {hashlib.sha256(banner).hexdigest()[:12]}"


def supported_archs() -> tuple[Arch, ...]:
    """The architectures that this NVRTC compiles for, without their a and f variants."""
    return tuple(Arch.parse(str(number)) for number in toolkit.nvrtc().getSupportedArchs())


def _run(text: str, name: str, options: tuple[str, ...], arch: Arch, title: str) -> tuple[bytes, str]:
    try:
        cubin, log = _compiled(text, name, options, "getCUBIN")
    except _Refused as refusal:
        # NVRTC refuses sm_99 by the first name, sm_80a by the second.
        if "--gpu-architecture" in refusal.log or "--nv_arch" in refusal.log:
            known = ", ".join(map(str, supported_archs()))
            hint = f"{compiler_id()} knows {known}, and a or f variants of the newer ones"
            raise ArchError(f"{title}: the compiler does not know {arch}", hint=hint) from None
        raise _explained(text, title, arch, refusal.log) from None
    # CuPy's getCUBIN drops the last byte, without which NVIDIA's own tools refuse the file.
    cubin += b"\0"
    table_end = int.from_bytes(cubin[32:40], "little") + 56 * int.from_bytes(cubin[56:58], "little")
    if not cubin.startswith(b"\x7fELF") or table_end > len(cubin):
        raise CompileError(f"{title}: the compiler returned something that is no cubin", log=log)
    return cubin, log


class _Refused(Exception):
    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def _compiled(text: str, name: str, options: tuple[str, ...], result: str) -> tuple[Any, ...]:
    """What NVRTC makes of a text. One that it refuses may be a user's, and use what is left out; or NVRTC is old."""
    try:
        return _nvrtc_call(text, name, options, result)
    except _Refused:
        return _nvrtc_call(text, name, tuple(option for option in options if option != _FEWER), result)


def _nvrtc_call(text: str, name: str, options: tuple[str, ...], *results: str) -> tuple[Any, ...]:
    """The results, bytes each, and the log."""
    nvrtc = toolkit.nvrtc()
    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, options)
        return (*(getattr(nvrtc, result)(program) for result in results), nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        raise _Refused(nvrtc.getProgramLog(program) or str(error)) from None
    finally:
        nvrtc.destroyProgram(program)


@functools.cache  # once is enough
def load_ahead() -> None:
    """Begin to load and wake the compiler, which takes 0.2 s, while the caller renders.

    A failure shows when it compiles.
    """
    with suppress(ImportError):
        import markupsafe  # noqa: F401  # Jinja's extension module: the linker opens no other library meanwhile

    def load() -> None:
        with suppress(ToolchainError, _Refused):
            _nvrtc_call("", "empty.cu", ("--gpu-architecture=compute_80",), "getPTX")  # its first call takes longer

    threading.Thread(target=load, daemon=True).start()


def _includes(text: str) -> tuple[str, ...]:
    return (f"--include-path={toolkit.header_folder()}",) if "#include <" in text else ()


def _resources(log: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        spill_stores=number(r"(\d+) bytes spill stores"),
        spill_loads=number(r"(\d+) bytes spill loads"),
        stack=number(r"(\d+) bytes stack frame"),
        static_smem=number(r"(\d+) bytes smem"),
    )


def origin(title: str, shown: str) -> str:
    """Where a line of a kernel stands in its templates: in brackets, for messages.

    Nothing for a line that was put together there, and for one like others, of which nobody can tell which it is.
    """
    try:
        parts = recipe(registry.parse(title)).parts
    except KgenError:
        return ""
    found = [
        f" ({name}:{number})"
        for name, text in parts
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() == shown.strip()
    ]
    return found[0] if len(found) == 1 else ""


def _explained(text: str, title: str, arch: Arch, log: str) -> KgenError:
    """A CompileError that shows the generated lines, from a log of `file(line): error: message`."""
    lines = text.splitlines()
    blocks = []
    faults = re.findall(r"^([^\n(]*)\((\d+)\): ((?:catastrophic )?error:? .*)$", log, re.MULTILINE)
    for file, number, message in faults[:_ERRORS_SHOWN]:
        at, stem = int(number), Path(file).name
        if stem != f"{title}.cu":  # a toolkit header, whose lines are not ours to show
            blocks.append(f"  {stem}:{at}: {message}")
            continue
        blocks.append(f"  {stem}:{at}{origin(title, lines[at - 1])}: {message}")
        shown = range(max(1, at - _CONTEXT_LINES), min(len(lines), at + _CONTEXT_LINES) + 1)
        blocks += [f"  {'>' if line == at else ' '} {line:4} | {lines[line - 1]}" for line in shown]
    if len(faults) > _ERRORS_SHOWN:
        blocks.append(f"  and {len(faults) - _ERRORS_SHOWN} more")
    refused = [f"  {line.strip()}" for line in log.splitlines() if "error" in line]  # of the assembler
    body = "\n".join(blocks or refused) or log.strip()
    hint = None
    if f"kgen_{title}" in text:  # and not a text that the executor was given
        template = re.search(r"from (\S+\.j2)", lines[0])
        hint = f"rendered from {template[1] if template else 'a template'}; reproduce: kgen build {title} --arch {arch}"
    return CompileError(f"{title} does not compile for {arch} ({compiler_id()})\n{body}", log=log, hint=hint)
