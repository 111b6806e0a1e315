"""Random expressions for `kgen.elementwise`: of floats, within intervals of their errors; of integers, as NumPy's."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from kgen.dtypes import BF16, F16, F32, F64, DType, dtype_of
from tests.formulas import FORMULAS
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import ROUNDING, Wrong, check_equal, check_form
from tests.random_calls.draw import Array, Shape
from tests.random_calls.views import View

Function = Callable[..., Any]

DEPTH = 4
"""Of an expression, at most."""

COMPARISONS: dict[str, Function] = {
    "({} < {})": np.less,
    "({} <= {})": np.less_equal,
    "({} > {})": np.greater,
    "({} >= {})": np.greater_equal,
    "({} == {})": np.equal,
    "({} != {})": np.not_equal,
}
LOGIC: dict[str, Function] = {
    "({} and {})": np.logical_and,
    "({} or {})": np.logical_or,
    "(not {})": np.logical_not,
}
CHOICES: dict[str, Function] = {
    "where({}, {}, {})": np.where,
    "({1} if {0} else {2})": np.where,
}
BOTH: dict[str, Function] = {
    "({} + {})": np.add,
    "({} - {})": np.subtract,
    "({} * {})": np.multiply,
    "({} // {})": np.floor_divide,
    "({} % {})": np.mod,
    "maximum({}, {})": np.maximum,
    "minimum({}, {})": np.minimum,
    "fmod({}, {})": np.fmod,
    "(-{})": np.negative,
    "abs({})": np.abs,
    "({} ** 2)": np.square,
    "sign({})": np.sign,
}
REAL: dict[str, Function] = {
    **BOTH,
    "({} / {})": np.divide,
    "({} ** 3)": lambda x: x**3,
    "(abs({}) ** 0.5)": lambda x: abs(x) ** 0.5,
    "fmax({}, {})": np.fmax,
    "fmin({}, {})": np.fmin,
    "hypot({}, {})": np.hypot,
    "atan2({}, {})": np.arctan2,
    "copysign({}, {})": np.copysign,
    "exp(-abs({}))": lambda x: np.exp(-abs(x)),
    "expm1({})": np.expm1,
    "log1p(abs({}))": lambda x: np.log1p(abs(x)),
    "sqrt({})": np.sqrt,
    "log({})": np.log,
    **{f"{name}({{}})": getattr(np, name) for name in ("tanh", "floor", "ceil", "trunc", "rint")},
    **{f"{name}({{}})": FORMULAS[name] for name in ("relu", "sigmoid", "softplus", "hardswish")},
    **{f"{name}({{}})": lambda x, f=FORMULAS[name]: np.where(x == -np.inf, 0, f(x)) for name in ("silu", "gelu")},
}
PERIODIC: dict[str, Function] = {"sin({})": np.sin, "cos({})": np.cos}
"""Which the CPU executor has not in float64."""

WHOLE: dict[str, Function] = {
    **BOTH,
    "({} & {})": np.bitwise_and,
    "({} | {})": np.bitwise_or,
    "({} ^ {})": np.bitwise_xor,
    "({} << ({} & 7))": lambda x, n: x << (n & 7),
    "({} >> ({} & 7))": lambda x, n: x >> (n & 7),
    "(~{})": np.invert,
}

EXACT = {*CHOICES, "maximum({}, {})", "minimum({}, {})", "fmax({}, {})", "fmin({}, {})", "(-{})", "abs({})", "sign({})"}
EXACT |= {"copysign({}, {})", "floor({})", "ceil({})", "trunc({})", "rint({})", "relu({})", "fmod({}, {})"}
"""What rounds nothing."""

JUMPS = ("({} % {})", "fmod({}, {})")
"""What is 0 between two ends that are not, where another whole quotient begins."""

EPSILON = {F64: 2.0**-46, F32: 2.0**-21, F16: 2.0**-17, BF16: 2.0**-14}
"""What a step may be off by, of its result: some roundings, of functions that are exact enough for a dtype."""

ROUGH = 0.01
"""The widest interval whose ends tell what lies between, of 1 and the number."""

TINY = 1e-37
"""Numbers around the smallest of float32 may be off by as much."""

HUGE = {F64: 1e200, F32: 1e25, F16: 1e25, BF16: 1e25}
"""Numbers beyond may overflow later, where float64 does not."""


class Term(NamedTuple):
    """A part of an expression, its value in NumPy, and between which numbers an operator's may lie.

    typed  whether it has a type of its own, as what is made of an array has, and a plain number has not
    """

    text: str
    value: Array
    low: Array
    high: Array
    typed: bool = True


class Intervals:
    """Makes expressions of floats, of given leaves.

    wild  where an operator may find NaN or infinity and float64 does not, or the other way round, and where so little
          is known of a part that functions of it may go up and down between its ends
    """

    def __init__(self, call: Call, dtype: DType, leaves: Sequence[Term]) -> None:
        self.call = call
        self.dtype = dtype
        self.leaves = leaves
        self.wild = np.zeros((), bool)

    def real(self, depth: int) -> Term:
        """A leaf, or what a function makes of others."""
        return self.call.pick(*self.leaves) if depth == 0 or self.call.chance(0.15) else self.apply(depth)

    def apply(self, depth: int) -> Term:
        call = self.call
        if call.chance(0.2):
            text, function = call.pick(*CHOICES.items())
            return self._apply(text, function, [self._truth(depth - 1), self.real(depth - 1), self._other(depth - 1)])
        text, function = call.pick(*(REAL if self.dtype == F64 else REAL | PERIODIC).items())
        terms = [self.real(depth - 1), *(self._other(depth - 1) for _ in range(text.count("{}") - 1))]
        return self._apply(text, function, terms)

    def _other(self, depth: int) -> Term:
        """The second operand may be a plain number."""
        if not self.call.chance(0.2):
            return self.real(depth)
        number = self.call.pick(0.5, 2, 3, -1, 0.1, 1e-3, -7)
        return _near(f"({number!r})", number, self.dtype)

    def _truth(self, depth: int) -> Term:
        if depth > 0 and self.call.chance(0.3):
            text, function = self.call.pick(*LOGIC.items())
            return self._apply(text, function, [self._truth(depth - 1) for _ in range(text.count("{}"))])
        if self.call.chance(0.1):
            return self._apply("isnan({})", np.isnan, [self.real(depth)])
        text, function = self.call.pick(*COMPARISONS.items())
        return self._apply(text, function, [self.real(depth), self._other(depth)])

    def _apply(self, text: str, function: Function, terms: Sequence[Term]) -> Term:
        """What a function makes of all ends of its operands' intervals, and somewhat more."""
        with np.errstate(all="ignore"):
            value = function(*(term.value for term in terms))
            corners = list(product(*((term.low, term.high) for term in terms)))
            ends = [function(*corner) for corner in corners]
            low, high = reduce(np.minimum, [value, *ends]), reduce(np.maximum, [value, *ends])
            told = text.format(*(term.text for term in terms))
            typed = any(term.typed for term in (terms[1:] if text in CHOICES else terms))
            if value.dtype == bool:
                return Term(told, value, low, high, typed)
            nan, of_ends = np.isnan(value), [np.isnan(end) for end in ends]
            self.wild = self.wild | (reduce(np.logical_or, of_ends) != nan) | (reduce(np.logical_and, of_ends) != nan)
            self.wild = self.wild | (np.isfinite(value) & (abs(value) > HUGE[self.dtype]))
            self.wild = self.wild | (high - low > ROUGH * (1 + abs(value)))
            if text in JUMPS:
                turns = [np.floor_divide(*corner) for corner in corners]
                self.wild = self.wild | (reduce(np.minimum, turns) != reduce(np.maximum, turns))
            error = 0 if text in EXACT else np.where(np.isfinite(value), EPSILON[self.dtype] * abs(value) + TINY, 0)
            return Term(told, value, low - error, high + error, typed)


