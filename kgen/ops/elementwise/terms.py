"""Pieces of C++ from which expressions are put together, and how each of Python's operators is written."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kgen.dtypes import DType
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.functions import FUNCTIONS, PRIMITIVES
from kgen.ops.elementwise.promotion import FLOAT, INT, Type
from kgen.step import single

# What a name may not be in C++, or is already in the generated file: it gets an underscore.
_TAKEN = frozenset(
    """alignas alignof asm auto bool break case catch char class const constexpr continue default delete do double else
    enum explicit export extern false float for friend goto if inline int long mutable namespace new operator private
    protected public register return short signed sizeof static struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile while
    and_eq bitand bitor compl not_eq or_eq xor xor_eq char16_t char32_t concept const_cast constinit decltype
    dynamic_cast noexcept nullptr reinterpret_cast requires static_assert static_cast thread_local typeid wchar_t
    n item first single lead whole rest tile place axis left unit apply Index Pack
    i vector together shift past past_vector words_before widen narrow load_row store_row
    floor_divide modulo remainder_of left_shift right_shift wrapping_add wrapping_subtract wrapping_multiply
    VEC ITEMS THREADS UNIT PARTS WORD Words blockIdx threadIdx NULL""".split()  # noqa: SIM905
)
_TAKEN |= {*PRIMITIVES, *FUNCTIONS, *(f"{p.c}f" for p in PRIMITIVES.values())}
_MADE = re.compile(r"(.+_(of|at|low|high|past|words|\d+)|size_\d+)")
"""What the template makes of the names of others: their loads, places and strides."""


class Term(NamedTuple):
    """A piece of C++, its type, how tightly it binds, and its value where it is a plain number."""

    text: str
    type: Type
    binds: int = 20
    value: int | float | None = None


class Functions(Protocol):
    """What a body asks of the program that it is part of."""

    fast: bool
    real: DType
    widened: bool

    def use(self, name: str, kind: Type) -> None:
        """Note that a hand-written function is called with arguments of a type."""

    def narrow(self, name: str, kind: DType) -> None:
        """Note that a Python integer under this name must fit a type."""

    def spelled(self, kind: Type) -> str:
        """A type in C++."""

    def function(self, function: Function, types: tuple[Type, ...]) -> tuple[str, Type]:
        """The name of a function written for these types, and what it gives."""


BINARY: dict[type[ast.operator], tuple[str, int, str]] = {
    ast.Add: ("+", 12, "wrapping_add"),
    ast.Sub: ("-", 12, "wrapping_subtract"),
    ast.Mult: ("*", 13, "wrapping_multiply"),
    ast.BitAnd: ("&", 7, ""),
    ast.BitOr: ("|", 5, ""),
    ast.BitXor: ("^", 6, ""),
    ast.LShift: ("<<", 11, "left_shift"),
    ast.RShift: (">>", 11, "right_shift"),
}
COMPARED: dict[type[ast.cmpop], tuple[str, int]] = {
    ast.Lt: ("<", 9),
    ast.LtE: ("<=", 9),
    ast.Gt: (">", 9),
    ast.GtE: (">=", 9),
    ast.Eq: ("==", 8),
    ast.NotEq: ("!=", 8),
}
OF_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
"""What takes integers alone."""

FOLD: dict[type[ast.operator], Callable[[Any, Any], int | float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
}


def safe(name: str) -> str:
    """A name as the generated file may use it; two names never become one.

    >>> safe("x"), safe("int"), safe("int_")
    ('x', 'int_', 'int__')
    """
    plain = name.rstrip("_")
    return f"{name}_" if plain in _TAKEN or _MADE.fullmatch(plain) else name


def literal(value: int | float) -> Term:
    return Term(str(value), INT if isinstance(value, int) else FLOAT, 15 if value < 0 else 20, value)


def number(value: int | float, spelled: str) -> str:
    """A plain number as C++ writes it in a type."""
    if spelled not in ("float", "double"):
        return f"{int(value)}{'ll' if spelled == 'long long' and abs(value) >= 1 << 31 else ''}"
    try:
        real = float(value)
    except OverflowError:
        real = math.inf if value > 0 else -math.inf
    if spelled == "float":
        real = single(real)
    if math.isnan(real):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(real):
        return f"{'-' if real < 0 else ''}__int_as_float(0x7f800000)"
    return repr(real) + ("f" if spelled == "float" else "")


_SUFFIX = {"int": "", "unsigned": "u", "long long": "ll", "unsigned long long": "ull"}


def typed(value: int | float, spelled: str) -> str:
    """A plain number that has a type in C++ whatever is around it.

    >>> typed(1, "long long"), typed(1, "short"), typed(1, "float")
    ('1ll', 'static_cast<short>(1)', '1.0f')
    """
    if spelled in ("float", "double"):
        return number(value, spelled)
    return f"{int(value)}{_SUFFIX[spelled]}" if spelled in _SUFFIX else f"static_cast<{spelled}>({int(value)})"


def inside(term: Term, binds: int) -> str:
    return term.text if term.binds >= binds else f"({term.text})"
