"""Which C++ expression stands for which PTX instruction: tables of text, one line a form.

    pattern                       | result | operands | expression     | # include ops/some.h
    {add,sub}.{u32,u64}           | $2     | $2 $2    | a $1 b

Braces in the pattern multiply out, `$n` stands for what the n-th brace took. Operands are a, b, c, ... in the order in
which PTX writes them, of the C++ type that goes with their PTX type. Without an expression a line means the function
`kg::` of the opcode's name, with `_` for the dots.
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

    >>> [form.expression for form in expand("{add,sub}.u32 | u32 | u32 u32 |")]
    ['kg::add_u32(a, b)', 'kg::sub_u32(a, b)']
    """
    for line in table.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        line, _, include = line.partition("| # include")
        pattern, result, operands, *more = (column.strip() for column in re.split(r"\s\|(?:\s|$)", line, maxsplit=3))
        parts = re.split(r"\{([^{}]*)\}", pattern)
        for picks in itertools.product(*(part.split(",") for part in parts[1::2])):
            opcode = "".join(itertools.chain.from_iterable(itertools.zip_longest(parts[::2], picks, fillvalue="")))

            def fill(text: str, picks: tuple[str, ...] = picks) -> str:
                return re.sub(r"\$(\d)", lambda found: picks[int(found[1]) - 1].strip("."), text)

            types = tuple(fill(operands).split())
            expression = fill(more[0]) if more else ""
            if not expression:
                names = ", ".join("abcdefgh"[: len(types)])
                expression = f"kg::{function_name(opcode)}({names})"
            yield Form(opcode, fill(result), types, expression, include.strip())


def function_name(opcode: str) -> str:
    """The C++ name of an opcode."""
    return re.sub(r"[.:]+", "_", opcode)


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
    try:
        from kgen.cpu.forms import matrix
    except ImportError:
        return {}
    return {form.opcode: form for form in expand(matrix.TABLE)}
