"""Expressions on the elements of arrays: Python's grammar, NumPy's types, written down as C++ functions.

An expression is one line of arithmetic, perhaps after named steps: "e = exp(-abs(x)); x / (1 + e)". It may use Python's
operators, comparisons and conditionals, the constants pi, inf and nan, and the functions of functions.py. It is parsed
and never evaluated as Python. Halves are computed in float and rounded once, at the end.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from kgen.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, INTEGERS, SIGNED, DType
from kgen.ops.elementwise.functions import FUNCTIONS, PRIMITIVES
from kgen.ops.elementwise.promotion import FLOATING, arithmetic, floating, promote

CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
# What a name may not be in C++, or is already in the generated file: it gets an underscore.
_TAKEN = frozenset(
    """alignas asm auto bool break case catch char class const constexpr continue default delete do double else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new operator private
    protected public register return short signed sizeof static struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile while
    n item first single lead whole rest tile place axis left unit apply Index Pack""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Weak:
    """The type of a Python number, which gives way to that of the array it meets."""

    name: str


INT, FLOAT = Weak("int"), Weak("float")
Type = DType | Weak


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


class Program(NamedTuple):
    """The C++ of a function for arguments of certain types.

    functions   the last one is called apply; those before it are what it calls
    result      the type of what it gives
    types       in C++, of its parameters
    primitives  which hand-written functions it needs, and whether the
    fast        ones, which are exact enough for results of 16 bits
    """

    functions: tuple[str, ...]
    result: DType
    types: tuple[str, ...]
    primitives: frozenset[str]
    fast: bool


class ExpressionError(ValueError):
    """An expression that cannot be read, or uses what expressions have not."""


def parse(text: str) -> tuple[tuple[str | None, ast.expr], ...]:
    """The steps of an expression; raises ExpressionError, with the place, for what is none."""
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else f"it is a {type(text).__name__}, and takes text"
        raise ExpressionError(f"elementwise: the expression {text!r} cannot be read: {reason}") from None
    steps: list[tuple[str | None, ast.expr]] = []
    for at, node in enumerate(body):
        last = at == len(body) - 1
        if last and isinstance(node, ast.Expr):
            steps.append((None, node.value))
        elif not last and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            steps.append((node.targets[0].id, node.value))
        else:
            raise ExpressionError(
                f"elementwise: {text!r}: {ast.unparse(node)!r} does not fit; an expression is 'name = value' steps, "
                "separated by semicolons, and then the result"
            )
    if not steps:
        raise ExpressionError("elementwise: the expression is empty")
    return tuple(steps)


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


def write(
    function: Function, types: tuple[Type, ...], dtype: DType | None = None, cast: DType | None = None
) -> Program:
    """The C++ of a function; with `dtype` its operands become that first, and its result in the end, or `cast`.

    Raises TypeError where NumPy has no such operation, OverflowError for an integer that its type cannot hold.
    """
    given = types if dtype is None else tuple(dtype if isinstance(t, DType) else t for t in types)
    double = any(t in (F64, *INTEGERS) for t in (*given, dtype) if t)
    writer = _Writer(double=double)
    _, result = writer.function(function, given, "apply")
    if isinstance(result, Weak):
        raise TypeError(f"{function.name}: no operand is an array")
    fast = (cast or dtype or result) in (F16, BF16)
    if fast:
        writer = _Writer(double=double, fast=True)
        writer.function(function, given, "apply")
    return Program(
        tuple(writer.texts),
        cast or dtype or result,
        tuple(writer.spelled(t) for t in given),
        frozenset(writer.used),
        fast,
    )


class _Term(NamedTuple):
    """A piece of C++, its type, how tightly it binds, and its value where it is a plain number."""

    text: str
    type: Type
    binds: int = 20
    value: int | float | None = None


_BINARY: dict[type[ast.operator], tuple[str, int, str]] = {
    ast.Add: ("+", 12, "wrapping_add"),
    ast.Sub: ("-", 12, "wrapping_subtract"),
    ast.Mult: ("*", 13, "wrapping_multiply"),
    ast.BitAnd: ("&", 7, ""),
    ast.BitOr: ("|", 5, ""),
    ast.BitXor: ("^", 6, ""),
    ast.LShift: ("<<", 11, "left_shift"),
    ast.RShift: (">>", 11, "right_shift"),
}
_COMPARED: dict[type[ast.cmpop], tuple[str, int]] = {
    ast.Lt: ("<", 9),
    ast.LtE: ("<=", 9),
    ast.Gt: (">", 9),
    ast.GtE: (">=", 9),
    ast.Eq: ("==", 8),
    ast.NotEq: ("!=", 8),
}
_FOLD: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}


