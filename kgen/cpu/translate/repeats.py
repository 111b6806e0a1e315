"""Instructions that differ in their registers alone have one shape: what unrolled loops repeat is translated once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from kgen.cpu.translate.emitter import Emitter
from kgen.cpu.translate.lane import lookup, statement
from kgen.cpu.translate.operands import Names, c_name, register_type
from kgen.cpu.translate.ptx import Entry, Instruction, Module, instruction
from kgen.cpu.translate.shape import Shaped, shaped
from kgen.errors import UnknownInstructionError


class Repeated(NamedTuple):
    """An instruction whose registers are numbered in the order in which it names them; the headers that it needs."""

    shaped: Shaped
    includes: set[str]


def repeated(at: Instruction, registers: Mapping[str, str]) -> tuple[Repeated, list[str]] | None:
    """What all instructions like this one have in common, and its registers; None where it stands for itself."""
    if not _is_plain(at.opcode):
        return None
    numbers: dict[str, int] = {}
    operands: list[int | str] = []
    for text in (*at.operands, at.guard.lstrip("!")) if at.guard else at.operands:
        if text in registers:
            operands.append(numbers.setdefault(text, len(numbers)))
        elif text[0] in "-0123456789":
            operands.append(text)
        else:
            return None
    types = tuple([registers[name] for name in numbers])
    found = _common(at.opcode, tuple(operands), types, at.guard[:1])
    return found and (found, [*numbers])


@functools.cache
def _is_plain(opcode: str) -> bool:
    """Whether the operands decide all: reports do not name it, as they do an access to memory."""
    found = lookup(opcode)
    return "SITE" not in found.form.expression if found else opcode.partition(".")[0] in ("mov", "setp")


@functools.lru_cache(maxsize=1 << 15)
def _common(opcode: str, operands: tuple[int | str, ...], types: tuple[str, ...], guard: str) -> Repeated | None:
    """`guard`: none, `!`, or another character; the last operand is its register."""
    registers = {f"%r{number}": kind for number, kind in enumerate(types)}
    texts = [f"%r{text}" if isinstance(text, int) else text for text in operands]
    condition = f"{guard.strip('%')}{texts.pop()}" if guard else ""
    emit = Emitter(Names(Entry("", registers=registers), Module({}, {}), {}, {}), {})
    try:
        text = statement(emit, instruction(opcode, tuple(texts), condition, 0, 0, registers))
    except UnknownInstructionError:  # it names the line of the instruction
        return None
    numbers = {c_name(name): (register_type(kind), at) for at, (name, kind) in enumerate(registers.items())}
    return Repeated(shaped(text, True, numbers.get), emit.includes)
