"""Entry -> Flow: blocks, the places where lanes of a warp meet, and the regions between that each lane runs alone.

A place is where a lane can be put aside: a *cut*, an instruction that concerns other lanes or warps (a shuffle, a
barrier, a wait), or the head of a region. A region is entered at its head only; from there each lane runs by itself,
loops and all, until it comes to a place. So a register lives in an array over the lanes only from place to place.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from kgen.cpu.ptx import Entry, Instruction

_CUTS = re.compile(
    r"shfl|vote|match|activemask|redux|elect|bar\b|barrier|mma|ldmatrix|stmatrix|movmatrix|nanosleep|wgmma"
    r"|mbarrier\.(try_wait|test_wait)"
)
_POLLS = re.compile(r"ld\.(volatile|acquire|relaxed|mmio)|atom\b")  # in a loop, what waits for somebody else
_NO_RESULT = re.compile(
    r"st\b|red\b|bar\b|barrier|membar|fence|cp\.|prefetch|nanosleep|bra|brx|ret|exit|trap|brkpt|stmatrix|setmaxnreg"
    r"|griddepcontrol|discard|applypriority|mbarrier\.(init|inval|expect_tx|complete_tx)|wgmma\.(fence|commit|wait)"
    r"|tensormap"
)
_REGISTER = re.compile(r"%[A-Za-z_][\w$]*")
_CONSTANT = re.compile(r"mov\.[busf](?:16|32|64) (?:-?\d+|0[xX][0-9a-fA-F]+|0[fFdD][0-9a-fA-F]+)")


class Block(NamedTuple):
    """Straight-line code; `ends` is what follows: blocks chosen by the register `on` (`!` before it: not)."""

    number: int
    code: tuple[Instruction, ...]
    ends: tuple[int, ...]
    on: str
    cut: bool


@dataclass
class Region:
    """The blocks that a lane runs alone once it is at `head`; it loads, and stores on each way out, these registers."""

    head: int
    blocks: list[int]
    loads: list[str] = field(default_factory=list)
    stores: dict[tuple[int, int], list[str]] = field(default_factory=dict)


@dataclass
class Flow:
    """What the translator walks: blocks by number, the cuts and regions by the number of their first block."""

    blocks: list[Block]
    regions: dict[int, Region]
    cuts: set[int]
    kept: set[str]  # registers that live from place to place
    unset: list[str]  # those among them that may be read before they are written


def written(instruction: Instruction, registers: dict[str, str]) -> list[str]:
    """The registers that an instruction writes."""
    reduces = instruction.opcode.startswith(("bar.red", "barrier.red", "barrier.cta.red"))
    if not instruction.operands or (_NO_RESULT.match(instruction.opcode) and not reduces):
        return []
    return [name for name in _REGISTER.findall(instruction.operands[0]) if name in registers]


def read(instruction: Instruction, registers: dict[str, str]) -> list[str]:
    """The registers that an instruction reads."""
    first = 1 if written(instruction, registers) else 0
    operands = instruction.operands if first == 0 else instruction.operands[1:]
    names = [name for text in (*operands, instruction.guard) for name in _REGISTER.findall(text) if name in registers]
    if first and instruction.operands[0].startswith("["):
        names += _REGISTER.findall(instruction.operands[0])
    return names


def analyse(entry: Entry) -> Flow:
    """Cut a kernel into places and regions."""
    _spread_constants(entry)
    blocks = _blocks(entry, frozenset())
    loops = _cyclic(blocks)
    polls = frozenset(
        id(instruction)
        for block in blocks
        if block.number in loops
        for instruction in block.code
        if _POLLS.match(instruction.opcode)
    )
    if polls:
        blocks = _blocks(entry, polls)
    regions = _regions(blocks)
    kept, unset = _place_registers(blocks, regions, entry.registers)
    return Flow(blocks, regions, {block.number for block in blocks if block.cut}, kept, unset)


def _spread_constants(entry: Entry) -> None:
    """Put constants in place of the registers that hold nothing else, so that masks and counts show."""
    code = [item for item in entry.body if isinstance(item, Instruction)]
    writes = Counter(name for item in code for name in written(item, entry.registers))
    known = {
        item.operands[0]: item.operands[1]
        for item in code
        if item.operands
        and _CONSTANT.fullmatch(f"{item.opcode} {item.operands[-1]}")
        and not item.guard
        and writes[item.operands[0]] == 1
    }

    def filled(item: Instruction) -> Instruction:
        first = 1 if written(item, entry.registers) else 0
        operands = [
            text if "[" in text else _REGISTER.sub(lambda found: known.get(found[0], found[0]), text)
            for text in item.operands[first:]
        ]
        return item._replace(operands=(*item.operands[:first], *operands))

    body = [item if isinstance(item, str) else filled(item) for item in entry.body]
    used = {name for item in body if isinstance(item, Instruction) for name in read(item, entry.registers)}
    entry.body = [
        item
        for item in body
        if isinstance(item, str) or not (item.opcode.startswith("mov.") and item.operands[0] in known.keys() - used)
    ]


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
        elif _CUTS.match(item.opcode) or id(item) in polls:
            if item.guard:
                close(["next", "skip"], item.guard)
            elif code:
                close(["next"])
            code = [item._replace(guard="")]
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


def _cyclic(blocks: list[Block]) -> set[int]:
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


def _regions(blocks: list[Block]) -> dict[int, Region]:
    """The largest regions with one entry each: a block that two of them reach is the head of another."""
    heads = {0 for block in blocks[:1] if not block.cut} | {
        to for block in blocks if block.cut for to in block.ends if not blocks[to].cut
    }
    owner: dict[int, int] = {}
    while True:
        owner = {head: head for head in heads}
        conflict = False
        work = sorted(heads)
        while work and not conflict:
            at = work.pop()
            for to in blocks[at].ends:
                if blocks[to].cut or to in heads:
                    continue
                if to not in owner:
                    owner[to] = owner[at]
                    work.append(to)
                elif owner[to] != owner[at]:
                    heads.add(to)
                    conflict = True
        if not conflict:
            break
    regions = {head: Region(head, []) for head in sorted(heads)}
    for at in sorted(owner):
        regions[owner[at]].blocks.append(at)
    return regions


def _place_registers(
    blocks: list[Block], regions: dict[int, Region], registers: dict[str, str]
) -> tuple[set[str], list[str]]:
    """Fill in what each region loads and stores, by liveness within the kernel and within each region."""
    numbers = {name: at for at, name in enumerate(registers)}
    names = list(registers)

    def mask(found: list[str]) -> int:
        total = 0
        for name in found:
            total |= 1 << numbers[name]
        return total

    uses, defs, touched = [], [], []
    for block in blocks:
        use = define = touch = 0
        for instruction in block.code:
            out, own = mask(written(instruction, registers)), mask(read(instruction, registers))
            use |= own & ~define
            if instruction.guard:
                use |= out & ~define  # it may keep its old value
            else:
                define |= out
            touch |= out
        if block.on:
            use |= mask(_REGISTER.findall(block.on)) & ~define
        uses.append(use)
        defs.append(define)
        touched.append(touch)

    live = _liveness(blocks, uses, defs)
    kept = 0
    for region in regions.values():
        inside = set(region.blocks)
        kept |= live[region.head]
        dirty = dict.fromkeys(region.blocks, 0)
        changed = True
        while changed:
            changed = False
            for at in region.blocks:
                out = dirty[at] | touched[at]
                for to in blocks[at].ends:
                    if to in inside and out & ~dirty[to]:
                        dirty[to] |= out
                        changed = True
        # The head may be come to again from within; what is dirty then needs no place at entry.
        stores = {
            (at, to): (dirty[at] | touched[at]) & live[to]
            for at in region.blocks
            for to in blocks[at].ends
            if to not in inside
        }
        needed = dict.fromkeys(region.blocks, 0)
        changed = True
        while changed:
            changed = False
            for at in reversed(region.blocks):
                out = 0
                for to in blocks[at].ends:
                    out |= needed[to] if to in inside else stores[at, to]
                into = uses[at] | (out & ~defs[at])
                if into != needed[at]:
                    needed[at] = into
                    changed = True
        region.loads = _names(needed[region.head], names)
        region.stores = {edge: _names(found, names) for edge, found in stores.items()}
    for block in blocks:
        if block.cut:
            kept |= live[block.number] | touched[block.number]
    return set(_names(kept, names)), _names(live[0], names)


def _liveness(blocks: list[Block], uses: list[int], defs: list[int]) -> list[int]:
    live = [0] * len(blocks)
    before: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for to in block.ends:
            before[to].append(block.number)
    work = list(range(len(blocks)))
    waiting = set(work)
    while work:
        at = work.pop()
        waiting.discard(at)
        out = 0
        for to in blocks[at].ends:
            out |= live[to]
        into = uses[at] | (out & ~defs[at])
        if into != live[at]:
            live[at] = into
            for source in before[at]:
                if source not in waiting:
                    waiting.add(source)
                    work.append(source)
    return live


def _names(found: int, names: list[str]) -> list[str]:
    result = []
    while found:
        low = found & -found
        result.append(names[low.bit_length() - 1])
        found ^= low
    return result
