"""Linear attention, GLA and RWKV6 beside float64, forward and backward, on gates that are soft, hard and gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.gated.gla import gla, gla_backward, simple_gla, simple_gla_backward
from kgen.ops.gated.linear_attention import linear_attention, linear_attention_backward
from kgen.ops.gated.rwkv6 import rwkv6, rwkv6_backward
from tests.gpu.numerics import GRADIENT_SLACK, rms_bar, rms_error

AsNumpy = Callable[[Any], np.ndarray]

OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear_attention": (linear_attention, linear_attention_backward),
    "simple_gla": (simple_gla, simple_gla_backward),
    "gla": (gla, gla_backward),
    "rwkv6": (rwkv6, rwkv6_backward),
}
FORWARD = {name: forward for name, (forward, _) in OPERATORS.items()}
GATED = tuple(OPERATORS)[1:]

pytestmark = pytest.mark.usefixtures("shared_cache")

examples = settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _on_a_gpu(*values: Any) -> Any:
    """A parameter for machines with a GPU only: it needs kernels of its own, and they take long on the executor."""
    return pytest.param(*values, marks=pytest.mark.gpu)


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.negative(np.logaddexp(0, -x))


GATES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "as GLA begins": lambda rng, shape: log_sigmoid(rng.standard_normal(shape)) / 16,
    "as RWKV6 begins": lambda rng, shape: -np.exp(rng.standard_normal(shape)),
    "wide": lambda rng, shape: -np.exp(2 * rng.standard_normal(shape)),
    "strong": lambda rng, shape: log_sigmoid(rng.random(shape)) / 0.1,
    "saturated": lambda rng, shape: rng.uniform(-14, -8, shape),
    "sometimes -50": lambda rng, shape: np.where(rng.random(shape) < 0.1, -50, -0.01),
    "sometimes -1000": lambda rng, shape: np.where(rng.random(shape) < 0.1, -1000, -0.01),
    "hard resets": lambda rng, shape: np.where(rng.random(shape) < 0.1, -np.inf, -0.01),
    "zero": lambda rng, shape: np.zeros(shape),
    "denormal": lambda rng, shape: np.full(shape, -1e-40),
}


@dataclass
class Case:
    """A problem with float64's answers: arrays [B, H, T, ...] by name, on the host, in their dtype."""

    operator: str
    arrays: dict[str, np.ndarray]
    do: np.ndarray
    initial: np.ndarray
    dstate: np.ndarray
    scale: float
    reverse: bool

    def expected(self) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        with np.errstate(under="ignore"):
            common: Any = {"scale": self.scale, "initial": self.initial, "reverse": self.reverse}
            o, state = reference.gated(*self.arrays.values(), **common)
            grads = reference.gated_backward(self.do, *self.arrays.values(), dstate=self.dstate, **common)
        return o, state, grads


def make(
    operator: str,
    sizes: tuple[int, int, int, int, int],
    dtype: str = "f32",
    *,
    gates: str = "as RWKV6 begins",
    gate_dtype: str | None = None,
    reverse: bool = False,
    seed: int = 0,
) -> Case:
    b, h, t, k, v = sizes
    rng = np.random.default_rng(seed)

    def draw(*shape: int, kind: str = dtype) -> np.ndarray:
        return rng.standard_normal(shape).astype(DTYPES[kind].numpy)

    arrays = {"q": draw(b, h, t, k), "k": draw(b, h, t, k), "v": draw(b, h, t, v)}
    if operator != "linear_attention":
        shape = (b, h, t) if operator == "simple_gla" else (b, h, t, k)
        arrays["g"] = GATES[gates](rng, shape).astype(DTYPES[gate_dtype or dtype].numpy)
    if operator == "rwkv6":
        arrays["u"] = draw(h, k, kind=gate_dtype or dtype)
    states = (draw(b, h, k, v, kind="f32"), draw(b, h, k, v, kind="f32"))
    return Case(operator, arrays, draw(b, h, t, v), *states, k**-0.5, reverse)


