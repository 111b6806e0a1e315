"""Cuts: instructions for which lanes of a warp, or warps, wait for one another, as C++ over the lanes in `group`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kgen.cpu.forms import C_TYPES
from kgen.cpu.translate import lane, matrix, memory
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.ptx import Instruction

_EACH = "KG_LANES(group) { const int l = __builtin_ctz(m); (void)l;"
_FIRST = "const int l = __builtin_ctz(group); (void)l;"
_SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
_KINDS = {"sync": 0, "arrive": 1, "popc": 2, "and": 3, "or": 4}


class Cut(NamedTuple):
    """The code of a cut; `group` says who must be there: the lanes' masks, "all" of the warp, or "any";
    `polls`: whether the code sets `found`, and lanes give way to others where it is false; `fragments`: what stands in
    place of code where an instruction is on fragments, see matrix.py."""

    code: str
    group: str
    polls: bool = False
    fragments: tuple[int, ...] = ()


def lanes(emit: Emitter, text: str, kind: str, at: Instruction) -> str:
    """An operand as something that is indexed by the lane."""
    names = emit.names
    if text in names.registers:
        held = names.kind(text)
        array = names.arrays[text]
        return array if held == C_TYPES[kind] else f"(const {C_TYPES[kind]}*){array}"
    value = names.value(text, kind, at)
    if "w->" in value or re.search(r"\bl\b", value) or text.startswith("!"):
        return f"kg::by_lane([&](int l) {{ (void)l; return {value}; }})"
    return f"kg::Same<{C_TYPES[kind]}>{{{value}}}"


def target(emit: Emitter, text: str, c_type: str) -> str:
    """The array of a register that is written, or a null pointer."""
    if text in ("_", ""):
        return f"({c_type}*)0"
    held, array = emit.names.kind(text), emit.names.arrays[text]
    return array if held == c_type else f"({c_type}*){array}"


def _results(emit: Emitter, at: Instruction) -> str:
    """The arrays of `number|predicate`."""
    to, _, found = (part.strip() for part in at.operands[0].partition("|"))
    return f"{target(emit, to, 'uint32_t')}, {target(emit, found, 'bool')}"


def _votes(emit: Emitter, text: str, at: Instruction) -> str:
    """The lanes whose predicate holds, as `votes`."""
    return f"uint32_t votes = 0; {_EACH} votes |= (uint32_t)({emit.names.value(text, 'pred', at)}) << l; }}"


def cut(emit: Emitter, at: Instruction) -> Cut:
    """Translate one cut."""
    base = at.opcode.partition(".")[0]
    handler = _HANDLERS.get(base)
    if base in ("ld", "atom"):
        return Cut(f"{_EACH} {lane.statement(emit, at)} }} found = kg::looked(w);", "any", polls=True)
    if handler is None:
        raise unknown(at)
    return handler(emit, at)


def _mask(emit: Emitter, text: str, at: Instruction) -> str:
    """The group of a mask: "all" where it is the constant of all lanes."""
    return "all" if text in ("-1", "0xffffffff", "4294967295") else lanes(emit, text, "b32", at)


def _shuffle(emit: Emitter, at: Instruction) -> Cut:
    kind = next((_SHUFFLES[word] for word in memory.words(at) if word in _SHUFFLES), None)
    if kind is None or memory.words(at)[1] != "sync":
        raise unknown(at)
    a, b, c = (lanes(emit, text, "u32", at) for text in at.operands[1:4])
    code = f"kg::shuffle<{kind}>(w, group, {_results(emit, at)}, {a}, {b}, {c}, {emit.site(at)});"
    return Cut(code, _mask(emit, at.operands[4], at))


def _vote(emit: Emitter, at: Instruction) -> Cut:
    parts = memory.words(at)
    kind = "b32" if parts[2] == "ballot" else "pred"
    result = {"ballot": "votes", "any": "votes != 0", "all": "votes == group", "uni": "votes == 0 || votes == group"}
    write = emit.names.assign(at.operands[0], kind, result[parts[2]])
    return Cut(f"{_votes(emit, at.operands[1], at)} {_EACH} {write} }}", _mask(emit, at.operands[2], at))


def _active(emit: Emitter, at: Instruction) -> Cut:
    return Cut(f"{_EACH} {emit.names.assign(at.operands[0], 'b32', 'group')} }}", "any")


def _match(emit: Emitter, at: Instruction) -> Cut:
    kind = memory.words(at)[-1]
    given = lanes(emit, at.operands[1], kind, at)
    every = "true" if "all" in memory.words(at) else "false"
    return Cut(f"kg::match<{every}>(group, {_results(emit, at)}, {given});", _mask(emit, at.operands[2], at))


def _reduce(emit: Emitter, at: Instruction) -> Cut:
    parts = memory.words(at)
    operation, kind = parts[2], parts[-1]
    step = memory.OPERATIONS[operation]
    if kind == "f32":
        name = ("minimum" if operation == "min" else "maximum") + ("_nan" if "NaN" in parts else "")
        step = f"kg::{name}(a, b)"
    absolute = "__builtin_fabsf" if "abs" in parts else ""
    value = f"{absolute}({emit.names.value(at.operands[1], kind, at)})"
    code = (
        f"{C_TYPES[kind]} a{{}}; bool first = true; {_EACH} const {C_TYPES[kind]} b = {value};"
        f" a = first ? b : ({step}); first = false; }}"
        f" {_EACH} {emit.names.assign(at.operands[0], kind, 'a')} }}"
    )
    return Cut(code, _mask(emit, at.operands[2], at))


def _elect(emit: Emitter, at: Instruction) -> Cut:
    to, _, found = (part.strip() for part in at.operands[0].partition("|"))
    lines = [f"const int first = __builtin_ctz(group); {_EACH}"]
    if to:
        lines.append(emit.names.assign(to, "b32", "first"))
    if found:
        lines.append(emit.names.assign(found, "pred", "l == first"))
    return Cut(" ".join(lines) + " }", _mask(emit, at.operands[1], at))


def _barrier(emit: Emitter, at: Instruction) -> Cut:
    parts, names, site = memory.words(at), emit.names, emit.site(at)
    if "warp" in parts:
        return Cut(f"kg::warp_sync(w, group, {site});", _mask(emit, at.operands[0], at))
    if "cluster" in parts:
        kind = 1 if "wait" in parts else 2 if "relaxed" in parts else 0
        return Cut(f"w->calls->cluster(w, {kind}, {site});", "all")
    kind = next(_KINDS[word] for word in parts if word in _KINDS)
    if kind < 2:
        barrier, *count = (names.value(text, "u32", at) for text in at.operands)
        code = f"{_FIRST} w->calls->barrier(w, {barrier}, {count[0] if count else '0'}, {kind}, 0, group, {site});"
        return Cut(code, "all")
    to, barrier, *count, vote = at.operands
    number = names.value(count[0], "u32", at) if count else "0"
    call = f"w->calls->barrier(w, {names.value(barrier, 'u32', at)}, {number}, {kind}, votes, group, {site})"
    result = names.assign(to, "u32" if kind == 2 else "pred", "total")
    return Cut(f"{_votes(emit, vote, at)} uint32_t total; {{ {_FIRST} total = {call}; }} {_EACH} {result} }}", "all")


def _sleep(emit: Emitter, at: Instruction) -> Cut:
    return Cut("found = kg::looked(w);", "any", polls=True)


def _registers(emit: Emitter, at: Instruction) -> Cut:
    """setmaxnreg: a warp gives registers back to its block, or waits until others have done so."""
    launched = emit.names.entry.launched_registers
    if not launched:
        return Cut("", "all")
    test = f"kg::set_registers(w, {int(at.operands[0])}, {launched})"
    return Cut(f"while (!{test}) w->calls->yield(w, {emit.site(at)});", "all")


def _wait(emit: Emitter, at: Instruction) -> Cut:
    """mbarrier.try_wait and test_wait: whether a phase is over, by its parity or by the state that an arrival gave."""
    parts, names, site = memory.words(at), emit.names, emit.site(at)
    if parts[1] not in ("try_wait", "test_wait"):
        raise unknown(at)
    pointer = memory.pointer(emit, at.operands[1], 8, "kg::ATOMIC | kg::READ", at)
    if "parity" in parts:
        parity = f"{names.value(at.operands[2], 'u32', at)} & 1"
    else:
        parity = f"kg::mbarrier_parity({names.value(at.operands[2], 'b64', at)})"
    test = f"const bool over = kg::mbarrier_over(w, {pointer}, {parity}, l, {site}); found &= over;"
    return Cut(f"{_EACH} {test} {names.assign(at.operands[0], 'pred', 'over')} }}", "any", polls=True)


def _product(emit: Emitter, at: Instruction) -> Cut:
    return Cut("", "all", fragments=tuple(matrix.product(emit, at)))


def _tiles(emit: Emitter, at: Instruction) -> Cut:
    return Cut("", "all", fragments=tuple(matrix.tiles(emit, at)))


_HANDLERS: dict[str, Callable[[Emitter, Instruction], Cut]] = {
    "shfl": _shuffle,
    "vote": _vote,
    "activemask": _active,
    "match": _match,
    "redux": _reduce,
    "elect": _elect,
    "bar": _barrier,
    "barrier": _barrier,
    "nanosleep": _sleep,
    "setmaxnreg": _registers,
    "mbarrier": _wait,
    "mma": _product,
    "movmatrix": _product,
    "ldmatrix": _tiles,
    "stmatrix": _tiles,
}
