"""Kernels are lists of statements whose shapes they share: what is compiled, when, and how lanes go through a list."""

from __future__ import annotations

import itertools
import shutil
import struct
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import kgen
from kgen import cpu, nvrtc
from kgen.build import store
from kgen.cpu import compiler, library, shapes
from kgen.cpu.translate.listing import listing
from kgen.cpu.translate.parse import parse
from kgen.cpu.translate.ptx import instruction
from kgen.cpu.translate.repeats import repeated
from kgen.cpu.translate.shape import shaped
from kgen.errors import JitDisabledError
from kgen.render import render


def text_of(body: str) -> str:
    return f'extern "C" __global__ void k(float* y, const float* x, int n)\n{{ int i = threadIdx.x; {body} }}'


def run(text: str) -> np.ndarray:
    x, y = np.random.default_rng(3).standard_normal(128).astype("f"), np.zeros(64, "f")
    cpu.compile_cuda(text).launch(grid=1, block=64, args=[y, x, np.int32(60)])
    return y


def test_lanes_that_part_in_loops_and_switches_each_do_what_they_would_do_alone() -> None:
    body = """int s = 0;
    for (int j = 0; j < i % 5; ++j) {
        if ((i + j) & 1) { s += 3 * j; continue; }
        for (int k = j; k < i; k += 7) { if (k % 3 == i % 3) break; s -= k; }
        switch ((i + j) % 9) {
        case 0: s += 1; break; case 1: s *= 2; break; case 2: s -= 5; case 3: s ^= 21; break; case 4: s += n; break;
        case 5: s = -s; break; case 6: s <<= 1; break; case 7: s += j; break; default: if (i == 40) return;
        }
    }
    y[i] = s;"""

    def alone(i: int, n: int) -> int:
        s = 0
        for j in range(i % 5):
            if (i + j) & 1:
                s += 3 * j
                continue
            for k in range(j, i, 7):
                if k % 3 == i % 3:
                    break
                s -= k
            case = (i + j) % 9
            if case == 8 and i == 40:
                return 0
            steps = {0: s + 1, 1: s * 2, 2: (s - 5) ^ 21, 3: s ^ 21, 4: s + n, 5: -s, 6: s << 1, 7: s + j}
            s = steps.get(case, s)
        return s

    assert run(text_of(body)).tolist() == [alone(i, 60) for i in range(64)]


@pytest.mark.parametrize("check", [False, True])
def test_atomics_see_lanes_in_turn(check: bool) -> None:
    """All of one lane's before the next one's, as it always was: sums of floats depend on it."""
    text = """extern "C" __global__ void k(int* counter, int* seen)
    { seen[2 * threadIdx.x] = atomicAdd(counter, 1); seen[2 * threadIdx.x + 1] = atomicAdd(counter, 1); }"""
    kernel = cpu.compile_cuda(text, check=check)
    counter, seen = np.zeros(1, np.int32), np.zeros(64, np.int32)
    (kernel.check if check else kernel.launch)(grid=1, block=32, args=[counter, seen])
    assert seen.tolist() == [*range(64)]


def test_a_kernel_whose_statements_others_had_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    run(text_of("y[i] = x[i] * 2.0f + 1.0f;"))
    monkeypatch.setattr(compiler, "build", None)  # is not called
    monkeypatch.setattr(shapes, "_known", {})  # as in another process
    assert run(text_of("y[i] = x[i] * 7.0f + 3.0f;")).any()


def test_shapes_whose_batch_was_removed_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))
    text = text_of("y[i] = x[i] - 4.0f;")
    before = run(text)
    for path in store().named("kg_shapes", compiler.host()):
        shutil.rmtree(path)
    monkeypatch.setattr(shapes, "_known", {})
    assert run(text).tobytes() == before.tobytes()
    assert [*store().named("kg_shapes", compiler.host())]


def test_without_a_compiler_missing_shapes_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))
    text = text_of("y[i] = x[i] - 5.0f;")
    run(text)
    for path in store().named("kg_shapes", compiler.host()):
        shutil.rmtree(path)
    monkeypatch.setattr(shapes, "_known", {})
    monkeypatch.setenv("KGEN_JIT", "off")
    with pytest.raises(JitDisabledError, match="lacks statements"):
        run(text)


