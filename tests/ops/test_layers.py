"""The layers of GLA and RWKV6 beside their equations in float64, at once and in steps."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.dtypes import DTYPES
from kgen.layers import GatedLinearAttention, RWKV6State, RWKV6TimeMixing
from tests.gpu.numerics import rms_error

AsNumpy = Callable[[Any], np.ndarray]
Wide = dict[str, np.ndarray]

pytestmark = pytest.mark.usefixtures("shared_cache")

BATCH, LENGTH, WIDTH, HEADS = 2, 21, 32, 2
# A layer is a chain of some ten roundings to its type, matrix products among them.
BARS = {"f32": 5e-6, "f16": 4e-3, "bf16": 3e-2}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gla_in_float64(p: Wide, x: np.ndarray, heads: int, tau: float = 16, eps: float = 1e-5) -> np.ndarray:
    """The article's equations (8) to (11), one time step after another, with its gate of low rank."""
    batch, length, _ = x.shape
    features, values = p["query"].shape[1] // heads, p["output"].shape[0] // heads

    def by_head(a: np.ndarray, width: int) -> np.ndarray:
        a = a.reshape(batch, length, -1, width)
        return np.repeat(a, heads // a.shape[2], 2)

    q, k = (by_head(x @ p[name], features) for name in ("query", "key"))
    v = by_head(x @ p["value"], values)
    alpha = by_head(sigmoid(x @ p["gate_down"] @ p["gate_up"] + p["gate_bias"]) ** (1 / tau), features)
    state = np.zeros((batch, heads, features, values))
    o = np.zeros((batch, length, heads, values))
    for t in range(length):
        state = alpha[:, t, ..., None] * state + k[:, t, ..., None] * v[:, t, :, None, :]
        o[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t] / features**0.5, state)
    if "norm_bias" in p:
        centred = o - o.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * p["norm_weight"] + p["norm_bias"]
    else:
        normed = o / np.sqrt((o**2).mean(-1, keepdims=True) + eps) * p["norm_weight"]
    r = x @ p["output_gate"] + p.get("output_gate_bias", 0)
    result: np.ndarray = (r * sigmoid(r) * normed.reshape(batch, length, -1)) @ p["output"]
    return result


def rwkv6_in_float64(p: Wide, x: np.ndarray, eps: float = 64e-5) -> np.ndarray:
    """Section 4.2 of Eagle and Finch, one time step after another."""
    batch, length, width = x.shape
    heads, features = p["bonus"].shape
    rank = p["mix_up"].shape[1]
    earlier = np.concatenate([np.zeros((batch, 1, width)), x[:, :-1]], 1)

    def lerp(by: np.ndarray) -> np.ndarray:
        return x + (earlier - x) * by

    base = lerp(p["mix"])
    mixed = {}
    for i, name in enumerate("wrkvg"):
        down = p["mix_down"][:, i * rank : (i + 1) * rank]
        mixed[name] = lerp(p["mixes"][i] + np.tanh(base @ down) @ p["mix_up"][i])
    shape = (batch, length, heads, features)
    r, k, v = ((mixed[n] @ p[name]).reshape(shape) for n, name in zip("rkv", ("receptance", "key", "value")))
    g = mixed["g"] @ p["gate"]
    decay = np.exp(-np.exp(p["decay"] + np.tanh(mixed["w"] @ p["decay_down"]) @ p["decay_up"])).reshape(shape)
    state = np.zeros((batch, heads, features, features))
    o = np.zeros(shape)
    for t in range(length):
        outer = k[:, t, ..., None] * v[:, t, :, None, :]
        o[:, t] = np.einsum("bhk,bhkv->bhv", r[:, t], state + p["bonus"][..., None] * outer)
        state = decay[:, t, ..., None] * state + outer
    centred = o - o.mean(-1, keepdims=True)
    normed = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)).reshape(batch, length, -1)
    result: np.ndarray = ((normed * p["norm_weight"] + p["norm_bias"]) * g * sigmoid(g)) @ p["output"]
    return result


