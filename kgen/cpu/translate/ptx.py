"""PTX taken apart, and otherwise unchanged: instructions, kernels, variables.

Names are unique in a kernel. Each instruction knows the line of the CUDA source that it came from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

SIZES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1}
SIZES |= dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2)
SIZES |= dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32"), 4)
SIZES |= dict.fromkeys(("b64", "u64", "s64", "f64", "f32x2"), 8) | {"b128": 16}
"""Bytes of a value of each type."""
REGISTER = re.compile(r"%[A-Za-z_][\w$]*")
_NO_RESULT = re.compile(
    r"st\b|red\b|bar\b(?!\.red)|barrier(?!(\.cta)?\.red)|membar|fence|cp\.|prefetch|nanosleep|bra|brx|ret|exit|trap"
    r"|brkpt|stmatrix|setmaxnreg|griddepcontrol|discard|applypriority"
    r"|mbarrier\.(init|inval|expect_tx|complete_tx)|wgmma\.(fence|commit|wait)|tensormap"
)


class Variable(NamedTuple):
    """A variable in a state space; `size` in bytes, 0 for dynamic shared memory; `values`: its initial elements."""

    name: str
    space: str
    align: int
    type: str
    size: int
    values: tuple[str, ...] = ()


class Instruction(NamedTuple):
    """One instruction: `@guard opcode operands`; `line` of the CUDA source, 0 where it is not known, and where it is
    in an inlined function, the line of the call; the registers that it writes and reads."""

    opcode: str
    operands: tuple[str, ...]
    guard: str
    line: int
    caller: int
    writes: tuple[str, ...]
    reads: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'@' + self.guard + ' ' if self.guard else ''}{self.opcode} {', '.join(self.operands)}".rstrip()


def instruction(
    opcode: str, operands: tuple[str, ...], guard: str, line: int, caller: int, registers: Container[str]
) -> Instruction:
    """An instruction, with what it does to registers read off its opcode."""
    found = [_named(text, registers) for text in operands]
    reads = [name for names in found for name in names]
    writes: tuple[str, ...] = ()
    if operands and operands[0][0] != "[" and _has_result(opcode):
        writes, reads = found[0], reads[len(found[0]) :]
    if guard:
        reads += _named(guard, registers)
    return Instruction(opcode, operands, guard, line, caller, writes, tuple(reads))


def _named(text: str, registers: Container[str]) -> tuple[str, ...]:
    """The registers of an operand, which mostly is one."""
    if text in registers:
        return (text,)
    return tuple([name for name in REGISTER.findall(text) if name in registers]) if "%" in text else ()


@functools.cache
def _has_result(opcode: str) -> bool:
    return not _NO_RESULT.match(opcode)


@dataclass
class Entry:
    """One kernel: `body` holds instructions, and labels as plain strings.

    threads              of a block, at most; 0 where directives do not tell
    launched_registers   of each thread in the beginning; 0 where directives do not tell: ptxas ignores setmaxnreg then
    """

    name: str
    params: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction | str] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cluster: tuple[int, int, int] = (1, 1, 1)
    threads: int = 0
    launched_registers: int = 0

    def offsets(self) -> dict[str, int]:
        """Where each parameter lies in a buffer of all of them."""
        at, places = 0, {}
        for param in self.params:
            at = -(-at // param.align) * param.align
            places[param.name] = at
            at += param.size
        return places


class Module(NamedTuple):
    """A parsed file: its kernels, and the variables outside of them."""

    entries: dict[str, Entry]
    variables: dict[str, Variable]
