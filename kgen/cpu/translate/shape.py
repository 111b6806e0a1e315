"""A statement of C++ -> its shape, which is what remains of it without its registers and numbers, and these operands.

Kernels are unrolled loops: the statements of 120 of them, 128000 in number, have 398 shapes.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?<![\w.<])(?<!->)(?<!::)(?:"  # what stands right behind `<` says which template
    r"(?P<float>0x[0-9a-f]\.[0-9a-f]+p[+-]\d+)(?P<single>f?)"
    r"|(?P<number>\d+)(?P<kind>ull|ll|u)?(?![\w.>]|\s\*\ssizeof)"
    r"|(?P<name>[A-Za-z_]\w*))"
)

_SCALAR = re.compile(r"int(?:8|16)_t|kg::(?!(?:row|two|float_of|double_of|bits_of|flushed|maximum|minimum)\b)")
"""What is not made vectors of: functions, and small integers, of which GCC 12 gets the high half of a product wrong."""


class Shape(NamedTuple):
    """The body of a function in C++; `lane`: a statement of each lane, or else of a warp, at a cut."""

    text: str
    lane: bool


class Shaped(NamedTuple):
    """A statement: its shape, and its operands. A register is where its values lie, of all lanes.

    `rows` says which of the operands are registers.
    """

    shape: Shape
    operands: tuple[int, ...]
    rows: tuple[int, ...]


def shaped(statement: str, lane: bool, register: Callable[[str], tuple[str, int] | None]) -> Shaped:
    """Take a statement apart; `register` knows the C++ type of a name that is one, and where its values lie."""
    operands: list[int] = []
    rows: list[int] = []
    names: dict[str, str] = {}
    declared: list[str] = []

    def number(kind: str, made: str, *words: int) -> str:
        name = f"n{len(operands)}_"
        declared.append(f"const {kind} {name} = {made.format(len(operands))};")
        operands.extend(words)
        return name

    def operand(found: re.Match[str]) -> str:
        if (name := found["name"]) is not None:
            if name not in names and (held := register(name)) is not None:
                kind, at = held
                row = f"r{len(operands)}_"
                names[name] = f"{row}[l]"
                declared.append(f"{kind}* __restrict const {row} = kg::row<{kind}>(s_, o_[{len(operands)}]);")
                rows.append(len(operands))
                operands.append(at)
            return names.get(name, name)
        if found["float"] is not None:
            value = float.fromhex(found["float"])
            if found["single"]:
                return number("float", "kg::float_of((uint32_t)o_[{0}])", *_words(struct.pack("<f", value)))
            return number("double", "kg::double_of(kg::two(o_ + {0}))", *_words(struct.pack("<d", value)))
        whole, kind = int(found["number"]), found["kind"]
        if kind in ("ull", "ll"):
            words = _words((whole & (1 << 64) - 1).to_bytes(8, "little"))
            return number("uint64_t" if kind == "ull" else "int64_t", "kg::two(o_ + {0})", *words)
        if whole >= 1 << (32 if kind else 31):
            return found[0]
        return number("uint32_t" if kind else "int32_t", "o_[{0}]", *_words(whole.to_bytes(4, "little")))

    text = _TOKEN.sub(operand, statement)
    given = " ".join(declared)
    loop = "KG_EACH_LANE" if _SCALAR.search(given + text) else "KG_ALL_LANES"
    body = f"{loop}({text})" if lane else f"{{ {text} }}"
    return Shaped(Shape(f"{given} {body} return o_ + {len(operands)};", lane), tuple(operands), tuple(rows))


def _words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


@functools.cache
def source(shape: Shape, name: str) -> str:
    """The C++ of a shape's function."""
    given = "KG_OF_LANES" if shape.lane else "KG_OF_A_WARP"
    return f"KG_SHAPE({name})\n{{\n    {given}\n    {shape.text}\n}}"