def check(xp: ModuleType, asnumpy: AsNumpy, case: Case, dtype: str = "f32") -> None:
    """Both passes, step by step, every result and gradient."""
    forward, backward = OPERATORS[case.operator]
    o, state, expected = case.expected()
    on = {name: xp.asarray(x) for name, x in case.arrays.items()}
    initial, dstate, do = (xp.asarray(x) for x in (case.initial, case.dstate, case.do))
    out = xp.full(o.shape, np.nan, dtype=case.do.dtype)
    result, last = forward(
        *on.values(),
        initial_state=initial,
        return_state=True,
        reverse=case.reverse,
        scale=case.scale,
        mode="recurrent",
        out=out,
    )
    assert result is out
    errors = {"o": (asnumpy(out), o, 1.0), "state": (asnumpy(last), state, None)}
    made = backward(
        do,
        *on.values(),
        initial_state=initial,
        dstate=dstate,
        reverse=case.reverse,
        scale=case.scale,
        mode="recurrent",
    )
    for name, x in zip([*case.arrays, "initial"], made, strict=True):
        like = case.arrays.get(name, case.initial)
        assert x.dtype == like.dtype
        errors["d" + name] = (asnumpy(x), expected[name], GRADIENT_SLACK)
    for name, (x, wanted, slack) in errors.items():
        # States are float32 whatever the inputs are.
        kind = "f32" if slack is None or x.dtype == np.float32 else dtype
        bar = (slack or 1.0) * rms_bar(kind, x.size)
        if name == "dg" and x.dtype != np.float32:
            bar = max(bar, 1.5 * bar)  # 3e-3 in bfloat16
        error = rms_error(x.astype(np.float64), wanted) if wanted.size else 0.0
        assert error < bar, f"{name}: {error:.2e}, the bar is {bar:.2e}"


SMALL = (2, 2, 37, 20, 12)


