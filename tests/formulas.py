"""Activations, gated units and gradients by their textbook formulas, for float64 arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # of float64: NumPy's own types of what it returns differ from release to release

erfc = np.vectorize(math.erfc, otypes="d")


def sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def phi(x: Array) -> Array:
    return 0.5 * erfc(-x / math.sqrt(2))


def density(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def inner(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def inner_slope(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)


FORMULAS: dict[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "sigmoid": sigmoid,
    "safe_sigmoid": sigmoid,
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "tanh": np.tanh,
    "gelu": lambda x: x * phi(x),
    "gelu_tanh": lambda x: x * sigmoid(2 * inner(x)),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + abs(x)),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardshrink": lambda x: np.where(abs(x) <= 0.5, 0, x),
    "softshrink": lambda x: np.where(abs(x) <= 0.5, 0, x - np.copysign(0.5, x)),
    "glu": lambda x, g: x * sigmoid(g),
    "swiglu": lambda g, u: g * sigmoid(g) * u,
    "geglu": lambda g, u: g * phi(g) * u,
    "reglu": lambda g, u: np.maximum(g, 0) * u,
    "relu_backward": lambda d, x: np.where(x > 0, d, 0),
    "leaky_relu_backward": lambda d, x: np.where(x > 0, d, 0.01 * d),
    "elu_backward": lambda d, x: np.where(x > 0, d, np.exp(np.minimum(x, 0)) * d),
    "sigmoid_backward": lambda d, y: d * y * (1 - y),
    "tanh_backward": lambda d, y: d * (1 - y * y),
    "silu_backward": lambda d, x: d * sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "gelu_backward": lambda d, x: d * (phi(x) + x * density(x)),
    "gelu_tanh_backward": lambda d, x: (
        d * sigmoid(2 * inner(x)) * (1 + 2 * x * (1 - sigmoid(2 * inner(x))) * inner_slope(x))
    ),
    "softplus_backward": lambda d, x: d * sigmoid(x),
    "hardsigmoid_backward": lambda d, x: np.where(abs(x) < 3, d / 6, 0),
    "hardswish_backward": lambda d, x: np.where(x <= -3, 0, np.where(x >= 3, d, d * (x / 3 + 0.5))),
}