class _Writer:
    """Writes functions, each once for the types that it is called with."""

    def __init__(self, *, double: bool, fast: bool = False) -> None:
        self.fast = fast
        self.texts: list[str] = []
        self.used: set[str] = set()
        self.real = F64 if double else F32  # what Python's floats are where nothing else decides
        self._written: dict[tuple[str, tuple[Type, ...]], tuple[str, Type]] = {}

    def spelled(self, kind: Type) -> str:
        if isinstance(kind, DType):
            return arithmetic(kind)
        return "long long" if kind is INT else self.real.c

    def function(self, function: Function, types: tuple[Type, ...], name: str | None = None) -> tuple[str, Type]:
        """The name of a function written for these types, and what it gives."""
        found = self._written.get((function.name, types))
        if found is None:
            name = name or safe(function.name)
            scope = dict(zip(function.parameters, (_Term(safe(p), t) for p, t in zip(function.parameters, types))))
            body = _Body(self, function, scope)
            lines, result = body.write()
            head = ", ".join(f"{self.spelled(t)} {safe(p)}" for p, t in zip(function.parameters, types))
            text = [f"__device__ __forceinline__ {self.spelled(result.type)} {name}({head})", "{"]
            text += [*lines, f"    return {result.text};", "}"]
            if not lines and len(text[0]) + len(result.text) < 100:
                text = [f"{text[0]} {{ return {result.text}; }}"]
            self.texts.append("\n".join(text))
            found = self._written[function.name, types] = (name, result.type)
        return found


