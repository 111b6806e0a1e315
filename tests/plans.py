"""What operators remember of calls, for tests that change how these are planned."""

from __future__ import annotations

from collections.abc import Iterable

from kgen.ops.calls import OPERATORS, Operator


def forget(operators: Iterable[Operator] | None = None) -> None:
    """Forget the plans and kinds of calls of these operators, or of all: what decided them is part of no key."""
    for operator in OPERATORS.values() if operators is None else operators:
        operator.kinds.clear()
        operator._plans.clear()
