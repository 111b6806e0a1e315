"""Numbers among the options of a call: errors that name the operator, the option, what came and what is taken."""

from __future__ import annotations

import numbers
import operator
from typing import Any


def whole(op: str, option: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """An integer, Python's, NumPy's or any that is one by its `__index__`; at least `least`, at most `most`.

    >>> whole("take", "axis", -1)
    -1
    """
    try:
        if isinstance(value, bool):  # an integer to Python, but a slip here: keepdims in the place of an axis
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {option} is a {type(value).__name__}; it takes an integer") from None
    if least is not None and number < least:
        raise ValueError(f"{op}: {option} is {number}; it takes an integer from {least} on")
    if most is not None and number > most:
        raise ValueError(f"{op}: {option} is {number}; it takes an integer up to {most}")
    return number


def check_real(op: str, **options: object) -> None:
    """TypeError where an option is no real number, OverflowError where it is an integer too large for a float."""
    for option, value in options.items():
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{op}: {option} is a {type(value).__name__}; it takes a real number")
        try:
            float(value)
        except OverflowError:
            raise OverflowError(f"{op}: {option} is an integer too large for a float; it takes a real number") from None


def check_plain(op: str, names: tuple[str, ...], options: tuple[Any, ...]) -> None:
    """TypeError where an option has no hash, by which calls of a kind are recognised: a list, or an array."""
    try:
        hash(options)
    except TypeError:
        for name, value in zip(names, options):
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"{op}: {name} is a {type(value).__name__}; it takes plain values and tuples of them"
                ) from None
        raise
