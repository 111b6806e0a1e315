"""A region as C++: a loop over the lanes, each of which goes through all of it before the next one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kgen.cpu.translate.emitter import Emitter
from kgen.cpu.translate.flow import Flow
from kgen.cpu.translate.lane import statement
from kgen.cpu.translate.operands import c_name, register_type


def loop(emit: Emitter, flow: Flow, head: int, places: Mapping[int, int]) -> list[str]:
    """The lines of the region at `head`; lanes that part in it leave the function. `places` are numbers of others."""
    names, blocks, region = emit.names, flow.blocks, flow.regions[head]
    inside, exits = set(region.blocks), region.exits
    together = len(exits) == 1 and not region.ends
    writes, reads = (Counter(found) for found in region.uses(blocks))
    # What is read once, or written once, is so in the frame; other registers are locals.
    names.direct = {name for name in region.loads if reads[name] == 1 and not writes[name]}
    results = {name for name in writes if name in names.arrays} - set(region.loads)
    names.direct |= {name for name in results if writes[name] == 1 and not reads[name]}
    local = sorted({*writes, *reads, *region.loads} - names.direct)

    def way(at: int, to: int) -> str:
        """Go from one block to another, or out of the region."""
        if to in inside:
            return f"goto B{to};"
        kept = [name for name in region.stores[at, to] if name not in names.direct]
        stores = [f"{names.arrays[name]}[l] = {c_name(name)};" for name in kept]
        mark = [] if together else [f"x[{exits.index(to)}] |= 1u << l;"]
        return " ".join([*stores, *mark, "continue;"])

    body = [f"{c_name(name)} = {names.arrays[name]}[l];" for name in region.loads if name in local]
    targets = {to for at in region.blocks for to in blocks[at].ends if to in inside}
    for at, following in zip(region.blocks, [*region.blocks[1:], -1]):
        block = blocks[at]
        if at in targets:
            body.append(f"B{at}:;")
        body += [made for item in block.code if (made := statement(emit, item)) != ";"]
        if not block.ends:
            body.append(f"x[{len(exits)}] |= 1u << l; continue;")
        elif len(block.ends) > 2 or (block.on and names.kind(block.on.lstrip("!")) != "bool"):
            cases = [f"case {i}: {way(at, to)}" for i, to in enumerate(block.ends)]
            body.append(f"switch ({names.register(block.on)}) {{ {' '.join(cases)} }} __builtin_unreachable();")
        else:
            if len(block.ends) == 2:
                body.append(f"if ({names.condition(block.on)}) {{ {way(at, block.ends[0])} }}")
            if block.ends[-1] != following:
                body.append(way(at, block.ends[-1]))
    names.direct = set()

    declared: dict[str, list[str]] = {}
    for name in local:
        declared.setdefault(register_type(names.registers[name]), []).append(c_name(name))
    if any("cc_" in line for line in body):
        declared.setdefault("uint32_t", []).append("cc_ = 0")
    lines = [] if together else [f"    uint32_t x[{len(exits) + 1}] = {{}};"]
    lines += ["    KG_LANES(go) {", "        const int l = __builtin_ctz(m);"]
    lines += [f"        {kind} {', '.join(found)};" for kind, found in declared.items()]
    lines += [*(f"        {line}" for line in body), "    }"]
    if together:
        return lines
    if not exits:
        return [*lines, "    return f->leave(w, go, x, nullptr, 0);"]
    to = ", ".join(str(places[block]) for block in exits)
    return [*lines, f"    static const int to[] = {{{to}}};", f"    return f->leave(w, go, x, to, {len(exits)});"]
