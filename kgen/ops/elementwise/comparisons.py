"""Comparisons of integers that no type of theirs has in common: exact, as NumPy's."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from kgen.dtypes import BOOL, I64, INTEGERS, SIGNED, U64, DType
from kgen.ops.elementwise.promotion import INT, bounds
from kgen.ops.elementwise.terms import COMPARED, Term, inside

_MEANING: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
OR, AND, LESS = 3, 4, 9  # how tightly these bind


def by_value(number: Term, other: Term) -> Term:
    """A Python integer that is an operand, beside integers: of 64 bits, so that one of theirs need not hold it."""
    beside = isinstance(other.type, DType) and other.type in INTEGERS
    return number._replace(type=I64) if number.type is INT and number.value is None and beside else number


def exactly(op: type[ast.cmpop], a: Term, b: Term) -> Term | None:
    """The comparison, where it takes more than to convert both to one type; else None."""
    if _is_beyond(a, b) or _is_beyond(b, a):  # the same for all elements, as for 0
        x, y = (term.value if isinstance(term.value, int) else 0 for term in (a, b))
        return Term("true" if _MEANING[op](x, y) else "false", BOOL)
    if b.type in SIGNED and a.type is U64:
        return exactly(_TURNED[op], b, a)
    if a.type not in SIGNED or b.type is not U64:
        return None
    sign, binds = COMPARED[op]
    compared = f"static_cast<{U64.c}>({a.text}) {sign} {inside(b, binds + 1)}"
    if _MEANING[op](-1, 0):  # as what is below zero does with everything in b
        return Term(f"{inside(a, LESS + 1)} < 0 || {compared}", BOOL, OR)
    return Term(f"{inside(a, LESS + 1)} >= 0 && {compared}", BOOL, AND)


def _is_beyond(number: Term, other: Term) -> bool:
    """Whether a plain integer is one that the other's type cannot hold."""
    if not isinstance(number.value, int) or not isinstance(other.type, DType) or other.type not in INTEGERS:
        return False
    low, high = bounds(other.type)
    return not low <= number.value <= high
