"""Elementwise operators: a function of numbers, made a function of arrays that broadcast, like NumPy's ufuncs.

kgen.relu(x)                                      functions by name (kgen/ops/elementwise/activations.py)
kgen.elementwise("x * sigmoid(y) + 2", x=x, y=y)  an expression, at once
f = kgen.elementwise("silu(gate) * up")           or prepared, to be called again and again
f(gate, up, out=out)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.dtypes import FP8, INTEGERS, U8, DType, dtype_of, listed
from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.elementwise.broadcast import common_shape
from kgen.ops.elementwise.expression import FLOAT, INT, ExpressionError, Function, Type, check_range, join, operands
from kgen.ops.elementwise.kernels import Signature, mixed_kernel, named_kernel, program, uniform
from kgen.ops.elementwise.plans import Call, plan
from kgen.ops.elementwise.promotion import ANY, FLOATING, castable
from kgen.registry import register
from kgen.spec import Kernel

MAX_OPERANDS = 12
_OPTIONS = ("out", "dtype", "algorithm", "stream")
_NUMBERS = frozenset({bool, int, float, type(None), *np.sctypeDict.values()})
Number = tuple[str, str]
"""A number among the operands, as its type and its text: 1, 1.0 and True are equal and do not mean the same."""


class Elementwise:
    """A function of numbers as a function of arrays.

    Parameters
    ----------
    *operands, or by name : arrays or numbers
        NumPy, CuPy, torch, JAX arrays (or anything that speaks DLPack) of float32, float16, bfloat16, float64, integers
        or bool, of any strides and of shapes that broadcast; at least one is an array. Numbers take part as NumPy's do
        (NEP 50): Python's take the arrays' type, NumPy's have their own.
    out : array, optional
        Where to write the result; it may be one of the operands, but not overlap one in any other way.
    dtype : optional
        What the operands become first, and the type of the result; by default what NumPy's rules give, with bfloat16 as
        in JAX: with float16 it gives float32, and it absorbs integers.
    algorithm : str, optional
        The name of a specialization, `relu_v1_f32`, for arrays of one type; by default the fastest.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array of the operands' kind. float16 and bfloat16 are computed in float32 and rounded once.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As NumPy raises them; each names the operator, the argument, what came and what is taken.
    CaptureError
        At the first call of its kind, when that is within a CUDA graph capture.
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
        self.storage = storage  # takes 8-bit floats too, and only the result becomes `dtype`, as by astype
        self.__name__ = self.__qualname__ = function.name
        self.__doc__ = (
            f"{summary or 'A function of each element.'}\n\n    {function.expression}\n\nSee kgen.elementwise."
        )
        self.defaults = dict(defaults or {})
        names = function.parameters
        self._arrays = len(names) - len(self.defaults)
        self._plain = tuple([None] * self._arrays + [_number(self.defaults[p]) for p in names[self._arrays :]])
        self._named = kernel
        self._kernels: dict[Signature, Kernel] = {}
        self._operator = Operator(
            function.name,
            names[: self._arrays],
            ("dtype", "algorithm", "numbers"),
            self._results,
            self._prepare,
            takes=(*ANY, *FP8) if storage else ANY,
            optional=names[: self._arrays],
            mixed=True,
            rows=False,
            in_place=True,
        )

    @property
    def __signature__(self) -> inspect.Signature:
        kinds = inspect.Parameter
        operands = [
            kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=self.defaults.get(name, kinds.empty))
            for name in self.function.parameters
        ]
        return inspect.Signature([*operands, *(kinds(name, kinds.KEYWORD_ONLY, default=None) for name in _OPTIONS)])

    def __repr__(self) -> str:
        return f"<elementwise {self.function.name}({', '.join(self.function.parameters)}): {self.function.expression}>"

    def __call__(
        self, *operands: Any, out: Any = None, dtype: Any = None, algorithm: str | None = None, stream: Any = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        numbers = self._plain
        if named or len(operands) != self._arrays:
            operands, numbers = self._bound(operands, named)
        else:
            for x in operands:
                if x.__class__ in _NUMBERS:
                    operands, numbers = self._bound(operands, named)
                    break
        return self._operator(operands, (out,), (dtype, algorithm, numbers), stream)[0]

    def explain(
        self, *operands: Any, out: Any = None, dtype: Any = None, algorithm: str | None = None, stream: Any = None,
        **named: Any,
    ) -> str:  # fmt: skip
        """How a call with these arguments and a fresh result would be carried out; nothing is computed."""
        operands, numbers = self._bound(operands, named)
        return self._operator.explain(operands, (dtype, algorithm, numbers))

    def _bound(
        self, operands: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Number | None, ...]]:
        """The arrays, None where a number came, and the numbers of all parameters."""
        names, op = self.function.parameters, self.function.name
        if len(operands) > len(names):
            raise TypeError(f"{op}: {len(operands)} operands came; it takes {', '.join(names)}")
        values = dict(zip(names, operands))
        for name, value in named.items():
            if name not in names or name in values:
                what = "came twice" if name in values else "is no operand"
                raise TypeError(f"{op}: {name} {what}; it takes {', '.join(names)}")
            values[name] = value
        arrays: list[Any] = []
        numbers: list[Number | None] = []
        for name in names:
            value = values.get(name, self.defaults.get(name))
            is_number = type(value) in _NUMBERS
            if value is None or (name in self.defaults and not is_number):
                came = "missing" if name not in values else f"a {type(value).__name__}"
                raise TypeError(f"{op}: {name} is {came}; it takes {', '.join(names)}")
            if name in self.defaults:
                numbers.append(_number(float(value)))
                continue
            arrays.append(None if is_number else value)
            numbers.append(_number(value) if is_number else None)
        if all(array is None for array in arrays):
            raise TypeError(f"{op}: no operand is an array; it takes at least one")
        return tuple(arrays), tuple(numbers)

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
        values = [(c, _value(number)) for c, number in zip(made.types, numbers) if number is not None]
        return plan(Call(op, kernel, given, results[0], values, algorithm))

    def _signature(self, given: list[Operand | None], dtype: Any, numbers: tuple[Number | None, ...]) -> Signature:
        op = self.function.name
        dtype, code = dtype if isinstance(dtype, tuple) else (dtype, None)
        chosen = None if dtype is None else element_dtype(op, dtype, (*ANY, *FP8) if self.storage else ANY)
        operands = [*given, *[None] * len(self.defaults)]
        types = tuple(_read_as(x, code) if x else _type(number) for x, number in zip(operands, numbers))
        for x in given:
            if x and chosen and not self.storage and not castable(x.dtype, chosen):
                raise TypeError(
                    f"{op}: {x.argument} is {x.dtype.numpy_name}, which does not become dtype={chosen.numpy_name} "
                    "(NumPy's casting 'same_kind'); convert it first"
                )
        if self.storage:
            return Signature(types, tuple(x is not None for x in operands), cast=chosen)
        common = chosen or functools.reduce(join, types)
        for number in numbers:
            if number is not None and number[0] == "int" and isinstance(common, DType) and common in INTEGERS:
                check_range(op, int(number[1]), common)
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


