"""A kernel's results are the same on every kind of host: what its compiler is told, and what orders its cores."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import numpy as np
import pytest

from kgen import cpu
from kgen.cpu import compiler
from kgen.cpu.translate.listing import listing
from kgen.cpu.translate.parse import parse

MEANING = {
    "-ffp-contract=off": "-ffp-contract=",  # else GCC makes one instruction of a * b + c, where there is one
    "-fsigned-char": "-funsigned-char",  # else char has no sign on ARM
    "-fwrapv": "-fno-wrapv",
    "-fno-strict-aliasing": "-fstrict-aliasing",
}
"""What every command must say, and the beginning of what would take it back."""


def test_every_command_says_what_c_leaves_to_compilers_and_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    run = subprocess.run

    def recording(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return run(command, **options)

    monkeypatch.setattr(compiler.subprocess, "run", recording)
    compiler.build('#include "kernel.h"\n', "-O3")
    (command,) = [command for command in commands if "-o" in command]
    for flag, opposite in MEANING.items():
        assert [word for word in command if word.startswith((flag, opposite))] == [flag], command


def test_of_two_blocks_that_write_and_then_read_one_sees_the_other_if_there_is_a_fence_between() -> None:
    """Cores read before what they wrote is seen, those of x86 too; these blocks run on two of them, where there are."""
    text = """extern "C" __global__ void k(volatile int* flags, int* seen, int* met, int n)
    {
        int x = n;
        for (int i = 0; i < 4000000; ++i) x = (x ^ x >> 7) * 1103515245 + i;  // meanwhile the other thread begins
        for (int i = x == 77; i < n; ++i) {
            const int mine = 32 * i + 16 * blockIdx.x, other = mine ^ 16;  // in cache lines of their own
            atomicAdd(met + 16 * i, 1);
            while (((volatile int*)met)[16 * i] < 2) { }
            for (int d = i * (3 + blockIdx.x) & 63; d > 0; --d) asm volatile("");
            flags[mine] = 1;
            __threadfence();
            seen[blockIdx.x * n + i] = flags[other];
        }
    }"""
    kernel, n = cpu.compile_cuda(text), 2000
    for _ in range(8):
        flags, seen, met = np.zeros(32 * n, np.int32), np.zeros((2, n), np.int32), np.zeros(16 * n, np.int32)
        kernel.launch(grid=2, block=1, args=[flags, seen, met, n], workers=2)
        assert np.count_nonzero(seen.any(axis=0)) == n


@pytest.mark.parametrize(
    ("instruction", "steps"),
    [
        ("ld.global.u32 %x, [%a];", ["load"]),
        ("ld.volatile.global.u32 %x, [%a];", ["load_strong"]),
        ("ld.relaxed.gpu.global.v2.u32 {%x, %x}, [%a];", ["load_strong", "load_strong"]),
        ("ld.acquire.gpu.global.u32 %x, [%a];", ["load_strong", "ACQUIRE"]),
        ("st.global.u32 [%a], %x;", ["store"]),
        ("st.relaxed.gpu.global.u32 [%a], %x;", ["store_strong"]),
        ("st.release.gpu.global.u32 [%a], %x;", ["RELEASE", "store_strong"]),
    ],
)
def test_what_ptx_orders_is_ordered_on_hosts_that_order_less_than_x86(instruction: str, steps: list[str]) -> None:
    head = ".visible .entry k(.param .u64 out) { .reg .u32 %x; .reg .u64 %a; ld.param.u64 %a, [out];"
    text = "".join(shape.text for shape in listing(parse(f"{head} {instruction} ret; }}")).shapes)
    assert re.findall(r"(?:load|store)\w*(?=<uint32_t>)|(?<=__ATOMIC_)\w+", text) == steps
