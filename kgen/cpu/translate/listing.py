"""Module -> Listing: each kernel as a list of numbers, which the runtime goes through (runtime/listed.h).

Of each statement there are the number of its shape and its operands. A shape is a function that all kernels share, so
that nothing has to be compiled but shapes which no kernel had before. A register is a row of values, one for each lane:
of the warp's thread within a region, of the warp's own frame from place to place.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
from dataclasses import dataclass

from kgen.cpu.translate.kernel import CutKernel
from kgen.cpu.translate.lane import statement
from kgen.cpu.translate.operands import c_name, initial
from kgen.cpu.translate.program import Program
from kgen.cpu.translate.ptx import SIZES, Entry, Instruction, Module
from kgen.cpu.translate.repeats import Repeated, repeated
from kgen.cpu.translate.shape import Shape, shaped
from kgen.errors import KgenError

_ALL, _NAMED, _CUT, _FRAGMENTS, _REGION, _LEAVE, _GO, _GIVE_WAY = range(8)  # listed.h: Together
_JUMP, _IF, _SWITCH, _EXIT, _DONE = range(-1, -6, -1)  # and Alone
_HEAD = 9
_CARRY = re.compile(r"^(add|sub|mad)c|\.cc\b")
_IN_TURN = re.compile(r"(atom|red|mbarrier)\b|st\.async|cp\.async\.mbarrier")
_ROW = re.compile(r"f->\w+\[(\d+)\]")


@dataclass(frozen=True)
class Listing:
    """The lists of a module's kernels, by name, and what they refer to by numbers: shapes, products, variables.

    includes   the headers that the shapes need
    products   of fragments: their C++, by opcode
    variables  in global and constant memory: what they hold in the beginning, by name
    """

    lists: dict[str, bytes]
    programs: tuple[Program, ...]
    shapes: tuple[Shape, ...]
    includes: tuple[str, ...]
    products: dict[str, str]
    variables: dict[str, bytes]


def listing(module: Module) -> Listing:
    """The lists of all kernels of a module; raises UnknownInstructionError for what the tables lack."""
    shapes: dict[Shape, int] = {}
    products: dict[str, str] = {}
    includes: set[str] = set()
    lists, programs = {}, []
    for entry in module.entries.values():
        try:
            made = _List(entry, module, products, shapes)
            lists[entry.name] = made.numbers()
        except KgenError as error:
            error.args = (f"{entry.name}: {error.args[0]}", *error.args[1:])
            raise
        programs.append(made.kernel.program())
        includes |= made.kernel.emit.includes
    variables = {v.name: initial(v) for v in module.variables.values() if v.space != "shared"}
    return Listing(lists, tuple(programs), tuple(shapes), tuple(sorted(includes)), products, variables)


class _List:
    def __init__(self, entry: Entry, module: Module, products: dict[str, str], shapes: dict[Shape, int]) -> None:
        self.kernel = CutKernel(entry, module, products)
        self._shapes = shapes
        self._code: list[int] = []
        self._values: dict[str, tuple[str, int]] = {}  # by a register's C++ name: its type, and where its value lies
        self._places: dict[str, int] = {}  # and by its own name
        names, at = self.kernel.names, 0
        for name, kind in sorted({**entry.registers, "cc_": "b32"}.items(), key=lambda item: -SIZES[item[1]]):
            held = "uint32_t" if name == "cc_" else names.kind(name)
            self._values[c_name(name)] = held, 32 * at
            self._places[name] = 32 * at
            at += SIZES[kind]
        self._room = at
        self._blocks = 1  # of the largest region

    def numbers(self) -> bytes:
        """The whole list."""
        kernel = self.kernel
        starts = []
        for chain in kernel.chains.chains:
            starts.append(_HEAD + len(self._code))
            self._chain(chain)
        sites = [kernel.waits.get(block, -1) for block in kernel.places]
        loops = [*itertools.chain(*kernel.loops), -1]
        unset = [*itertools.chain(*map(self._bytes_of_row, kernel.unset())), -1]
        tail = _HEAD + len(self._code)
        ats = [*itertools.accumulate([len(sites), len(loops), len(unset)], initial=tail)]
        head = [len(kernel.places), -(-kernel.held // 4), kernel.layout.room, self._room, self._blocks, *ats]
        made = [*head, *self._code, *sites, *loops, *unset, *starts]
        return struct.pack(f"<{len(made)}i", *made)

    def _bytes_of_row(self, name: str) -> tuple[int, int]:
        size = SIZES[self.kernel.entry.registers[name]]
        found = _ROW.fullmatch(self.kernel.names.arrays[name])
        assert found is not None
        return 32 * size * int(found[1]), 32 * size

    def _statement(self, text: str, lane: bool = True) -> None:
        found = shaped(text, lane, self._values.get if lane else lambda name: None)
        self._code += [self._shapes.setdefault(found.shape, len(self._shapes)), *found.operands]

    def _repeated(self, found: Repeated, registers: list[str]) -> None:
        shape, operands, rows = found.shaped
        self.kernel.emit.includes |= found.includes
        self._code.append(self._shapes.setdefault(shape, len(self._shapes)))
        at = len(self._code)
        self._code += operands
        for row in rows:
            self._code[at + row] = self._places[registers[operands[row]]]

    def _move(self, name: str, *, store: bool) -> None:
        """A register's value goes to its row of the frame, or comes from there."""
        names, place = self.kernel.names, self._places[name]
        field, _, number = names.arrays[name].rstrip("]").partition("[")
        shape = _moved(field, names.kind(name), store)
        row = int(number)
        self._code += [self._shapes.setdefault(shape, len(self._shapes)), *((row, place) if store else (place, row))]

    def _chain(self, chain: list[int]) -> None:
        """From a place on, until lanes may part: where they all go next, or who goes where."""
        kernel, first = self.kernel, chain[0]
        kernel.note_loops(chain)
        if first in kernel.cuts:
            self._gathered(first)
        for fragments, places in itertools.groupby(chain, kernel.is_fragments):
            if fragments:
                table = [number for at in places for number in kernel.cuts[at].fragments]
                self._code += [_FRAGMENTS, len(table), *table]
                continue
            for at in places:
                if at not in kernel.cuts:
                    self._region(at)
                elif kernel.cuts[at].code:
                    self._code.append(_CUT)
                    self._statement(kernel.cuts[at].code, lane=False)
        to = kernel.chains.next(chain[-1])
        if to is not None:
            if first in kernel.cuts and kernel.cuts[first].polls:
                self._code += [_GIVE_WAY, kernel.places[to], kernel.waits[first]]
            self._code += [_GO, kernel.places[to]]

    def _gathered(self, at: int) -> None:
        group = self.kernel.cuts[at].group
        if group == "all":
            self._code.append(_ALL)
        elif group != "any":
            self._code.append(_NAMED)
            self._statement(f"KG_LANES(group) s_->masks[__builtin_ctz(m)] = ({group})[__builtin_ctz(m)];", lane=False)

    def _region(self, head: int) -> None:
        kernel, names, registers = self.kernel, self.kernel.names, self.kernel.entry.registers
        blocks, region = kernel.flow.blocks, kernel.flow.regions[head]
        exits = region.exits
        together = len(exits) == 1 and not region.ends
        code = [item for at in region.blocks for item in blocks[at].code]
        numbers = {at: number for number, at in enumerate(region.blocks, 1)}  # block 0 is where lanes come in
        self._blocks = max(self._blocks, len(numbers) + 1)
        begins = [0] * (len(numbers) + 1)
        self._code += [_REGION, len(exits) + 1, 0, int(any(map(_is_in_turn, code))), len(begins), *begins]
        begins_at = len(self._code) - len(begins)
        over_at = begins_at - 3

        def way(at: int, to: int) -> None:
            """Go from one block to another, or out of the region."""
            if to in numbers:
                self._code += [_JUMP, numbers[to]]
                return
            for name in region.stores[at, to]:
                self._move(name, store=True)
            self._code += [_DONE] if together else [_EXIT, exits.index(to)]

        self._code[begins_at] = self._here()
        if any(_carries(item.opcode) for item in code):
            self._statement("cc_ = 0u;")
        for name in region.loads:
            self._move(name, store=False)
        self._code += [_JUMP, 1]
        for at, number in numbers.items():
            block = blocks[at]
            self._code[begins_at + number] = self._here()
            for item in block.code:
                if (found := repeated(item, registers)) is not None:
                    self._repeated(*found)
                elif (made := statement(kernel.emit, item)) != ";":
                    self._statement(made)
            if not block.ends:
                self._code += [_EXIT, len(exits)]
            elif len(block.ends) > 2 or (block.on and names.kind(block.on.lstrip("!")) != "bool"):
                self._code += [_SWITCH, self._values[c_name(block.on)][1], *([0] * len(block.ends))]
                cases_at = len(self._code) - len(block.ends)
                for case, to in enumerate(block.ends):
                    self._code[cases_at + case] = self._here()
                    way(at, to)
            else:
                if len(block.ends) == 2:
                    register, negated = block.on.lstrip("!"), block.on.startswith("!")
                    self._code += [_IF, self._values[c_name(register)][1], int(negated), 0]
                    others_at = len(self._code) - 1
                    way(at, block.ends[0])
                    self._code[others_at] = self._here()
                way(at, block.ends[-1])
        self._code[over_at] = self._here()
        if not together:
            self._code += [_LEAVE, len(exits), *(kernel.places[block] for block in exits)]

    def _here(self) -> int:
        """Where what comes next will stand in the list."""
        return _HEAD + len(self._code)


@functools.cache
def _moved(field: str, kind: str, store: bool) -> Shape:
    row = f"{field}[0][l]"
    return shaped(f"{row} = r;" if store else f"r = {row};", True, {"r": (kind, 0)}.get).shape


@functools.cache
def _carries(opcode: str) -> bool:
    return bool(_CARRY.search(opcode))


@functools.cache
def _takes_turns(opcode: str) -> bool:
    return bool(_IN_TURN.match(opcode))


def _is_in_turn(item: Instruction) -> bool:
    """Whether it shows which lane was first, beside others of its region: atomics, mbarriers and clocks."""
    if item.opcode.startswith(("mov", "cvt")):  # no others read special registers
        return any("clock" in text or "timer" in text for text in item.operands)
    return _takes_turns(item.opcode)
