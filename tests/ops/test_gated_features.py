"""Feature maps of linear attention's callers, and the normalizer of single steps, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.gated import features
from kgen.ops.gated.linear_attention import linear_attention, linear_attention_backward
from kgen.ops.gated.steps import linear_attention_step
from tests.gpu.numerics import GRADIENT_SLACK, rms_bar, rms_error

AsNumpy = Callable[[Any], np.ndarray]
Map = Callable[[np.ndarray], np.ndarray]

pytestmark = pytest.mark.usefixtures("shared_cache")

SIZES = (2, 2, 37, 20, 12)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


MAPS: dict[str, tuple[str, str, Map, Map]] = {
    "primitives": ("exp(x / 2)", "exp(x / 2) / 2", lambda x: np.exp(x / 2), lambda x: np.exp(x / 2) / 2),
    "functions that share one": (
        "softplus(x) + sigmoid(x)",
        "s = sigmoid(x); s + s * (1 - s)",
        lambda x: np.logaddexp(0, x) + sigmoid(x),
        lambda x: sigmoid(x) * (2 - sigmoid(x)),
    ),
    "a choice": (
        "1 + x if x > 0 else 1 / (1 - x)",
        "1 if x > 0 else 1 / (1 - x) ** 2",
        lambda x: np.where(x > 0, 1 + x, 1 / (1 - np.minimum(x, 0))),
        lambda x: np.where(x > 0, 1, 1 / (1 - np.minimum(x, 0)) ** 2),
    ),
}


def draw(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype].numpy)


def inputs(dtype: str = "f32") -> tuple[np.ndarray, ...]:
    b, h, t, k, v = SIZES
    return tuple(draw(b, h, t, n, dtype=dtype, seed=at) for at, n in enumerate((k, k, v, v)))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_an_expression_is_computed_as_numpy_would_before_both_passes(
    xp: ModuleType, asnumpy: AsNumpy, name: str, normalize: bool
) -> None:
    expression, slope, f, df = MAPS[name]
    q, k, v, do = inputs()
    initial, normal = draw(2, 2, 20, 12, seed=8), abs(draw(2, 2, 20, seed=9))
    dstate, dnormal = draw(2, 2, 20, 12, seed=10), draw(2, 2, 20, seed=11)
    about: dict[str, Any] = {"scale": 20**-0.5, "initial": initial}
    wide = f(q.astype(np.float64)), f(k.astype(np.float64)), v
    if normalize:
        about |= {"epsilon": 1e-6, "normalizer": normal}
        o, *last = reference.normalized(*wide, **about)
        grads = reference.normalized_backward(do, *wide, **about, dstate=dstate, dnormalizer=dnormal)
    else:
        o, *last = reference.gated(*wide, **about)
        grads = reference.gated_backward(do, *wide, **about, dstate=dstate)
    states = {"initial_state": xp.asarray(initial), "feature_map": expression, "normalize": normalize}
    if normalize:
        states["initial_normalizer"] = xp.asarray(normal)
    on = [xp.asarray(x) for x in (q, k, v)]
    made = linear_attention(*on, **states, return_state=True)
    for x, wanted in zip(made, (o, *last), strict=True):
        assert rms_error(asnumpy(x), wanted) < rms_bar("f32", wanted.size)
    more = {"dnormalizer": xp.asarray(dnormal)} if normalize else {}
    back = linear_attention_backward(
        xp.asarray(do), *on, **states, **more, dstate=xp.asarray(dstate), feature_slope=slope
    )
    expected = [grads["q"] * df(q.astype(np.float64)), grads["k"] * df(k.astype(np.float64)), grads["v"]]
    for x, wanted in zip(back[:3], expected, strict=True):
        assert rms_error(asnumpy(x), wanted) < GRADIENT_SLACK * rms_bar("f32", wanted.size)


def test_sixteen_bits_are_mapped_in_float32(xp: ModuleType, asnumpy: AsNumpy) -> None:
    expression, _, f, _ = MAPS["functions that share one"]
    q, k, v, _ = inputs("bf16")
    o = linear_attention(*map(xp.asarray, (q, k, v)), feature_map=expression)
    wanted = reference.gated(f(q.astype(np.float64)), f(k.astype(np.float64)), v, scale=20**-0.5)[0]
    assert rms_error(asnumpy(o).astype(np.float64), wanted) < rms_bar("bf16", wanted.size)


def test_a_known_map_and_its_expression_give_the_same_bits(xp: ModuleType, asnumpy: AsNumpy) -> None:
    on = [xp.asarray(x) for x in inputs()[:3]]
    expected = asnumpy(linear_attention(*on, feature_map="elu"))
    assert np.array_equal(asnumpy(linear_attention(*on, feature_map="x + 1 if x > 0 else exp(x)")), expected)


@pytest.mark.parametrize("feature_map", [None, "elu", "exp(x / 2)"])
def test_steps_with_states_and_sums_in_place_are_one_call(
    xp: ModuleType, asnumpy: AsNumpy, feature_map: str | None
) -> None:
    q, k, v, _ = (xp.asarray(abs(x)) for x in inputs())
    whole, last, sums = linear_attention(q, k, v, feature_map=feature_map, normalize=True, return_state=True)
    state, normal = xp.zeros((2, 2, 20, 12), "f"), xp.zeros((2, 2, 20), "f")
    steps = []
    for t in range(SIZES[2]):
        of_step = (x[:, :, t] for x in (q, k, v))
        steps.append(asnumpy(linear_attention_step(*of_step, state, feature_map=feature_map, normalizer=normal)))
    assert rms_error(np.stack(steps, 2), asnumpy(whole).astype(np.float64)) < 1e-6
    assert rms_error(asnumpy(state), asnumpy(last).astype(np.float64)) < 1e-6
    assert rms_error(asnumpy(normal), asnumpy(sums).astype(np.float64)) < 1e-6


def test_steps_in_a_pool_divide_by_their_own_sums(xp: ModuleType, asnumpy: AsNumpy) -> None:
    """Several column tiles, fewer heads of keys, features past the threads, strided sums, padding and a wild slot."""
    slots, heads, features, values = 5, 2, 140, 44
    q, v = (xp.asarray(abs(draw(4, heads, n, seed=n))) for n in (features, values))
    k = xp.asarray(abs(draw(4, 1, features, seed=3)))
    state = xp.asarray(abs(draw(slots, heads, features, values, seed=4)))
    normal = xp.asarray(abs(draw(features, heads, slots, seed=5))).T
    before, sums = asnumpy(state).copy(), asnumpy(normal).copy()
    indices = xp.asarray(np.array([3, -1, 0, 9], np.int32))
    o = asnumpy(linear_attention_step(q, k, v, state, normalizer=normal, indices=indices, epsilon=0.5))
    assert not o[1].any()
    assert np.isnan(o[3]).all()
    for token, slot in ((0, 3), (2, 0)):
        every = np.repeat(asnumpy(k)[token : token + 1], heads, 1)
        one = [x[:, :, None] for x in (asnumpy(q)[token : token + 1], every, asnumpy(v)[token : token + 1])]
        about: Any = {"initial": before[slot : slot + 1], "normalizer": sums[slot : slot + 1]}
        wanted, last, z = reference.normalized(*one, scale=features**-0.5, epsilon=0.5, **about)
        assert rms_error(o[token], wanted[0, :, 0]) < rms_bar("f32", 88)
        assert rms_error(asnumpy(state)[slot], last[0]) < 1e-6
        assert rms_error(asnumpy(normal)[slot], z[0]) < 1e-6
    for slot in (1, 2, 4):
        assert np.array_equal(asnumpy(state)[slot], before[slot])
        assert np.array_equal(asnumpy(normal)[slot], sums[slot])


def test_a_feature_is_a_float_whatever_type_its_expression_has() -> None:
    for text in features.code("where(x > 0, 2, 1)", "0")["functions"]:
        assert text.startswith("__device__ __forceinline__ float feature")


def test_a_slope_may_be_the_same_everywhere(xp: ModuleType, asnumpy: AsNumpy) -> None:
    q, k, v, do = map(xp.asarray, inputs())
    made = linear_attention_backward(do, q, k, v, feature_map="2 * x", feature_slope="2")
    plain = linear_attention_backward(do, q, k, v, scale=4 * 20**-0.5)
    for x, wanted in zip(made, plain, strict=True):
        assert rms_error(asnumpy(x), asnumpy(wanted).astype(np.float64)) < 1e-6


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"feature_map": "x + y"}, ValueError, "feature_map is 'x \\+ y'; it takes an expression of x"),
        ({"feature_map": "gelu"}, ValueError, "feature_map is 'gelu'; it takes an expression of x; known ones are"),
        ({"feature_map": "nonsense(x)"}, ValueError, "there is no function 'nonsense'"),
        ({"feature_map": "exp(x"}, ValueError, "cannot be read"),
        ({"feature_map": 3}, TypeError, "feature_map is a int"),
    ],
)
def test_what_is_no_feature_map_is_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    q, k, v, _ = inputs()
    with kgen.backend("cpu"), pytest.raises(error, match=words):
        linear_attention(q, k, v, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"feature_map": "exp(x)"}, "with an expression it takes feature_slope"),
        ({"feature_map": "exp(x)", "feature_slope": "exp(y)"}, "feature_slope is 'exp\\(y\\)'"),
        ({"feature_map": "elu", "feature_slope": "x"}, "the slope of 'elu' is known"),
    ],
)
def test_a_gradient_asks_for_the_derivative(given: dict[str, Any], words: str) -> None:
    q, k, v, do = inputs()
    with kgen.backend("cpu"), pytest.raises(ValueError, match=words):
        linear_attention_backward(do, q, k, v, **given)


@pytest.mark.parametrize(
    ("normalizer", "error", "words"),
    [
        (np.zeros((2, 2, 20)), TypeError, r"normalizer is float64; it takes an array \[N, H, K\] of float32"),
        (np.zeros((2, 2, 19), "f"), ValueError, r"normalizer has shape \(2, 2, 19\)"),
    ],
)
def test_sums_of_another_form_are_refused(normalizer: np.ndarray, error: type[Exception], words: str) -> None:
    q, k, v, _ = (x[:, :, 0] for x in inputs())
    with kgen.backend("cpu"), pytest.raises(error, match=words):
        linear_attention_step(q, k, v, np.zeros((2, 2, 20, 12), "f"), normalizer=normalizer)


def test_explain_tells_the_kernels_of_a_step() -> None:
    q, k, v, _ = (x[:, :, 0] for x in inputs())
    with kgen.backend("cpu"):
        told = kgen.explain(
            linear_attention_step, q, k, v, np.zeros((2, 2, 20, 12), "f"), normalizer=np.ones((2, 2, 20), "f")
        )
    assert "gated_step_normal_f32 on 4 blocks" in told
