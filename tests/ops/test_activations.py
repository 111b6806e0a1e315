"""The named functions against their textbook formulas in float64, on the same rounded inputs."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import kgen
from kgen.ops.elementwise.activations import NAMED
from kgen.ops.elementwise.functions import ACTIVATIONS, ARITHMETIC, GRADIENTS
from tests.formulas import FORMULAS, inner, sigmoid

CANCELS = {"silu_backward", "gelu_backward", "gelu_tanh_backward", "logsigmoid", "tanh_backward"}
CANCELS |= {"sigmoid_backward", "hardswish_backward"}
"""Where a result passes through 0 between terms that do not: exact to a part of those."""

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
KINDS = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ROUNDING}


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    with kgen.backend("cpu"):
        yield


def numbers(count, kind, seed=0):
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(3000), random.standard_normal(1000) * 10, random.uniform(-0.01, 0.01, 500)]
    x = np.concatenate(drawn).astype(kind)
    return [random.permutation(x) for _ in range(count)]


def errors(name, kind):
    formula = FORMULAS[name]
    operands = numbers(NAMED[name]._arrays, kind)
    with np.errstate(all="ignore"):
        exact = formula(*(x.astype("d") for x in operands))
    got = NAMED[name](*operands)
    assert got.dtype == kind
    wanted = exact.astype(kind).astype("d")
    smallest = float(ml_dtypes.finfo(kind).smallest_normal)
    near = abs(exact) > smallest * 4
    size = abs(exact)
    if name in CANCELS:
        size = np.maximum(size, np.maximum(abs(operands[0].astype("d")), 1))
    if name == "gelu_tanh":  # e^-u is as exact as u, whose rounding it magnifies by u
        size = size * (1 + 2 * abs(inner(operands[0].astype("d"))))
    return (abs(got.astype("d") - exact) / np.where(near, size, 1))[near], np.array_equal(
        np.isnan(got), np.isnan(wanted)
    )


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_float32_is_right_to_a_few_units_in_the_last_place(name):
    found, same_nans = errors(name, KINDS["float32"])
    assert same_nans
    bar = {"gelu": 8, "geglu": 8}.get(name, 6)
    assert found.max() <= bar * ROUNDING["float32"], found.max() / ROUNDING["float32"]
    assert math.sqrt((found**2).mean()) <= 2 * ROUNDING["float32"]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["relu", "sigmoid", "gelu", "gelu_tanh", "silu", "mish", "tanh", "elu", "softplus", "swiglu"]
)
def test_halves_are_off_by_hardly_more_than_their_rounding(name, kind):
    found, same_nans = errors(name, KINDS[kind])
    assert same_nans and found.max() <= (1.05 if kind == "float16" else 1.01) * ROUNDING[kind]


@pytest.mark.parametrize("name", ["gelu", "sigmoid", "mish"])
def test_float64_is_computed_in_double(name):
    found, same_nans = errors(name, KINDS["float64"])
    assert same_nans and found.max() <= 2000 * ROUNDING["float64"]  # of our reference: its logaddexp and erfc cancel


def test_sigmoid_is_within_two_units_in_the_last_place_down_to_the_denormals():
    x = np.linspace(-103, 103, 20001).astype("f")
    got, exact = NAMED["sigmoid"](x), sigmoid(x.astype("d"))
    assert (abs(got - exact) / np.spacing(exact.astype("f"))).max() <= 2
    assert 0 < got[x < -90].min() < 1e-40
    np.testing.assert_array_equal(NAMED["safe_sigmoid"](x), got)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-45, -1e-45], "f")


@pytest.mark.parametrize("name", sorted(ACTIVATIONS.keys() - {"glu", "swiglu", "geglu", "reglu"}))
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_nan_stays_and_infinities_have_the_limits(name, kind):
    x = SPECIAL.astype(KINDS[kind])
    with np.errstate(all="ignore"):
        exact = FORMULAS[name](x.astype("d"))
    if name in ("gelu", "gelu_tanh", "silu", "mish"):
        exact[2] = 0  # where the formula says -inf times 0
    got = NAMED[name](x).astype("d")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    finite = np.isfinite(exact) & (abs(exact) < 3.3e38)
    np.testing.assert_allclose(got[finite], exact[finite], rtol=2 * 2.0**-8, atol=1e-44)
    np.testing.assert_array_equal(got[np.isinf(exact)], exact[np.isinf(exact)])


def test_parameters_may_be_chosen():
    x = np.linspace(-4, 4, 101, dtype="f")
    np.testing.assert_allclose(NAMED["leaky_relu"](x, negative_slope=0.2), np.where(x >= 0, x, np.float32(0.2) * x))
    np.testing.assert_allclose(NAMED["elu"](x, 2), np.where(x > 0, x, 2 * np.expm1(x)), rtol=1e-6)
    np.testing.assert_allclose(NAMED["softplus"](x, beta=3.0), np.log1p(np.exp(3 * x)) / 3, rtol=2e-6)
    with pytest.raises(TypeError, match="negative_slope"):
        NAMED["leaky_relu"](x, negative_slope=x)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
def test_arithmetic_is_numpys_exactly_with_every_special_value(name, kind):
    with np.errstate(all="ignore"):
        values = np.concatenate([SPECIAL, [1, -2, 6e4, -65504, 1e-7]]).astype(KINDS[kind])
        x, y = (a.ravel() for a in np.meshgrid(values, values))
        np.testing.assert_array_equal(NAMED[name](x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64"])
def test_integers_have_relu_and_clip(kind):
    x = np.arange(-100, 100).astype(kind)
    np.testing.assert_array_equal(NAMED["relu"](x), np.maximum(x, 0))
    np.testing.assert_array_equal(NAMED["clip"](x, 3, 50), np.clip(x, 3, 50))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("shape", [(6,), (0, 3), ()], ids=str)
def test_a_limit_beyond_what_integers_hold_does_nothing_and_one_that_nothing_meets_is_numpys_error(kind, shape):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.resize(np.array([low, high, 1, 2, 100, low + 1], object), shape).astype(kind)
    for limits in ((low - 1, 50), (3, high + 1), (low - 1, high + 1), (-(2**70), None), (None, 2**70), (low, high)):
        got, want = kgen.clip(x, *limits), np.clip(x, *limits)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got, want, err_msg=str(limits))
    for limits in ((high + 1, high + 2), (low - 2, low - 1), (high + 1, None), (None, low - 1)):
        for clip in (np.clip, kgen.clip):
            with pytest.raises(OverflowError):
                clip(x, *limits)


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int64"])
def test_clip_takes_one_limit_or_none(kind):
    x = np.array([-5, 3, 0, 7, 100, -100], kind).reshape(2, 3)
    x = np.where(x == 7, np.nan, x).astype(kind) if kind.startswith("float") else x
    for low, high in ((None, 4), (-2, None), (None, None), (x[0], None), (None, x[:, :1]), (None, np.float64(0.5))):
        want, got = np.clip(x, low, high), kgen.clip(x, low, high)
        assert got.dtype == want.dtype and got is not x
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(kgen.clip(x, high=4), np.clip(x, None, 4))
    assert kgen.clip(x, -2, out=x) is x and np.nanmin(x) == -2
    assert kgen.explain(kgen.clip, x, None, x) != kgen.explain(kgen.clip, x, x, None)
    with pytest.raises(TypeError, match="clip: x is missing"):
        kgen.clip(None, 1, 2)


def test_every_function_has_a_formula_here_or_is_numpys():
    assert set(ACTIVATIONS) | set(GRADIENTS) == set(FORMULAS)
    assert all(hasattr(np, name) for name in ARITHMETIC)


@pytest.mark.parametrize("name", sorted({**ACTIVATIONS, **GRADIENTS, **ARITHMETIC}))
def test_every_function_has_a_kernel_of_its_name(name):
    kernel = NAMED[name]._named
    assert kernel is not None and kernel.name == name
    spec = kernel.spec(VEC=1, dtype="f32")
    assert f"out = {NAMED[name].function.expression.split(';')[-1].strip()}" in kgen.render(spec).text
