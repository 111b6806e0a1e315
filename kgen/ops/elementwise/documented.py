"""What `help` says of an elementwise operator: its signature, and a docstring made of its expression."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping

from kgen.ops.elementwise.expression import Function


def signature_of(
    function: Function, defaults: Mapping[str, float | None], options: Mapping[str, str]
) -> inspect.Signature:
    """The operands in order, parameters with their defaults, and the options by keyword, each with its type.

    None is the default of an operand that may be left out.
    """
    kinds = inspect.Parameter
    operands = [
        kinds(
            name,
            kinds.POSITIONAL_OR_KEYWORD,
            default=defaults.get(name, kinds.empty),
            annotation="Any" if defaults.get(name) is None else "float",
        )
        for name in function.parameters
    ]
    by_name = [kinds(name, kinds.KEYWORD_ONLY, default=None, annotation=told) for name, told in options.items()]
    return inspect.Signature([*operands, *by_name], return_annotation="Any")


def documented(function: Function, defaults: Mapping[str, float], summary: str) -> str:
    """A docstring: the summary, the expression step by step, and each parameter.

    >>> print(documented(Function("f", ("x", "beta"), "y = beta * x; y * y"), {"beta": 1.0}, "The square of beta x."))
    The square of beta x.
    <BLANKLINE>
        y = beta * x
        y * y
    <BLANKLINE>
    Parameters
    ----------
    x : array
    beta : float, by default 1.0
    out, dtype, algorithm, stream : optional
        As in `kgen.elementwise`, which also says what is returned and raised.
    """
    arrays = [name for name in function.parameters if name not in defaults]
    many = len(arrays) > 1
    steps = [textwrap.fill(step.strip(), 100, subsequent_indent="    ") for step in function.expression.split(";")]
    lines = [
        summary or f"{function.name} of each element.",
        "",
        textwrap.indent("\n".join(steps), "    "),
        "",
        "Parameters",
        "----------",
        f"{', '.join(arrays)} : {'arrays or numbers' if many else 'array'}",
        *(["    They broadcast; at least one is an array."] if many else []),
        *(f"{name} : float, by default {value}" for name, value in defaults.items()),
        "out, dtype, algorithm, stream : optional",
        "    As in `kgen.elementwise`, which also says what is returned and raised.",
    ]
    return "\n".join(lines)
