"""Forms of one lane against what NumPy and Python say they mean; the hardware's word is in the conformance tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kgen import cpu
from kgen.cpu.forms import expand, forms
from kgen.cpu.translate.lane import lookup
from kgen.errors import UnknownInstructionError

COUNT = 512
NUMPY = {"u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64}
NUMPY |= {"b32": np.uint32, "b64": np.uint64, "b16": np.uint16, "f32": np.float32, "f64": np.float64}
BITS = {"u16": 16, "s16": 16, "b16": 16, "u64": 64, "s64": 64, "b64": 64, "f64": 64}


def wrapped(value: int, kind: str) -> int:
    """An integer as its type holds it."""
    bits = BITS.get(kind, 32)
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def _integers() -> Iterator[tuple[str, str, tuple[str, ...], Callable[..., Any]]]:
    """Opcode, result, operands, meaning in Python's unbounded integers."""
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = BITS.get(t, 32)
        yield f"add.{t}", t, (t, t), lambda a, b: a + b
        yield f"sub.{t}", t, (t, t), lambda a, b: a - b
        yield f"mul.lo.{t}", t, (t, t), lambda a, b: a * b
        yield f"mul.hi.{t}", t, (t, t), lambda a, b, bits=bits: (a * b) >> bits
        yield f"mad.lo.{t}", t, (t, t, t), lambda a, b, c: a * b + c
        yield f"min.{t}", t, (t, t), min
        yield f"max.{t}", t, (t, t), max
        yield f"div.{t}", t, (t, t), lambda a, b: _divided(a, b)[0]
        yield f"rem.{t}", t, (t, t), lambda a, b: _divided(a, b)[1]
        yield f"shr.{t}", t, (t, "u32"), lambda a, b, bits=bits: a >> min(b, bits)
        yield f"sad.{t}", t, (t, t, t), lambda a, b, c: c + abs(a - b)
    for t in ("u16", "u32"):
        wide = {"u16": "u32", "u32": "u64"}[t]
        yield f"mul.wide.{t}", wide, (t, t), lambda a, b: a * b
        yield f"mul.wide.s{t[1:]}", f"s{wide[1:]}", (f"s{t[1:]}",) * 2, lambda a, b: a * b
    for t in ("b16", "b32", "b64"):
        bits = BITS.get(t, 32)
        yield f"and.{t}", t, (t, t), lambda a, b: a & b
        yield f"or.{t}", t, (t, t), lambda a, b: a | b
        yield f"xor.{t}", t, (t, t), lambda a, b: a ^ b
        yield f"not.{t}", t, (t,), lambda a: ~a
        yield f"shl.{t}", t, (t, "u32"), lambda a, b, bits=bits: a << b if b < bits else 0
    yield "popc.b32", "u32", ("b32",), lambda a: a.bit_count()
    yield "popc.b64", "u32", ("b64",), lambda a: a.bit_count()
    yield "clz.b32", "u32", ("b32",), lambda a: 32 - a.bit_length()
    yield "brev.b32", "b32", ("b32",), lambda a: int(f"{a:032b}"[::-1], 2)
    yield "bfind.u32", "u32", ("u32",), lambda a: a.bit_length() - 1
    yield "shf.l.wrap.b32", "b32", ("b32", "b32", "u32"), lambda a, b, c: ((b << 32 | a) << (c % 32)) >> 32
    yield "shf.r.clamp.b32", "b32", ("b32", "b32", "u32"), lambda a, b, c: (b << 32 | a) >> min(c, 32)
    yield "prmt.b32", "b32", ("b32", "b32", "b32"), _permuted
    yield "cvt.s32.s16", "s32", ("s16",), lambda a: a
    yield "cvt.u16.u32", "u16", ("u32",), lambda a: a
    yield "cvt.sat.s16.s32", "s16", ("s32",), lambda a: min(max(a, -32768), 32767)
    yield "cvt.sat.u32.s64", "u32", ("s64",), lambda a: min(max(a, 0), 2**32 - 1)