class _Body:
    """The statements of one function."""

    def __init__(self, writer: _Writer, function: Function, scope: dict[str, _Term]) -> None:
        self.writer = writer
        self.title = function.name
        self.steps = function.steps
        self.scope = scope

    def write(self) -> tuple[list[str], _Term]:
        lines: list[str] = []
        for name, node in self.steps:
            term = self.term(node)
            if name is None:
                return lines, term
            if term.value is None:
                lines.append(f"    const {self.writer.spelled(term.type)} {safe(name)} = {term.text};")
                term = _Term(safe(name), term.type)
            self.scope[name] = term
        raise AssertionError("parse ends with a result")

    # From nodes to terms.

    def term(self, node: ast.expr) -> _Term:
        match node:
            case ast.Constant(value=bool() as value):
                return _Term("true" if value else "false", BOOL)
            case ast.Constant(value=int() | float() as value):
                return _literal(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                return self._binary(node.op, self.term(node.left), self.term(node.right), node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                sign, binds = ("&&", 4) if isinstance(node.op, ast.And) else ("||", 3)
                terms = [self._truth(self.term(value)) for value in node.values]
                return _Term(f" {sign} ".join(_inside(t, binds + 1) for t in terms), BOOL, binds)
            case ast.IfExp():
                return self._choose(self.term(node.test), self.term(node.body), self.term(node.orelse))
            case ast.Call():
                return self._call(node)
        return self._refuse(node, "is not part of expressions")

    def _name(self, name: str) -> _Term:
        if name in self.scope:
            return self.scope[name]
        return _literal(CONSTANTS[name])

    def _unary(self, node: ast.UnaryOp) -> _Term:
        term = self.term(node.operand)
        if isinstance(node.op, ast.UAdd):
            return term
        if isinstance(node.op, ast.Not):
            return _Term(f"!{_inside(self._truth(term), 15)}", BOOL, 15)
        if isinstance(node.op, ast.Invert):
            if term.type is BOOL:
                return _Term(f"!{_inside(term, 15)}", BOOL, 15)
            if term.type in FLOATING or isinstance(term.type, Weak):
                self._refuse(node, f"inverts the bits of {_called(term.type)}")
            return self._narrowed(_Term(f"~{_inside(term, 15)}", term.type, 15))
        if term.value is not None:
            return _literal(-term.value)
        if term.type is BOOL:
            self._refuse(node, "negates a bool, which NumPy refuses; use ~ or not")
        if term.type in INTEGERS:
            return self._binary(ast.Sub(), _literal(0), term, node)
        return _Term(f"-{_inside(term, 15)}", term.type, 15)

    def _binary(self, op: ast.operator, a: _Term, b: _Term, node: ast.expr) -> _Term:
        if a.value is not None and b.value is not None and type(op) in _FOLD:
            try:
                return _literal(_FOLD[type(op)](a.value, b.value))
            except (ArithmeticError, TypeError) as error:
                self._refuse(node, f"cannot be computed: {error}")
        if isinstance(op, ast.Pow):
            return self._power(a, b, node)
        kind = self._meet(a, b)
        if isinstance(op, ast.Div):
            kind = FLOAT if isinstance(kind, Weak) else kind if kind in FLOATING else F64
            return _Term(f"{self._as(a, kind, 13)} / {self._as(b, kind, 14)}", kind, 13)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            name = "floor_divide" if isinstance(op, ast.FloorDiv) else "modulo"
            return self._primitive(name, I8 if kind is BOOL else kind, a, b)
        if type(op) not in _BINARY:
            return self._refuse(node, "is not part of expressions")
        sign, binds, wrapping = _BINARY[type(op)]
        if kind is BOOL:
            logical = {"+": ("||", 3), "*": ("&&", 4), "&": ("&&", 4), "|": ("||", 3), "^": ("!=", 8)}.get(sign)
            if logical is None and sign == "-":
                self._refuse(node, "subtracts bools, which NumPy refuses; use ^")
            if logical is not None:
                sign, binds = logical
                return _Term(f"{self._as(a, BOOL, binds)} {sign} {self._as(b, BOOL, binds + 1)}", BOOL, binds)
            kind = I8
        if sign in ("&", "|", "^", "<<", ">>") and (kind in FLOATING or kind is FLOAT):
            self._refuse(node, f"combines the bits of {_called(kind)}")
        if sign in ("<<", ">>") or (kind in (I32, I64) and wrapping):
            return self._primitive(wrapping, kind, a, b)
        bits = sign in ("&", "|", "^")
        left, right = (self._as(x, kind, 20 if bits else binds + at) for at, x in enumerate((a, b)))
        return self._narrowed(_Term(f"{left} {sign} {right}", kind, binds))

    def _power(self, a: _Term, b: _Term, node: ast.expr) -> _Term:
        """Small whole powers as products, as NumPy computes the square; else pow, of floats."""
        if b.value in (1, 2, 3) and isinstance(b.value, int) and not isinstance(a.type, Weak):
            power = a = _Term(self._as(a, I8), I8) if a.type is BOOL else a
            for _ in range(b.value - 1):
                power = self._binary(ast.Mult(), power, a, node)
            return power
        kind = self._meet(a, b)
        if kind in FLOATING and b.value == 0.5:
            return self._builtin("sqrt", [a], node)
        if kind in INTEGERS or kind is BOOL:
            self._refuse(node, "raises an integer to a power; make one a float, or write a product")
        return self._builtin("power", [a, b], node)

    def _compare(self, node: ast.Compare) -> _Term:
        terms = [self.term(x) for x in (node.left, *node.comparators)]
        found: list[_Term] = []
        for op, a, b in zip(node.ops, terms, terms[1:]):
            if type(op) not in _COMPARED:
                self._refuse(node, "is not part of expressions")
            sign, binds = _COMPARED[type(op)]
            kind = self._meet(a, b)
            found.append(_Term(f"{self._as(a, kind, binds)} {sign} {self._as(b, kind, binds + 1)}", BOOL, binds))
        return found[0] if len(found) == 1 else _Term(" && ".join(_inside(t, 5) for t in found), BOOL, 4)

    def _choose(self, test: _Term, yes: _Term, no: _Term) -> _Term:
        kind = self._meet(yes, no)
        return _Term(f"{_inside(self._truth(test), 3)} ? {self._as(yes, kind, 3)} : {self._as(no, kind, 2)}", kind, 2)

    def _call(self, node: ast.Call) -> _Term:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in PRIMITIVES and name not in FUNCTIONS:
            hint = ", ".join(sorted({*PRIMITIVES, *FUNCTIONS}))
            raise ExpressionError(f"{self.title}: there is no function {name!r}; there are {hint}")
        if node.keywords or any(isinstance(x, ast.Starred) for x in node.args):
            self._refuse(node, "names its arguments; pass them in order")
        terms = [self.term(x) for x in node.args]
        if name in PRIMITIVES:
            return self._builtin(name, terms, node)
        parameters, defaults, expression, _ = FUNCTIONS[name]
        missing = parameters[len(terms) :]
        if len(terms) > len(parameters) or any(p not in defaults for p in missing):
            self._refuse(node, f"does not fit {name}({', '.join(parameters)})")
        terms += [_literal(defaults[p]) for p in missing]
        kind = functools.reduce(join, (t.type for t in terms))
        kind = self.writer.real if isinstance(kind, Weak) else kind
        called, result = self.writer.function(Function(name, parameters, expression), (kind,) * len(terms))
        return _Term(f"{called}({', '.join(self._as(t, kind) for t in terms)})", result)

    def _builtin(self, name: str, terms: list[_Term], node: ast.expr) -> _Term:
        primitive = PRIMITIVES[name]
        if len(terms) != primitive.arity:
            self._refuse(node, f"passes {len(terms)} arguments to {name}, which takes {primitive.arity}")
        if name == "where":
            return self._choose(*terms)
        kind = functools.reduce(join, (t.type for t in terms))
        kind = self.writer.real if isinstance(kind, Weak) else kind
        if primitive.rule == "float" or (primitive.rule == "sign" and kind is BOOL):
            kind = floating(kind)
        if primitive.rule == "round" and kind not in FLOATING:  # integers are whole
            return terms[0]
        if primitive.rule == "test" and kind not in FLOATING:
            return _Term("true" if name == "isfinite" else "false", BOOL)
        result = BOOL if primitive.rule == "test" else kind
        if name == "abs" and kind not in FLOATING:
            return self._primitive("absolute", kind, *terms) if kind in SIGNED else terms[0]
        if primitive.c is None:
            return self._primitive(name, kind, *terms)._replace(type=result)
        called = primitive.c + ("f" if arithmetic(kind) == "float" and primitive.rule != "test" else "")
        if primitive.fast and self.writer.fast and called.endswith("f"):
            self.writer.used.add(name)
            called = f"fast_{name}"
        return _Term(f"{called}({', '.join(self._as(t, kind) for t in terms)})", result)

    # Types.

    def _primitive(self, name: str, kind: Type, *terms: _Term) -> _Term:
        """A call of a hand-written function, whose arguments and result have one type."""
        self.writer.used.add(name)
        return _Term(f"{name}({', '.join(self._as(t, kind) for t in terms)})", kind)

    def _meet(self, a: _Term, b: _Term) -> Type:
        kind = join(a.type, b.type)
        for term in (a, b):
            if isinstance(term.value, int) and kind in INTEGERS:
                check_range(self.title, term.value, kind)
        return kind

    def _truth(self, term: _Term) -> _Term:
        return term if term.type is BOOL else _Term(f"{_inside(term, 9)} != 0", BOOL, 8)

    def _as(self, term: _Term, kind: Type, binds: int = 0) -> str:
        """The term in the type in which another is computed, in parentheses where it binds less than it must."""
        spelled = self.writer.spelled(kind)
        if term.value is not None:
            return _number(term.value, spelled)
        if self.writer.spelled(term.type) == spelled:
            return _inside(term, binds)
        return f"static_cast<{spelled}>({term.text})"

    def _narrowed(self, term: _Term) -> _Term:
        """C++ computes small integers as int; NumPy's wrap around."""
        if term.type in INTEGERS and isinstance(term.type, DType) and term.type.itemsize < 4:
            return _Term(f"static_cast<{term.type.c}>({term.text})", term.type)
        return term

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        error = TypeError if "NumPy" in why or "bits" in why or "integer" in why else ExpressionError
        raise error(f"{self.title}: {ast.unparse(node)!r} {why}")


def join(a: Type, b: Type) -> Type:
    """The type in which two meet, by NEP 50.

    >>> from kgen.dtypes import I8
    >>> join(F32, FLOAT).name, join(I8, INT).name, join(I8, FLOAT).name, join(BOOL, INT).name
    ('f32', 'i8', 'f64', 'i64')
    """
    if isinstance(a, DType) and isinstance(b, DType):
        return promote(a, b)
    if isinstance(a, Weak) and isinstance(b, Weak):
        return FLOAT if FLOAT in (a, b) else INT
    strong, weak = (a, b) if isinstance(a, DType) else (b, a)
    assert isinstance(strong, DType)
    if strong in FLOATING or (weak is INT and strong is not BOOL):
        return strong
    return F64 if weak is FLOAT else I64


def check_range(title: str, value: int, dtype: DType) -> None:
    """NumPy's error for a Python integer that an integer type cannot hold."""
    bits = 8 * dtype.itemsize
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise OverflowError(f"{title}: Python integer {value} out of bounds for {dtype.numpy_name}")


def safe(name: str) -> str:
    """A name as the generated file may use it."""
    return f"{name}_" if name in _TAKEN else name


def describe(types: Mapping[str, Type]) -> str:
    """Parameters with their types, for headers: "x f16, y f32, alpha float"."""
    return ", ".join(f"{name} {kind.name}" for name, kind in types.items())


def _literal(value: int | float) -> _Term:
    return _Term(str(value), INT if isinstance(value, int) else FLOAT, 15 if value < 0 else 20, value)


def _number(value: int | float, spelled: str) -> str:
    """A plain number as C++ writes it in a type."""
    if spelled not in ("float", "double"):
        return f"{int(value)}{'ll' if spelled == 'long long' and abs(value) >= 1 << 31 else ''}"
    try:
        real = float(value)
    except OverflowError:
        real = math.copysign(math.inf, value)
    if spelled == "float" and abs(real) > 3.4028235677973366e38:
        real = math.copysign(math.inf, real)
    if math.isnan(real):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(real):
        return f"{'-' if real < 0 else ''}__int_as_float(0x7f800000)"
    return repr(real) + ("f" if spelled == "float" else "")


def _inside(term: _Term, binds: int) -> str:
    return term.text if term.binds >= binds else f"({term.text})"


def _called(kind: Type) -> str:
    return kind.numpy_name if isinstance(kind, DType) else f"a Python {kind.name}"