def gla_parameters(seed: int = 0, *, biases: bool = False, fewer: bool = False) -> Wide:
    made = GatedLinearAttention.random_parameters(WIDTH, HEADS, values=12, seed=seed)
    rng = np.random.default_rng(seed)
    made["norm_weight"] = rng.standard_normal(12).astype(np.float32)
    if biases:
        made["norm_bias"] = rng.standard_normal(12).astype(np.float32)
        made["output_gate_bias"] = rng.standard_normal(HEADS * 12).astype(np.float32)
    if fewer:
        made |= {name: made[name][:, : made[name].shape[1] // HEADS] for name in ("key", "value", "gate_up")}
        made["gate_bias"] = made["gate_bias"][: made["gate_up"].shape[1]]
    return made


def rwkv6_parameters(seed: int = 0) -> Wide:
    made = RWKV6TimeMixing.random_parameters(WIDTH, HEADS, features=12, rank=4, decay_rank=8, seed=seed)
    rng = np.random.default_rng(seed)
    made["norm_weight"], made["norm_bias"] = rng.standard_normal((2, HEADS * 12)).astype(np.float32)
    return made


def tokens(dtype: str = "f32", length: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((BATCH, length, WIDTH)).astype(DTYPES[dtype].numpy)


def on(xp: ModuleType, parameters: Wide, dtype: str = "f32") -> tuple[dict[str, Any], Wide]:
    """The parameters rounded to a dtype: on the device, and in float64."""
    rounded = {name: a.astype(DTYPES[dtype].numpy) for name, a in parameters.items()}
    return {n: xp.asarray(a) for n, a in rounded.items()}, {n: a.astype(np.float64) for n, a in rounded.items()}


@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize(("biases", "fewer"), [(False, False), (True, True)])
def test_gla_is_the_articles_equations(xp: ModuleType, asnumpy: AsNumpy, dtype: str, biases: bool, fewer: bool) -> None:
    here, wide = on(xp, gla_parameters(biases=biases, fewer=fewer), dtype)
    x = tokens(dtype)
    y = GatedLinearAttention(here, heads=HEADS)(xp.asarray(x))
    assert y.dtype == x.dtype
    assert rms_error(asnumpy(y), gla_in_float64(wide, x.astype(np.float64), HEADS)) < BARS[dtype]


@pytest.mark.parametrize("dtype", BARS)
def test_rwkv6_is_the_papers_equations(xp: ModuleType, asnumpy: AsNumpy, dtype: str) -> None:
    here, wide = on(xp, rwkv6_parameters(), dtype)
    x = tokens(dtype)
    y = RWKV6TimeMixing(here)(xp.asarray(x))
    assert y.dtype == x.dtype
    assert rms_error(asnumpy(y), rwkv6_in_float64(wide, x.astype(np.float64))) < BARS[dtype]


def made(xp: ModuleType, name: str) -> Any:
    if name == "gla":
        return GatedLinearAttention(on(xp, gla_parameters())[0], heads=HEADS)
    return RWKV6TimeMixing(on(xp, rwkv6_parameters())[0])


def parts_of(state: Any) -> tuple[Any, ...]:
    return tuple(state) if isinstance(state, RWKV6State) else (state,)


@pytest.mark.parametrize("name", ["gla", "rwkv6"])
def test_two_halves_with_the_state_passed_on_are_one_call(xp: ModuleType, asnumpy: AsNumpy, name: str) -> None:
    layer, x = made(xp, name), xp.asarray(tokens())
    whole, last = layer(x, return_state=True)
    first, middle = layer(x[:, :8], return_state=True)
    kept = [asnumpy(a).copy() for a in parts_of(middle)]
    second, end = layer(x[:, 8:], middle, return_state=True)
    joined = np.concatenate([asnumpy(first), asnumpy(second)], 1)
    assert rms_error(joined, asnumpy(whole).astype(np.float64)) < BARS["f32"]
    for a, b in zip(parts_of(end), parts_of(last), strict=True):
        assert rms_error(asnumpy(a), asnumpy(b).astype(np.float64)) < BARS["f32"]
    for a, b in zip(parts_of(middle), kept, strict=True):
        assert np.array_equal(asnumpy(a), b), "the state that came is left as it was"


@pytest.mark.parametrize("name", ["gla", "rwkv6"])
def test_token_by_token_with_the_state_in_place_is_one_call(xp: ModuleType, asnumpy: AsNumpy, name: str) -> None:
    layer, x = made(xp, name), xp.asarray(tokens())
    whole, last = layer(x, return_state=True)
    first, state = layer(x[:, :8], return_state=True)
    steps = [layer.step(x[:, t], state) for t in range(8, LENGTH)]
    joined = np.concatenate([asnumpy(first), np.stack([asnumpy(y) for y in steps], 1)], 1)
    assert rms_error(joined, asnumpy(whole).astype(np.float64)) < BARS["f32"]
    for a, b in zip(parts_of(state), parts_of(last), strict=True):
        assert rms_error(asnumpy(a), asnumpy(b).astype(np.float64)) < BARS["f32"]


def test_sequences_one_after_another_are_each_by_itself(xp: ModuleType, asnumpy: AsNumpy) -> None:
    layer, x = made(xp, "gla"), tokens()
    packed = xp.asarray(x.reshape(1, -1, WIDTH))
    y = layer(packed, cu_seqlens=xp.asarray(np.array([0, LENGTH, 2 * LENGTH], np.int32)))
    assert rms_error(asnumpy(y).reshape(x.shape), asnumpy(layer(xp.asarray(x))).astype(np.float64)) < BARS["f32"]


@pytest.mark.parametrize("name", ["gla", "rwkv6"])
def test_no_time_step_gives_none_and_the_state_as_it_was(xp: ModuleType, asnumpy: AsNumpy, name: str) -> None:
    layer = made(xp, name)
    _, state = layer(xp.asarray(tokens()), return_state=True)
    y, after = layer(xp.asarray(tokens(length=0)), state, return_state=True)
    assert y.shape == (BATCH, 0, WIDTH)
    assert all(np.array_equal(asnumpy(a), asnumpy(b)) for a, b in zip(parts_of(after), parts_of(state), strict=True))


@pytest.mark.parametrize("name", ["gla", "rwkv6"])
def test_no_sequence_gives_none(xp: ModuleType, name: str) -> None:
    layer, nothing = made(xp, name), xp.asarray(tokens()[:0])
    y, state = layer(nothing, return_state=True)
    assert y.shape == (0, LENGTH, WIDTH)
    assert parts_of(state)[-1].shape[0] == 0
    assert layer.step(nothing[:, 0], state).shape == (0, WIDTH)


def test_parameters_can_be_changed_in_place(xp: ModuleType, asnumpy: AsNumpy) -> None:
    for name, projection in (("gla", "value"), ("rwkv6", "gate")):
        layer, x = made(xp, name), xp.asarray(tokens())
        layer.parameters[projection][...] = 0
        assert not asnumpy(layer(x)).any()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"key": None}, TypeError, "GatedLinearAttention: the parameter 'key' is missing"),
        ({"extra": np.zeros(3, "f")}, TypeError, "there is no parameter 'extra'"),
        ({"gate_bias": np.zeros(3, "f")}, ValueError, r"gate_bias has shape \(3,\); it takes \(16\)"),
        ({"key": np.zeros((WIDTH, 9), "f")}, ValueError, "key has 9 columns; it takes a multiple of 8"),
        ({"key": [1, 2]}, TypeError, "arrays of one library, numpy, cupy or torch; there are key of builtins"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    parameters = {n: a for n, a in (gla_parameters() | change).items() if a is not None}
    with pytest.raises(error, match=words):
        GatedLinearAttention(parameters, heads=HEADS)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"heads": 2.0}, "heads is a float; it takes an integer"),
        ({"heads": 0}, "heads is 0; it takes an integer from 1 on"),
        ({"temperature": "16"}, "temperature is a str; it takes a real number"),
        ({"eps": None}, "eps is a NoneType; it takes a real number"),
    ],
)
def test_options_that_are_no_numbers_are_refused(option: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"GatedLinearAttention: {words}"):
        GatedLinearAttention(gla_parameters(), **{"heads": HEADS} | option)


def test_what_is_no_array_and_no_state_is_refused() -> None:
    layer, x = made(np, "rwkv6"), tokens()
    with kgen.backend("cpu"):
        with pytest.raises(TypeError, match="RWKV6TimeMixing: x is a list; it takes an array"):
            layer(x.tolist())
        for state in (None, (x[:, 0], np.zeros((BATCH, HEADS, 12, 12), "f"))):
            with pytest.raises(TypeError, match=r"RWKV6TimeMixing: state is a .*; it takes an RWKV6State"):
                layer.step(x[:, 0], state)


def test_tokens_of_another_width_are_refused() -> None:
    with kgen.backend("cpu"), pytest.raises(ValueError, match=r"RWKV6TimeMixing: x has shape \(2, 3, 4\)"):
        made(np, "rwkv6")(np.zeros((2, 3, 4), "f"))
