"""A launch under watch: what it does that no kernel may do, each with its line; a crash or hang costs a child process.

The kernel runs in a forked process, whose memory is a copy; what it wrote is copied back when it has ended.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kgen.cpu.check.report import Finding, Report, finding
from kgen.cpu.library import Library, runtime
from kgen.cpu.run.buffers import Area, Buffer, shared
from kgen.cpu.run.frame import LaunchStruct, message_buffer
from kgen.cpu.translate.program import Program

MOST = 20
"""Reports after which a launch stops."""
PATIENCE = 2.0
"""Seconds of polling without progress after which a launch, which has this thread for itself, counts as a deadlock."""
SHARE = 20
"""Seconds that may pass for a second of work: on a busy machine a launch waits for its turn, which is no hang."""
_LOG = 1 << 16


class CheckStruct(ctypes.Structure):
    """`kg::Check` of runtime/check.h."""

    _fields_ = (
        ("buffers", ctypes.c_void_p),
        ("buffer_count", ctypes.c_uint32),
        ("areas", ctypes.c_void_p),
        ("area_count", ctypes.c_uint32),
        ("log", ctypes.c_void_p),
        ("log_size", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
    )


def launch_checked(
    launch: LaunchStruct, library: Library, program: Program, buffers: Sequence[Buffer]
) -> list[Finding]:
    """Run a launch of a checked library in this process; what the checks found, in the order of time."""
    log = ctypes.create_string_buffer(_LOG)
    areas = [Area(at, size) for at, size in program.areas]
    if launch.dynamic_shared:
        areas.append(Area(program.shared, launch.dynamic_shared))
    variables = [Buffer(library.variables[name], size) for name, size in program.globals]
    held = [Area.of(buffer) for buffer in (*buffers, *variables)]
    area_array, buffer_array = (Area * max(1, len(areas)))(*areas), (Area * max(1, len(held)))(*held)
    watched = CheckStruct(
        ctypes.addressof(buffer_array),
        len(held),
        ctypes.addressof(area_array),
        len(areas),
        ctypes.addressof(log),
        _LOG,
        MOST,
    )
    launch.check, launch.patience = ctypes.addressof(watched), PATIENCE
    message = message_buffer(launch)
    runtime().kg_launch(ctypes.byref(launch))
    texts = [*log.value.decode().splitlines(), *([message.value.decode()] if message.value else [])]
    return [finding(text, library, program) for text in texts]


@dataclass(frozen=True)
class Outcome(Report):
    """What came of a checked launch; `findings` is empty where nothing is wrong."""

    findings: Sequence[Finding]
    seconds: float


def run_checked(
    launch: LaunchStruct,
    library: Library,
    program: Program,
    buffers: Sequence[Buffer],
    *,
    timeout: float = 60.0,
    memory: int = 8 << 30,
) -> Outcome:
    """Run a launch of a checked library in a child, and take over what it wrote to the buffers.

    timeout   seconds of work, of which it counts whole ones, and
    memory    bytes of address space, that the child may take
    """
    began = time.perf_counter()
    runtime()  # loaded before the child begins
    results = [(buffer, shared(buffer.nbytes)) for buffer in buffers if buffer.writable and buffer.nbytes]

    def work() -> list[Finding]:
        found = launch_checked(launch, library, program, buffers)
        for buffer, result in results:
            ctypes.memmove(result.ctypes.data, buffer.address, buffer.nbytes)
        return found

    found, ended = _in_child(work, timeout, memory)
    if ended:
        for buffer, result in results:
            ctypes.memmove(buffer.address, result.ctypes.data, buffer.nbytes)
    return Outcome(tuple(found), time.perf_counter() - began)


def _in_child(work: Callable[[], list[Finding]], timeout: float, memory: int) -> tuple[list[Finding], bool]:
    """What `work` returns, in a forked process, and whether it did; else how that process ended."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    allowed = max(1, math.ceil(timeout))

    def tell() -> None:
        _limit(resource.RLIMIT_AS, memory + _address_space())
        _limit(resource.RLIMIT_CPU, allowed)
        writer.send(work())

    child = context.Process(target=tell)
    child.start()
    writer.close()
    found: list[Finding] = []
    ended = reader.poll(SHARE * allowed)
    if ended:
        with suppress(EOFError):
            found = reader.recv()
    else:
        child.kill()
    child.join()
    reader.close()
    status = child.exitcode or 0
    if not ended or status == -signal.SIGXCPU:
        found.append(Finding("hang", 0, f"the kernel did not end within {allowed} seconds of work"))
    elif status < 0:
        found.append(Finding("crash", 0, f"the kernel's process died of {signal.Signals(-status).name}"))
    elif status == errno.ENOMEM:
        found.append(Finding("memory", 0, f"the checks of this launch take more than {memory >> 20} MiB"))
    elif status:
        found.append(Finding("crash", 0, "the kernel's process failed"))
    return found, status == 0


def _limit(kind: int, wanted: int) -> None:
    most = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 1 << 40
