"""The functions that have a name: NumPy's arithmetic, the activations of neural networks, and their gradients.

Each is made of a row of kgen/ops/elementwise/functions.py: an `Elementwise`, which `kgen.relu(x)` and
`kgen.add(x1, x2, out=...)` call as plain functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kgen.dtypes import I32, I64
from kgen.ops.elementwise.functions import ACTIVATIONS, ARITHMETIC, GRADIENTS, Row
from kgen.ops.elementwise.operator import OPTIONS, Elementwise, named
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
def plain(operator: Elementwise) -> Callable[..., Any]:
    """The operator as a plain function of its operands, which Python calls in less time than an object.

    That of `gelu` is

        def gelu(x, *, out=None, dtype=None, algorithm=None, stream=None):
            return call((x,), (out,), (dtype, algorithm), stream)[0]
    """
    name, names, defaults = operator.__name__, operator.function.parameters, operator.defaults
    parameters = [f"{p}={defaults[p]!r}" if p in defaults else p for p in names]
    options = [f"{option}=None" for option in OPTIONS]
    text = f"""
def {name}({", ".join([*parameters, "*", *options])}):
    return call(({", ".join(names)},), (out,), (dtype, algorithm), stream)[0]
"""
    known: dict[str, Any] = {"call": operator.call, "__name__": __name__}
    exec(text, known)
    function: Callable[..., Any] = known[name]
    function.__doc__ = operator.__doc__
    function.__dict__.update(explain=operator.explain, workspace=operator.workspace)
    return function


def __getattr__(name: str) -> Any:
    if name not in NAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return plain(NAMED[name])