@functools.lru_cache(maxsize=1024)
def _prepared(expression: str, names: tuple[str, ...]) -> Elementwise:
    if not names or len(names) > MAX_OPERANDS:
        raise ExpressionError(f"elementwise: {expression!r} has {len(names)} operands; it takes 1 to {MAX_OPERANDS}")
    for name in names:
        if name in _OPTIONS or not name.isascii() or name.startswith("_"):
            raise ExpressionError(
                f"elementwise: {expression!r}: an operand cannot be called {name!r}; use another name"
            )
    return Elementwise(Function("elementwise", names, expression))


def elementwise(expression: str, /, **operands_and_options: Any) -> Any:
    """An expression on the elements of arrays: computed at once, where operands are passed, or to be called later.

    Parameters
    ----------
    expression : str
        Python's arithmetic, comparisons and conditionals, the constants pi, inf and nan, and functions (exp, sqrt,
        tanh, erf, where, maximum, sigmoid, every activation of kgen and more); perhaps after named steps, separated by
        semicolons: "e = exp(-abs(x)); x / (1 + e)". It is compiled, never run as Python.
    **operands, out, dtype, stream :
        As in `Elementwise`, whose positional operands are the expression's names in order of first use.

    Returns
    -------
    array, or, without operands, the `Elementwise`.

    Raises
    ------
    ValueError
        For an expression that cannot be read, or uses what expressions have not (ExpressionError).
    TypeError, ValueError, OverflowError
        As NumPy raises them.

    Examples
    --------
    >>> import numpy, kgen
    >>> x = numpy.arange(4, dtype="f")
    >>> with kgen.backend("cpu"):                                                  # doctest: +SKIP
    ...     kgen.elementwise("2 * x if x > 1 else x / 2", x=x)
    array([0. , 0.5, 4. , 6. ], dtype=float32)
    >>> elementwise("silu(gate) * up")
    <elementwise elementwise(gate, up): silu(gate) * up>
    """
    names = operands(expression)
    prepared = _prepared(expression, names)
    if any(name not in _OPTIONS for name in operands_and_options):
        return prepared(**operands_and_options)
    if operands_and_options:
        raise TypeError(f"elementwise: {expression!r} came without operands; it takes {', '.join(names)}")
    return prepared


def held_as(dtype: DType, like: Operand) -> DType:
    """What a library's arrays hold for results of a type: bytes, where it knows no 8-bit floats, as CuPy does not."""
    knows = like.kind == "torch" or like.device == HOST
    return U8 if dtype in FP8 and not knows else dtype


def _read_as(x: Operand, code: DType | None) -> DType:
    return code if code is not None and x.dtype is U8 else x.dtype


def _number(value: Any) -> Number:
    if isinstance(value, bool | np.bool_):
        return "bool", str(int(value))
    if isinstance(value, np.generic):
        return str(value.dtype.name), value.item().hex() if value.dtype.kind == "f" else str(int(value))
    return ("int", str(value)) if isinstance(value, int) else ("float", float(value).hex())


def _type(number: Number | None) -> Type:
    assert number is not None
    return {"int": INT, "float": FLOAT}.get(number[0]) or dtype_of(number[0])


def _value(number: Number) -> int | float:
    return int(number[1]) if "0x" not in number[1] and number[1].lstrip("-").isdigit() else float.fromhex(number[1])


def element_dtype(op: str, dtype: Any, takes: tuple[DType, ...]) -> DType:
    """The type that a caller's `dtype` stands for."""
    try:
        found = dtype_of(dtype)
    except SpecError:
        try:
            found = dtype_of(np.dtype(dtype))
        except (TypeError, SpecError):
            raise TypeError(f"{op}: dtype is {dtype!r}, which is no type of elements") from None
    if found not in takes:
        raise TypeError(f"{op}: dtype is {found.numpy_name}; it takes {listed(takes)}")
    return found
