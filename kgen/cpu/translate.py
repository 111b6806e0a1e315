"""Module -> Translation: each kernel as one C++ function that runs a warp.

Each place (see flow.py) is a C++ function, which says where its lanes go next. Lanes at the same place go on together:
through a region one after the other, through a cut at once. Where they part, each place keeps who waits there, and the
lowest goes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgen.cpu.emitter import Emitter
from kgen.cpu.flow import Flow, analyse
from kgen.cpu.forms import C_TYPES
from kgen.cpu.lane import statement
from kgen.cpu.operands import Names, c_condition, c_name, register_type, registers_in
from kgen.cpu.program import Layout, Program
from kgen.cpu.ptx import SIZES, Entry, Module, Variable
from kgen.cpu.regions import Region
from kgen.cpu.warp import cut
from kgen.errors import KgenError

UNIT = 100_000
"""Characters of C++ from which on a translation is cut into several units."""


@dataclass(frozen=True)
class Translation:
    """The C++ of a module, in parts that are compiled side by side, and its kernels."""

    units: tuple[str, ...]
    programs: tuple[Program, ...]


def translate(module: Module) -> Translation:
    """The C++ of all kernels of a module; raises UnknownInstructionError for what the tables lack."""
    frames, steps, loops, includes, used = [], [], [], set(), set()
    programs = []
    for entry in module.entries.values():
        try:
            kernel = _Kernel(entry, module)
            steps += kernel.steps()
        except KgenError as error:
            error.args = (f"{entry.name}: {error.args[0]}", *error.args[1:])
            raise
        frames.append(kernel.frame_type())
        loops += [*kernel.declarations(), kernel.loop()]
        programs.append(kernel.program())
        includes |= kernel.emit.includes
        used |= kernel.names.used_globals
    data = [variable for name, variable in module.variables.items() if name in used]
    common = [
        '#include "kernel.h"',
        *(f'#include "{name}"' for name in sorted(includes)),
        *map(_declared, data),
        *frames,
    ]
    first, *others = _shared_out(steps)
    units = [[*first, *map(_initialised, data), *loops], *others]
    return Translation(tuple("\n".join([*common, *unit, ""]) for unit in units), tuple(programs))


def _shared_out(texts: list[str]) -> list[list[str]]:
    """The same in units of about the same length: an even number of them, since few machines have one core."""
    total = sum(map(len, texts))
    count = 2 * -(-total // (2 * UNIT)) if total > UNIT else 1
    units: list[list[str]] = [[] for _ in range(count)]
    at = 0
    for text in texts:
        units[at * count // (total + 1)].append(text)
        at += len(text)
    return units


def _declared(variable: Variable) -> str:
    return f'extern "C" {C_TYPES[variable.type]} {c_name(variable.name)}_g[];'


def _initialised(variable: Variable) -> str:
    """A variable in global or constant memory."""
    kind = C_TYPES[variable.type]
    values = []
    for text in variable.values:
        if found := re.fullmatch(r"0[fF](\w{8})", text):
            values.append(f"kg::f32(0x{found[1]}u)")
        elif found := re.fullmatch(r"0[dD](\w{16})", text):
            values.append(f"kg::f64(0x{found[1]}ull)")
        else:
            values.append(f"({kind}){text}")
    count = max(1, variable.size // SIZES[variable.type])
    listed = f" = {{{', '.join(values)}}}" if values else ""
    return f'extern "C" {{ alignas({max(variable.align, 16)}) {kind} {c_name(variable.name)}_g[{count}]{listed}; }}'


class _Kernel:
    def __init__(self, entry: Entry, module: Module) -> None:
        self.entry = entry
        self.frame = f"Frame_{c_name(entry.name)}"
        self.flow: Flow = analyse(entry)
        self.layout = layout = Layout(entry, module)
        self.names = Names(entry, module, layout.shared, layout.local)
        self.emit = Emitter(self.names)
        places = sorted([*self.flow.regions, *self.flow.cuts])
        self.places = {block: number for number, block in enumerate(places)}
        self.waits: dict[int, int] = {}  # the sites of cuts

    def program(self) -> Program:
        sizes = {param.name: (param.size, param.type) for param in self.entry.params}
        params = tuple((at, *sizes[name]) for name, at in self.entry.offsets().items())
        held = sum(SIZES[self.entry.registers[name]] for name in self.flow.kept)
        stack = 32 * (held + self.layout.room) + 16 * len(self.entry.registers) + (64 << 10)
        sites = tuple((at.line, at.caller, str(at)) for at in self.emit.sites)
        cluster = self.entry.cluster
        held_globals = tuple((f"{c_name(n)}_g", self.names.globals[n].size) for n in sorted(self.names.used_globals))
        areas, end = tuple(self.layout.areas), self.layout.end
        return Program(self.entry.name, params, end, areas, self.layout.dynamic, stack, cluster, held_globals, sites)

    def frame_type(self) -> str:
        """A frame of what lives from place to place."""
        fields = [
            f"    {register_type(self.entry.registers[name])} {c_name(name)}_[32];"
            for name in self.entry.registers
            if name in self.flow.kept
        ]
        if self.layout.room:
            fields.append(f"    enum {{ LOCAL = {self.layout.room} }}; alignas(16) uint8_t local_[32 * LOCAL];")
        return "\n".join([f"struct {self.frame} : kg::Places<{len(self.places)}> {{", *fields, "};"])

    def declarations(self) -> list[str]:
        """The functions that there are."""
        return [self._signature(number) + ";" for number in self.places.values()]

    def steps(self) -> list[str]:
        """One function for each place."""
        return [
            "\n".join([self._signature(number), "{", *self._place(block), "}"]) for block, number in self.places.items()
        ]

    def loop(self) -> str:
        """The function that runs a warp."""
        names = ", ".join(f"{self.frame}_{number}" for number in self.places.values())
        sites = ", ".join(str(self.waits.get(block, -1)) for block in self.places)
        lines = [
            f'extern "C" void {self.entry.name}(kg::Warp* w)',
            "{",
            f"    static int (*const steps[])(kg::Warp*, {self.frame}*, uint32_t&) = {{{names}}};",
            f"    static const int sites[] = {{{sites}}};",
            f"    {self.frame} f;",
            *(f"    memset(f.{c_name(name)}_, 0xff, sizeof f.{c_name(name)}_);" for name in self._poisoned()),
            *(["    w->local = f.local_, w->local_size = f.LOCAL;"] if self.layout.room else []),
            "    kg::run(w, &f, steps, sites);",
            "}",
        ]
        return "\n".join(lines)

    def _poisoned(self) -> list[str]:
        """Registers that may be read before they are written: NaNs, then, as in shared memory."""
        return [name for name in self.flow.unset if self.entry.registers[name] != "pred"]

    def _signature(self, number: int) -> str:
        hidden = '__attribute__((visibility("hidden")))'
        return f"{hidden} int {self.frame}_{number}(kg::Warp* w, {self.frame}* f, uint32_t& go)"

    def _place(self, block: int) -> list[str]:
        return self._cut(block) if block in self.flow.cuts else self._region(self.flow.regions[block])

    def _region(self, region: Region) -> list[str]:
        """A loop over the lanes; returns the next place, or notes who goes where."""
        names, blocks = self.names, self.flow.blocks
        inside = set(region.blocks)
        exits = sorted({to for at in region.blocks for to in blocks[at].ends if to not in inside})
        ends = any(not blocks[at].ends for at in region.blocks)
        only = len(exits) == 1 and not ends
        targets = {to for at in region.blocks for to in blocks[at].ends if to in inside}
        seen: set[str] = set(region.loads)
        body: list[str] = []

        def way(at: int, to: int) -> str:
            """Go from one block to another, or out of the region."""
            if to in inside:
                return f"goto B{to};"
            stores = [f"f->{c_name(name)}_[l] = {c_name(name)};" for name in region.stores[at, to]]
            mark = [] if only else [f"x[{exits.index(to)}] |= 1u << l;"]
            return " ".join([*stores, *mark, "continue;"])

        for at, following in zip(region.blocks, [*region.blocks[1:], -1]):
            block = blocks[at]
            if at in targets:
                body.append(f"    B{at}:;")
            for instruction in block.code:
                body.append(f"        {statement(self.emit, instruction)}")
                texts = (*instruction.operands, instruction.guard)
                seen.update(name for text in texts for name in registers_in(text) if name in names.registers)
            seen.update(registers_in(block.on))
            if not block.ends:
                body.append(f"        x[{len(exits)}] |= 1u << l; continue;")
            elif len(block.ends) > 2 or (block.on and names.kind(block.on.lstrip("!")) != "bool"):
                cases = [f"case {i}: {way(at, to)}" for i, to in enumerate(block.ends)]
                body.append(f"        switch ({c_name(block.on)}) {{ {' '.join(cases)} }} __builtin_unreachable();")
            else:
                if len(block.ends) == 2:
                    body.append(f"        if ({c_condition(block.on)}) {{ {way(at, block.ends[0])} }}")
                if block.ends[-1] != following:
                    body.append(f"        {way(at, block.ends[-1])}")
        declared: dict[str, list[str]] = {}
        for name in sorted(seen):
            declared.setdefault(register_type(names.registers[name]), []).append(c_name(name))
        lines = [] if only else [f"    uint32_t x[{len(exits) + 1}] = {{}};"]
        carry = " uint32_t cc_ = 0;" if any("cc_" in line for line in body) else ""
        lines += ["    KG_LANES(go) {", f"        const int l = __builtin_ctz(m);{carry}"]
        lines += [f"        {kind} {', '.join(found)};" for kind, found in declared.items()]
        lines += [f"        {c_name(name)} = f->{c_name(name)}_[l];" for name in region.loads]
        lines += [*(line for line in body if line.strip() != ";"), "    }"]
        if only:
            return [*lines, f"    return {self.places[exits[0]]};"]
        if not exits:
            return [*lines, "    return f->leave(w, go, x, nullptr, 0);"]
        to = ", ".join(str(self.places[block]) for block in exits)
        return [*lines, f"    static const int to[] = {{{to}}};", f"    return f->leave(w, go, x, to, {len(exits)});"]

    def _cut(self, number: int) -> list[str]:
        """Who has to be here, and what they do together."""
        block, place = self.flow.blocks[number], self.places[number]
        self.names.lanes = True
        made = cut(self.emit, block.code[0])
        self.names.lanes = False
        self.waits[number] = site = self.emit.site(block.code[0])
        following = self.places[block.ends[0]]
        if made.group == "any":
            lines = ["    const uint32_t group = go;"]
        elif made.group in ("all", "kg::Same<uint32_t>{(uint32_t)18446744073709551615ull}"):
            lines = [f"    if (!f->all(w, {place}, go)) return kg::OTHERS;", "    const uint32_t group = go;"]
        else:
            lines = [f"    const uint32_t group = f->complete(w, {place}, go, {made.group});"]
            lines += ["    if (!group) return kg::OTHERS;", "    go = group;"]
        if made.polls:
            lines.append("    bool found = true;")
        lines.append(f"    {made.code}")
        if made.polls:
            lines.append(f"    if (!found) return f->give_way(w, go, {following}, {site});")
        return [*lines, f"    return {following};"]
