"""Instructions of one lane as C++ statements: the forms of the tables, moves, comparisons into two predicates."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import NamedTuple

from kgen.cpu.forms import C_TYPES, Form, forms
from kgen.cpu.translate import asynchronous, memory
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.operands import listed
from kgen.cpu.translate.ptx import SIZES, Instruction

_LETTERS = re.compile(r"\b([a-h])\b")
_WORD = re.compile(r"[\w.]+|f->[\w\[\]]+")
_REPEATABLE = re.compile(rf"(?:\(\w+\))?(?:{_WORD.pattern})|\(-\w+\)")  # a register, or a number
_BOOLEAN = {"and": "&", "or": "|", "xor": "^"}
_PREDICATE = re.compile(r"(set|setp)\.(\w+)(?:\.(and|or|xor))?((?:\.ftz)?)((?:\.\w+)+)$")
_NOTHING = re.compile(r"prefetchu|griddepcontrol|applypriority|createpolicy|pmevent|brkpt")


def statement(emit: Emitter, at: Instruction) -> str:
    """What one lane does; the guard is part of it."""
    made = _plain(emit, at)
    return f"if ({emit.names.value(at.guard, 'pred', at)}) {{ {made} }}" if at.guard else made


def _plain(emit: Emitter, at: Instruction) -> str:
    base = at.opcode.partition(".")[0]
    if base == "mov":
        return _move(emit, at)
    if found := lookup(at.opcode):
        return _form(emit, at, found)
    if base in ("setp", "set") and (found_predicate := _PREDICATE.match(at.opcode)):
        return _predicate(emit, at, found_predicate)
    if (handler := memory.HANDLERS.get(base) or asynchronous.HANDLERS.get(base)) is not None:
        return handler(emit, at)
    if base in ("add", "addc", "sub", "subc", "mad", "madc"):
        return _carry(emit, at)
    if base == "trap":
        return f"w->calls->trap(w, {emit.site(at)});"
    if _NOTHING.match(at.opcode):
        return ";"
    raise unknown(at)


def _form(emit: Emitter, at: Instruction, found: Found) -> str:
    form = found.form
    if len(at.operands) != len(form.operands) + 1:
        raise unknown(at, f"takes {len(form.operands)} operands here, not {len(at.operands) - 1}")
    if form.include:
        emit.includes.add(form.include)
    given = {}
    for letter, text, kind in zip("abcdefgh", at.operands[1:], form.operands):
        value = emit.names.value(text, kind, at)
        given[letter] = f"kg::flushed({value})" if found.ftz and kind == "f32" else value
    uses = _uses(form.expression)
    expression, before = form.expression, ""
    if all(uses[letter] < 2 or _REPEATABLE.fullmatch(value) for letter, value in given.items()):
        shown = {letter: value if _WORD.fullmatch(value) else f"({value})" for letter, value in given.items()}
        expression = "".join([shown.get(piece, piece) for piece in _pieces(expression)])
    else:
        before = "".join(
            f"const {C_TYPES[kind]} {letter}{{{given[letter]}}}; " for letter, kind in zip("abcdefgh", form.operands)
        )
    if "SITE" in expression:
        expression = expression.replace("SITE", str(emit.site(at)))
    if found.ftz and form.result == "f32":
        expression = f"kg::flushed({expression})"
    if found.sat:
        expression = f"kg::saturated({expression})"
    made = emit.names.assign(at.operands[0], form.result, expression)
    return f"{{ {before}{made} }}" if before else made


def _move(emit: Emitter, at: Instruction) -> str:
    kind = at.opcode.split(".")[1]
    to, source = at.operands
    parts, width = listed(to if to.startswith("{") else source), SIZES[kind] * 8
    each = width // len(parts)
    if to.startswith("{"):  # unpack
        lines = [f"const uint{width}_t x_ = {emit.names.value(source, f'b{width}', at)};"]
        for place, part in enumerate(parts):
            lines.append(emit.names.assign(part, f"b{each}", f"x_ >> {each * place}"))
        return f"{{ {' '.join(lines)} }}"
    if source.startswith("{"):  # pack
        terms = [
            f"(uint{width}_t){emit.names.value(part, f'b{each}', at)} << {each * place}"
            for place, part in enumerate(parts)
        ]
        return emit.names.assign(to, f"b{width}", " | ".join(terms))
    return emit.names.assign(to, kind, emit.names.value(source, kind, at))


def _predicate(emit: Emitter, at: Instruction, found: re.Match[str]) -> str:
    """`setp.lt.and.s32 p|q, a, b, c`: p = a < b and c, q = not (a < b) and c; `set` gives a number instead.

    Of packed halves, p compares the low ones and q the high ones.
    """
    types = found[5].strip(".").split(".")
    packed = types[-1] in ("f16x2", "bf16x2")
    compared = lookup(f"setp.{found[2]}{found[4]}.{types[-1].removesuffix('x2') if packed else types[-1]}")
    if compared is None:
        raise unknown(at)
    if compared.form.include:
        emit.includes.add(compared.form.include)
    left, right = (emit.names.value(text, types[-1], at) for text in at.operands[1:3])
    kind = C_TYPES[types[-1]]
    flush = "kg::flushed" if compared.ftz else "kg::low" if packed else ""
    lines = [f"const {kind} a_ = {left}, b_ = {right};"]

    def test(name: str, of: str) -> str:
        half = C_TYPES["b16"] if packed else kind
        return f"bool {name}; {{ const {half} a = {of}(a_), b = {of}(b_); {name} = {compared.form.expression}; }}"

    lines.append(test("x_", flush))
    also = f" {_BOOLEAN[found[3]]} {emit.names.value(at.operands[3], 'pred', at)}" if found[3] else ""
    if found[1] == "set":
        one = "1.0f" if types[0] == "f32" else "0xffffffffu"
        lines.append(emit.names.assign(at.operands[0], types[0], f"(x_{also}) ? {one} : 0"))
    else:
        first, _, second = at.operands[0].partition("|")
        if second and packed:
            lines.append(f"{test('z_', 'kg::high')} const bool y_ = z_{also};")
        elif second:
            lines.append(f"const bool y_ = !x_{also};")
        lines.append(emit.names.assign(first.strip(), "pred", f"x_{also}"))
        if second:
            lines.append(emit.names.assign(second.strip(), "pred", "y_"))
    return f"{{ {' '.join(lines)} }}"


def _carry(emit: Emitter, at: Instruction) -> str:
    """`add.cc`, `addc`, `sub.cc`, `subc`, `mad.lo.cc`, `madc.hi`..: the carry is a register of the lane."""
    words = at.opcode.split(".")
    base, kind = words[0], words[-1]
    if not (base.endswith("c") or "cc" in words) or SIZES.get(kind) not in (4, 8):
        raise unknown(at)
    wide = "uint64_t" if SIZES[kind] == 4 else "unsigned __int128"
    unsigned = f"u{8 * SIZES[kind]}"
    values = [f"({wide}){emit.names.value(text, unsigned, at)}" for text in at.operands[1:]]
    carry = " + cc_" if base.endswith("c") else ""
    if base.startswith("sub"):
        borrow = " - cc_" if carry else ""
        total = f"{values[0]} - {values[1]}{borrow}"
    elif base.startswith("mad"):
        high = f" >> {8 * SIZES[kind]}" if "hi" in words else ""
        signed = kind.startswith("s") and "hi" in words
        if signed:
            large = "int64_t" if SIZES[kind] == 4 else "__int128"
            x, y = (f"({large}){emit.names.value(text, kind, at)}" for text in at.operands[1:3])
            product = f"({wide})({C_TYPES[unsigned]})(({x} * {y}){high})"
        else:
            product = f"({wide})({C_TYPES[unsigned]})(({values[0]} * {values[1]}){high})"
        total = f"{product} + {values[2]}{carry}"
    else:
        total = f"{values[0]} + {values[1]}{carry}"
    keep = f" cc_ = (x_ >> {8 * SIZES[kind]}) & 1;" if "cc" in words else ""
    return f"{{ const {wide} x_ = {total};{keep} {emit.names.assign(at.operands[0], unsigned, 'x_')} }}"


class Found(NamedTuple):
    """A form, and whether the translator puts `.ftz` and `.sat` around it."""

    form: Form
    ftz: bool
    sat: bool


@functools.cache
def lookup(opcode: str) -> Found | None:
    """The form of an opcode: as it stands, or without modifiers that go around any expression of floats."""
    words = opcode.split(".")
    for around in ((), ("ftz",), ("sat",), ("ftz", "sat")):
        form = forms().get(".".join(word for word in words if word not in around))
        if form is None or not set(around) <= set(words):
            continue
        if form.result in ("f32", "f64") or ("f32" in form.operands and "sat" not in around) or not around:
            return Found(form, "ftz" in around, "sat" in around)
    return None


@functools.cache
def _uses(expression: str) -> Counter[str]:
    return Counter(_LETTERS.findall(expression))


@functools.cache
def _pieces(expression: str) -> list[str]:
    """An expression, split before and behind each letter."""
    return _LETTERS.split(expression)
