"""Straight-line code, which registers it reads and writes, and where it goes next."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from kgen.cpu.translate.ptx import Instruction

_NO_RESULT = re.compile(
    r"st\b|red\b|bar\b|barrier|membar|fence|cp\.|prefetch|nanosleep|bra|brx|ret|exit|trap|brkpt|stmatrix|setmaxnreg"
    r"|griddepcontrol|discard|applypriority|mbarrier\.(init|inval|expect_tx|complete_tx)|wgmma\.(fence|commit|wait)"
    r"|tensormap"
)
REGISTER = re.compile(r"%[A-Za-z_][\w$]*")


class Block(NamedTuple):
    """Straight-line code; `ends` is what follows: blocks chosen by the register `on` (`!` before it: not)."""

    number: int
    code: tuple[Instruction, ...]
    ends: tuple[int, ...]
    on: str
    cut: bool


def written(instruction: Instruction, registers: dict[str, str]) -> list[str]:
    """The registers that an instruction writes."""
    if not instruction.operands or not _has_result(instruction.opcode):
        return []
    return [name for name in REGISTER.findall(instruction.operands[0]) if name in registers]


@functools.cache
def _has_result(opcode: str) -> bool:
    reduces = opcode.startswith(("bar.red", "barrier.red", "barrier.cta.red"))
    return reduces or not _NO_RESULT.match(opcode)


def read(instruction: Instruction, registers: dict[str, str]) -> list[str]:
    """The registers that an instruction reads."""
    first = 1 if written(instruction, registers) else 0
    operands = instruction.operands if first == 0 else instruction.operands[1:]
    names = [name for text in (*operands, instruction.guard) for name in REGISTER.findall(text) if name in registers]
    if first and instruction.operands[0].startswith("["):
        names += REGISTER.findall(instruction.operands[0])
    return names


def cyclic(blocks: list[Block]) -> set[int]:
    """The blocks that lie on a cycle: Tarjan's strongly connected components, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: set[int] = set()
    for root in range(len(blocks)):
        if root in index:
            continue
        work = [(root, iter(blocks[root].ends))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            at, ends = work[-1]
            for to in ends:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(blocks[to].ends)))
                    break
                if to in on_stack:
                    low[at] = min(low[at], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    members = []
                    while True:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                        if members[-1] == at:
                            break
                    if len(members) > 1 or at in blocks[at].ends:
                        found.update(members)
    return found