@calls("elementwise", weight=0.3)
def of_floats(call: Call, operator: str) -> None:
    dtype, shape = call.pick(F32, F32, F64, F16, BF16), call.shape()
    given: dict[str, Any] = {
        "x": call.array(call.special(2 * call.normal(shape)), dtype),
        "y": call.array(call.special(call.normal(call.broadcasts_to(shape))), dtype),
        "n": call.pick(0.75, 1.7, -3.0),
    }
    leaves = [_exactly(name, x.exact) if isinstance(x, View) else _near(name, x, dtype) for name, x in given.items()]
    intervals, steps = Intervals(call, dtype, leaves), []
    if call.chance(0.3):
        step = intervals.real(DEPTH - 2)
        steps.append(f"t = {_spare(step.text)}")
        leaves.append(step._replace(text="t"))
    term = intervals.apply(DEPTH)
    if not term.typed:
        return
    text = "; ".join([*steps, _spare(term.text)])
    used = _used(text, given)
    views = [x for x in used.values() if isinstance(x, View)]
    shape = np.broadcast_shapes(*(x.values.shape for x in views))
    result = call(operator, text, **used, **call.maybe_out(shape, dtype))
    _check_between(result, term, intervals.wild, shape, dtype)


def _exactly(name: str, values: Array) -> Term:
    return Term(name, values, values, values)


def _near(name: str, number: float, dtype: DType) -> Term:
    error = EPSILON[dtype] * abs(number)
    low, value, high = (np.asarray(number + by) for by in (-error, 0, error))
    return Term(name, value, low, high, typed=False)


