"""Module -> Translation: each kernel as one C++ function that runs a warp.

Each place (see flow.py) is a C++ function, which says where its lanes go next. Lanes at the same place go on together:
through a region one after the other, through a cut at once. Where they part, each place keeps who waits there, and the
lowest goes first. Places that only follow one another are one function (see chains.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from kgen.cpu.forms import C_TYPES
from kgen.cpu.translate.chains import Chains
from kgen.cpu.translate.emitter import Emitter
from kgen.cpu.translate.flow import Flow, analyse
from kgen.cpu.translate.loop import loop
from kgen.cpu.translate.operands import Names, c_name, constant
from kgen.cpu.translate.program import Layout, Program
from kgen.cpu.translate.ptx import SIZES, Entry, Module, Variable
from kgen.cpu.translate.warp import cut
from kgen.errors import KgenError

UNIT = 800
"""Statements of C++ that a unit has at least: each costs a compiler the headers, and the start."""
_FIELDS = {"bool": "flag", "float": "f32", "double": "f64"} | {f"uint{n}_t": f"u{n}" for n in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Translation:
    """The C++ of a module, in parts that are compiled side by side; its kernels; the C++ of products that they call.

    The library's `kg_products` is to be filled with the addresses of their functions, in this order.
    """

    units: tuple[str, ...]
    programs: tuple[Program, ...]
    products: dict[str, str]


def translate(module: Module, units: int = 2) -> Translation:
    """The C++ of all kernels of a module, in so many units at most.

    Raises UnknownInstructionError for what the tables lack.
    """
    frames, steps, loops, programs = [], [], [], []
    includes, used = set(), set()
    products: dict[str, str] = {}
    for entry in module.entries.values():
        try:
            kernel = _Kernel(entry, module, products)
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
        'extern "C" kg::Product* kg_products[];',
        *map(_declared, data),
        *frames,
    ]
    parts = _shared_out(steps, units)
    parts[0] += [f"kg::Product* kg_products[{len(products) + 1}];", *map(_initialised, data), *loops]
    texts = tuple("\n".join([*common, *part, ""]) for part in parts)
    return Translation(texts, tuple(programs), products)


def _shared_out(texts: list[str], most: int) -> list[list[str]]:
    """The same in units that take about as long to compile: the longest first, to where there is least."""
    total = sum(text.count(";") for text in texts)
    units: list[list[str]] = [[] for _ in range(max(1, min(most, total // UNIT)))]
    sizes = [0] * len(units)
    for text in sorted(texts, key=len, reverse=True):
        least = sizes.index(min(sizes))
        units[least].append(text)
        sizes[least] += len(text)
    return units


def _declared(variable: Variable) -> str:
    return f'extern "C" {C_TYPES[variable.type]} {c_name(variable.name)}_g[];'


def _initialised(variable: Variable) -> str:
    """A variable in global or constant memory."""
    kind = C_TYPES[variable.type]
    values = [constant(text, kind) or f"({kind}){text}" for text in variable.values]
    count = max(1, variable.size // SIZES[variable.type])
    listed = f" = {{{', '.join(values)}}}" if values else ""
    return f'extern "C" {{ alignas({max(variable.align, 16)}) {kind} {c_name(variable.name)}_g[{count}]{listed}; }}'


class _Kernel:
    def __init__(self, entry: Entry, module: Module, products: dict[str, str]) -> None:
        self.entry = entry
        self.frame = f"Frame_{c_name(entry.name)}"
        self.flow: Flow = analyse(entry)
        self.layout = layout = Layout(entry, module)
        self.names = Names(entry, module, layout.shared, layout.local)
        self.emit = Emitter(self.names, products)
        self.held = 0  # bytes of each lane that live from place to place
        kept = (name for name in entry.registers if name in self.flow.kept)
        for name in sorted(kept, key=lambda name: -SIZES[entry.registers[name]]):  # so each is aligned
            size = SIZES[entry.registers[name]]
            self.names.arrays[name] = f"f->{_FIELDS[self.names.kind(name)]}[{self.held // size}]"
            self.names.rows[name] = self.held // 4
            self.held += size
        self.names.lanes = True
        self.cuts = {block: cut(self.emit, self.flow.blocks[block].code[0]) for block in sorted(self.flow.cuts)}
        self.names.lanes = False
        self.chains = Chains(self.flow, self.cuts)
        self.places = self.chains.numbers
        self.loops: list[tuple[int, int]] = []  # places, and where the loops in them begin
        self.waits = {at: self.emit.site(self.flow.blocks[at].code[0]) for at in self.places if at in self.cuts}

    def program(self) -> Program:
        sizes = {param.name: (param.size, param.type) for param in self.entry.params}
        params = tuple((at, *sizes[name]) for name, at in self.entry.offsets().items())
        stack = 32 * (self.held + self.layout.room) + 16 * len(self.entry.registers) + (64 << 10)
        sites = tuple((at.line, at.caller, str(at)) for at in self.emit.sites)
        cluster = self.entry.cluster
        held_globals = tuple((f"{c_name(n)}_g", self.names.globals[n].size) for n in sorted(self.names.used_globals))
        areas, end = tuple(self.layout.areas), self.layout.end
        return Program(self.entry.name, params, end, areas, stack, cluster, held_globals, sites)

    def frame_type(self) -> str:
        """A frame of what lives from place to place."""
        sizes = f"{len(self.places)}, {-(-self.held // 4)}, {self.layout.room}"
        return f"struct {self.frame} : kg::Frame<{sizes}> {{}};"

    def declarations(self) -> list[str]:
        """The functions that there are."""
        return [f"KG_PLACE({self.frame}, {number});" for number in self.places.values()]

    def steps(self) -> list[str]:
        """One function for each chain of places."""
        return [
            "\n".join([f"KG_PLACE({self.frame}, {self.places[chain[0]]})", "{", *self._chain(chain), "}"])
            for chain in self.chains.chains
        ]

    def loop(self) -> str:
        """The function that runs a warp."""
        names = ", ".join(f"{self.frame}_{number}" for number in self.places.values())
        sites = ", ".join(str(self.waits.get(block, -1)) for block in self.places)
        loops = ", ".join(map(str, (*itertools.chain(*self.loops), -1)))
        lines = [
            f'extern "C" void {self.entry.name}(kg::Warp* w)',
            "{",
            f"    static int (*const steps[])(kg::Warp*, {self.frame}*, uint32_t&) = {{{names}}};",
            f"    static const int sites[] = {{{sites}}}, loops[] = {{{loops}}};",
            f"    {self.frame} f;",
            *(f"    memset({array}, 0xff, sizeof {array});" for array in self._poisoned()),
            *(["    w->local = f.local_, w->local_size = f.LOCAL;"] if self.layout.room else []),
            "    w->loops = loops;",
            "    kg::run(w, &f, steps, sites);",
            "}",
        ]
        return "\n".join(lines)

    def _poisoned(self) -> list[str]:
        """Registers that may be read before they are written: NaNs, then, as in shared memory."""
        unset = [name for name in self.flow.unset if self.entry.registers[name] != "pred"]
        return [self.names.arrays[name].replace("f->", "f.") for name in unset]

    def _chain(self, chain: list[int]) -> list[str]:
        """From a place on, until lanes may part; returns where they all go, or notes who goes where."""
        regions = [self.flow.regions[at] for at in chain if at not in self.cuts]
        loops = [first for region in regions for first in region.loops(self.flow.blocks)]
        first = self.flow.blocks[chain[0]].code[:1]
        self.loops += [(self.places[chain[0]], self.emit.site(at)) for at in loops or first]
        lines = self._gathered(chain[0]) if chain[0] in self.cuts else []
        for fragments, places in itertools.groupby(chain, lambda at: at in self.cuts and bool(self.cuts[at].fragments)):
            if fragments:
                table = ", ".join(str(number) for at in places for number in self.cuts[at].fragments)
                call = "w->calls->fragments(w, f->u32, kg_products, run, run + sizeof run / sizeof *run);"
                lines.append(f"    {{ static const int32_t run[] = {{{table}}}; {call} }}")
                continue
            for at in places:
                made = self.cuts.get(at)
                lines += [f"    {{ {made.code} }}"] if made else loop(self.emit, self.flow, at, self.places)
        to = self.chains.next(chain[-1])
        if to is None:
            return lines
        if chain[0] in self.cuts and self.cuts[chain[0]].polls:
            lines.append(f"    if (!found) return f->give_way(w, go, {self.places[to]}, {self.waits[chain[0]]});")
        return [*lines, f"    return {self.places[to]};"]

    def _gathered(self, at: int) -> list[str]:
        """Who has to be here before a cut: they are the `group`."""
        made, place = self.cuts[at], self.places[at]
        lines = ["    bool found = true;"] if made.polls else []
        if made.group == "all":
            lines.append(f"    if (!f->all(w, {place}, go)) return kg::OTHERS;")
        elif made.group != "any":
            lines.append(f"    if (!(go = f->complete(w, {place}, go, {made.group}))) return kg::OTHERS;")
        return [*lines, "    const uint32_t group = go;"]
