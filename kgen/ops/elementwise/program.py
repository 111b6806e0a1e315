"""Functions of elements as C++: each written once for the types that it is called with.

Halves are computed in float and rounded once, at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kgen.dtypes import BF16, BOOL, F16, F32, F64, I64, INTEGERS, DType
from kgen.ops.elementwise.body import Body
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.promotion import FLOATING, INT, Type, Weak, arithmetic
from kgen.ops.elementwise.terms import Term, safe


class Program(NamedTuple):
    """The C++ of a function for arguments of certain types.

    functions   the last one is called apply; those before it are what it calls
    result      the type of what it gives
    types       in C++, of its parameters
    primitives  which hand-written functions it needs,
    computed    for which types in C++, and whether the
    fast        ones, which are exact enough for results of 16 bits
    narrowed    by its place, which parameter that is a Python integer must fit which type
    """

    functions: tuple[str, ...]
    result: DType
    types: tuple[str, ...]
    primitives: frozenset[str]
    computed: frozenset[str]
    fast: bool
    narrowed: frozenset[tuple[int, DType]]

    @property
    def light(self) -> bool:
        """Whether it is all operators, and calls nothing."""
        return not any(re.search(r"\w\(", text.partition("{")[2]) for text in self.functions)


def write(
    function: Function, types: tuple[Type, ...], dtype: DType | None = None, cast: DType | None = None
) -> Program:
    """The C++ of a function; with `dtype` its operands become that first, and its result in the end, or `cast`.

    Raises TypeError where NumPy has no such operation, or `dtype` would have integers made of a result in floats;
    OverflowError for an integer that its type cannot hold.
    """
    given = types if dtype is None else tuple(dtype if isinstance(t, DType) else t for t in types)
    double = any(t in (F64, *INTEGERS) for t in (*given, dtype) if t)
    writer = Writer(double=double)
    _, result = writer.function(function, given, "apply")
    if isinstance(result, Weak):  # a choice of plain numbers
        result = I64 if result is INT else F64
        double |= result is F64
        writer = Writer(double=double)
        writer.function(function, given, "apply")
    elif writer.widened:  # bools and a Python float meet in float64
        double = True
        writer = Writer(double=double)
        writer.function(function, given, "apply")
    if dtype in (*INTEGERS, BOOL) and result in FLOATING:
        raise TypeError(
            f"{function.name}: the result is {result.numpy_name}, which does not become dtype={dtype.numpy_name} "
            "(NumPy's casting 'same_kind'); leave dtype out, and convert the result"
        )
    fast = (cast or dtype or result) in (F16, BF16)
    if fast:
        writer = Writer(double=double, fast=True)
        writer.function(function, given, "apply")
    return Program(
        tuple(writer.texts),
        cast or dtype or result,
        tuple(writer.spelled(t) for t in given),
        frozenset(name for name, _ in writer.used),
        frozenset(c for _, c in writer.used),
        fast,
        frozenset(writer.narrowed(function.parameters, given)),
    )


class Writer:
    """Writes functions, each once for the types that it is called with."""

    def __init__(self, *, double: bool, fast: bool = False) -> None:
        self.fast = fast
        self.texts: list[str] = []
        self.used: set[tuple[str, str]] = set()  # hand-written functions, with the type of their arguments
        self._narrowed: set[tuple[str, DType]] = set()
        self.widened = False  # whether a Python float that came as a float is computed in float64
        self.real = F64 if double else F32  # what Python's floats are where nothing else decides
        self._written: dict[tuple[str, tuple[Type, ...]], tuple[str, Type]] = {}

    def use(self, name: str, kind: Type) -> None:
        self.used.add((name, self.spelled(kind)))

    def narrow(self, name: str, kind: DType) -> None:
        self._narrowed.add((name, kind))

    def narrowed(self, parameters: tuple[str, ...], types: tuple[Type, ...]) -> Iterator[tuple[int, DType]]:
        """Which parameters must fit which types: where some are combined first, each of them as it is."""
        places = {safe(p): at for at, (p, t) in enumerate(zip(parameters, types)) if t is INT}
        for text, kind in self._narrowed:
            yield from ((at, kind) for at in ([places[text]] if text in places else places.values()))

    def spelled(self, kind: Type) -> str:
        if isinstance(kind, DType):
            return arithmetic(kind)
        return "long long" if kind is INT else self.real.c

    def function(self, function: Function, types: tuple[Type, ...], name: str | None = None) -> tuple[str, Type]:
        """The name of a function written for these types, and what it gives."""
        found = self._written.get((function.name, types))
        if found is None:
            name = name or function.name
            scope = dict(zip(function.parameters, (Term(safe(p), t) for p, t in zip(function.parameters, types))))
            body = Body(self, function, scope)
            lines, result = body.write()
            head = ", ".join(f"{self.spelled(t)} {safe(p)}" for p, t in zip(function.parameters, types))
            text = [f"__device__ __forceinline__ {self.spelled(result.type)} {name}({head})", "{"]
            text += [*lines, f"    return {result.text};", "}"]
            if not lines and len(text[0]) + len(result.text) < 100:
                text = [f"{text[0]} {{ return {result.text}; }}"]
            if "\n".join(text) not in self.texts:  # for types that are computed in the same one
                self.texts.append("\n".join(text))
            found = self._written[function.name, types] = (name, result.type)
        return found
