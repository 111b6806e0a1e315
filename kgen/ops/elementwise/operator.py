"""Elementwise operators: a function of numbers, made a function of arrays that broadcast, like NumPy's ufuncs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from kgen.dtypes import FP8, U64, DType
from kgen.operand import Operand
from kgen.ops.again import Arrays
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.elementwise.broadcast import common_shape
from kgen.ops.elementwise.documented import documented, signature_of
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.kernels import mixed_kernel, named_kernel
from kgen.ops.elementwise.numbers import NUMBERS, Number, beyond_int64, number_of, type_of, value_of
from kgen.ops.elementwise.plans import Call, plan
from kgen.ops.elementwise.promotion import ANY, FLOAT, FLOATING, INT, castable, check_range, join
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
    """

    def __init__(
        self,
        function: Function,
        defaults: Mapping[str, float] | None = None,
        kernel: Kernel | None = None,
        summary: str = "",
        *,
        storage: bool = False,
    ) -> None:
        self.function = function
        self.storage = storage  # takes 8-bit floats too, scales that are floats; only the result becomes `dtype`
        self.__name__ = self.__qualname__ = function.name
        self.defaults = dict(defaults or {})
        self.__doc__ = documented(function, self.defaults, summary)
        names = function.parameters
        self._parameters = len(names)
        self._arrays = len(names) - len(self.defaults)
        self._named = kernel
        self._kernels: dict[Signature, Kernel] = {}
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
        return signature_of(self.function, self.defaults, OPTIONS)

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
                raise self._unfit(values)
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
            if value is None or (name in self.defaults and value.__class__ not in NUMBERS):
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
        made = program(self.function, self._signature(given, dtype, numbers))
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
        signature = self._signature(given, dtype, numbers)
        kernel = self._kernels.get(signature)
        if kernel is None:
            kernel = self._kernels[signature] = self._kernel(signature, results[0].dtype)
        made = program(self.function, signature)
        values = [(c, value_of(number)) for c, number in zip(made.types, numbers) if number is not None]
        return plan(Call(op, kernel, given, results[0], values, algorithm, light=made.light))

    def _signature(self, given: list[Operand | None], dtype: Any, numbers: tuple[Number | None, ...]) -> Signature:
        op = self.function.name
        dtype, code = dtype if isinstance(dtype, Coded) else (dtype, None)
        chosen = None if dtype is None else element_dtype(op, dtype, (*ANY, *FP8) if self.storage else ANY)
        operands = [*given, *[None] * len(self.defaults)]
        types = tuple(read_as(x, code) if x else type_of(number) for x, number in zip(operands, numbers))
        for x in given:
            if x and chosen and not self.storage and not castable(x.dtype, chosen):
                raise TypeError(
                    f"{op}: {x.argument} is {x.dtype.numpy_name}, which does not become dtype={chosen.numpy_name} "
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
            if program(self.function, plain).result is chosen:
                return plain
        return Signature(types, tuple(x is not None for x in operands), chosen)

    def _kernel(self, signature: Signature, result: DType) -> Kernel:
        named = self._named
        if named and result in named.dtypes and signature == uniform(self.function, self.defaults, result):
            return named
        return register(mixed_kernel(self.function, signature))


def named(
    name: str, parameters: tuple[str, ...], defaults: Mapping[str, float], expression: str, summary: str,
    dtypes: tuple[DType, ...] = FLOATING, built: tuple[str, ...] = (),
) -> Elementwise:  # fmt: skip
    """An operator with a kernel of its own name, for arrays of one type."""
    function = Function(name, parameters, expression)
    kernel = register(named_kernel(function, defaults, dtypes, summary, built))
    return Elementwise(function, defaults, kernel, summary)
