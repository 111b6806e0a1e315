"""The article's kernels of GLA and RWKV6 beside float64, and what their form can and cannot do."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kgen
from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.gated.gla import gla, simple_gla
from kgen.ops.gated.rwkv6 import rwkv6
from tests.gpu.numerics import rms_bar, rms_error

AsNumpy = Callable[[Any], np.ndarray]
FORWARD: dict[str, Callable[..., Any]] = {"gla": gla, "rwkv6": rwkv6}

pytestmark = pytest.mark.usefixtures("shared_cache")


def make(
    operator: str, sizes: tuple[int, ...], dtype: str = "f32", gate_dtype: str | None = None, seed: int = 0
) -> tuple[list[np.ndarray], np.ndarray]:
    """q, k, v, g (and u), and a first state."""
    b, h, t, k, v = sizes
    rng = np.random.default_rng(seed)
    shapes = [(b, h, t, k), (b, h, t, k), (b, h, t, v)]
    arrays = [rng.standard_normal(shape).astype(DTYPES[dtype].numpy) for shape in shapes]
    gates = -np.exp(rng.standard_normal((b, h, t, k)))
    arrays.append(gates.astype(DTYPES[gate_dtype or dtype].numpy))
    if operator == "rwkv6":
        arrays.append(rng.standard_normal((h, k)).astype(DTYPES[gate_dtype or dtype].numpy))
    return arrays, rng.standard_normal((b, h, k, v)).astype(np.float32)


def check(xp: ModuleType, asnumpy: AsNumpy, operator: str, sizes: tuple[int, ...], **about: Any) -> None:
    arrays, initial = make(operator, sizes, **about)
    expected, last = reference.gated(*arrays, scale=sizes[3] ** -0.5, initial=initial)
    out = xp.full(expected.shape, np.nan, dtype=arrays[0].dtype)
    on = [xp.asarray(x) for x in arrays]
    given = {"initial_state": xp.asarray(initial), "return_state": True, "out": out}
    o, state = FORWARD[operator](*on, mode="article", **given)
    assert o is out
    # Errors are measured against sums of so many terms with any signs: a lone result may be next to nothing.
    scale, *squares = (np.square(x.astype(np.float64)) for x in (np.float64(sizes[3] ** -0.5), *arrays, initial))
    squares[3] = 2 * arrays[3].astype(np.float64)
    usual = reference.gated(*squares[:-1], scale=float(scale), initial=squares[-1])
    dtype = about.get("dtype", "f32")
    # The article rounds the decayed queries and keys of GLA and its state to the inputs' type, beside the result.
    roundings = 1 if dtype == "f32" or operator == "rwkv6" else 4**0.5
    bars = roundings * rms_bar(dtype, o.size), rms_bar(dtype if operator == "gla" else "f32", state.size)
    for got, want, squared, bar in zip((o, state), (expected, last), usual, bars, strict=True):
        error = rms_error(asnumpy(got).astype(np.float64), want)
        assert error * min(1, np.sqrt(np.mean(want**2) / np.mean(squared))) < bar


@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize(("dtype", "gate_dtype"), [("f32", "f32"), ("bf16", "bf16"), ("f16", "f32")])
def test_results_and_states_are_those_of_float64(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str, gate_dtype: str
) -> None:
    check(xp, asnumpy, operator, (2, 2, 37, 68, 36), dtype=dtype, gate_dtype=gate_dtype)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    operator=st.sampled_from(sorted(FORWARD)),
    sizes=st.tuples(*(st.integers(1, n) for n in (2, 3, 50, 140, 140))),
    seed=st.integers(0, 99),
)
@example(operator="gla", sizes=(1, 1, 1, 132, 1), seed=1)  # 132 terms of about 0.1 make 0.03
def test_any_size_will_do(xp: ModuleType, asnumpy: AsNumpy, operator: str, sizes: tuple[int, ...], seed: int) -> None:
    check(xp, asnumpy, operator, sizes, seed=seed)


@pytest.mark.parametrize("operator", FORWARD)
def test_any_strides_and_either_layout_give_the_same_bits(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    arrays, _ = make(operator, (2, 3, 21, 20, 12))
    expected = asnumpy(FORWARD[operator](*map(xp.asarray, arrays), mode="article"))
    turned = [xp.asarray(np.ascontiguousarray(x.T)).T for x in arrays]
    assert np.array_equal(asnumpy(FORWARD[operator](*turned, mode="article")), expected)
    other = [xp.asarray(x.swapaxes(1, 2).copy() if x.ndim == 4 else x) for x in arrays]
    o = FORWARD[operator](*other, mode="article", layout="bthd")
    assert np.array_equal(asnumpy(o).swapaxes(1, 2), expected)


@pytest.mark.parametrize("operator", FORWARD)
def test_halves_that_are_whole_chunks_give_the_bits_of_one_call(
    xp: ModuleType, asnumpy: AsNumpy, operator: str
) -> None:
    arrays, _ = make(operator, (1, 2, 40, 20, 12))
    on = [xp.asarray(x) for x in arrays]
    whole, last = FORWARD[operator](*on, mode="article", return_state=True)
    parts, state = [], None
    for part in (slice(0, 16), slice(16, None)):
        half = [x[:, :, part] if x.ndim == 4 else x for x in on]
        o, state = FORWARD[operator](*half, mode="article", return_state=True, initial_state=state)
        parts.append(asnumpy(o))
    assert np.array_equal(np.concatenate(parts, 2), asnumpy(whole))
    assert np.array_equal(asnumpy(state), asnumpy(last))


def test_gates_of_minus_1000_cost_digits_in_glas_form_and_none_in_rwkv6s(xp: ModuleType, asnumpy: AsNumpy) -> None:
    (q, k, v, _, u), _ = make("rwkv6", (1, 2, 50, 36, 20))
    g = np.where(np.random.default_rng(1).random(k.shape) < 0.1, -1000, -0.01).astype(np.float32)
    errors = {}
    for name, arrays in {"gla": (q, k, v, g), "rwkv6": (q, k, v, g, u)}.items():
        o = FORWARD[name](*map(xp.asarray, arrays), mode="article", scale=1)
        errors[name] = rms_error(asnumpy(o), reference.gated(*arrays, scale=1)[0])
    assert errors["rwkv6"] < rms_bar("f32", v.size)
    assert rms_bar("f32", v.size) < errors["gla"] < 16 * 1000 * 2**-24


@pytest.mark.parametrize(
    ("options", "words"),
    [({"reverse": True}, "takes no reverse"), ({"cu_seqlens": np.array([0, 4], np.int32)}, "takes no cu_seqlens")],
)
def test_what_the_article_lacks_is_refused(options: dict[str, Any], words: str) -> None:
    arrays, _ = make("gla", (1, 2, 4, 8, 8))
    with kgen.backend("cpu"), pytest.raises(ValueError, match=words):
        gla(*arrays, mode="article", **options)


def test_fewer_heads_and_other_operators_are_refused() -> None:
    (q, k, v, g), _ = make("gla", (1, 2, 4, 8, 8))
    with kgen.backend("cpu"):
        with pytest.raises(ValueError, match="gla: mode='article' takes as many heads of each array; v has 1"):
            gla(q, k, v[:, :1], g, mode="article")
        with pytest.raises(ValueError, match="simple_gla: mode='article' exists for gla and rwkv6"):
            simple_gla(q, k, v, g[..., 0], mode="article")
