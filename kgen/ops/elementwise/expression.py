"""Expressions on the elements of arrays: Python's grammar, which body.py writes down as C++.

An expression is one line of arithmetic, perhaps after named steps: "e = exp(-abs(x)); x / (1 + e)". It may use Python's
operators, comparisons and conditionals, the constants pi, inf and nan, and the functions of functions.py. It is parsed
and never evaluated as Python.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

DEEPEST = 100
"""How deeply an expression may be nested: a sum of so many terms, or so many functions of functions."""

CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Function:
    """A name, its parameters in order, and the expression that it stands for."""

    name: str
    parameters: tuple[str, ...]
    expression: str

    @functools.cached_property
    def steps(self) -> tuple[tuple[str | None, ast.expr], ...]:
        """The named steps, and last, without a name, the result."""
        return parse(self.expression)


class ExpressionError(ValueError):
    """An expression that cannot be read, or uses what expressions have not."""


def parse(text: str) -> tuple[tuple[str | None, ast.expr], ...]:
    """The steps of an expression; raises ExpressionError, with the place, for what is none."""
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = told if isinstance(text, str) else f"it is a {type(text).__name__}, and takes text"
        raise ExpressionError(f"elementwise: the expression {text!r} cannot be read: {reason}") from None
    except (RecursionError, MemoryError):  # what Python's own parser runs into
        raise _too_deep(text) from None
    if _depth(body) > DEEPEST:
        raise _too_deep(text)
    steps: list[tuple[str | None, ast.expr]] = []
    for at, node in enumerate(body):
        last = at == len(body) - 1
        match node:
            case ast.Expr() if last:
                steps.append((None, node.value))
            case ast.Assign(targets=[ast.Name(id=name)]) if not last:
                steps.append((name, node.value))
            case _:
                raise ExpressionError(
                    f"elementwise: {text!r}: {ast.unparse(node)!r} does not fit; an expression is 'name = value' "
                    "steps, separated by semicolons, and then the result"
                )
    if not steps:
        raise ExpressionError("elementwise: the expression is empty")
    return tuple(steps)


def _depth(nodes: Sequence[ast.AST]) -> int:
    depth = 0
    while nodes:
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _too_deep(text: str) -> ExpressionError:
    return ExpressionError(
        f"elementwise: the expression '{text[:40]}...' is nested too deeply; divide it into named steps"
    )


def operands(text: str) -> tuple[str, ...]:
    """The names that an expression leaves open, in order of first use."""
    found: dict[str, None] = {}
    named: set[str] = set()
    for name, node in parse(text):
        called = {id(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
        used = [x for x in ast.walk(node) if isinstance(x, ast.Name) and id(x) not in called]
        for use in sorted(used, key=lambda x: (x.lineno, x.col_offset)):
            if use.id not in CONSTANTS and use.id not in named:
                found[use.id] = None
        if name is not None:
            named.add(name)
    return tuple(found)
