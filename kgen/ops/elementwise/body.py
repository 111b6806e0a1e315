"""The statements of one function: an expression's nodes as C++, typed as NumPy types them."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from kgen.dtypes import BOOL, F64, I8, I32, I64, INTEGERS, SIGNED, DType
from kgen.ops.elementwise.comparisons import by_value, exactly
from kgen.ops.elementwise.expression import CONSTANTS, ExpressionError, Function
from kgen.ops.elementwise.functions import FUNCTIONS, OF_INTEGERS, PRIMITIVES, known_instead
from kgen.ops.elementwise.promotion import (
    FLOAT,
    FLOATING,
    INT,
    Type,
    Weak,
    arithmetic,
    check_range,
    common,
    quotient,
    real,
)
from kgen.ops.elementwise.terms import (
    BINARY,
    COMPARED,
    FOLD,
    OF_BITS,
    Functions,
    Term,
    inside,
    literal,
    number,
    safe,
    typed,
)

LARGEST = sys.float_info.max_exp  # bits


class Body:
    """The statements of one function."""

    def __init__(self, writer: Functions, function: Function, scope: dict[str, Term]) -> None:
        self.writer = writer
        self.title = function.name
        self.steps = function.steps
        self.scope = scope

    def write(self) -> tuple[list[str], Term]:
        lines: list[str] = []
        taken = {safe(name) for name in self.scope}
        for name, node in self.steps:
            term = self.term(node)
            if name is None:
                return lines, term
            if term.value is None and term not in self.scope.values():
                place = safe(name)
                while place in taken:  # a step may take the name of an operand or of an earlier step
                    place += "_"
                taken.add(place)
                lines.append(f"    const {self.writer.spelled(term.type)} {place} = {term.text};")
                term = Term(place, term.type)
            self.scope[name] = term
        raise AssertionError("parse ends with a result")

    # From nodes to terms.

    def term(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=bool() as value):
                return Term("true" if value else "false", BOOL)
            case ast.Constant(value=int() | float() as value):
                return literal(value)
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
                return Term(f" {sign} ".join(inside(t, binds + 1) for t in terms), BOOL, binds)
            case ast.IfExp():
                return self._choose(self.term(node.test), self.term(node.body), self.term(node.orelse))
            case ast.Call():
                return self._call(node)
        return self._refuse(node, "is not part of expressions")

    def _name(self, name: str) -> Term:
        if name in self.scope:
            return self.scope[name]
        return literal(CONSTANTS[name])

    def _unary(self, node: ast.UnaryOp) -> Term:
        term = self.term(node.operand)
        if isinstance(node.op, ast.UAdd):
            return term
        if isinstance(node.op, ast.Not):
            return Term(f"!{inside(self._truth(term), 15)}", BOOL, 15)
        if isinstance(node.op, ast.Invert):
            if term.type is BOOL:
                return Term(f"!{inside(term, 15)}", BOOL, 15)
            if isinstance(term.value, int):
                return literal(~term.value)
            if term.type in FLOATING or term.type is FLOAT:
                self._refuse(node, f"inverts the bits of {term.type.numpy_name}", TypeError)
            return self._narrowed(Term(f"~{inside(term, 15)}", term.type, 15))
        if term.value is not None:
            return literal(-term.value)
        if term.type is BOOL:
            self._refuse(node, "negates a bool, which NumPy refuses; use ~ or not", TypeError)
        if term.type in INTEGERS:
            return self._binary(ast.Sub(), literal(0), term, node)
        return Term(f"-{inside(term, 16)}", term.type, 15)  # 16: C++ reads --x as a decrement

    def _binary(self, op: ast.operator, a: Term, b: Term, node: ast.expr) -> Term:
        whole = isinstance(a.value, int) and isinstance(b.value, int)
        if a.value is not None and b.value is not None and type(op) in FOLD and (whole or type(op) not in OF_BITS):
            return self._folded(type(op), a.value, b.value, node)
        if isinstance(op, ast.Pow):
            return self._power(a, b, node)
        if isinstance(op, ast.Div):
            kind = self._meet(a, b, together=quotient)
            return Term(f"{self._as(a, kind, 13)} / {self._as(b, kind, 14)}", kind, 13)
        kind = self._meet(a, b)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            name = "floor_divide" if isinstance(op, ast.FloorDiv) else "modulo"
            return self._primitive(name, I8 if kind is BOOL else kind, a, b)
        if type(op) not in BINARY:
            return self._refuse(node, "is not part of expressions")
        sign, binds, wrapping = BINARY[type(op)]
        if kind is BOOL:
            logical = {"+": ("||", 3), "*": ("&&", 4), "&": ("&&", 4), "|": ("||", 3), "^": ("!=", 8)}.get(sign)
            if logical is None and sign == "-":
                self._refuse(node, "subtracts bools, which NumPy refuses; use ^", TypeError)
            if logical is not None:
                sign, binds = logical
                return Term(f"{self._as(a, BOOL, binds)} {sign} {self._as(b, BOOL, binds + 1)}", BOOL, binds)
            kind = I8
        if sign in ("&", "|", "^", "<<", ">>") and (kind in FLOATING or kind is FLOAT):
            power = "; a power is written **" if sign == "^" else ""
            self._refuse(node, f"combines the bits of {kind.numpy_name}{power}", TypeError)
        if sign in ("<<", ">>") or (kind in (I32, I64) and wrapping):
            return self._primitive(wrapping, kind, a, b)
        bits = sign in ("&", "|", "^")
        left, right = (self._as(x, kind, 20 if bits else binds + at) for at, x in enumerate((a, b)))
        return self._narrowed(Term(f"{left} {sign} {right}", kind, binds))

    def _folded(self, op: type[ast.operator], a: int | float, b: int | float, node: ast.expr) -> Term:
        """What two plain numbers give: a number again, which a float can hold."""
        try:
            bits = b * math.log2(abs(a)) if op is ast.Pow and abs(a) > 1 else b if op is ast.LShift else 0
            if bits >= LARGEST:  # before it takes for ever
                raise OverflowError("it is too large for a float")
            value = FOLD[op](a, b)
        except (ArithmeticError, ValueError) as error:
            self._refuse(node, f"cannot be computed: {error}")
        if isinstance(value, complex):
            self._refuse(node, "cannot be computed: it is a complex number")
        if isinstance(value, int) and value.bit_length() > LARGEST:
            self._refuse(node, "cannot be computed: it is too large for a float")
        return literal(value)

    def _power(self, a: Term, b: Term, node: ast.expr) -> Term:
        """Small whole powers as products, as NumPy computes the square; else pow, of floats."""
        if b.value in (1, 2, 3) and isinstance(b.value, int):
            if a.type is BOOL:
                whole = I8 if b.value == 2 else I64  # as in NumPy
                a = Term(self._as(a, whole), whole)
            power = a
            for _ in range(b.value - 1):
                power = self._binary(ast.Mult(), power, a, node)
            return power
        kind = self._meet(a, b)
        if b.value == 0.5:
            return self._builtin("sqrt", [Term(self._as(a, kind), kind)], node)
        if kind in INTEGERS or kind is BOOL:
            self._refuse(node, "raises an integer to a power; make one a float, or write a product", TypeError)
        return self._builtin("power", [a, b], node)

    def _compare(self, node: ast.Compare) -> Term:
        terms = [self.term(x) for x in (node.left, *node.comparators)]
        found: list[Term] = []
        for op, left, right in zip(node.ops, terms, terms[1:]):
            if type(op) not in COMPARED:
                self._refuse(node, "is not part of expressions")
            a, b = by_value(left, right), by_value(right, left)
            found.append(exactly(type(op), a, b) or self._compared(*COMPARED[type(op)], a, b))
        return found[0] if len(found) == 1 else Term(" && ".join(inside(t, 5) for t in found), BOOL, 4)

    def _compared(self, sign: str, binds: int, a: Term, b: Term) -> Term:
        kind = self._meet(a, b)
        return Term(f"{self._as(a, kind, binds)} {sign} {self._as(b, kind, binds + 1)}", BOOL, binds)

    def _choose(self, test: Term, yes: Term, no: Term) -> Term:
        kind = self._meet(yes, no)
        first, second = self._typed(yes, kind, 3), self._typed(no, kind, 2)
        return Term(f"{inside(self._truth(test), 3)} ? {first} : {second}", kind, 2)

    def _call(self, node: ast.Call) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in PRIMITIVES and name not in FUNCTIONS:
            raise ExpressionError(f"{self.title}: there is no function {name!r}{known_instead(name)}")
        if node.keywords or any(isinstance(x, ast.Starred) for x in node.args):
            self._refuse(node, "names its arguments; pass them in order")
        terms = [self.term(x) for x in node.args]
        if name in PRIMITIVES:
            return self._builtin(name, terms, node)
        parameters, defaults, expression, *_ = FUNCTIONS[name]
        missing = parameters[len(terms) :]
        if len(terms) > len(parameters) or any(p not in defaults for p in missing):
            self._refuse(node, f"does not fit {name}({', '.join(parameters)})")
        terms += [literal(defaults[p]) for p in missing]
        kind, plain = self._computed(self._meet(*terms))
        called, result = self.writer.function(Function(name, parameters, expression), (kind,) * len(terms))
        return Term(f"{called}({', '.join(self._as(t, kind) for t in terms)})", plain or result)

    def _builtin(self, name: str, terms: list[Term], node: ast.expr) -> Term:
        primitive = PRIMITIVES[name]
        if len(terms) != primitive.arity:
            self._refuse(node, f"passes {len(terms)} arguments to {name}, which takes {primitive.arity}")
        if name == "where":
            return self._choose(*terms)
        of_reals = primitive.rule == "float" and name not in OF_INTEGERS
        kind, plain = self._computed(self._meet(*terms, together=real if of_reals else common))
        if name in OF_INTEGERS and kind not in FLOATING:
            instead = OF_INTEGERS[name]
            return self._primitive(instead, I8 if kind is BOOL and instead not in PRIMITIVES else kind, *terms)
        if primitive.rule == "sign" and kind is BOOL:
            self._refuse(node, "takes the sign of a bool, which NumPy refuses", TypeError)
        if primitive.rule == "round" and kind not in FLOATING:  # integers are whole
            return terms[0]
        if primitive.rule == "test" and kind not in FLOATING:
            return Term("true" if name == "isfinite" else "false", BOOL)
        result = BOOL if primitive.rule == "test" else plain or kind
        if name == "abs" and kind not in FLOATING:
            return self._primitive("absolute", kind, *terms) if kind in SIGNED else terms[0]
        if primitive.c is None:
            return self._primitive(name, kind, *terms)._replace(type=result)
        called = primitive.c + ("f" if arithmetic(kind) == "float" and primitive.rule != "test" else "")
        if primitive.fast and self.writer.fast and called.endswith("f"):
            self.writer.use(name, kind)
            called = f"fast_{name}"
        return Term(f"{called}({', '.join(self._as(t, kind) for t in terms)})", result)

    # Types.

    def _computed(self, kind: Type) -> tuple[DType, Weak | None]:
        """The type in which a function computes; FLOAT if it is of plain numbers, since it then gives another."""
        return (self.writer.real, FLOAT) if isinstance(kind, Weak) else (kind, None)

    def _primitive(self, name: str, kind: Type, *terms: Term) -> Term:
        """A call of a hand-written function, whose arguments and result have one type, by which C++ finds it."""
        self.writer.use(name, kind)
        return Term(f"{name}({', '.join(self._typed(t, kind) for t in terms)})", kind)

    def _meet(self, *terms: Term, together: Callable[[Sequence[Type]], Type] = common) -> Type:
        """The type in which terms are computed `together`, which their plain numbers must fit."""
        kind = together([t.type for t in terms])
        for term in terms:
            if isinstance(term.value, int) and isinstance(kind, DType):
                check_range(self.title, term.value, kind)
        return kind

    def _truth(self, term: Term) -> Term:
        return term if term.type is BOOL else Term(f"{inside(term, 9)} != 0", BOOL, 8)

    def _as(self, term: Term, kind: Type, binds: int = 0) -> str:
        """The term in the type in which another is computed, in parentheses where it binds less than it must."""
        spelled = self.writer.spelled(kind)
        if term.value is not None:
            return number(term.value, spelled)
        if term.type is INT and isinstance(kind, DType) and kind in INTEGERS:
            self.writer.narrow(term.text, kind)
        if term.type is FLOAT and kind is F64 and self.writer.real is not F64:
            self.writer.widened = True
        if self.writer.spelled(term.type) == spelled:
            return inside(term, binds)
        return f"static_cast<{spelled}>({term.text})"

    def _typed(self, term: Term, kind: Type, binds: int = 0) -> str:
        """The same, of that type whatever is around it."""
        return self._as(term, kind, binds) if term.value is None else typed(term.value, self.writer.spelled(kind))

    def _narrowed(self, term: Term) -> Term:
        """C++ computes small integers as int; NumPy's wrap around."""
        if term.type in INTEGERS and isinstance(term.type, DType) and term.type.itemsize < 4:
            return Term(f"static_cast<{term.type.c}>({term.text})", term.type)
        return term

    def _refuse(self, node: ast.AST, why: str, error: type[Exception] = ExpressionError) -> NoReturn:
        raise error(f"{self.title}: {ast.unparse(node)!r} {why}")
