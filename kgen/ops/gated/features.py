"""Feature maps of linear attention: the known ones by number, a caller's expression as code and kernels of its own."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Any

from kgen.dtypes import F32

NUMBERS = {None: 0, "identity": 0, "elu": 1, "relu": 2}
"""The known ones, by the axis FEATURE; "elu" is elu(x) + 1."""
EXPRESSION = 3
"""The axis FEATURE of any other."""


def number(feature_map: str | None) -> int:
    """The axis FEATURE of a feature map."""
    return NUMBERS.get(feature_map, EXPRESSION)


def check(op: str, feature_map: object, feature_slope: object = None, *, backward: bool = False) -> None:
    """Raise TypeError, or ValueError, for what is neither known nor an expression of x."""
    if feature_map is not None and not isinstance(feature_map, str):
        raise TypeError(
            f"{op}: feature_map is a {type(feature_map).__name__}; it takes 'identity', 'elu', 'relu', or an expression"
        )
    if number(feature_map) < EXPRESSION:
        if feature_slope is not None:
            raise ValueError(f"{op}: feature_slope goes with an expression; the slope of {feature_map!r} is known")
        return
    _check_expression(op, "feature_map", feature_map)
    if not backward:
        return
    if feature_slope is None:
        raise ValueError(
            f"{op}: feature_map is {feature_map!r}; with an expression it takes feature_slope, that of its derivative"
        )
    _check_expression(op, "feature_slope", feature_slope)


def _check_expression(op: str, argument: str, text: object) -> None:
    from kgen.ops.elementwise.expression import operands  # here, as below: few calls have an expression

    try:
        names = operands(text)  # type: ignore[arg-type]  # it says itself that it takes text
    except ValueError as error:
        raise ValueError(f"{op}: {argument}: {error}") from None
    known = "; known ones are 'identity', 'elu' and 'relu'" if argument == "feature_map" else ""
    if names != ("x",) and (names or argument == "feature_map"):  # a slope may be the same everywhere
        raise ValueError(f"{op}: {argument} is {text!r}; it takes an expression of x{known}")
    try:
        _function(argument, str(text))
    except (ValueError, TypeError, OverflowError) as error:
        raise type(error)(f"{op}: {argument} is {text!r}: {error}{known}") from None


@functools.lru_cache(maxsize=256)
def _function(name: str, text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The C++ of an expression, `name` last among its functions, and the hand-written ones that these need."""
    from kgen.ops.elementwise.expression import Function
    from kgen.ops.elementwise.program import write

    made = write(Function(name, ("x",), text), (F32,), F32)
    *others, last = made.functions
    # Whatever type the expression has, such as long long.
    return (*others, re.sub(r"^(.* __forceinline__) .*? apply\(", rf"\1 float {name}(", last, count=1)), made.primitives


@functools.lru_cache(maxsize=256)
def code(feature_map: str, feature_slope: str | None) -> dict[str, Any]:
    """What the templates take of an expression and perhaps its derivative."""
    from kgen.ops.elementwise.text import needed

    functions, primitives = _function("feature", feature_map)
    if feature_slope is not None:
        more, others = _function("feature_slope", feature_slope)
        functions, primitives = (*functions, *(text for text in more if text not in functions)), primitives | others
    return {
        "functions": functions,
        "primitives": sorted(needed(primitives)),
        "fast": False,
        "narrow": F32.c,
        "reals": [("float", "f")],
        "wholes": [],
        "signed": [],
    }


def digest(feature_map: str, feature_slope: str | None) -> str:
    """Of the expressions, for the names of kernels."""
    return hashlib.sha256(f"{feature_map}\n{feature_slope}".encode()).hexdigest()[:8]
