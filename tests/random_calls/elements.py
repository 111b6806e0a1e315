"""Functions of each element, and casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kgen.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from kgen.ops.elementwise.activations import NAMED
from tests.formulas import FORMULAS
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_bits, check_close, check_equal
from tests.random_calls.draw import Array

ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negative": np.negative,
    "absolute": np.abs,
    "square": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
}
FUNCTIONS: dict[str, Callable[..., Array]] = {**ARITHMETIC, **FORMULAS, "swish": FORMULAS["silu"]}

MAGNIFIES = {"gelu_tanh": 4, "gelu_tanh_backward": 4, "gelu_backward": 2, "silu_backward": 2}
"""Bars of what exponentials of sums are in, whose roundings they magnify, and of what passes through 0."""


@calls(*FUNCTIONS, weight=2)
def named(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape()
    arrays = [2 * call.normal(shape)]
    for _ in range(NAMED[operator]._arrays - 1):
        arrays.append(call.normal(call.broadcasts_to(shape)))
    if operator in ("sqrt", "log"):
        arrays[0] = abs(arrays[0]) + np.float32(0.01)
    if operator == "divide":
        arrays[1] = abs(arrays[1]) + np.float32(0.1)
    if operator in ARITHMETIC:
        arrays[0] = call.special(arrays[0])
    first = call.in_place(arrays[0], dtype) if call.chance(0.1) else call.array(arrays[0], dtype)
    given = [first, *(call.array(x, dtype) for x in arrays[1:])]
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[operator](*(x.exact for x in given))
    result = call(operator, *given, **call.results(first, dtype))
    check_close(result, expected, dtype, slack=MAGNIFIES.get(operator, 1))


@calls("clip", weight=0.1)
def clip(call: Call, operator: str) -> None:
    dtype, shape = call.dtype(), call.shape()
    x = call.array(call.normal(shape), dtype)
    low, high = call.pick(-1.5, -0.5), call.pick(0.5, 1.0)  # which all dtypes have
    result = call(operator, x, low, high, **call.maybe_out(shape, dtype))
    check_equal(result, x.exact.clip(low, high).astype(dtype.numpy), dtype)


@calls("cast", weight=0.3)
def cast(call: Call, operator: str) -> None:
    """Rounded to nearest even; 8-bit floats saturate."""
    source, target = call.pick(F32, F16, BF16), call.pick(F32, F16, BF16, E4M3, E5M2)
    x = call.array(call.normal(call.shape()) * call.pick(1, 1000), source)
    expected = _cast(x.values.astype(np.float32), target)
    check_bits(call(operator, x, target.name), expected, target)


def _cast(x: Array, target: DType) -> Array:
    if target in (E4M3, E5M2):
        most = np.float32({E4M3: 448, E5M2: 57344}[target])
        x = x.clip(-most, most)
    with np.errstate(all="ignore"):
        return x.astype(target.numpy)