def test_variables_in_global_memory_begin_with_their_values_and_keep_what_is_written() -> None:
    text = (
        "__device__ float table[64] = {1, 2, 3};\n__device__ double one = 0.1;\n__constant__ short few[3] = {-1, 7};\n"
    )
    text += text_of("y[i] = table[i] + (float)one + few[i % 3] + x[i] * 0; table[i] += 1;")
    kernel, y = cpu.compile_cuda(text), np.zeros(64, "f")
    for launch in range(3):
        kernel.launch(grid=1, block=64, args=[y, np.zeros(64, "f"), np.int32(0)])
        assert np.allclose(y[:4], np.array([0, 9, 3, -1]) + 0.1 + launch)


def test_an_access_behind_a_variable_is_reported() -> None:
    text = "__device__ float table[64];\n" + text_of("table[i + n] = 1;")
    kernel = cpu.compile_cuda(text, check=True)
    args = [np.zeros(64, "f"), np.zeros(64, "f")]
    assert not kernel.check(grid=1, block=64, args=[*args, np.int32(0)]).findings
    found = kernel.check(grid=1, block=64, args=[*args, np.int32(1)]).findings
    assert {finding.kind for finding in found} == {"bounds"}


def test_registers_and_numbers_are_operands_but_for_arguments_of_templates() -> None:
    places = {"f1": ("float", 8), "f32": ("float", 12)}
    one = shaped("f1 = kg::g<2, 3>(0x1.8000000000000p+0f, f->f32[7][l]) * 5u;", True, places.get)
    other = shaped("f32 = kg::g<2, 3>(0x1.4000000000000p+1f, f->f32[9][l]) * 6u;", True, places.get)
    assert one.shape == other.shape
    assert "g<2, 3>" in one.shape.text and "const int32_t n2_ = o_[2];" in one.shape.text
    assert one.operands == (8, *of("<f", 1.5), 7, 5)
    assert other.operands == (12, *of("<f", 2.5), 9, 6)


def test_numbers_of_64_bits_take_two_operands() -> None:
    assert shaped("f(123456789012ull, 0x1.8000000000000p+0, 4294967295u);", True, {}.get).operands == (
        *of("<Q", 123456789012),
        *of("<d", 1.5),
        -1,
    )


def like(opcode: str, *operands: str, guard: str = "") -> object:
    kinds = {"%r1": "b32", "%r2": "b32", "%r3": "b32", "%f1": "f32", "%f2": "f32", "%p1": "pred", "%rd1": "b64"}
    found = repeated(instruction(opcode, operands, guard, 7, 0, kinds), kinds)
    return found and found[0]


def test_instructions_that_differ_in_their_registers_are_translated_once() -> None:
    one = like("add.s32", "%r1", "%r2", "5")
    assert one is not None and one is like("add.s32", "%r3", "%r1", "5")
    assert like("add.s32", "%r1", "%r1", "5") != one, "its result may be read where it was an operand"
    assert like("add.s32", "%r1", "%r2", "6") != one
    assert like("add.s32", "%r1", "%r2", "5", guard="%p1") != like("add.s32", "%r1", "%r2", "5", guard="!%p1") != one
    assert like("mov.b32", "%r1", "%r2") != like("mov.b32", "%f1", "%f2"), "registers of other types"


def test_what_reports_name_or_the_kernel_decides_is_translated_each_time() -> None:
    assert like("ld.shared.u32", "%r1", "[%r2]") is None
    assert like("cvta.shared.u64", "%rd1", "%rd1") is None
    assert like("mov.u32", "%r1", "table") is None
    assert like("mov.u32", "%r1", "%tid.x") is None
    assert like("add.s32", "%r1", "%r2") is None, "whose error names its line"


@pytest.mark.parametrize("name", ["softmax_t32_n8_v4_f32", "linear_chunk_bf16", "lmha_e64_t1_f32"])
def test_lists_are_those_of_kernels_whose_every_instruction_is_translated(name: str) -> None:
    ptx = nvrtc.compile_ptx(render(kgen.parse(name)).text, name, library.ARCH)
    made = listing(parse(ptx))
    with mock.patch("kgen.cpu.translate.listing.repeated", lambda at, registers: None):
        alone = listing(parse(ptx))
    assert made == alone


def of(kind: str, number: float) -> tuple[int, ...]:
    data = struct.pack(kind, number)
    return struct.unpack(f"<{len(data) // 4}i", data)


def test_unrolled_loops_have_few_shapes() -> None:
    body = "float s = 0;\n#pragma unroll\nfor (int j = 0; j < 64; ++j) s = s * x[j * n] + j;\ny[i] = s;"
    made = listing(parse(nvrtc.compile_ptx(text_of(body), "k", library.ARCH)))
    statements = sum(map(len, made.lists.values())) / 4 / 3
    assert statements > 5 * len(made.shapes)
    assert len({*itertools.chain(made.shapes)}) == len(made.shapes)