def _divided(a: int, b: int) -> tuple[int, int]:
    """Toward zero; by zero the hardware gives all ones for both."""
    if b == 0:
        return -1, -1
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - b * quotient


def _fused(a: Any, b: Any, c: Any) -> Any:
    """a b + c, rounded once: in double, to odd, which leaves the last rounding to float exact."""
    product = a.astype(np.float64) * b  # exact
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    even = total.view(np.int64) & 1 == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(np.isfinite(total) & (error != 0) & even, np.nextafter(total, toward), total).astype(np.float32)


def _permuted(a: int, b: int, choice: int) -> int:
    data, total = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        pick = choice >> (4 * i) & 15
        byte = data[pick & 7]
        total |= (255 * (byte >> 7) if pick & 8 else byte) << (8 * i)
    return total


def _floats() -> Iterator[tuple[str, str, tuple[str, ...], Callable[..., Any]]]:
    """Opcode, result, operands, meaning in NumPy."""
    for t in ("f32", "f64"):
        for dots in ("", ".rn"):
            yield f"add{dots}.{t}", t, (t, t), np.add
            yield f"mul{dots}.{t}", t, (t, t), np.multiply
        yield f"sub.{t}", t, (t, t), np.subtract
        yield f"div.rn.{t}", t, (t, t), np.divide
        yield f"sqrt.rn.{t}", t, (t,), np.sqrt
        yield f"min.{t}", t, (t, t), np.fmin
        yield f"max.{t}", t, (t, t), np.fmax
        yield f"abs.{t}", t, (t,), np.abs
        yield f"neg.{t}", t, (t,), np.negative
        yield f"cvt.rni.{t}.{t}", t, (t,), np.rint
        yield f"cvt.rzi.{t}.{t}", t, (t,), np.trunc
    yield "fma.rn.f32", "f32", ("f32",) * 3, _fused
    yield "add.sat.f32", "f32", ("f32", "f32"), lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1), nan=0)
    yield "cvt.f64.f32", "f64", ("f32",), lambda a: a.astype(np.float64)
    yield "cvt.rn.f32.f64", "f32", ("f64",), lambda a: a.astype(np.float32)
    yield "cvt.rn.f32.s32", "f32", ("s32",), lambda a: a.astype(np.float32)
    yield "add.ftz.f32", "f32", ("f32", "f32"), lambda a, b: _flushed(_flushed(a) + _flushed(b))
    yield "mul.ftz.f32", "f32", ("f32", "f32"), lambda a, b: _flushed(_flushed(a) * _flushed(b))


def _flushed(x: Any) -> Any:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


INTEGERS, FLOATS = list(_integers()), list(_floats())


