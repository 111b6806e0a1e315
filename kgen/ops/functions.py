"""What an expression may call: functions that C++ or a template has, and those that are expressions themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Primitive(NamedTuple):
    """A function that C++ has under the name `c` (with an f for float), or that templates/elementwise_math.cuh.j2 has.

    rule   what it takes and gives: "float" real numbers, "same" whatever comes, "round" the same, whole numbers
           untouched, "sign" the same but no bools, "test" gives a bool, "choice" is `where`
    fast   whether the template has a shorter one for results of 16 bits
    """

    arity: int
    rule: str
    c: str | None
    fast: bool = False


class Row(NamedTuple):
    """A function by its expression; parameters after the operands have defaults."""

    parameters: tuple[str, ...]
    defaults: Mapping[str, float]
    expression: str
    summary: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        """The parameters that are arrays."""
        return tuple(p for p in self.parameters if p not in self.defaults)


def _real(*names: str, arity: int = 1) -> dict[str, Primitive]:
    return {name: Primitive(arity, "float", name) for name in names}


PRIMITIVES: dict[str, Primitive] = {
    **_real("exp2", "exp10", "expm1", "log", "log2", "log10", "sqrt", "rsqrt", "cbrt", "erf", "erfc", "lgamma"),
    **_real("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    **_real("hypot", "atan2", "fmod", "copysign", "fdim", arity=2),
    "exp": Primitive(1, "float", "exp", fast=True),
    "log1p": Primitive(1, "float", "log1p", fast=True),
    "tanh": Primitive(1, "float", "tanh", fast=True),
    "power": Primitive(2, "float", "pow"),
    "floor": Primitive(1, "round", "floor"),
    "ceil": Primitive(1, "round", "ceil"),
    "trunc": Primitive(1, "round", "trunc"),
    "rint": Primitive(1, "round", "rint"),
    "isnan": Primitive(1, "test", "isnan"),
    "isinf": Primitive(1, "test", "isinf"),
    "isfinite": Primitive(1, "test", "isfinite"),
    "where": Primitive(3, "choice", None),
    "sigmoid": Primitive(1, "float", None),
    "normal_cdf": Primitive(1, "float", None),
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
    "divide": _row("x1 x2", "x1 / x2", "The quotient, a real number also of integers."),
    "maximum": _row("x1 x2", "maximum(x1, x2)", "The larger one; NaN where either is."),
    "minimum": _row("x1 x2", "minimum(x1, x2)", "The smaller one; NaN where either is."),
    "negative": _row("x", "-x", "The number with the other sign."),
    "absolute": _row("x", "abs(x)", "The number without its sign."),
    "square": _row("x", "x ** 2", "The square."),
    "sqrt": _row("x", "sqrt(x)", "The square root; NaN of negative numbers."),
    "exp": _row("x", "exp(x)", "The exponential."),
    "log": _row("x", "log(x)", "The natural logarithm; NaN of negative numbers, -inf of 0."),
    "clip": _row("x low high", "minimum(maximum(x, low), high)", "The number, or the bound that it passes."),
}
"""As NumPy has them."""

ACTIVATIONS: dict[str, Row] = {
    "relu": _row("x", "0 if x < 0 else x", "Negative numbers become 0; a NaN stays."),
    "relu6": _row("x", "clip(x, 0, 6)", "The number, at least 0 and at most 6."),
    "leaky_relu": _row("x negative_slope", "x if x >= 0 else negative_slope * x", negative_slope=0.01),
    "elu": _row("x alpha", "x if x > 0 else alpha * expm1(x)", alpha=1.0),
    "celu": _row("x alpha", "x if x > 0 else alpha * expm1(x / alpha)", alpha=1.0),
    "selu": _row("x", "1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * expm1(x))"),
    "sigmoid": _row("x", "sigmoid(x)", "1 / (1 + e^-x), with all of its digits down to the denormals."),
    "safe_sigmoid": _row("x", "sigmoid(x)", "1 / (1 + e^-x) without overflow: `sigmoid`, which is safe as it stands."),
    "logsigmoid": _row("x", "minimum(x, 0) - log1p(exp(-abs(x)))", "log(1 / (1 + e^-x))"),
    "tanh": _row("x", "tanh(x)", "The hyperbolic tangent."),
    "gelu": _row("x", "x * normal_cdf(x)", "x Phi(x): x (1 + erf(x / sqrt(2))) / 2, with all of its digits."),
    "gelu_tanh": _row(
        "x",
        "x * sigmoid(1.5957691216057308 * (x + 0.044715 * x ** 3))",
        "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
    ),
    "silu": _row("x", "x * sigmoid(x)", "x / (1 + e^-x), also called swish."),
    "mish": _row(
        "x",
        "e = exp(-abs(x)); n = 1 + 2 * e if x >= 0 else e * (e + 2); x * (n / (n + (2 * e * e if x >= 0 else 2)))",
        "x tanh(log(1 + e^x)), as a quotient in e^-|x|, which cannot overflow",
    ),
    "softplus": _row("x beta", "(maximum(beta * x, 0) + log1p(exp(-abs(beta * x)))) / beta", "log(1 + e^x)", beta=1.0),
    "softsign": _row("x", "x / (1 + abs(x))"),
    "hardsigmoid": _row("x", "clip(x + 3, 0, 6) / 6"),
    "hardswish": _row("x", "x * clip(x + 3, 0, 6) / 6"),
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
    "silu_backward": _row("dy x", "s = sigmoid(x); dy * s * (1 + x * (1 - s))"),
    "gelu_backward": _row("dy x", "dy * (normal_cdf(x) + x * 0.3989422804014327 * exp(-0.5 * x * x))"),
    "gelu_tanh_backward": _row(
        "dy x",
        "s = sigmoid(1.5957691216057308 * (x + 0.044715 * x ** 3)); "
        "dy * s * (1 + x * (1 - s) * 1.5957691216057308 * (1 + 0.134145 * x ** 2))",
    ),
    "softplus_backward": _row("dy x beta", "dy * sigmoid(beta * x)", beta=1.0),
    "hardsigmoid_backward": _row("dy x", "dy / 6 if -3 < x < 3 else 0"),
    "hardswish_backward": _row("dy x", "0 if x <= -3 else dy if x >= 3 else dy * (x / 3 + 0.5)"),
}
"""From the gradient of the result, dy, that of x."""

FUNCTIONS: dict[str, Row] = {**ARITHMETIC, **ACTIVATIONS, **GRADIENTS}
