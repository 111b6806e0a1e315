"""Module -> Translation: each kernel as one C++ function that runs a warp.

Lanes at the same place go on together: through a region one after the other, through a cut at once. Where all lanes
that live agree, control passes by a plain goto; else each place remembers who is there, and the lowest goes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgen.cpu.flow import Flow, Region, analyse
from kgen.cpu.forms import C_TYPES
from kgen.cpu.lane import Emitter
from kgen.cpu.operands import Names, c_name, register_type
from kgen.cpu.ptx import SIZES, Entry, Module, Variable
from kgen.cpu.warp import cut
from kgen.errors import KgenError

SHARED_START = 1024
"""Where a block's shared memory starts: what is below belongs to the system, as on Hopper."""
RED_ZONE = 64
"""Bytes between shared variables that nobody may touch."""


@dataclass(frozen=True)
class Program:
    """What a launch of one kernel must know; sizes in bytes, `sites` the (line, text) of what reports may name."""

    name: str
    params: tuple[tuple[int, int, str], ...]  # offset, size, type
    shared: int
    areas: tuple[tuple[int, int, str], ...]  # offset, size, name of the variables in shared memory
    dynamic: bool
    stack: int
    cluster: tuple[int, int, int]
    sites: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Translation:
    """The C++ of a module, and its kernels."""

    text: str
    programs: tuple[Program, ...]


def translate(module: Module) -> Translation:
    """The C++ of all kernels of a module; raises UnknownInstructionError for what the tables lack."""
    kernels, includes, used = [], set(), set()
    programs = []
    for entry in module.entries.values():
        try:
            kernel = _Kernel(entry, module)
            kernels.append(kernel.text())
        except KgenError as error:
            error.args = (f"{entry.name}: {error.args[0]}", *error.args[1:])
            raise
        programs.append(kernel.program())
        includes |= kernel.emit.includes
        used |= kernel.names.used_globals
    head = ['#include "kernel.h"', *(f'#include "{name}"' for name in sorted(includes))]
    data = [_initialised(variable) for name, variable in module.variables.items() if name in used]
    return Translation("\n".join([*head, *data, *kernels, ""]), tuple(programs))


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
    return f"alignas({max(variable.align, 16)}) static {kind} {c_name(variable.name)}_g[{count}]{listed};"