def _check_between(result: Array, term: Term, wild: Array, shape: Shape, dtype: DType) -> None:
    """NaN where float64 has NaN, and elsewhere a number that one between the ends rounds to."""
    check_form(result, shape, dtype)
    if not result.size:
        return
    got = result.astype(np.float64)
    limit, finest = (float(getattr(ml_dtypes.finfo(dtype.numpy), name)) for name in ("max", "smallest_subnormal"))
    with np.errstate(all="ignore"):
        room = [np.where(np.isfinite(end), ROUNDING[dtype] * abs(end) + finest, 0) for end in (term.low, term.high)]
        low, high = term.low - room[0], term.high + room[1]
        # Next to the largest number of a dtype, it and infinity are both right.
        low = np.where(low < -0.99 * limit, -np.inf, np.minimum(low, 0.99 * limit))
        high = np.where(high > 0.99 * limit, np.inf, np.maximum(high, -0.99 * limit))
        right = ((low <= got) & (got <= high)) | (np.isnan(got) & np.isnan(term.value)) | wild
    if not right.all():
        at = tuple(int(i) for i in np.argwhere(~np.broadcast_to(right, shape))[0])
        low, high = (np.broadcast_to(end, shape)[at] for end in (term.low, term.high))
        raise Wrong(f"the result is {got[at]} at {list(at)}, not between {low} and {high}; {(~right).sum()} such")


@calls("elementwise", weight=0.2)
def of_integers(call: Call, operator: str) -> None:
    """Of several types, which meet as NumPy's, wrap around as NumPy's, and are refused where NumPy refuses them."""
    shape = call.shape()
    kinds = call.pick(("?", "u1", "i1", "i2", "i4"), ("i1", "u2", "i4", "u4", "i8"), ("?", "u1", "u8"), ("i8", "u4"))
    given: dict[str, Any] = {}
    for name in "xyz":
        values = call.rng.integers(-(2**63), 2**63, shape if name == "x" else call.broadcasts_to(shape))
        kind = np.dtype(call.pick(*kinds))
        values = values >> 61 if call.chance(0.4) else values  # which are few, and more often equal
        given[name] = call.array(values > 0 if kind.kind == "b" else values.astype(kind), dtype_of(kind))
    term = _whole(call, given, DEPTH)
    text = _spare(term.text)
    used = _used(text, given)
    if isinstance(term.value, Exception):
        _check_refused(call, operator, text, used, term.value)
        return
    shape = np.broadcast_shapes(*(x.values.shape for x in used.values()))
    dtype = dtype_of(term.value.dtype)
    result = call(operator, text, **used, **call.maybe_out(shape, dtype))
    check_equal(result, np.broadcast_to(term.value, shape), dtype)


class Whole(NamedTuple):
    """A part of an expression, and its value in NumPy or what NumPy raises."""

    text: str
    value: Any


def _whole(call: Call, given: dict[str, Any], depth: int) -> Whole:
    if depth == 0 or call.chance(0.1):
        name = call.pick(*given)
        return Whole(name, given[name].values)
    functions = call.pick(*[WHOLE] * 5, COMPARISONS, LOGIC, CHOICES)
    text, function = call.pick(*functions.items())
    count = max(map(int, re.findall(r"\{(\d)\}", text)), default=text.count("{}") - 1) + 1
    terms = [_whole(call, given, depth - 1) for _ in range(count)]
    if count == 2 and functions is not LOGIC and call.chance(0.25):
        number = call.pick(1, 2, 3, 7, -1, 100, 200)
        terms[1] = Whole(f"({number})", number)
    if failed := [term for term in terms if isinstance(term.value, Exception)]:
        return failed[0]
    values = [term.value for term in terms]
    if functions is CHOICES:
        values[0] = values[0] != 0
    try:
        with np.errstate(all="ignore"):
            value = function(*values)
    except (TypeError, OverflowError) as error:
        value = error
    return Whole(text.format(*(term.text for term in terms)), value)


def _check_refused(call: Call, operator: str, text: str, used: dict[str, Any], error: Exception) -> None:
    try:
        call(operator, text, **used)
    except (TypeError, OverflowError):
        return
    raise Wrong(f"{text!r} is computed, and NumPy raises {type(error).__name__}: {error}")


def _used(text: str, given: dict[str, Any]) -> dict[str, Any]:
    """The operands that an expression names."""
    return {name: x for name, x in given.items() if re.search(rf"\b{name}\b", text)}


def _spare(text: str) -> str:
    """The same with no more parentheses than Python needs, so that the operators' ranks are read, too."""
    return ast.unparse(ast.parse(text))
