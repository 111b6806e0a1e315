"""What an expression may call: functions that C++ or a template has, and those that are expressions themselves."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Primitive(NamedTuple):
    """A function that C++ has under the name `c` (with an f for float), or common/elementwise_math.cuh.j2 has.

    rule   what it takes and gives: "float" real numbers, "same" whatever comes, "round" the same, whole numbers
           untouched, "sign" the same but no bools, "test" gives a bool, "choice" is `where`. Integers take what
           OF_INTEGERS names instead
    fast   whether the template has a shorter one for results of 16 bits
    """

    arity: int
    rule: str
    c: str | None
    fast: bool = False


class Row(NamedTuple):
    """A function by its expression; parameters after the operands have defaults.

    `fewer` has the expressions for calls that leave operands out (None), by the names of those that remain. `idle` has
    operands that do nothing, as if left out, where they are Python integers beyond all that the first operand's type
    of integers holds: -1 if below it, 1 if above.
    """

    parameters: tuple[str, ...]
    defaults: Mapping[str, float]
    expression: str
    summary: str = ""
    fewer: Mapping[tuple[str, ...], str] = MappingProxyType({})
    idle: Mapping[str, int] = MappingProxyType({})

    @property
    def operands(self) -> tuple[str, ...]:
        """The parameters that are arrays."""
        return tuple(p for p in self.parameters if p not in self.defaults)


def _real(*names: str, arity: int = 1) -> dict[str, Primitive]:
    return {name: Primitive(arity, "float", name) for name in names}


NEEDS = {"sigmoid": "quotient", "tanh": "quotient", "quotient": "reciprocal", "normal_tail": "reciprocal"}
"""What hand-written functions call."""
OF_INTEGERS = {"fmin": "minimum", "fmax": "maximum", "fmod": "remainder_of"}
"""What integers, which have no NaN and stay integers, call instead of a function of real numbers."""

PRIMITIVES: dict[str, Primitive] = {
    **_real("exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt", "cbrt", "erf", "erfc", "lgamma"),
    **_real("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    **_real("hypot", "atan2", "fmod", "copysign", "fdim", arity=2),
    "exp": Primitive(1, "float", "exp", fast=True),
    "expm1": Primitive(1, "float", "expm1", fast=True),
    "log1p": Primitive(1, "float", "log1p", fast=True),
    "tanh": Primitive(1, "float", "tanh", fast=True),
    "power": Primitive(2, "float", "pow"),
    "floor": Primitive(1, "round", "floor"),
    "ceil": Primitive(1, "round", "ceil"),
    "trunc": Primitive(1, "round", "trunc"),
    "rint": Primitive(1, "float", "rint"),
    "isnan": Primitive(1, "test", "isnan"),
    "isinf": Primitive(1, "test", "isinf"),
    "isfinite": Primitive(1, "test", "isfinite"),
    "where": Primitive(3, "choice", None),
    "sigmoid": Primitive(1, "float", None),
    "normal_tail": Primitive(1, "float", None),
    "fmin": Primitive(2, "float", "fmin"),
    "fmax": Primitive(2, "float", "fmax"),
    "quotient": Primitive(2, "float", None),
    "maximum": Primitive(2, "same", None),
    "minimum": Primitive(2, "same", None),
    "abs": Primitive(1, "same", "fabs"),
    "sign": Primitive(1, "sign", None),
}


def _row(signature: str, expression: str, summary: str = "", /, **defaults: float) -> Row:
    return Row(tuple(signature.split()), defaults, expression, summary)


ARITHMETIC: dict[str, Row] = {
    "add": _row("x1 x2", "x1 + x2", "The sum."),
    "subtract": _row("x1 x2", "x1 - x2", "The difference."),
    "multiply": _row("x1 x2", "x1 * x2", "The product."),
    "divide": _row("x1 x2", "x1 / x2", "The quotient; a float even for integers."),
    "maximum": _row("x1 x2", "maximum(x1, x2)", "The larger of the two; NaN if either is."),
    "minimum": _row("x1 x2", "minimum(x1, x2)", "The smaller of the two; NaN if either is."),
    "negative": _row("x", "-x", "The negative."),
    "absolute": _row("x", "abs(x)", "The absolute value."),
    "square": _row("x", "x ** 2", "The square."),
    "sqrt": _row("x", "sqrt(x)", "The square root; NaN for negative numbers."),
    "exp": _row("x", "exp(x)", "The exponential."),
    "log": _row("x", "log(x)", "The natural logarithm; NaN for negative numbers, -inf for 0."),
    "clip": _row(
        "x low high",
        "minimum(maximum(x, low), high)",
        "The number, limited to the range from low to high; either limit may be None, or left out.",
    )._replace(
        fewer={("x", "low"): "maximum(x, low)", ("x", "high"): "minimum(x, high)", ("x",): "x"},
        idle={"low": -1, "high": 1},
    ),
}
"""As NumPy has them."""

ACTIVATIONS: dict[str, Row] = {
    "relu": _row("x", "0 if x < 0 else x", "Negative numbers become 0; a NaN stays."),
    "relu6": _row("x", "clip(x, 0, 6)", "The number, limited to the range from 0 to 6."),
    "leaky_relu": _row("x negative_slope", "x if x >= 0 else negative_slope * x", negative_slope=0.01),
    "elu": _row("x alpha", "x if x > 0 else alpha * expm1(x)", alpha=1.0),
    "celu": _row("x alpha", "x if x > 0 else alpha * expm1(x / alpha)", alpha=1.0),
    "selu": _row("x", "1.0507009873554805 * x if x > 0 else 1.7580993408473768 * expm1(x)"),
    "sigmoid": _row("x", "sigmoid(x)", "1 / (1 + e^-x), with all of its digits down to the denormals."),
    "safe_sigmoid": _row("x", "sigmoid(x)", "1 / (1 + e^-x) without overflow: `sigmoid`, which is safe as it stands."),
    "logsigmoid": _row("x", "minimum(x, 0) - log1p(exp(-abs(x)))", "log(1 / (1 + e^-x))"),
    "tanh": _row("x", "tanh(x)", "The hyperbolic tangent."),
    "gelu": _row(
        "x",
        "a = fmin(abs(x), 1e30); maximum(x, -0.0) - a * normal_tail(a)",
        "x Phi(x): x (1 + erf(x / sqrt(2))) / 2, without that sum, which cancels where x is negative.",
    ),
    "gelu_tanh": _row(
        "x",
        "a = fmin(abs(x), 1e10); maximum(x, -0.0) - a * half_sigmoid(1.5957691216057308 * (a + 0.044715 * a ** 3))",
        "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, without that sum, which cancels where x is negative.",
    ),
    "silu": _row(
        "x", "a = fmin(abs(x), 1e30); relu(x) - a * half_sigmoid(a)", "x / (1 + e^-x), also called swish: rounded once."
    ),
    "mish": _row(
        "x",
        "a = fmin(abs(x), 1e30); e = exp(-a); n = 2 * e * e if x >= 0 else e * (e + 2); "
        "relu(x) - a * quotient(n, n + (1 + 2 * e if x >= 0 else 2))",
        "x tanh(log(1 + e^x)), by a quotient in e^-|x|, which neither overflows nor cancels.",
    ),
    "softplus": _row(
        "x beta", "(maximum(beta * x, 0) + log1p(exp(-abs(beta * x)))) * (1 / beta)", "log(1 + e^x)", beta=1.0
    ),
    "softsign": _row("x", "x / (1 + abs(x))"),
    "hardsigmoid": _row("x", "clip(x + 3, 0, 6) * (1 / 6)"),
    "hardswish": _row("x", "x * (clip(x + 3, 0, 6) * (1 / 6))"),
    "hardtanh": _row("x low high", "clip(x, low, high)", low=-1.0, high=1.0),
    "hardshrink": _row("x lambd", "0 if -lambd <= x <= lambd else x", lambd=0.5),
    "softshrink": _row("x lambd", "0 if -lambd <= x <= lambd else x - copysign(lambd, x)", lambd=0.5),
    "glu": _row("x gate", "x * sigmoid(gate)"),
    "swiglu": _row("gate up", "silu(gate) * up", "The gated unit of Llama: silu(gate) up."),
    "geglu": _row("gate up", "gelu(gate) * up"),
    "reglu": _row("gate up", "relu(gate) * up"),
}
"""Activation functions of neural networks."""

GRADIENTS: dict[str, Row] = {
    "relu_backward": _row("dy x", "dy if x > 0 else 0"),
    "leaky_relu_backward": _row("dy x negative_slope", "dy if x > 0 else negative_slope * dy", negative_slope=0.01),
    "elu_backward": _row("dy x alpha", "dy if x > 0 else alpha * exp(x) * dy", alpha=1.0),
    "sigmoid_backward": _row("dy y", "dy * y * (1 - y)", "The gradient from y = sigmoid(x)."),
    "tanh_backward": _row("dy y", "dy * (1 - y * y)", "The gradient from y = tanh(x)."),
    "silu_backward": _row(
        "dy x",
        "e = exp(-abs(x)); q = quotient(1, 1 + e); s = e * q; "
        "dy * ((q if x >= 0 else s) * (1 + x * (s if x >= 0 else q)))",
    ),
    "gelu_backward": _row("dy x", "dy * (normal_cdf(x) + x * 0.3989422804014327 * exp(-0.5 * x * x))"),
    "gelu_tanh_backward": _row(
        "dy x",
        "u = 1.5957691216057308 * (x + 0.044715 * x ** 3); e = exp(-abs(u)); q = quotient(1, 1 + e); s = e * q; "
        "slope = 1.5957691216057308 * (1 + 0.134145 * x ** 2); "
        "dy * ((q if x >= 0 else s) * (1 + x * (s if x >= 0 else q) * slope))",
    ),
    "softplus_backward": _row("dy x beta", "dy * sigmoid(beta * x)", beta=1.0),
    "hardsigmoid_backward": _row("dy x", "dy * (1 / 6) if -3 < x < 3 else 0"),
    "hardswish_backward": _row("dy x", "0 if x <= -3 else dy if x >= 3 else dy * (x * (1 / 3) + 0.5)"),
}
"""From the gradient of the result, dy, that of x."""

PIECES: dict[str, Row] = {
    "normal_cdf": _row("x", "tail = normal_tail(abs(x)); 1 - tail if x > 0 else tail", "Phi(x)"),
    "half_sigmoid": _row("a", "e = exp(-a); quotient(e, 1 + e)", "1 / (1 + e^a) for a >= 0"),
}
"""What the others are made of."""

FUNCTIONS: dict[str, Row] = {**ARITHMETIC, **ACTIVATIONS, **GRADIENTS, **PIECES}


MEANT = {"max": "maximum", "min": "minimum", "round": "rint", "int": "trunc", "ln": "log", "logistic": "sigmoid"}
"""Other names of functions, for errors."""


def known_instead(name: str) -> str:
    """For errors: the function that was probably meant, and all that there are.

    >>> known_instead("np.arctan2")[:33]
    "; did you mean 'atan2'? There are"
    """
    known = sorted({*PRIMITIVES, *FUNCTIONS})
    plain = name.rpartition(".")[2]
    meant = [MEANT[plain]] if plain in MEANT else difflib.get_close_matches(plain, known, 1, 0.5)
    lead = f"; did you mean {meant[0]!r}? There are" if meant else "; there are"
    return f"{lead} {', '.join(known)}"
