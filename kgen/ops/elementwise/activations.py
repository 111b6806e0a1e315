"""The functions that have a name: NumPy's arithmetic, the activations of neural networks, and their gradients.

Each is an `Elementwise`, made of a row of kgen/ops/elementwise/functions.py: kgen.relu(x), kgen.add(x1, x2, out=...).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kgen.dtypes import I32, I64
from kgen.ops.elementwise.functions import ACTIVATIONS, ARITHMETIC, GRADIENTS, Row
from kgen.ops.elementwise.operator import Elementwise, named, plain
from kgen.ops.elementwise.promotion import FLOATING

_EXACT = {"add", "subtract", "multiply", "maximum", "minimum", "negative", "absolute", "square", "clip"}
_EXACT |= {"relu", "relu6", "relu_backward"}
"""What integers stay integers under."""
_BUILT = {
    "add": ("add_v4_f32", "add_v8_i2_f16", "add_v4_r2_x2_f32"),
    "relu": ("relu_v1_f32", "relu_v4_f32", "relu_v8_i2_bf16"),
    "sigmoid": ("sigmoid_v4_i2_f32", "sigmoid_v8_i2_bf16"),
    "gelu": ("gelu_v4_i2_f32", "gelu_v8_i2_f16", "gelu_v8_i2_unaligned_bf16"),
    "swiglu": ("swiglu_v8_i2_bf16",),
}
"""What `kgen build` emits, to be read."""


def _made(name: str, row: Row) -> Elementwise:
    dtypes = (*FLOATING, I32, I64) if name in _EXACT else FLOATING
    return named(name, row.parameters, row.defaults, row.expression, row.summary, dtypes, _BUILT.get(name, ()))


NAMED: dict[str, Elementwise] = {
    name: _made(name, row) for name, row in {**ARITHMETIC, **ACTIVATIONS, **GRADIENTS}.items()
}
NAMED["swish"] = NAMED["silu"]


@functools.cache
def __getattr__(name: str) -> Callable[..., Any]:
    if name not in NAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return plain(NAMED[name], __name__)
