"""What a watch knows of memory from launch to launch: what nobody wrote yet, counters, and where an allocation ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import cpu
from kgen.backend import HOST
from kgen.cpu.check.watch import Watch
from kgen.notice import notice, noticing
from kgen.scratch import scratch

COPY = """
extern "C" __global__ void copy(unsigned char* to, const unsigned char* from, int count)
{
    for (int i = threadIdx.x; i < count; i += 32) to[i] = from[i];
}"""


def kinds(launches: Any, *about: int) -> set[str]:
    """What is found of copies, each (to, from, count) bytes, which `launches` gives within a watched block."""
    kernel = cpu.compile_cuda(COPY, check=True)
    program = kernel.program(None)
    with noticing() as noticed:
        watch = Watch(noticed)
        for to, source, count in launches(*about):
            args = (np.uint64(to), np.uint64(source), np.int32(count))
            launch, _frame = kernel.prepare(program, args, 1, 32)
            watch.run(launch, kernel.library, program)
    return {finding.kind for finding in watch.findings}


def test_what_a_launch_left_unwritten_is_not_read_by_the_next_one() -> None:
    def launches(written: int) -> Any:
        given, between, out = (notice(np.ones(103, np.uint8), fresh=at > 0) for at in range(3))
        yield between.ctypes.data, given.ctypes.data, written
        yield out.ctypes.data, between.ctypes.data, 103

    assert kinds(launches, 103) == set()
    for written in (101, 77, 0):
        assert kinds(launches, written) == {"uninitialised"}


def test_what_two_launches_wrote_together_is_written() -> None:
    def launches() -> Any:
        given, between, out = (notice(np.ones(103, np.uint8), fresh=at > 0) for at in range(3))
        yield between.ctypes.data, given.ctypes.data, 51
        yield between.ctypes.data + 51, given.ctypes.data, 52
        yield out.ctypes.data, between.ctypes.data, 103

    assert kinds(launches) == set()


def test_counters_are_zero_behind_each_launch() -> None:
    def launches(count: int) -> Any:
        given, counters = notice(np.arange(8, dtype=np.uint8)), notice(np.zeros(2, np.uint32), counters=True)
        yield counters.ctypes.data, given.ctypes.data, count

    assert kinds(launches, 1) == set()
    assert kinds(launches, 2) == kinds(launches, 8) == {"counters"}


def test_scratch_ends_with_its_last_byte() -> None:
    def launches(beyond: int) -> Any:
        given = notice(np.ones(200, np.uint8))
        memory = scratch(100, HOST, 0)
        assert memory.ptr % 256 == 0
        yield memory.ptr, given.ctypes.data, 100 + beyond

    assert kinds(launches, 0) == set()
    assert kinds(launches, 1) == {"bounds"}
