"""Elementwise operators: a function of numbers, made a function of arrays that broadcast, like NumPy's ufuncs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kgen.dtypes import FP8, INTEGERS, U64, DType
from kgen.operand import Operand
from kgen.ops.again import Arrays
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.elementwise.broadcast import common_shape
from kgen.ops.elementwise.documented import documented, signature_of
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.functions import Row
from kgen.ops.elementwise.kernels import mixed_kernel, named_kernel
from kgen.ops.elementwise.numbers import MISSING, NUMBERS, Number, beyond_int64, number_of, type_of, value_of
from kgen.ops.elementwise.plans import Call, plan
from kgen.ops.elementwise.promotion import ANY, FLOAT, FLOATING, INT, beyond, castable, check_range, join
from kgen.ops.elementwise.signature import Signature, program, uniform
from kgen.ops.elementwise.storage import Coded, element_dtype, held_as, read_as
from kgen.ops.kinds import Key
from kgen.registry import register
from kgen.spec import Kernel

OPTIONS = {"out": "Any", "dtype": "Any", "algorithm": "str | None", "stream": "Any"}
"""What every operator takes by keyword, and its type."""


class Elementwise:
    """A function of numbers as a function of arrays: what `kgen.relu` calls, and `kgen.elementwise("x + y")` returns.

    Parameters, result and errors of a call are those of `kgen.elementwise`; operands may be passed in order or by name.
    In the end it is a `call` of the operator, with the operands in order and `(dtype, algorithm)` for options.
    `fewer` has the expressions of calls that leave operands out, by the names of those that remain; `idle`, which are
    as good as left out beyond the range of the first (functions.Row).
    """

    def __init__(
        self,
        function: Function,
        defaults: Mapping[str, float] | None = None,
        kernel: Kernel | None = None,
        summary: str = "",
        *,
        storage: bool = False,
        fewer: Mapping[tuple[str, ...], str] = MappingProxyType({}),
        idle: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.function = function
        self._fewer = {names: Function(function.name, names, text) for names, text in fewer.items()}
        self._left_out = {name for names in self._fewer for name in function.parameters if name not in names}
        self._idle = idle
        self.storage = storage  # takes 8-bit floats too, scales that are floats; only the result becomes `dtype`
        self.__name__ = self.__qualname__ = function.name
        self.defaults = dict(defaults or {})
        self.__doc__ = documented(function, self.defaults, summary)
        names = function.parameters
        self._parameters = len(names)
        self._arrays = len(names) - len(self.defaults)
        self._named = kernel
        self._kernels: dict[tuple[Function, Signature], Kernel] = {}
        self._operator = Operator(
            function.name,
            names[: self._arrays],
            ("dtype", "algorithm", "numbers"),
            self._results,
            self._prepare,
            takes=({names[0]: (*ANY, *FP8)} | dict.fromkeys(names[1:], FLOATING)) if storage else ANY,
            optional=names[: self._arrays],
            mixed=True,
            rows=False,
            in_place=True,
            read=self._read,
        )
        self.call = self._operator.call

    @property
    def __signature__(self) -> inspect.Signature:
        return signature_of(self.function, dict.fromkeys(self._left_out) | self.defaults, OPTIONS)

    def __repr__(self) -> str:
        return f"<elementwise {self.function.name}({', '.join(self.function.parameters)}): {self.function.expression}>"

    def __call__(
        self, *operands: Any, out: Any = None, dtype: Any = None, algorithm: str | None = None, stream: Any = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        if named:
            operands = self._in_order(operands, named)
        return self.call(operands, (out,), (dtype, algorithm), stream)[0]

    def explain(
        self, *operands: Any, out: Any = None, dtype: Any = None, algorithm: str | None = None, stream: Any = None,
        **named: Any,
    ) -> str:  # fmt: skip
        """How a call with these arguments and a fresh result would be carried out; nothing is computed."""
        return self._operator.explain(self._in_order(operands, named), (dtype, algorithm))

    def workspace(
        self, *operands: Any, out: Any = None, dtype: Any = None, algorithm: str | None = None, stream: Any = None,
        **named: Any,
    ) -> int:  # fmt: skip
        """How many bytes such a call takes beside its operands and the result."""
        return self._operator.workspace(self._in_order(operands, named), (dtype, algorithm))

    def _read(self, operands: Arrays, options: Key) -> tuple[Arrays, Key]:
        """The arrays, None where a number came; behind the options, the numbers of all parameters."""
        values = operands if len(operands) == self._parameters else self._in_order(operands, {})
        arrays: list[Any] = []
        numbers: list[Number | None] = []
        for value in values:
            if value.__class__ not in NUMBERS:
                arrays.append(value)
                numbers.append(None)
            elif value is None:
                if self.function.parameters[len(numbers)] not in self._left_out:
                    raise self._unfit(values)
                arrays.append(None)
                numbers.append(MISSING)
            elif len(numbers) < self._arrays:
                arrays.append(None)
                numbers.append(number_of(value))
            else:
                numbers.append(number_of(float(value)))
        if len(arrays) != self._arrays:
            raise self._unfit(values)
        if None not in numbers[: self._arrays]:
            raise TypeError(f"{self.function.name}: no operand is an array; it takes at least one")
        return tuple(arrays), (*options, tuple(numbers))

    def _unfit(self, values: tuple[Any, ...]) -> TypeError:
        """What to raise for the first value that is missing, or is no number where it must be one."""
        names = self.function.parameters
        for name, value in zip(names, values):
            missing = value is None and name not in self._left_out
            if missing or (name in self.defaults and value.__class__ not in NUMBERS):
                break
        if name in self.defaults:
            return TypeError(f"{self.function.name}: {name} is a {type(value).__name__}; it takes a number")
        return TypeError(f"{self.function.name}: {name} is missing; it takes {', '.join(names)}")

    def _in_order(self, operands: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """A value for each parameter; None for one that is missing."""
        names, op = self.function.parameters, self.function.name
        if len(operands) > len(names):
            raise TypeError(f"{op}: {len(operands)} operands came; it takes {', '.join(names)}")
        values = self.defaults | dict(zip(names, operands))
        for name in named:
            if name not in names or name in names[: len(operands)]:
                what = "came twice" if name in names else "is no operand"
                raise TypeError(f"{op}: {name} {what}; it takes {', '.join(names)}")
        values |= named
        return tuple([values.get(name) for name in names])

    def _results(
        self,
        op: str,
        given: list[Operand | None],
        dtype: Any,
        algorithm: str | None,
        numbers: tuple[Number | None, ...],
    ) -> Results:
        present = [operand for operand in given if operand is not None]
        function, operands, numbers = self._there(given, numbers)
        made = program(function, self._signature(function, operands, dtype, numbers))
        for at, kind in made.narrowed:
            number = numbers[at]
            assert number is not None
            check_range(op, int(number[1]), kind)
        return [(common_shape(op, present), held_as(made.result, present[0]))]

    def _prepare(
        self,
        op: str,
        given: list[Operand | None],
        results: list[Operand],
        dtype: Any,
        algorithm: str | None,
        numbers: tuple[Number | None, ...],
    ) -> Plan:
        function, operands, numbers = self._there(given, numbers)
        signature = self._signature(function, operands, dtype, numbers)
        kernel = self._kernels.get((function, signature))
        if kernel is None:
            kernel = self._kernels[function, signature] = self._kernel(function, signature, results[0].dtype)
        made = program(function, signature)
        values = [(c, value_of(number)) for c, number in zip(made.types, numbers) if number is not None]
        return plan(Call(op, kernel, given, results[0], values, algorithm, light=made.light))

    def _there(
        self, given: list[Operand | None], numbers: tuple[Number | None, ...]
    ) -> tuple[Function, list[Operand | None], tuple[Number | None, ...]]:
        """The function of the operands that were not left out, and these: an array or a number of each."""
        operands = [*given, *[None] * len(self.defaults)]
        if self._idle and given[0] is not None and given[0].dtype in INTEGERS:
            numbers = tuple(
                MISSING if n and n[0] == "int" and beyond(int(n[1]), given[0].dtype) == self._idle.get(name) else n
                for name, n in zip(self.function.parameters, numbers)
            )
        if MISSING not in numbers:
            return self.function, operands, numbers
        there = [at for at, number in enumerate(numbers) if number != MISSING]
        function = self._fewer[tuple(self.function.parameters[at] for at in there)]
        return function, [operands[at] for at in there], tuple(numbers[at] for at in there)

    def _signature(
        self, function: Function, operands: list[Operand | None], dtype: Any, numbers: tuple[Number | None, ...]
    ) -> Signature:
        op = function.name
        dtype, code = dtype if isinstance(dtype, Coded) else (dtype, None)
        chosen = None if dtype is None else element_dtype(op, dtype, (*ANY, *FP8) if self.storage else ANY)
        types = tuple(read_as(x, code) if x else type_of(number) for x, number in zip(operands, numbers))
        for name, each in zip(function.parameters, types):
            if chosen and isinstance(each, DType) and not self.storage and not castable(each, chosen):
                raise TypeError(
                    f"{op}: {name} is {each.numpy_name}, which does not become dtype={chosen.numpy_name} "
                    "(NumPy's casting 'same_kind'); convert it first"
                )
        common = chosen or functools.reduce(join, types)
        if common in FLOATING or common is U64:  # which may hold what no int64 does
            types = tuple(
                (FLOAT if common in FLOATING else U64) if beyond_int64(n) else t for t, n in zip(types, numbers)
            )
        if self.storage:
            types = tuple(t if x or t in FLOATING else FLOAT for x, t in zip(operands, types))
            return Signature(types, tuple(x is not None for x in operands), cast=chosen)
        for kind, text in filter(None, numbers):
            if kind == "int" and isinstance(common, DType) and (common in FLOATING or beyond_int64((kind, text))):
                check_range(op, int(text), common)
        if chosen is not None and all(t in (chosen, FLOAT, INT) for t in types):
            plain = Signature(types, tuple(x is not None for x in operands))
            if program(function, plain).result is chosen:
                return plain
        return Signature(types, tuple(x is not None for x in operands), chosen)

    def _kernel(self, function: Function, signature: Signature, result: DType) -> Kernel:
        named = self._named
        if named and result in named.dtypes and signature == uniform(self.function, self.defaults, result):
            return named
        return register(mixed_kernel(function, signature))


def named(name: str, row: Row, dtypes: tuple[DType, ...], built: tuple[str, ...] = ()) -> Elementwise:
    """An operator with a kernel of its own name, for arrays of one type."""
    function = Function(name, row.parameters, row.expression)
    kernel = register(named_kernel(function, row.defaults, dtypes, row.summary, built))
    return Elementwise(function, row.defaults, kernel, row.summary, fewer=row.fewer, idle=row.idle)
