"""Which C++ expression stands for which PTX instruction: tables of text, one line a form.

    pattern                       | result | operands | expression     | # include ops/some.h
    {add,sub}.{u32,u64}           | $2     | $2 $2    | a $1 b

Braces in the pattern multiply out, and `$n` stands for what the n-th brace took, in the pattern too. Operands are a, b,
c, .. in the order in which PTX writes them, of the C++ type that goes with their PTX type; w and l are the warp and the
lane, and SITE a number by which reports find the instruction.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator
from typing import NamedTuple

C_TYPES = {"pred": "bool", "u8": "uint8_t", "b8": "uint8_t", "s8": "int8_t"}
C_TYPES |= dict.fromkeys(("u16", "b16", "f16", "bf16", "e4m3x2", "e5m2x2"), "uint16_t") | {"s16": "int16_t"}
C_TYPES |= dict.fromkeys(("u32", "b32", "f16x2", "bf16x2", "tf32", "e4m3x4", "e5m2x4"), "uint32_t") | {"s32": "int32_t"}
C_TYPES |= {
    "u64": "uint64_t",
    "b64": "uint64_t",
    "f32x2": "uint64_t",
    "s64": "int64_t",
    "f32": "float",
    "f64": "double",
}
"""The C++ type of a value of each PTX type; small floats are their bits."""


class Form(NamedTuple):
    """One line of a table, multiplied out; `result` and `operands` are PTX types."""

    opcode: str
    result: str
    operands: tuple[str, ...]
    expression: str
    include: str


def expand(table: str) -> Iterator[Form]:
    """The forms of a table.

    >>> [form.expression for form in expand("{min,max}.u32 | u32 | u32 u32 | kg::$1imum(a, b)")]
    ['kg::minimum(a, b)', 'kg::maximum(a, b)']
    """
    for line in table.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        line, _, include = line.partition("| # include")
        pattern, result, operands, formula = (column.strip() for column in re.split(r"\s\|\s", line, maxsplit=3))
        parts = re.split(r"\{([^{}]*)\}", pattern)
        for picks in itertools.product(*(part.split(",") for part in parts[1::2])):

            def fill(text: str, picks: tuple[str, ...] = picks) -> str:
                return re.sub(r"\$(\d)", lambda found: picks[int(found[1]) - 1].strip("."), text)

            opcode = fill("".join(itertools.chain(*itertools.zip_longest(parts[::2], picks, fillvalue=""))))
            yield Form(opcode, fill(result), tuple(fill(operands).split()), fill(formula), include.strip())


@functools.cache
def forms() -> dict[str, Form]:
    """Every instruction that works on one lane's registers alone, by opcode."""
    made: dict[str, Form] = {}
    for module in pkgutil.iter_modules(__path__):
        table = importlib.import_module(f"{__name__}.{module.name}")
        if module.name != "matrix":
            for form in expand(table.TABLE):
                if form.opcode in made:
                    raise ValueError(f"{module.name}.py: {form.opcode} has a line already")
                made[form.opcode] = form
    return made


@functools.cache
def matrix_forms() -> dict[str, Form]:
    """Every instruction on fragments that a warp holds; `result` and `operands` count registers."""
    from kgen.cpu.forms import matrix

    return {form.opcode: form for form in expand(matrix.TABLE)}
