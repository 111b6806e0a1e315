"""Loads, stores, atomics and fences of one lane: spaces, widths and vectors are read off the opcode."""

from __future__ import annotations

import re
from collections.abc import Callable

from kgen.cpu.forms import C_TYPES, forms
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.operands import listed
from kgen.cpu.translate.ptx import SIZES, Instruction

_SPACES = {"global": "GLOBAL", "shared": "SHARED", "shared::cta": "SHARED", "shared::cluster": "CLUSTER"}
_SPACES |= {"local": "LOCAL", "param": "PARAM", "param::entry": "PARAM", "const": "GLOBAL"}
_ORDERS = {"acquire": "kg::ACQUIRE", "release": "kg::RELEASE", "acq_rel": "kg::ACQUIRE | kg::RELEASE"}
_ORDERS |= {"relaxed": "kg::RELAXED", "volatile": "kg::RELAXED", "mmio": "kg::RELAXED"}
OPERATIONS = {
    "add": "a + b",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "exch": "b",
    "min": "a < b ? a : b",
    "max": "a < b ? b : a",
    "inc": "a >= b ? 0 : a + 1",
    "dec": "a == 0 || a > b ? b : a - 1",
    "cas": "a == b ? c : a",
}
_ADDRESS = re.compile(r"([%$\w.]+)\s*(?:\+\s*(-?\w+)|-\s*(\w+))?")
_ACQUIRE, _RELEASE = (f" __atomic_thread_fence(__ATOMIC_{order});" for order in ("ACQUIRE", "RELEASE"))
UPDATE = "kg::ATOMIC | kg::READ | kg::WRITE"
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def words(at: Instruction) -> list[str]:
    """The parts of an opcode, `shared::cta` being one."""
    return at.opcode.split(".")


def space_of(at: Instruction) -> str:
    """The state space that an opcode names, as the runtime's constant."""
    return next((_SPACES[word] for word in words(at) if word in _SPACES), "GENERIC")


def place(text: str, at: Instruction) -> tuple[str, int]:
    """What `[register + offset]` is made of."""
    found = _ADDRESS.fullmatch(text.strip("[] "))
    if found is None:
        raise unknown(at, f"has an address that the executor does not know: {text}")
    return found[1], int(found[2] or "0", 0) - int(found[3] or "0", 0)


def address(emit: Emitter, text: str, space: str, at: Instruction) -> str:
    """The address in `[register + offset]`, in the terms of its space."""
    base, offset = place(text, at)
    names = emit.names
    if base in names.registers:
        held = names.value(base, "u32" if space in ("SHARED", "CLUSTER") else "u64", at)
    elif re.fullmatch(r"-?\w+", base) and base[0].isdigit():
        held = f"{int(base, 0)}u"
    else:
        held = names.address(base) or names.value(base, "u64", at)
    return f"{held} + {offset}" if offset > 0 else f"{held} - {-offset}" if offset < 0 else held


def pointer(emit: Emitter, text: str, size: int, what: str, at: Instruction, space: str = "") -> str:
    """Where an access of so many bytes to `[register + offset]` goes, in this process; `what` it does is checked."""
    space = space or space_of(at)
    if space == "PARAM":
        base, offset = place(text, at)
        if base in emit.names.params:
            return f"w->args + {emit.names.params[base] + offset}"
        return f"(uint8_t*)({address(emit, text, space, at)})"
    return f"kg::at<kg::{space}>(w, {address(emit, text, space, at)}, {size}, {what}, l, {emit.site(at)})"


def _load(emit: Emitter, at: Instruction) -> str:
    parts, kind = words(at), words(at)[-1]
    held = listed(at.operands[0])
    size = SIZES[kind]
    orders = [_ORDERS[word] for word in parts if word in _ORDERS]
    source = pointer(emit, at.operands[1], size * len(held), " | ".join(["kg::READ", *orders]), at)
    load = f"kg::load{'_strong' if orders else ''}<{C_TYPES[kind]}>"
    after = _ACQUIRE if "acquire" in parts else ""
    if len(held) == 1:
        return emit.names.assign(held[0], kind, f"{load}({source})") + after
    each = [emit.names.assign(to, kind, f"{load}(p_ + {i * size})") for i, to in enumerate(held)]
    return f"{{ const uint8_t* p_ = {source}; {' '.join(each)}{after} }}"