class _Kernel:
    def __init__(self, entry: Entry, module: Module) -> None:
        self.entry = entry
        self.flow: Flow = analyse(entry)
        shared: dict[str, int] = {}
        local: dict[str, int] = {}
        self.areas: list[tuple[int, int, str]] = []
        at = SHARED_START
        self.local = 0
        variables = [*entry.variables.values(), *(v for v in module.variables.values() if v.space == "shared")]
        for variable in variables:
            if variable.space == "shared" and variable.size:
                at = -(-at // variable.align) * variable.align
                shared[variable.name] = at
                self.areas.append((at, variable.size, variable.name))
                at += variable.size + RED_ZONE
            elif variable.space == "local":
                self.local = -(-self.local // variable.align) * variable.align
                local[variable.name] = self.local
                self.local += variable.size
        dynamic = [variable for variable in variables if variable.space == "shared" and not variable.size]
        align = max([variable.align for variable in dynamic], default=16)
        self.end = -(-at // align) * align if self.areas else SHARED_START
        shared |= {variable.name: self.end for variable in dynamic}
        self.dynamic = bool(dynamic)
        self.names = Names(entry, module, shared, local)
        self.emit = Emitter(self.names)
        places = sorted([*self.flow.regions, *self.flow.cuts])
        self.places = {block: number for number, block in enumerate(places)}

    def program(self) -> Program:
        sizes = {param.name: (param.size, param.type) for param in self.entry.params}
        params = tuple((at, *sizes[name]) for name, at in self.entry.offsets().items())
        held = sum(SIZES[self.entry.registers[name]] for name in self.flow.kept)
        stack = 32 * (held + self.local) + 16 * len(self.entry.registers) + (64 << 10)
        sites = tuple((at.line, str(at)) for at in self.emit.sites)
        cluster = self.entry.cluster
        return Program(self.entry.name, params, self.end, tuple(self.areas), self.dynamic, stack, cluster, sites)

    def text(self) -> str:
        """The function: arrays of the registers that live from place to place, then the places in order."""
        count = len(self.places)
        lines = [f'extern "C" void {self.entry.name}(kg::Warp* w)', "{"]
        if self.local:
            lines.append(f"    enum {{ LOCAL = {self.local} }}; alignas(16) uint8_t local_[32 * LOCAL];")
            lines.append("    w->local = local_; w->local_size = LOCAL;")
        for name in self.entry.registers:
            if name in self.flow.kept:
                lines.append(f"    {register_type(self.entry.registers[name])} {c_name(name)}_[32];")
        lines.append(f"    kg::Places<{count}> places;")
        lines.append("    uint32_t go = w->live;")
        lines.append(f"    goto P{self.places[0]};")
        for block in self.places:
            lines += self._cut(block) if block in self.flow.cuts else self._region(self.flow.regions[block])
        cases = " ".join(f"case {place}: goto P{place};" for place in range(count))
        lines.append("dispatch:")
        lines.append("    if (!w->live) return;")
        lines.append(f"    switch (places.pick(go)) {{ {cases} }}")
        lines.append(f"    static const int sites[] = {{{', '.join(map(str, self._stuck_sites()))}}};")
        lines.append(f"    w->calls->stuck(w, places.at, sites, {count});")
        lines.append("}")
        return "\n".join(lines)

    def _stuck_sites(self) -> list[int]:
        return [self.cut_sites.get(block, -1) for block in self.places]

    def _region(self, region: Region) -> list[str]:
        names, blocks = self.names, self.flow.blocks
        names.lanes = False
        inside = set(region.blocks)
        exits = sorted({to for at in region.blocks for to in blocks[at].ends if to not in inside})
        body: list[str] = []
        seen: set[str] = set(region.loads)
        targets = {to for at in region.blocks for to in blocks[at].ends if to in inside}

        def way(at: int, to: int) -> str:
            """Go from one block to another, or out of the region."""
            if to in inside:
                return f"goto B{to};"
            stores = " ".join(f"{c_name(name)}_[l] = {c_name(name)};" for name in region.stores[at, to])
            return f"{stores} x{to} |= 1u << l; continue;".strip()

        for position, at in enumerate(region.blocks):
            block = blocks[at]
            if at in targets:
                body.append(f"    B{at}:;")
            for instruction in block.code:
                text = self.emit.statement(instruction)
                if text != ";":
                    body.append(f"        {text}")
                for operand in (*instruction.operands, instruction.guard):
                    seen.update(name for name in re.findall(r"%[A-Za-z_][\w$]*", operand) if name in names.registers)
            following = region.blocks[position + 1] if position + 1 < len(region.blocks) else -1
            if not block.ends:  # the lane ends
                body.append("        ended |= 1u << l; continue;")
            elif len(block.ends) == 1:
                if block.ends[0] != following:
                    body.append(f"        {way(at, block.ends[0])}")
            elif block.on.lstrip("!") in names.registers and names.kind(block.on.lstrip("!")) == "bool":
                seen.add(block.on.lstrip("!"))
                condition = names.value(block.on, "pred", block.code[-1] if block.code else None)  # type: ignore[arg-type]
                body.append(f"        if ({condition}) {{ {way(at, block.ends[0])} }}")
                if block.ends[1] != following:
                    body.append(f"        {way(at, block.ends[1])}")
            else:
                seen.add(block.on)
                cases = [f"case {i}: {way(at, to)}" for i, to in enumerate(block.ends)]
                body.append(f"        switch ({c_name(block.on)}) {{ {' '.join(cases)} }} __builtin_unreachable();")
        declared: dict[str, list[str]] = {}
        for name in sorted(seen):
            declared.setdefault(register_type(names.registers[name]), []).append(c_name(name))
        masks = "".join(f" x{to} = 0," for to in exits)
        ends = any(not blocks[at].ends for at in region.blocks)
        lines = [f"P{self.places[region.head]}: {{", f"    uint32_t{masks} ended = 0; (void)ended;"]
        lines.append("    KG_LANES(go) {")
        lines.append("        const int l = __builtin_ctz(m); uint32_t cc_ = 0; (void)l; (void)cc_;")
        lines += [f"        {kind} {', '.join(found)};" for kind, found in declared.items()]
        lines += [f"        {c_name(name)} = {c_name(name)}_[l];" for name in region.loads]
        lines += body
        lines.append("    }")
        if ends:
            lines.append("    if (ended) { w->live &= ~ended; places.recheck(); }")
        for to in exits:
            place = self.places[to]
            lines.append(f"    if (x{to} == w->live && x{to}) {{ go = x{to}; goto P{place}; }}")
        lines += [f"    places.arrive({self.places[to]}, x{to});" for to in exits]
        lines += ["    goto dispatch;", "}"]
        return lines

    def _cut(self, number: int) -> list[str]:
        block, place = self.flow.blocks[number], self.places[number]
        at = block.code[0]
        self.names.lanes = True
        made = cut(self.emit, at)
        self.names.lanes = False
        site = self.emit.site(at)
        self.cut_sites[number] = site
        following = self.places[block.ends[0]]
        if made.group == "any":
            group = "go"
        elif made.group == "all" or made.group == "(uint32_t)18446744073709551615ull":
            group = "go == w->live ? go : 0"
        else:
            group = f"kg::complete(w->live, go, kg::by_lane([&](int l) {{ (void)l; return {made.group}; }}))"
        lines = [f"P{place}: {{", f"    const uint32_t group = {group};"]
        if made.group != "any":
            lines.append(f"    if (!group) {{ places.wait({place}, go); goto dispatch; }}")
            lines.append(f"    places.arrive({place}, go & ~group);")
        if made.polls:
            lines.append("    bool found = true;")
        lines.append(f"    {{ {made.code} }}")
        lines.append("    go = group;")
        if made.polls:
            way = f"places.arrive({following}, go); places.after({following}); goto dispatch;"
            lines.append(f"    if (!found) {{ if (places.any()) {{ {way} }} w->calls->yield(w, {site}); }}")
        lines += [f"    goto P{following};", "}"]
        return lines

    @property
    def cut_sites(self) -> dict[int, int]:
        found: dict[int, int] = self.__dict__.setdefault("_cut_sites", {})
        return found
