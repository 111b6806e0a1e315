"""Entry -> Flow: blocks, the places where lanes of a warp meet, and the regions between that each lane runs alone.

A place is where a lane can be put aside: a *cut*, an instruction that concerns other lanes or warps (a shuffle, a
barrier, a wait), or the head of a region. A region is entered at its head only; from there each lane runs by itself,
loops and all, until it comes to a place. So a register lives in an array over the lanes only from place to place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgen.cpu.translate.blocks import Block, cyclic
from kgen.cpu.translate.ptx import Entry, Instruction
from kgen.cpu.translate.regions import Region, place_registers, regions_of
from kgen.cpu.translate.simplify import gather_arithmetic, is_cut, spread_constants

_POLLS = re.compile(r"ld\.(volatile|acquire|relaxed|mmio)|atom\b")  # in a loop, what waits for somebody else


@dataclass
class Flow:
    """What the translator walks: blocks by number, the cuts and regions by the number of their first block."""

    blocks: list[Block]
    regions: dict[int, Region]
    cuts: set[int]
    kept: set[str]  # registers that live from place to place
    unset: list[str]  # those among them that may be read before they are written


def analyse(entry: Entry) -> Flow:
    """Cut a kernel into places and regions."""
    spread_constants(entry)
    gather_arithmetic(entry)
    blocks = _blocks(entry, frozenset())
    loops = cyclic(blocks)
    polls = frozenset(
        id(instruction)
        for block in blocks
        if block.number in loops
        for instruction in block.code
        if _POLLS.match(instruction.opcode)
    )
    if polls:
        blocks = _blocks(entry, polls)
    regions = regions_of(blocks)
    kept, unset = place_registers(blocks, regions, entry.registers)
    return Flow(blocks, regions, {block.number for block in blocks if block.cut}, kept, unset)


def _blocks(entry: Entry, polls: frozenset[int]) -> list[Block]:
    """Blocks in the order of the text; the last one ends the lane."""
    raw: list[tuple[list[Instruction], list[object], str, bool]] = []  # code, ends (labels or "next"), on, cut
    labels: dict[str, int] = {}
    code: list[Instruction] = []

    def close(ends: list[object], on: str = "", cut: bool = False) -> None:
        nonlocal code
        raw.append((code, ends, on, cut))
        code = []

    for item in entry.body:
        if isinstance(item, str):
            if code:
                close(["next"])
            labels[item] = len(raw)
            continue
        base = item.opcode.split(".")[0]
        if base == "bra":
            close([item.operands[0], "next"] if item.guard else [item.operands[0]], item.guard)
        elif base == "brx":
            close(list(entry.tables[item.operands[1]]), item.operands[0])
        elif base in ("ret", "exit"):
            close(["end", "next"] if item.guard else ["end"], item.guard)
        elif is_cut(item.opcode) or id(item) in polls:
            if item.guard:
                close(["next", "skip"], item.guard)
            elif code:
                close(["next"])
            code = [item._replace(guard="") if item.guard else item]
            close(["next"], cut=True)
        else:
            code.append(item)
    close(["end"])
    end = len(raw)
    raw.append(([], [], "", False))

    def number(at: int, target: object) -> int:
        if target == "next":
            return at + 1
        if target == "skip":
            return at + 2
        return end if target == "end" else labels[str(target)]

    return [
        Block(at, tuple(code), tuple(number(at, target) for target in ends), on, cut)
        for at, (code, ends, on, cut) in enumerate(raw)
    ]
