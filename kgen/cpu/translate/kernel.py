"""Entry -> CutKernel: a kernel cut up into chains of places, and the registers that live from one to the next.

Lanes at the same place go on together: through a region one by one, through a cut at once. Where they part, each place
keeps who waits there, and the lowest goes first. Of places that only follow one another only the first one counts (see
chains.py).
"""

from __future__ import annotations

from kgen.cpu.translate.chains import Chains
from kgen.cpu.translate.emitter import Emitter
from kgen.cpu.translate.flow import Flow, analyse
from kgen.cpu.translate.operands import Names
from kgen.cpu.translate.program import Layout, Program
from kgen.cpu.translate.ptx import SIZES, Entry, Module
from kgen.cpu.translate.warp import cut

_FIELDS = {"bool": "flag", "float": "f32", "double": "f64"} | {f"uint{n}_t": f"u{n}" for n in (8, 16, 32, 64)}


class CutKernel:
    """What is known of a kernel before its list is made; `products` gathers the C++ of those that it calls."""

    def __init__(self, entry: Entry, module: Module, products: dict[str, str]) -> None:
        self.entry = entry
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
        name, threads, cluster = self.entry.name, self.entry.threads, self.entry.cluster
        held_globals = tuple((name, self.names.globals[name].size) for name in sorted(self.names.used_globals))
        areas, end = tuple(self.layout.areas), self.layout.end
        return Program(name, params, end, areas, stack, threads, cluster, held_globals, sites)

    def unset(self) -> list[str]:
        """Registers that may be read before they are written: NaNs, then, as in shared memory."""
        return [name for name in self.flow.unset if self.entry.registers[name] != "pred"]

    def is_fragments(self, at: int) -> bool:
        """Whether a place is an instruction on fragments, a few numbers instead of code."""
        return at in self.cuts and bool(self.cuts[at].fragments)

    def note_loops(self, chain: list[int]) -> None:
        """Note where loops in the regions of a chain begin, or the chain itself where there are none."""
        regions = [self.flow.regions[at] for at in chain if at not in self.cuts]
        loops = [first for region in regions for first in region.loops(self.flow.blocks)]
        first = self.flow.blocks[chain[0]].code[:1]
        self.loops += [(self.places[chain[0]], self.emit.site(at)) for at in loops or first]
