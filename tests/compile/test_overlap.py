"""Kernels that are launched while the one before ends: each waits for that before it touches memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import kgen
from kgen.arch import HOPPER, Arch
from kgen.build import build
from kgen.render import render
from tests.compile.test_nvrtc import disassembler
from tests.compiling import LINED

pytestmark = pytest.mark.usefixtures("shared_cache")

WAIT, ELSEWHERE = "griddepcontrol.wait;", "#if __CUDA_ARCH__ >= 900"
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?) *;", re.MULTILINE)
TOUCHES = re.compile(
    r"(?:@!?U?P\w+ )?(?:LDG|LDGSTS|LD|STG|ST|ATOMG|ATOM|REDG|RED|UBLK\w+|UTMA\w+|CCTL|BRA|EXIT|CALL)\b"
)
"""Global memory, or a branch beyond which it might be."""


def test_every_kernel_begins_with_the_wait() -> None:
    for spec in kgen.select():
        source = render(spec)
        body = source.text.index("\n{\n", source.text.index('extern "C" __global__')) + 3
        _, *first = source.text[body:].splitlines()[:4]  # behind a comment
        wait = f'    asm volatile("{WAIT}" ::: "memory");'
        assert first == ([ELSEWHERE, wait, "#endif"] if spec.kernel.min_arch < HOPPER else [wait, "", first[2]]), spec
        assert source.waits and source.text.count(WAIT) == 1, spec


def test_nothing_is_read_or_written_before_the_wait(tmp_path: Path) -> None:
    """As the assembler left it: it may move a load that nothing seems to change."""
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    firsts = [kgen.parse(kernel.defaults[0]) for kernel in kgen.kernels().values() if kernel.defaults]
    early = {}
    for spec in firsts:
        built = build(spec, Arch.parse("sm_90a"), flags=LINED)
        (tmp_path / "kernel.cubin").write_bytes(built.cubin)
        command = [tool, "--print-code", "--no-dataflow", tmp_path / "kernel.cubin"]  # a third of its time is dataflow
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        code = INSTRUCTION.findall(told.stdout)
        wait = code.index("ACQBULK")
        if found := [line for line in code[:wait] if TOUCHES.match(line)]:
            early[built.spec.name] = found
        assert any(TOUCHES.match(line) for line in code[wait:]), built.spec.name
    assert early == {}
