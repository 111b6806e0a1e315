"""What translating a kernel gathers: what its C++ needs beside itself, and the sites that checks may name."""

from __future__ import annotations

from kgen.cpu.translate.operands import Names
from kgen.cpu.translate.ptx import Instruction
from kgen.errors import UnknownInstructionError


class Emitter:
    """Handed to all who turn instructions into C++; `names` are the kernel's registers and variables."""

    def __init__(self, names: Names, products: dict[str, str]) -> None:
        self.names = names
        self.includes: set[str] = set()  # headers
        self.products = products  # of fragments, by opcode: their C++
        self.sites: list[Instruction] = []

    def site(self, at: Instruction) -> int:
        """A number for an instruction, by which reports find its line."""
        self.sites.append(at)
        return len(self.sites) - 1


def unknown(at: Instruction, why: str = "is not one that the executor knows") -> UnknownInstructionError:
    """The error for an instruction that cannot be translated."""
    return UnknownInstructionError(f"the instruction `{at}` {why}", line=at.line)
