"""What is wrong with a kernel as it was declared, said when it is registered and not when it is first built."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kgen.arch import Arch
from kgen.dtypes import DType
from kgen.errors import SpecError
from kgen.spec import Axis, Flag, Kernel


def check(kernel: Kernel) -> None:
    """SpecError for parts of a wrong type, names that would not read back, and axes without sensible values."""
    parts: tuple[tuple[str, Any, type], ...] = (
        ("axes", kernel.axes, Axis),
        ("flags", kernel.flags, Flag),
        ("dtypes", kernel.dtypes, DType),
        ("defaults", kernel.defaults, str),
    )
    for field, items, kind in parts:
        listed = isinstance(items, Iterable) and not isinstance(items, str)
        if not listed or not all(isinstance(item, kind) for item in items):
            given = items if isinstance(items, DType) else repr(items)
            raise SpecError(f"{kernel.name}: {field} is {given}; it takes a tuple of {kind.__name__}")
    for field, function in (("derive", kernel.derive), ("check", kernel.check), ("text", kernel.text)):
        if not callable(function):
            raise SpecError(f"{kernel.name}: {field} is {function!r}; it takes a function of a Spec")
    if not isinstance(kernel.min_arch, Arch):
        raise SpecError(f"{kernel.name}: min_arch is {kernel.min_arch!r}; it takes what Arch.parse gives")
    if not kernel.dtypes:
        raise SpecError(f"{kernel.name}: dtypes is empty; a kernel has at least one")
    _check_names(kernel)
    for axis in kernel.axes:
        _check_values(kernel, axis)


def _check_names(kernel: Kernel) -> None:
    letters = [axis.letter for axis in kernel.axes]
    flags = [flag.name for flag in kernel.flags]
    in_names = [*letters, *flags, *(dtype.name for dtype in kernel.dtypes)]
    in_template = [*(axis.name for axis in kernel.axes), *flags]
    if any(len(set(words)) < len(words) for words in (in_names, in_template)):
        raise SpecError(f"{kernel.name}: two axes or flags share a name")
    # Otherwise a name would not read back: `_` separates its words, and a number belongs to the letters before it.
    well_formed = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", kernel.name) and all(
        re.fullmatch(pattern, word)
        for pattern, words in ((r"[a-z]{1,2}", letters), (r"[a-z]+", flags))
        for word in words
    )
    if not well_formed:
        raise SpecError(f"{kernel.name!r}: names are lower case, axis letters one or two of a-z, flags one word of a-z")


def _check_values(kernel: Kernel, axis: Axis) -> None:
    values = axis.values
    if not values or len(set(values)) < len(values) or not all(isinstance(value, int) for value in values):
        raise SpecError(f"{kernel.name}: the axis {axis.name} has the values {values!r}; it takes different integers")
    if axis.default is not None and axis.default not in values:
        raise SpecError(
            f"{kernel.name}: the axis {axis.name} has the default {axis.default}",
            hint=f"it is one of {', '.join(map(str, values))}, or None for an axis that names always tell",
        )
