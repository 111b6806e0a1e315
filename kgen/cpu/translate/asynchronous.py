"""What one lane does by way of mbarriers, and cp.async; waits are cuts, see warp.py."""

from __future__ import annotations

from collections.abc import Callable

from kgen.cpu.translate import memory
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.ptx import Instruction


def _copy(emit: Emitter, at: Instruction) -> str:
    """cp.async: 4, 8 or 16 bytes that arrive later, at the latest when their group is waited for."""
    parts = memory.words(at)
    if parts[:2] != ["cp", "async"] or "bulk" in parts:
        raise unknown(at)
    if "commit_group" in parts:
        return "kg::async_group(w, l, false, 0);"
    if "wait_group" in parts:
        return f"kg::async_group(w, l, true, {int(at.operands[0], 0)});"
    if "wait_all" in parts:
        return "kg::async_group(w, l, true, -1);"
    site = emit.site(at)
    if "mbarrier" in parts:
        place = memory.address(emit, at.operands[0], memory.space_of(at), at)
        return f"kg::async_arrive(w, l, {place}, {str('noinc' in parts).lower()}, {site});"
    size = int(at.operands[2], 0)
    if size not in (4, 8, 16):
        raise unknown(at, "copies neither 4 nor 8 nor 16 bytes")
    to = memory.address(emit, at.operands[0], "SHARED", at)
    source = memory.address(emit, at.operands[1], "GLOBAL", at)
    taken = f"{size}u"
    for text in at.operands[3 : -1 if "cache_hint" in at.opcode else None]:
        ignored = emit.names.registers.get(text) == "pred"
        value = emit.names.value(text, "pred" if ignored else "u32", at)
        taken = f"({value} ? 0u : {size}u)" if ignored else value
    return f"kg::async_copy(w, l, {to}, {source}, {size}, {taken}, {site});"


def _mbarrier(emit: Emitter, at: Instruction) -> str:
    """mbarrier.{init,inval,arrive,arrive_drop,expect_tx,complete_tx}; waits are cuts, see warp.py."""
    parts, names, site = memory.words(at), emit.names, emit.site(at)
    what = parts[1]
    has_state = what in ("arrive", "arrive_drop") and not at.operands[0].startswith("[")
    state, (place, *given) = (at.operands[0], at.operands[1:]) if has_state else ("_", at.operands)
    access = "kg::WRITE" if what in ("init", "inval") else memory.UPDATE
    pointer = memory.pointer(emit, place, 8, access, at)
    number = names.value(given[0], "u32", at) if given else "1u"
    if what == "init":
        return f"kg::mbarrier_init(w, {pointer}, {number}, l, {site});"
    if what == "inval":
        return f"(void){pointer};"
    if what in ("expect_tx", "complete_tx"):
        sign = "-" if what == "complete_tx" else ""
        return f"kg::mbarrier_update(w, {pointer}, 0, {sign}(int32_t){number}, false, l, {site});"
    if what in ("arrive", "arrive_drop"):
        drop = str(what == "arrive_drop").lower()
        count, more = ("1u", f"(int32_t){number}") if "expect_tx" in parts else (number, "0")
        return names.assign(state, "b64", f"kg::mbarrier_update(w, {pointer}, {count}, {more}, {drop}, l, {site})")
    raise unknown(at)


HANDLERS: dict[str, Callable[[Emitter, Instruction], str]] = {"cp": _copy, "mbarrier": _mbarrier}