@pytest.mark.parametrize("operator", OPERATORS)
def test_results_and_gradients_are_those_of_float64(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    check(xp, asnumpy, make(operator, SMALL))


@pytest.mark.parametrize(
    ("operator", "dtype", "gate_dtype"),
    [("gla", "bf16", "bf16"), ("rwkv6", "f16", "f32"), _on_a_gpu("simple_gla", "bf16", "f32")],
)
def test_sixteen_bit_inputs_are_summed_in_float32(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str, gate_dtype: str
) -> None:
    check(xp, asnumpy, make(operator, SMALL, dtype, gate_dtype=gate_dtype), dtype)


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", GATED)
def test_every_kind_of_gate_is_exact(xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str) -> None:
    check(xp, asnumpy, make(operator, SMALL, gates=gates, seed=3))


@pytest.mark.parametrize("operator", ["gla", "rwkv6"])
def test_without_a_first_state_the_first_gate_has_no_gradient_to_speak_of(
    xp: ModuleType, asnumpy: AsNumpy, operator: str
) -> None:
    case = make(operator, SMALL, gates="saturated")
    case.initial[...] = 0
    case.dstate[...] = 0
    *_, expected = case.expected()
    made = OPERATORS[operator][1](xp.asarray(case.do), *map(xp.asarray, case.arrays.values()), scale=case.scale)
    dg = asnumpy(made[3]).astype(np.float64)
    assert rms_error(dg, expected["g"]) < 1.5 * rms_bar("f32", dg.size)
    assert np.abs(dg[:, :, 0]).max() < 1e-5 * np.abs(expected["g"]).max()


@pytest.mark.parametrize("operator", ["gla", "rwkv6"])
def test_reverse_is_the_same_on_a_mirrored_sequence(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    check(xp, asnumpy, make(operator, SMALL, reverse=True))


@pytest.mark.parametrize("operator", ["gla", "rwkv6"])
def test_two_halves_with_the_state_passed_on_are_one_call(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    forward, backward = OPERATORS[operator]
    case = make(operator, SMALL)
    on = [xp.asarray(x) for x in case.arrays.values()]
    do, initial, dstate = (xp.asarray(x) for x in (case.do, case.initial, case.dstate))
    halves = [[x if x.ndim == 2 else x[:, :, part] for x in on] for part in (slice(0, 16), slice(16, None))]
    whole, last = forward(*on, initial_state=initial, return_state=True)
    first, middle = forward(*halves[0], initial_state=initial, return_state=True)
    second, end = forward(*halves[1], initial_state=middle, return_state=True)
    assert np.array_equal(asnumpy(whole), np.concatenate([asnumpy(first), asnumpy(second)], 2))
    assert np.array_equal(asnumpy(last), asnumpy(end))
    both = backward(do, *on, initial_state=initial, dstate=dstate)
    later = backward(do[:, :, 16:], *halves[1], initial_state=middle, dstate=dstate)
    earlier = backward(do[:, :, :16], *halves[0], initial_state=initial, dstate=later[-1])
    for name, one, a, b in zip(case.arrays, both, earlier, later, strict=False):
        joined = asnumpy(a) + asnumpy(b) if name == "u" else np.concatenate([asnumpy(a), asnumpy(b)], 2)
        assert rms_error(joined, asnumpy(one).astype(np.float64)) < 1e-6, name


@pytest.mark.parametrize(
    ("operator", "index"),
    [("gla", np.int32), ("rwkv6", np.int32), _on_a_gpu("gla", np.int64), _on_a_gpu("simple_gla", np.int32)],
)
def test_sequences_one_after_the_other_are_as_good_as_apart(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, index: type
) -> None:
    forward, backward = OPERATORS[operator]
    ends = [0, 0, 5, 21, 21, 37]
    case = make(operator, (1, 2, 37, 20, 12))
    rng = np.random.default_rng(5)
    initial, dstate = (rng.standard_normal((5, 2, 20, 12)).astype("f") for _ in range(2))
    on = [xp.asarray(x) for x in case.arrays.values()]
    offsets = xp.asarray(np.array(ends, index))
    o, last = forward(*on, initial_state=xp.asarray(initial), return_state=True, cu_seqlens=offsets)
    made = backward(
        xp.asarray(case.do), *on, initial_state=xp.asarray(initial), dstate=xp.asarray(dstate), cu_seqlens=offsets
    )
    bonus = np.zeros((2, 20))
    for n, (begin, end) in enumerate(pairwise(ends)):
        part = {name: x if name == "u" else x[:, :, begin:end] for name, x in case.arrays.items()}
        alone = Case(operator, part, case.do[:, :, begin:end], initial[n : n + 1], dstate[n : n + 1], case.scale, False)
        expected, state, grads = alone.expected()
        assert rms_error(asnumpy(last)[n : n + 1], state) < rms_bar("f32", 1)
        assert rms_error(asnumpy(made[-1])[n : n + 1], grads["initial"]) < rms_bar("f32", 1)
        bonus += grads["u"]
        if begin < end:
            assert rms_error(asnumpy(o)[:, :, begin:end], expected) < rms_bar("f32", 1)
            for name, x in zip(case.arrays, made, strict=False):
                if name != "u":
                    assert rms_error(asnumpy(x)[:, :, begin:end], grads[name]) < 2 * rms_bar("f32", 1), name
    if operator == "rwkv6":
        assert rms_error(asnumpy(made[4]), bonus) < 2 * rms_bar("f32", 1)


@pytest.mark.parametrize(
    ("operator", "heads"),
    [("gla", (4, 2, 2, 2)), ("gla", (1, 1, 4, 1)), ("simple_gla", (2, 4, 4, 1)), ("rwkv6", (4, 1, 2, 4))],
)
def test_heads_that_share_an_input_are_as_good_as_a_repeated_one(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, heads: tuple[int, int, int, int]
) -> None:
    forward, backward = OPERATORS[operator]
    case = make(operator, (2, 4, 19, 20, 12))
    count = dict(zip(("q", "k", "v", "g"), heads, strict=True))
    few = {name: x if name == "u" else x[:, : count[name]].copy() for name, x in case.arrays.items()}
    case.arrays = {name: x if name == "u" else np.repeat(x, 4 // x.shape[1], 1) for name, x in few.items()}
    o, state, grads = case.expected()
    on = [xp.asarray(x) for x in few.values()]
    initial = xp.asarray(case.initial)
    result, last = forward(*on, initial_state=initial, return_state=True)
    assert rms_error(asnumpy(result), o) < rms_bar("f32", o.size)
    assert rms_error(asnumpy(last), state) < rms_bar("f32", state.size)
    made = backward(xp.asarray(case.do), *on, initial_state=initial, dstate=xp.asarray(case.dstate))
    for name, x in zip(few, made, strict=False):
        wanted = grads[name]
        if name != "u":
            wanted = wanted.reshape(2, count[name], -1, *wanted.shape[2:]).sum(2)
        assert rms_error(asnumpy(x), wanted) < 2 * rms_bar("f32", x.size), name


def test_any_strides_and_both_layouts_are_taken(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", SMALL)
    on = [xp.asarray(x) for x in case.arrays.values()]
    do, initial, dstate = (xp.asarray(x) for x in (case.do, case.initial, case.dstate))
    o, last = gla(*on, initial_state=initial, return_state=True)
    made = gla_backward(do, *on, initial_state=initial, dstate=dstate)

    def strange(x: Any) -> Any:
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1] + 3), np.nan, dtype=x.dtype)[..., 1:-2:2]
        wide[...] = x
        return wide[:, ::-1, ::-1][:, ::-1, ::-1]

    def turned(x: Any) -> Any:
        return xp.ascontiguousarray(x.swapaxes(1, 2))

    out = strange(xp.zeros_like(o))
    again, end = gla(*map(strange, on), initial_state=strange(initial), return_state=True, out=out)
    assert again is out and np.array_equal(asnumpy(end), asnumpy(last))
    # Loads of another width add up a token's own part in another order.
    assert rms_error(asnumpy(out), asnumpy(o).astype(np.float64)) < 2e-7
    seq_first = gla(*map(turned, on), initial_state=initial.swapaxes(0, 1).copy().swapaxes(0, 1), layout="bthd")
    assert np.array_equal(asnumpy(seq_first), asnumpy(o).swapaxes(1, 2))
    states = {"initial_state": strange(initial), "dstate": strange(dstate)}
    for a, b in zip(made, gla_backward(strange(do), *map(strange, on), **states), strict=True):
        assert rms_error(asnumpy(b), asnumpy(a).astype(np.float64)) < 1e-6
    states = {"initial_state": initial, "dstate": dstate}
    for a, b in zip(made[:-1], gla_backward(turned(do), *map(turned, on), layout="bthd", **states), strict=False):
        assert np.array_equal(asnumpy(a), asnumpy(b).swapaxes(1, 2))


def test_broadcast_gates_are_taken_as_they_are(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("simple_gla", SMALL)
    q, k, v, g = (xp.asarray(x) for x in case.arrays.values())
    steady = xp.broadcast_to(g[:1, :, :1], g.shape)
    assert np.array_equal(asnumpy(simple_gla(q, k, v, steady)), asnumpy(simple_gla(q, k, v, steady.copy())))


@pytest.mark.gpu  # every example is another tile, and a second or more of the compiler where there is none
@examples
@given(
    st.sampled_from(list(OPERATORS)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 40), st.integers(1, 40), st.integers(1, 40)),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_sizes_are_right(operator: str, sizes: tuple[int, int, int, int, int], reverse: bool, seed: int) -> None:
    import cupy

    check(cupy, cupy.asnumpy, make(operator, sizes, reverse=reverse, seed=seed))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "sizes", "dtype"),
    [
        ("gla", (2, 66, 65, 128, 128), "bf16"),
        ("rwkv6", (1, 16, 300, 128, 128), "f32"),
        ("gla", (1, 3, 40, 512, 512), "f16"),
        ("simple_gla", (1, 2, 33, 100, 153), "bf16"),
        ("linear_attention", (1, 2, 40, 256, 320), "f32"),
        ("rwkv6", (1, 1, 20, 1, 1), "bf16"),
    ],
    ids=str,
)
def test_large_and_small_heads(operator: str, sizes: tuple[int, int, int, int, int], dtype: str) -> None:
    import cupy

    check(cupy, cupy.asnumpy, make(operator, sizes, dtype), dtype)


@pytest.mark.parametrize("operator", ["gla", "rwkv6"])
def test_a_call_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    case = make(operator, SMALL)
    on = [xp.asarray(x) for x in case.arrays.values()]
    first, again = (OPERATORS[operator][1](xp.asarray(case.do), *on) for _ in range(2))
    assert all(np.array_equal(asnumpy(a), asnumpy(b)) for a, b in zip(first, again, strict=True))


def test_an_infinity_reaches_its_own_and_later_time_steps_only(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", SMALL)
    clean = asnumpy(gla(*map(xp.asarray, case.arrays.values())))
    case.arrays["k"][0, 0, 20, 3] = np.inf
    o = asnumpy(gla(*map(xp.asarray, case.arrays.values())))
    assert np.array_equal(o[0, 0, :20], clean[0, 0, :20])
    assert not np.isfinite(o[0, 0, 20:]).any()
    assert np.array_equal(o[1], clean[1]) and np.array_equal(o[0, 1], clean[0, 1])


@pytest.mark.parametrize("feature_map", ["elu", _on_a_gpu("relu")])
def test_feature_maps_are_those_of_numpy(xp: ModuleType, asnumpy: AsNumpy, feature_map: str) -> None:
    case = make("linear_attention", SMALL)
    q, k, v = case.arrays.values()
    mapped = {"elu": lambda x: np.where(x > 0, x + 1, np.exp(x)), "relu": lambda x: np.maximum(x, 0)}[feature_map]
    slope = {"elu": lambda x: np.where(x > 0, 1, np.exp(x)), "relu": lambda x: (x > 0) * 1.0}[feature_map]
    wide = [x.astype(np.float64) for x in (q, k)]
    case.arrays = {"q": mapped(wide[0]), "k": mapped(wide[1]), "v": v}
    case.initial[...] = case.dstate[...] = 0
    o, _, grads = case.expected()
    on = [xp.asarray(x) for x in (q, k, v)]
    assert rms_error(asnumpy(linear_attention(*on, feature_map=feature_map)), o) < rms_bar("f32", o.size)
    dq, dk, dv = linear_attention_backward(xp.asarray(case.do), *on, feature_map=feature_map)
    wanted = (grads["q"] * slope(wide[0]), grads["k"] * slope(wide[1]), grads["v"])
    for x, expected in zip((dq, dk, dv), wanted, strict=True):
        assert rms_error(asnumpy(x), expected) < GRADIENT_SLACK * rms_bar("f32", x.size)


@pytest.mark.parametrize(
    ("dtype", "reverse", "heads"), [("f32", False, 2), _on_a_gpu("bf16", True, 2), _on_a_gpu("f32", False, 1)]
)
def test_normalized_attention_and_its_gradients_are_those_of_float64(
    xp: ModuleType, asnumpy: AsNumpy, dtype: str, reverse: bool, heads: int
) -> None:
    rng = np.random.default_rng(8)
    b, h, t, k, v = SMALL
    kind = DTYPES[dtype].numpy
    # Positive, as a normalizer wants them.
    q, key = (rng.random((b, n, t, k)).astype(kind) for n in (h, heads))
    value, do = (rng.standard_normal((b, n, t, v)).astype(kind) for n in (heads, h))
    states = {"initial_state": rng.standard_normal((b, h, k, v)), "initial_normalizer": rng.random((b, h, k))}
    ends = {"dstate": rng.standard_normal((b, h, k, v)), "dnormalizer": rng.standard_normal((b, h, k))}
    on = [xp.asarray(x) for x in (q, key, value)]
    before, after = ({name: xp.asarray(x.astype("f")) for name, x in group.items()} for group in (states, ends))
    common: Any = {"normalize": True, "epsilon": 0.1, "reverse": reverse}
    o, state, normalizer = linear_attention(*on, **before, **common, return_state=True)
    made = linear_attention_backward(xp.asarray(do), *on, **before, **after, **common)

    inputs = [x.astype(np.float64).repeat(h // x.shape[1], 1) for x in (q, key, value)]
    below: Any = {"scale": k**-0.5, "epsilon": 0.1, "reverse": reverse}
    below |= {"initial": asnumpy(before["initial_state"]), "normalizer": asnumpy(before["initial_normalizer"])}
    expected = reference.normalized(*inputs, **below)
    for x, wanted in zip((o, state, normalizer), expected, strict=True):
        bar = rms_bar("f32" if x.dtype == np.float32 else dtype, wanted.size)
        assert rms_error(asnumpy(x).astype(np.float64), wanted) < bar
    dlast = {name: asnumpy(x) for name, x in after.items()}
    grads = reference.normalized_backward(do.astype(np.float64), *inputs, **below, **dlast)
    for name, x in zip(("q", "k", "v", "initial", "normalizer"), made, strict=True):
        wanted = grads[name]
        if name in ("k", "v"):
            wanted = wanted.reshape(b, heads, -1, *wanted.shape[2:]).sum(2)
        bar = GRADIENT_SLACK * rms_bar("f32" if x.dtype == np.float32 else dtype, wanted.size)
        assert rms_error(asnumpy(x).astype(np.float64), wanted) < bar, name


def arrays(xp: ModuleType, **changed: Any) -> dict[str, Any]:
    f = np.zeros((1, 2, 4, 8), "f")
    made: dict[str, Any] = {"q": f, "k": f, "v": f, "g": f, "initial_state": None, "cu_seqlens": None} | changed
    return {name: x if x is None or isinstance(x, str) else xp.asarray(x) for name, x in made.items()}


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"k": np.zeros((1, 2, 4, 9), "f")}, ValueError, "k has 9 features and q 8"),
        ({"v": np.zeros((1, 2, 5, 8), "f")}, ValueError, "batch and time must agree"),
        ({"v": np.zeros((1, 3, 4, 8), "f")}, ValueError, "2 heads where others have 3"),
        ({"v": np.zeros((1, 2, 4, 8), "f2")}, TypeError, "v is float16 and q float32"),
        ({"g": np.zeros((1, 2, 4), "f")}, ValueError, "a gate for each feature"),
        ({"q": np.zeros((2, 4, 8), "f")}, ValueError, "q has shape .* takes four axes"),
        ({"q": np.zeros((1, 2, 4, 8))}, TypeError, "q has dtype float64"),
        ({"q": np.zeros((1, 2, 4, 513), "f"), "k": np.zeros((1, 2, 4, 513), "f")}, ValueError, "1 to 512"),
        (
            {name: np.zeros((1, 2, 0, 8), "f") for name in "qkg"} | {"v": np.zeros((1, 2, 0, 0), "f")},
            ValueError,
            "v has shape .* heads of 1 to 512",
        ),
        ({"initial_state": np.zeros((1, 2, 8, 7), "f")}, ValueError, r"initial_state has shape .* \(1, 2, 8, 8\)"),
        ({"initial_state": np.zeros((1, 2, 8, 8), "f2")}, TypeError, "initial_state has dtype float16"),
        ({"cu_seqlens": np.zeros((2, 2), "i4")}, ValueError, "cu_seqlens has shape"),
        ({"cu_seqlens": np.zeros(3, "f")}, TypeError, "cu_seqlens has dtype float32"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(
    xp: ModuleType, changed: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=f"gla: .*{words}"):
        gla(**arrays(xp, **changed))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mode": "fast"}, ValueError, "mode is 'fast'"),
        ({"mode": "chunk"}, ValueError, "mode='chunk' does not take this"),
        ({"layout": "thd"}, ValueError, "layout is 'thd'"),
        ({"scale": "half"}, TypeError, "scale is a str"),
    ],
)
def test_options_that_do_not_exist_are_refused(
    xp: ModuleType, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=f"gla: {words}"):
        gla(**arrays(xp), **options)


def test_gradients_of_another_shape_are_refused(xp: ModuleType) -> None:
    x = xp.zeros((1, 2, 4, 8), "f")
    with pytest.raises(ValueError, match="do has shape"):
        gla_backward(x[:, :, :3], x, x, x, x)
    with pytest.raises(ValueError, match="dstate has shape"):
        gla_backward(x, x, x, x, x, dstate=xp.zeros((1, 2, 8, 9), "f"))
    with pytest.raises(ValueError, match="dnormalizer goes with normalize=True"):
        linear_attention_backward(x, x, x, x, dnormalizer=xp.zeros((1, 2, 8), "f"))


def test_a_sequence_without_time_steps_leaves_the_state_as_it_is(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (2, 2, 0, 20, 12))
    o, last = gla(*map(xp.asarray, case.arrays.values()), initial_state=xp.asarray(case.initial), return_state=True)
    assert o.shape == (2, 2, 0, 12) and np.array_equal(asnumpy(last), case.initial)


@pytest.mark.parametrize(("batch", "length", "dtype"), [(0, 3, "f"), (1, 70, "f"), (1, 70, "e")])
def test_where_there_is_no_sequence_there_is_no_gradient(
    xp: ModuleType, asnumpy: AsNumpy, batch: int, length: int, dtype: str
) -> None:
    case = make("rwkv6", (batch, 2, length, 20, 12))
    arrays = [xp.asarray(x.astype(dtype)) for x in (case.do, *case.arrays.values())]
    options = {"cu_seqlens": xp.zeros(1, "i4")} if batch else {}
    made = rwkv6_backward(*arrays, initial_state=xp.zeros((0, 2, 20, 12), "f"), **options)
    assert [x.shape for x in made] == [*(x.shape for x in arrays[1:]), (0, 2, 20, 12)]
    assert not asnumpy(made[4]).any()
