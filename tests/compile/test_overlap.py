"""Kernels that are launched while the one before ends: each waits for that before it touches memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import kgen
from kgen.arch import HOPPER, Arch
from kgen.build import build
from kgen.ops.rows import RESERVED, SHARED
from kgen.render import render
from tests.compile.test_nvrtc import disassembler
from tests.compiling import LINED

pytestmark = pytest.mark.usefixtures("shared_cache")

WAIT, ELSEWHERE = "griddepcontrol.wait;", "#if __CUDA_ARCH__ >= 900"
NEXT, AHEAD = "griddepcontrol.launch_dependents;", "prefetch.global.L2 "
RINGS = ("softmax_ring", "softmax_backward_ring", "norm_ring", "norm_sums")
"""Kernels that bring their first rows into the L2 cache before they wait."""
INDICES = "common/flat_ahead.cuh.j2"
"""Of kernels that compute indices before they wait; what the assembler made of them is looked at below."""
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?) *;", re.MULTILINE)
TOUCHES = re.compile(
    r"(?:@!?U?P\w+ )?(?:LDG|LDGSTS|LD|STG|ST|ATOMG|ATOM|REDG|RED|UBLK\w+|UTMA\w+|CCTL(?!\.E\.PF2)|BRA|EXIT|CALL)\b"
)
"""Global memory, or a branch beyond which it might be; but not what only brings it into the L2 cache."""


def test_every_kernel_that_brings_nothing_into_the_cache_begins_with_the_wait() -> None:
    for spec in kgen.select():
        source = render(spec)
        if _brings(source.text) or INDICES in dict(source.parts):
            assert source.waits and source.text.count(WAIT) == 1, spec
            continue
        body = source.text.index("\n{\n", source.text.index('extern "C" __global__')) + 3
        _, *first = source.text[body:].splitlines()[:4]  # behind a comment
        wait = f'    asm volatile("{WAIT}" ::: "memory");'
        assert first == ([ELSEWHERE, wait, "#endif"] if spec.kernel.min_arch < HOPPER else [wait, "", first[2]]), spec
        assert source.waits and source.text.count(WAIT) == 1, spec


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_waits_between_what_it_brings_into_the_cache_and_what_it_reads(name: str) -> None:
    for spec in kgen.kernels()[name].defaults:
        text = render(kgen.parse(spec)).text
        body = text[text.index('extern "C" __global__') :]
        first = "begin_stage(0)" if "begin_stage" in body else "fetch(ring"
        assert body.count(WAIT) == 1 and body.rindex(AHEAD) < body.index(WAIT) < body.index(first), spec


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_lets_the_next_kernel_begin_which_has_room_for_no_more_blocks_than_run_at_once(name: str) -> None:
    """Otherwise a launch that begins while another ends would put blocks together, and leave multiprocessors idle."""
    for spec in map(kgen.parse, kgen.kernels()[name].defaults):
        text = render(spec).text
        assert text.count(NEXT) == 1 and text.index(WAIT) < text.index(NEXT), spec
        blocks = spec.derived.get("RESIDENT", 1)
        room = (spec.static_smem + spec.dynamic_smem + RESERVED) * blocks
        assert room <= SHARED + RESERVED < room + room // blocks, spec


def test_nothing_is_read_or_written_before_the_wait(tmp_path: Path) -> None:
    """As the assembler left it: it may move a load that nothing seems to change."""
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    firsts = [kgen.parse(kernel.defaults[0]) for kernel in kgen.kernels().values() if kernel.defaults]
    others = [kgen.parse(name) for kernel in (*RINGS, "norm", "softmax") for name in kgen.kernels()[kernel].defaults]
    firsts += [spec for spec in others[::2] if _brings(render(spec).text)]
    early = {}
    for spec in firsts:
        built = build(spec, Arch.parse("sm_90a"), flags=LINED)
        (tmp_path / "kernel.cubin").write_bytes(built.cubin)
        command = [tool, "--print-code", "--no-dataflow", tmp_path / "kernel.cubin"]  # a third of its time is dataflow
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        before, behind = told.stdout.split("ACQBULK ;")
        found = [line for line in INSTRUCTION.findall(before) if TOUCHES.match(line) and not _stays(line, before)]
        if found:
            early[built.spec.name] = found
        assert any(TOUCHES.match(line) for line in INSTRUCTION.findall(behind)), built.spec.name
    assert early == {}


def _brings(text: str) -> bool:
    """Whether a kernel brings something into the cache before it waits."""
    return AHEAD in text[text.index('extern "C" __global__') : text.index(WAIT)]


def _stays(line: str, before: str) -> bool:
    """Whether a line is a branch within what is done before the wait."""
    label = re.search(r"BRA[.\w]* `\((\S+)\)", line)
    return label is not None and f"{label[1]}:" in before
