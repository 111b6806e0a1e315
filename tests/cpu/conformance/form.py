"""What a form is: one PTX instruction with its modifiers, and the types of what goes in and out.

Forms are written as tables of text, one line each, and braces multiply:

    cvt.{rn,rz}.f16.f32 | f16 | f32
    shfl.sync.idx.b32 $0|$1, $2, $3, $4, $5 | b32 pred | b32 lane segments mask | warp

The columns are the instruction, the outputs, the inputs, and what else there is to say: a style (`lane`, `warp`,
`atomic`, `matrix`) and, where the hardware interpolates in tables that nobody publishes, how near results must come:
`ulp=N`, or `within=K` for 2^K. Without `$`, the operands are the outputs and then the inputs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

REGISTERS = {
    "f32": "f",
    "f64": "d",
    **dict.fromkeys(("u64", "b64", "s64", "same64"), "l"),
    **dict.fromkeys(("f16", "bf16", "u16", "s16", "b16", "small16", "word16", "e4m3x2", "e5m2x2"), "h"),
    "pred": "p",
}
"""The kind of register of a type, as inline assembly writes it; every other type is a 32-bit register."""

WIDTH = {"h": 2, "r": 4, "f": 4, "l": 8, "d": 8, "p": 1}
"""Bytes of a register of each kind."""


class Form(NamedTuple):
    """One instruction to be tried.

    name    the line's first column, which is also the instruction's text
    outs    types of what it writes, and
    ins     of what it reads: domains that `inputs` knows
    style   how the kernel around it looks, see `kernels`
    ulp     how far results may be from the hardware's, in units of the last place; 0: not at all
    within  or else by how much at the most
    """

    name: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    style: str = "lane"
    ulp: int = 0
    within: float = 0.0

    @property
    def cases(self) -> int:
        """How many lanes try it; all inputs there are, where one operand has 16 bits."""
        if self.style != "lane":
            return 2048
        return 65536 if len(self.ins) == 1 and register(self.ins[0]) == "h" else 8192


def register(kind: str) -> str:
    """The letter of the register that holds a type; `slot:f32` and `mma:f32` are inputs of type f32 for a purpose."""
    return REGISTERS.get(kind.rpartition(":")[2], "r")


def width(kind: str) -> int:
    """How many bytes a type takes in the golden data."""
    return WIDTH[register(kind)]


def parse(table: str) -> Iterator[Form]:
    """The forms of a table, braces multiplied out.

    >>> [form.name for form in parse("neg.{f16,bf16} | f16 | f16")]
    ['neg.f16', 'neg.bf16']
    """
    for line in table.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, outs, ins, *more = re.split(r"\s+\|\s+", line.strip())
        words = more[0].split() if more else []
        bounds = dict(word.split("=") for word in words if "=" in word)
        within = 2.0 ** int(bounds["within"]) if "within" in bounds else 0.0
        style = next((word for word in words if "=" not in word), "lane")
        for choice in _multiplied(" | ".join((name, outs, ins))):
            text, out, given = choice.split(" | ")
            yield Form(text, _types(out), _types(given), style, int(bounds.get("ulp", 0)), within)


def _types(column: str) -> tuple[str, ...]:
    """A column's types; `f32*4` is four of them."""
    words = [word.partition("*") for word in column.split()]
    return tuple(kind for kind, _, count in words for _ in range(int(count or 1)))


def _multiplied(text: str) -> Iterator[str]:
    """Braces multiplied out; `<x>` repeats what the first brace took, so that types can follow the instruction."""
    parts = re.split(r"\{([^{}$]*)\}", text)
    for picks in itertools.product(*(part.split(",") for part in parts[1::2])):
        whole = "".join(itertools.chain.from_iterable(itertools.zip_longest(parts[::2], picks, fillvalue="")))
        for at, pick in enumerate(picks):
            whole = whole.replace(f"<{at}>", pick.lstrip("."))
        yield whole