def entry(number: int, opcode: str, result: str, operands: tuple[str, ...]) -> str:
    """One PTX kernel that does one instruction for each thread."""
    size = {t: BITS.get(t, 32) // 8 for t in (*operands, result)}
    memory = {t: t if t[0] != "b" else f"u{t[1:]}" for t in size}
    lines = [
        f".visible .entry k{number}(.param .u64 out, {', '.join(f'.param .u64 p{i}' for i in range(len(operands)))})"
    ]
    lines += ["{", ".reg .u32 %t; .reg .u64 %a, %o;", f".reg .{result} %d;"]
    lines += [f".reg .{t} %x{i};" for i, t in enumerate(operands)]
    lines += ["mov.u32 %t, %tid.x;"]
    for i, t in enumerate(operands):
        lines += [f"ld.param.u64 %a, [p{i}];", f"mul.wide.u32 %o, %t, {size[t]};", "add.u64 %a, %a, %o;"]
        lines += [f"ld.global.{memory[t]} %x{i}, [%a];"]
    lines += [f"{opcode} %d, {', '.join(f'%x{i}' for i in range(len(operands)))};"]
    lines += ["ld.param.u64 %a, [out];", f"mul.wide.u32 %o, %t, {size[result]};", "add.u64 %a, %a, %o;"]
    return "\n".join([*lines, f"st.global.{memory[result]} [%a], %d;", "ret;", "}"])


@functools.cache
def kernels() -> cpu.Kernel:
    head = ".version 8.5\n.target sm_90a\n.address_size 64\n"
    return cpu.compile_ptx(head + "\n".join(entry(i, *form[:3]) for i, form in enumerate([*INTEGERS, *FLOATS])))


def run(number: int, result: str, given: list[Any]) -> Any:
    out = np.zeros(COUNT, NUMPY[result])
    kernels().launch(f"k{number}", grid=1, block=COUNT, args=[out, *given])
    return out


def values(kind: str, rng: np.random.Generator) -> Any:
    """Random bits, small numbers, and the edges of a type."""
    dtype = np.dtype(NUMPY[kind])
    raw = rng.integers(0, 256, COUNT * dtype.itemsize, np.uint8).view(dtype).copy()
    if dtype.kind == "f":
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.5e9, 0.3]
        raw[COUNT // 2 :] = rng.standard_normal(COUNT - COUNT // 2).astype(dtype)
    else:
        info = np.iinfo(dtype)
        edges = [0, 1, 2, 31, 32, 33, 63, 64, info.max, info.min, info.max - 1]
        raw[COUNT // 2 :] = rng.integers(0, 70, COUNT - COUNT // 2).astype(dtype)
    places = rng.integers(0, COUNT, COUNT // 3)
    raw[places] = rng.choice(np.array(edges, dtype), places.size)
    return raw


@pytest.mark.parametrize("number", range(len(INTEGERS)), ids=[form[0] for form in INTEGERS])
def test_integer_forms_mean_what_integers_mean(number: int) -> None:
    _, result, operands, meaning = INTEGERS[number]
    given = [values(kind, np.random.default_rng(number + i)) for i, kind in enumerate(operands)]
    got = run(number, result, given)
    want = [wrapped(int(meaning(*map(int, row))), result) for row in zip(*given)]
    assert got.tolist() == [wrapped(x, result) for x in want]


@pytest.mark.parametrize("number", range(len(FLOATS)), ids=[form[0] for form in FLOATS])
def test_float_forms_round_as_numpy_does(number: int) -> None:
    _, result, operands, meaning = FLOATS[number]
    given = [values(kind, np.random.default_rng(number + i)) for i, kind in enumerate(operands)]
    got = run(len(INTEGERS) + number, result, given)
    with np.errstate(all="ignore"):
        want = np.asarray(meaning(*given), NUMPY[result])
    np.testing.assert_array_equal(got, want)


def test_a_table_multiplies_braces_and_fills_in_what_they_took() -> None:
    found = list(expand("{add,sub}.{u32,f32} | $2 | $2 $2 | $1(a, b) || 0 | # include x.h"))
    assert [form.opcode for form in found] == ["add.u32", "add.f32", "sub.u32", "sub.f32"]
    assert (found[3].expression, found[3].operands, found[3].include) == ("sub(a, b) || 0", ("f32", "f32"), "x.h")


def test_a_modifier_that_goes_around_any_expression_needs_no_line_of_its_own() -> None:
    found = lookup("add.ftz.sat.f32")
    assert found is not None
    assert (found.form.opcode, found.ftz, found.sat) == ("add.f32", True, True)


def test_there_are_hundreds_of_forms() -> None:
    assert len(forms()) > 700


def test_an_unknown_instruction_is_named_with_its_line() -> None:
    text = (
        'extern "C" __global__ void k(int* x)\n{\n  asm volatile("vadd2.s32.s32.s32 %0, %0, %0, %0;" : "+r"(x[0]));\n}'
    )
    with pytest.raises(UnknownInstructionError, match=r"vadd2\.s32\.s32\.s32.*line 3 of the CUDA source"):
        cpu.compile_cuda(text)