def _store(emit: Emitter, at: Instruction) -> str:
    if at.opcode.startswith("st.bulk"):
        raise unknown(at)
    parts, kind = words(at), words(at)[-1]
    given = listed(at.operands[1])
    size = SIZES[kind]
    orders = [_ORDERS[word] for word in parts if word in _ORDERS]
    what = " | ".join(["kg::WRITE", *orders])
    store = f"kg::store{'_strong' if orders else ''}<{C_TYPES[kind]}>"
    before, after = _RELEASE if "release" in parts else "", ""
    if parts[1] == "async":  # an mbarrier counts the bytes
        what += " | kg::ASYNC"
        barrier = pointer(emit, at.operands[2], 8, UPDATE, at, "CLUSTER")
        after = f" kg::async_stored(w, {barrier}, {size * len(given)}, l, {emit.site(at)});"
    to = pointer(emit, at.operands[0], size * len(given), what, at)
    if len(given) == 1 and not before + after:
        return f"{store}({to}, {emit.names.value(given[0], kind, at)});"
    each = [f"{store}(p_ + {i * size}, {emit.names.value(text, kind, at)});" for i, text in enumerate(given)]
    return f"{{ uint8_t* p_ = {to};{before} {' '.join(each)}{after} }}"


def _prefetch(emit: Emitter, at: Instruction) -> str:
    """It does nothing here; but what a kernel asks for in advance should be there."""
    return f"(void)({pointer(emit, at.operands[0], 1, 'kg::READ | kg::PLACE', at)});"


def _discard(emit: Emitter, at: Instruction) -> str:
    """What was there is lost: nobody may need it any more."""
    size = int(at.operands[1], 0)
    return f"{{ uint8_t* p_ = {pointer(emit, at.operands[0], size, 'kg::WRITE', at)}; memset(p_, 0xff, {size}); }}"


def _atomic(emit: Emitter, at: Instruction) -> str:
    parts = words(at)
    kind = next(word for word in reversed(parts) if word in SIZES)
    operation = next(word for word in parts if word in OPERATIONS)
    reduction = parts[0] == "red"
    to, place, *given = ("_", *at.operands) if reduction else at.operands
    orders = "".join(f" | {_ORDERS[word]}" for word in parts if word in _ORDERS) or " | kg::RELAXED"
    held = listed(to) if to.startswith("{") else (to,)
    vectors = [listed(text) for text in given[: 2 if operation == "cas" else 1]]
    count, size, c_type = len(vectors[0]), SIZES[kind], C_TYPES[kind]
    lines = [f"uint8_t* p_ = {pointer(emit, place, size * count, UPDATE + orders, at)};"]
    for i in range(count):
        sources = [emit.names.value(vector[i], kind, at) for vector in vectors]
        lines.append(f"{{ const {c_type} b = {sources[0]}; (void)b;")
        if operation == "cas":
            lines.append(f"const {c_type} c = {sources[1]};")
        changed = OPERATIONS[operation]
        if kind in _HALVES and operation in ("add", "min", "max"):
            form = forms()[f"{operation}.{kind}"]
            emit.includes.add(form.include)
            changed = form.expression
        integer = kind[0] in "usb" and kind not in _HALVES
        if operation == "add" and kind == "f32" and space_of(at) != "SHARED":  # subnormals are flushed there
            changed = "kg::flushed(kg::flushed(a) + kg::flushed(b))"
            if space_of(at) == "GENERIC":
                changed = f"kg::is_shared(w, (uint64_t)p_) ? a + b : {changed}"
        if operation == "add" and integer:
            done = f"kg::atomic_add<{c_type}>(p_ + {i * size}, b)"
        else:
            done = f"kg::atomic<{c_type}>(p_ + {i * size}, [&]({c_type} a) -> {c_type} {{ return {changed}; }})"
        result = held[i] if i < len(held) else "_"
        lines.append(emit.names.assign(result, kind, done) + " }")
    return f"{{ {' '.join(lines)} }}"


def _fence(emit: Emitter, at: Instruction) -> str:
    return f"kg::fence(w, l, {emit.site(at)});"


HANDLERS: dict[str, Callable[[Emitter, Instruction], str]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "prefetch": _prefetch,
    "discard": _discard,
    "membar": _fence,
    "fence": _fence,
}
