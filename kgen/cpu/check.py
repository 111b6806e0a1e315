"""A launch under watch: what it does that no kernel may do, each with its line; a crash or hang costs a child process.

The kernel runs in a forked process, whose memory is a copy; what it wrote is copied back when it has ended.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kgen.cpu.frame import LaunchStruct, message_buffer
from kgen.cpu.library import Library, runtime
from kgen.cpu.report import Finding, findings
from kgen.cpu.translate import Program

MOST = 20
"""Reports after which a launch stops."""
PATIENCE = 2.0
"""Seconds of polling without progress after which a launch, which has this thread for itself, counts as a deadlock."""
_LOG = 1 << 16


class Area(ctypes.Structure):
    """`kg::Area` of runtime/check.h."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("initialised", ctypes.c_uint32),
    )


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


class Buffer(NamedTuple):
    """Memory that a kernel may access: bytes from an address on."""

    address: int
    nbytes: int
    writable: bool = True
    initialised: bool = True


def launch_checked(
    launch: LaunchStruct, library: Library, program: Program, buffers: Sequence[Buffer]
) -> list[Finding]:
    """Run a launch of a checked library in this process; what the checks found, in the order of time."""
    log = ctypes.create_string_buffer(_LOG)
    areas = [Area(at, size, 1, 0) for at, size, _ in program.areas]
    if launch.dynamic_shared:
        areas.append(Area(program.shared, launch.dynamic_shared, 1, 0))
    held = [Area(b.address, b.nbytes, b.writable, b.initialised) for b in (*buffers, *_variables(library, program))]
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
    return findings(texts, library, program)


def _variables(library: Library, program: Program) -> list[Buffer]:
    """The kernel's own variables in global memory."""
    return [Buffer(library.variables[name], size) for name, size in program.globals]


class Outcome(NamedTuple):
    """What came of a checked launch; `findings` is empty where nothing is wrong."""

    findings: tuple[Finding, ...]
    seconds: float

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing to report"


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

    timeout   seconds, and
    memory    bytes of address space, that the child may take
    """
    began = time.perf_counter()
    runtime()  # loaded before the child begins
    written = [(buffer, mmap.mmap(-1, buffer.nbytes)) for buffer in buffers if buffer.writable and buffer.nbytes]

    def work() -> list[Finding]:
        found = launch_checked(launch, library, program, buffers)
        for buffer, shared in written:
            shared[:] = ctypes.string_at(buffer.address, buffer.nbytes)
        return found

    found, ended = _in_child(work, timeout, memory)
    if ended:
        for buffer, shared in written:
            ctypes.memmove(buffer.address, shared[:], buffer.nbytes)
    return Outcome(tuple(found), time.perf_counter() - began)


def buffers_of(arrays: Sequence[Any], fresh: Sequence[Any] = ()) -> list[Buffer]:
    """The memory of arrays, those that share some together; arrays in `fresh` hold nothing that may be read."""
    spans = []
    for array in arrays:
        low, high = np.lib.array_utils.byte_bounds(array)
        if array.size:
            spans.append(Buffer(low, high - low, bool(array.flags.writeable), not any(array is x for x in fresh)))
    merged: list[Buffer] = []
    for span in sorted(spans):
        if merged and span.address < merged[-1].address + merged[-1].nbytes:
            last = merged.pop()
            end = max(last.address + last.nbytes, span.address + span.nbytes)
            writable, initialised = last.writable or span.writable, last.initialised or span.initialised
            span = Buffer(last.address, end - last.address, writable, initialised)
        merged.append(span)
    return merged


def _in_child(work: Callable[[], list[Finding]], timeout: float, memory: int) -> tuple[list[Finding], bool]:
    """What `work` returns, in a forked process, and whether it did; else how that process ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of Python's ending may run here
        status = 1
        try:
            os.close(reader)
            with_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (memory + _address_space(), with_limit))
            for finding in work():
                os.write(writer, f"{finding.kind}\x1f{finding.line}\x1f{finding.text}\x1e".encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    data, until = b"", time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = []
    for record in data.decode(errors="replace").split("\x1e")[:-1]:
        kind, line, text = record.split("\x1f", 2)
        found.append(Finding(kind, int(line), text))
    if status == -signal.SIGKILL and time.monotonic() >= until:
        found.append(Finding("hang", 0, f"the kernel did not end within {timeout:g} seconds"))
    elif status < 0:
        found.append(Finding("crash", 0, f"the kernel's process died of {signal.Signals(-status).name}"))
    elif status:
        found.append(Finding("crash", 0, "the kernel's process failed"))
    return found, status == 0


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 1 << 40
