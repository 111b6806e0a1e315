"""Causal linear attention without gates, its states, and its gradients."""

from __future__ import annotations

import math

import numpy as np

from kgen import reference
from kgen.dtypes import BF16, F16, F32, DType
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_rms, rms_of
from tests.random_calls.draw import Array
from tests.random_calls.views import View

OUTPUT = {F32: 4e-6, F16: 1.2e-3, BF16: 4e-3}
"""Bars of outputs. Beside their rounding, few of them are sums that cancel: 16-bit chunks keep scores in 16 bits."""

GRADIENT_SLACK = 1.6

STATE = 4e-6
"""Of states: float32 whatever the inputs."""


def features(call: Call) -> int:
    """Of a head: what tiles take, and what leaves them ragged."""
    return min(call.pick(16, 32, 64, 64, 128, 128, 256, call.between(1, 140), call.pick(96, 192, 100)), call.most // 64)


def of_one_step(width: int, *factors: Array) -> float:
    """The RMS of a product that is summed over so many features, as one time step's output is of q, k and v."""
    return math.sqrt(width) * math.prod(map(rms_of, factors))


@calls("causal_dot_product", "causal_dot_product_backward", weight=2)
def causal(call: Call, operator: str) -> None:
    dtype, outer, e, m = sizes(call)
    q, k, v = operands(call, outer, (e, e, m), dtype)
    reverse = call.chance(0.3)
    options = {"reverse": reverse}
    exact = (q.exact, k.exact, v.exact)
    if operator == "causal_dot_product":
        result = call(operator, q, k, v, **options, **call.maybe_out((*outer, m), dtype))
        expected = reference.causal_dot_product(*exact, reverse=reverse)
        check_rms(result, expected, dtype, OUTPUT[dtype], least=of_one_step(e, *exact))
        return
    do = call.array(call.normal((*outer, m)), dtype)
    made = call(operator, do, q, k, v, **options)
    wanted = reference.causal_dot_product_backward(do.exact, *exact, reverse=reverse)
    for name, result, expected in zip("qkv", made, wanted, strict=True):
        others = [x for letter, x in zip("qkv", exact) if letter != name]
        least = of_one_step(e if name == "v" else m, do.exact, *others)
        check_rms(result, expected, dtype, GRADIENT_SLACK * OUTPUT[dtype], f"d{name}", least=least)


@calls("linear_state", weight=0.5)
def linear_state(call: Call, operator: str) -> None:
    dtype, outer, e, m = sizes(call)
    k, v = operands(call, outer, (e, m), dtype)
    segment = call.pick(None, None, 64, 37)
    expected = reference.linear_state(k.exact, v.exact, segment=segment)
    check_rms(call(operator, k, v, segment=segment), expected, F32, STATE)


@calls("query_state", weight=0.5)
def query_state(call: Call, operator: str) -> None:
    dtype, outer, e, m = sizes(call)
    (q,) = operands(call, outer, (e,), dtype)
    state = call.array(call.normal((*outer[:2], e, m)), F32)
    expected = reference.query_state(q.exact, state.exact)
    result = call(operator, q, state, **call.maybe_out((*outer, m), dtype))
    check_rms(result, expected, dtype, OUTPUT[dtype], least=of_one_step(e, q.exact, state.exact))


def sizes(call: Call) -> tuple[DType, tuple[int, int, int], int, int]:
    """The dtype, [B, H, T], and the features of keys and values."""
    e, m = features(call), features(call)
    room = max(1, call.most // max(e, m))
    time = min(call.pick(1, 31, 64, 65, 127, 300, call.between(1, 700)), room)
    heads = max(1, min(call.pick(1, 3, 8), room // time))
    batch = max(1, min(call.pick(1, 2), room // (time * heads)))
    return call.dtype(), (batch, heads, time), e, m


def operands(call: Call, outer: tuple[int, int, int], widths: tuple[int, ...], dtype: DType) -> list[View]:
    """Such that products of two rows are of size one."""
    return [call.array(call.normal((*outer, width)) * np.float32(width**-0.25), dtype) for width in widths]
