"""What one lane does by way of mbarriers, and cp.async; waits are cuts, see warp.py."""

from __future__ import annotations

from collections.abc import Callable

from kgen.cpu.translate import memory
from kgen.cpu.translate.emitter import Emitter
from kgen.cpu.translate.ptx import Instruction
from kgen.errors import UnknownInstructionError


def _copy(emit: Emitter, at: Instruction) -> str:
    """cp.async: 4, 8 or 16 bytes that arrive later, at the latest when their group is waited for."""
    parts = memory.words(at)
    if parts[:2] != ["cp", "async"] or "bulk" in parts:
        raise UnknownInstructionError(f"the executor does not know `{at}` yet", line=at.line)
    if "commit_group" in parts:
        return "kg::async_group(w, l, false, 0);"
    if "wait_group" in parts:
        return f"kg::async_group(w, l, true, {int(at.operands[0], 0)});"
    if "wait_all" in parts:
        return "kg::async_group(w, l, true, -1);"
    site = emit.site(at)
    if "mbarrier" in parts:
        noinc = "true" if "noinc" in parts else "false"
        return (
            f"kg::async_arrive(w, l, {memory.address(emit, at.operands[0], memory.space_of(at), at)}, {noinc}, {site});"
        )
    size = int(at.operands[2], 0)
    if size not in (4, 8, 16):
        raise UnknownInstructionError(f"`{at}` copies neither 4 nor 8 nor 16 bytes", line=at.line)
    to = memory.address(emit, at.operands[0], "SHARED", at)
    source = memory.address(emit, at.operands[1], "GLOBAL", at)
    extra = at.operands[3:]
    taken = f"{size}u"
    if (extra and "cache_hint" not in at.opcode) or len(extra) == 2:
        text = extra[0]
        is_flag = text in emit.names.registers and emit.names.registers[text] == "pred"
        taken = (
            f"({emit.names.value(text, 'pred', at)} ? 0u : {size}u)" if is_flag else emit.names.value(text, "u32", at)
        )
    return f"kg::async_copy(w, l, {to}, {source}, {size}, {taken}, {site});"


def _mbarrier(emit: Emitter, at: Instruction) -> str:
    """mbarrier.{init,inval,arrive,arrive_drop,expect_tx,complete_tx,pending_count}; waits are cuts, see warp.py."""
    parts, names, site = memory.words(at), emit.names, emit.site(at)
    what = parts[1]
    if what == "pending_count":
        state = names.value(at.operands[1], "b64", at)
        return names.assign(at.operands[0], "u32", f"{state} & 0xfffff")
    has_state = what in ("arrive", "arrive_drop") and not at.operands[0].startswith("[")
    state, (place, *given) = (at.operands[0], at.operands[1:]) if has_state else ("_", at.operands)
    space = memory.space_of(at)
    access = "kg::WRITE" if what in ("init", "inval") else memory.UPDATE
    pointer = f"kg::at<kg::{space}>(w, {memory.address(emit, place, space, at)}, 8, {access}, l, {site})"
    number = names.value(given[0], "u32", at) if given else "1u"
    if what == "init":
        return f"kg::mbarrier_init(w, {pointer}, {number}, l, {site});"
    if what == "inval":
        return f"(void){pointer};"
    if what == "expect_tx":
        return f"kg::mbarrier_update(w, {pointer}, 0, (int32_t){number}, false, l, {site});"
    if what == "complete_tx":
        return f"kg::mbarrier_update(w, {pointer}, 0, -(int32_t){number}, false, l, {site});"
    if what in ("arrive", "arrive_drop"):
        drop = "true" if what == "arrive_drop" else "false"
        count, more = ("1u", f"(int32_t){number}") if "expect_tx" in parts else (number, "0")
        return names.assign(state, "b64", f"kg::mbarrier_update(w, {pointer}, {count}, {more}, {drop}, l, {site})")
    raise UnknownInstructionError(f"the executor does not know `{at}`", line=at.line)


HANDLERS: dict[str, Callable[[Emitter, Instruction], str]] = {"cp": _copy, "mbarrier": _mbarrier}
