"""Regions: the blocks that a lane runs alone, and which registers live from place to place (see flow.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kgen.cpu.translate.blocks import Block, spread
from kgen.cpu.translate.ptx import REGISTER, Instruction


@dataclass
class Region:
    """The blocks that a lane runs alone once it is at `head`; it loads, and stores on each way out, these registers.

    blocks the head first, then in the order of the text, where some may stand before the head
    exits  the blocks where it goes on; and `ends`: whether a lane may end here
    """

    head: int
    blocks: list[int]
    exits: list[int] = field(default_factory=list)
    ends: bool = False
    loads: list[str] = field(default_factory=list)
    stores: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def edges(self, blocks: list[Block]) -> tuple[dict[int, list[int]], list[tuple[int, int]], dict[int, list[int]]]:
        """Where each of its blocks goes within it; its ways out; and where each block is come to from within."""
        inside = set(self.blocks)
        within = {at: [to for to in blocks[at].ends if to in inside] for at in self.blocks}
        out = [(at, to) for at in self.blocks for to in blocks[at].ends if to not in inside]
        return within, out, {to: [at for at in self.blocks if to in within[at]] for to in self.blocks}

    def loops(self, blocks: list[Block]) -> list[Instruction]:
        """With what its loops begin."""
        again = sorted({(to, at) for at in self.blocks for to in blocks[at].ends if self.head <= to <= at})
        code = [[item for block in blocks[to : at + 1] for item in block.code] for to, at in again]
        return [items[0] for items in code if items]

    def uses(self, blocks: list[Block]) -> tuple[list[str], list[str]]:
        """The registers that its instructions write and that they read, each as often as they do."""
        code = [item for at in self.blocks for item in blocks[at].code]
        on = [blocks[at].on.lstrip("!") for at in self.blocks if blocks[at].on]
        return [name for item in code for name in item.writes], [name for item in code for name in item.reads] + on


def regions_of(blocks: list[Block]) -> dict[int, Region]:
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
    regions = {head: Region(head, [head]) for head in sorted(heads)}
    for at in sorted(owner.keys() - heads):
        regions[owner[at]].blocks.append(at)
    for region in regions.values():
        region.exits = sorted({to for at in region.blocks for to in blocks[at].ends} - set(region.blocks))
        region.ends = any(not blocks[at].ends for at in region.blocks)
    return regions


def place_registers(
    blocks: list[Block], regions: dict[int, Region], registers: dict[str, str]
) -> tuple[set[str], list[str]]:
    """Fill in what each region loads and stores, by liveness within the kernel and within each region."""
    home: dict[str, int] = {}  # the block which writes a register before it is read there, and nowhere else
    for block in blocks:
        for item in block.code:
            for name in item.reads:
                if home.setdefault(name, -1) != block.number:
                    home[name] = -1
            for name in item.writes:
                if home.setdefault(name, -1 if item.guard or block.cut else block.number) != block.number:
                    home[name] = -1
        if block.on:
            home[block.on.lstrip("!")] = -1
    names = [name for name in registers if home.get(name) == -1]
    bits = {name: 1 << at for at, name in enumerate(names)}

    def mask(found: Iterable[str]) -> int:
        total = 0
        for name in found:
            if name in bits:
                total |= bits[name]
        return total

    uses, defs, touched = [], [], []
    for block in blocks:
        use = define = touch = 0
        for instruction in block.code:
            out = mask(instruction.writes)
            use |= mask(instruction.reads) & ~define
            if instruction.guard:
                use |= out & ~define  # it may keep its old value
            else:
                define |= out
            touch |= out
        if block.on:
            use |= mask(REGISTER.findall(block.on)) & ~define
        uses.append(use)
        defs.append(define)
        touched.append(touch)

    live = _live({block.number: block.ends for block in blocks}, uses, defs)
    kept = 0
    for region in regions.values():
        kept |= live[region.head]
        within, ways, before = region.edges(blocks)
        # The head may be come to again from within; what is dirty then needs no place at entry.
        dirty = spread(region.blocks, before.__getitem__, lambda at, met: met | touched[at])
        stores = {(at, to): dirty[at] & live[to] for at, to in ways}
        needed = _live(within, uses, defs, stores)
        region.loads = _names(needed[region.head], names)
        region.stores = {edge: _names(found, names) for edge, found in stores.items()}
    for block in blocks:
        if block.cut:
            kept |= live[block.number] | touched[block.number]
    return set(_names(kept, names)), _names(live[0], names)


def _live(
    ends: Mapping[int, Sequence[int]],
    uses: Sequence[int],
    defs: Sequence[int],
    after: Mapping[tuple[int, int], int] = {},
) -> dict[int, int]:
    """The registers that live where blocks begin; `after`: those that live behind further ways out of them."""
    own = {at: uses[at] for at in ends}
    for (at, _), found in after.items():
        own[at] |= found & ~defs[at]
    return spread([*ends], ends.__getitem__, lambda at, met: own[at] | (met & ~defs[at]))


def _names(found: int, names: list[str]) -> list[str]:
    result = []
    while found:
        low = found & -found
        result.append(names[low.bit_length() - 1])
        found ^= low
    return result
