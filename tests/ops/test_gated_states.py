"""The states on the way beside float64, and requests that go on from one of them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen import gated_reference as reference
from kgen.ops.gated import scan
from kgen.ops.gated.gla import gla
from kgen.ops.gated.linear_attention import linear_attention
from kgen.ops.gated.tiles import Tile
from tests.gpu.numerics import rms_bar, rms_error
from tests.ops.test_gated import FORWARD, GATED, GATES, Case, _on_a_gpu, make
from tests.ops.test_gated_chunk import forget

AsNumpy = Callable[[Any], np.ndarray]

CHUNK_BAR = 3e-4
"""Of states in chunks with gates: keys are rounded with their decay. Without gates they are sums of exact products."""

pytestmark = pytest.mark.usefixtures("shared_cache")


def bar(operator: str, mode: str, size: int) -> float:
    if mode == "recurrent" or operator == "linear_attention":
        return rms_bar("f32", size)
    return CHUNK_BAR if size >= 4096 else CHUNK_BAR + 2**-11


def call(xp: ModuleType, case: Case, every: int | None = None, **options: Any) -> tuple[Any, ...]:
    """o, the last state and those on the way."""
    common: Any = {"initial_state": xp.asarray(case.initial), "scale": case.scale, "reverse": case.reverse}
    on = map(xp.asarray, case.arrays.values())
    made: tuple[Any, ...] = FORWARD[case.operator](*on, return_state=True, states_every=every, **common | options)
    return made


def expected(case: Case, every: int) -> np.ndarray:
    _, k, v, *g = list(case.arrays.values())[:4]
    with np.errstate(under="ignore"):
        return reference.states(k, v, *g, every=every, initial=case.initial, reverse=case.reverse)


def check(xp: ModuleType, asnumpy: AsNumpy, case: Case, every: int, mode: str, **options: Any) -> None:
    """The states are float64's, each of them, and all else is what it is without them."""
    o, last, states = call(xp, case, every, mode=mode, **options)
    wanted = expected(case, every)
    found = asnumpy(states)
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert np.array_equal(found[:, :, 0], case.initial)
    for i in range(1, found.shape[2]):
        error = rms_error(found[:, :, i], wanted[:, :, i])
        assert error < bar(case.operator, mode, wanted[:, :, i].size), f"state {i}: {error:.2e}"
    plain, plain_last = call(xp, case, mode=mode, **options)
    assert np.array_equal(asnumpy(o), asnumpy(plain)) and np.array_equal(asnumpy(last), asnumpy(plain_last))


@settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
@pytest.mark.parametrize(("mode", "dtypes"), [("recurrent", ["f32", "bf16"]), ("chunk", ["bf16", "f16"])])
@pytest.mark.parametrize("operator", FORWARD)
def test_states_on_the_way_are_those_of_float64(
    xp: ModuleType, asnumpy: AsNumpy, data: st.DataObject, operator: str, mode: str, dtypes: list[str]
) -> None:
    length, every = data.draw(st.integers(0, 200), label="T"), data.draw(st.sampled_from([64, 128]), label="every")
    batch, heads = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 1)]), label="B, H")
    reverse, seed = data.draw(st.booleans(), label="reverse"), data.draw(st.integers(0, 99), label="seed")
    dtype = data.draw(st.sampled_from(dtypes), label="dtype")
    case = make(operator, (batch, heads, length, 36, 24), dtype, gate_dtype="f32", reverse=reverse, seed=seed)
    check(xp, asnumpy, case, every, mode)


@pytest.mark.parametrize(
    ("operator", "mode", "dtype"),
    [
        *((operator, "recurrent", "f32") for operator in FORWARD),
        *((operator, "chunk", "bf16") for operator in FORWARD),
    ],
)
def test_a_request_that_starts_from_a_cached_state_gives_what_the_whole_call_gives(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, mode: str, dtype: str
) -> None:
    case = make(operator, (1, 1, 270, 36, 24), dtype, gate_dtype="f32", gates="as GLA begins")
    o, last, states = call(xp, case, 64, mode=mode)
    wanted, wanted_last = reference.gated(*case.arrays.values(), scale=case.scale, initial=case.initial)
    for i in (1, 4):
        rest = {name: x if name == "u" else x[:, :, i * 64 :] for name, x in case.arrays.items()}
        on = [xp.asarray(x) for x in rest.values()]
        again, end = FORWARD[operator](*on, initial_state=states[:, :, i], return_state=True, mode=mode)
        found, right = asnumpy(again).astype(np.float64), wanted[:, :, i * 64 :]
        assert rms_error(found, right) < rms_bar(dtype, right.size)
        assert rms_error(asnumpy(end), wanted_last) < bar(operator, mode, wanted_last.size)
        if mode == "recurrent":  # in the same order of operations
            assert np.array_equal(asnumpy(again), asnumpy(o)[:, :, i * 64 :])
            assert np.array_equal(asnumpy(end), asnumpy(last))


@pytest.mark.parametrize("tile", [Tile(8, 8, 8, 1), Tile(4, 32, 4, 4)], ids=str)
@pytest.mark.parametrize("operator", ["linear_attention", "simple_gla"])
def test_a_request_goes_on_with_the_same_bits_however_states_are_cut(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, operator: str, tile: Tile
) -> None:
    monkeypatch.setattr(scan, "tile_for", lambda *about: tile)
    forget()
    test_a_request_that_starts_from_a_cached_state_gives_what_the_whole_call_gives(
        xp, asnumpy, operator, "recurrent", "f32"
    )
    forget()


@pytest.mark.parametrize(
    ("operator", "gates"),
    [
        ("gla", "sometimes -1000"),
        ("simple_gla", "hard resets"),
        *(_on_a_gpu(operator, gates) for operator in GATED for gates in GATES),
    ],
)
def test_every_kind_of_gate_is_within_the_bars(xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str) -> None:
    check(xp, asnumpy, make(operator, (1, 1, 150, 36, 24), "bf16", gate_dtype="f32", gates=gates, seed=3), 64, "chunk")


@pytest.mark.parametrize(
    ("operator", "features", "values"),
    [
        ("gla", 64, 64),
        ("gla", 36, 200),
        ("linear_attention", 128, 104),
        ("simple_gla", 150, 40),
        _on_a_gpu("gla", 128, 128),
        _on_a_gpu("rwkv6", 128, 256),
        _on_a_gpu("linear_attention", 256, 256),
    ],
)
def test_states_may_fill_their_tiles_or_not(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, features: int, values: int
) -> None:
    check(xp, asnumpy, make(operator, (1, 1, 140, features, values), "bf16", gate_dtype="f32"), 64, "chunk")


def test_a_stretch_of_few_heads_is_cut_into_pieces(xp: ModuleType, asnumpy: AsNumpy) -> None:
    """The executor counts as four multiprocessors."""
    for operator, reverse in (("linear_attention", True), ("simple_gla", False)):
        case = make(operator, (1, 1, 270, 36, 24), "bf16", gate_dtype="f32", reverse=reverse)
        check(xp, asnumpy, case, 128, "chunk")


@pytest.mark.parametrize("mode", ["recurrent", "chunk"])
def test_without_a_first_state_they_begin_with_zero(xp: ModuleType, asnumpy: AsNumpy, mode: str) -> None:
    for operator in FORWARD:
        case = make(operator, (1, 1, 70, 36, 24), "bf16", gate_dtype="f32")
        case.initial[...] = 0
        o, _, states = call(xp, case, 64, mode=mode, initial_state=None)
        assert (asnumpy(states)[:, :, 0] == 0).all()
        assert rms_error(asnumpy(states), expected(case, 64)) < bar(operator, mode, states.size)
        alone = FORWARD[operator](*map(xp.asarray, case.arrays.values()), scale=case.scale, mode=mode)
        assert np.array_equal(asnumpy(alone), asnumpy(o))


@pytest.mark.parametrize(("operator", "mode", "dtype"), [("gla", "recurrent", "f32"), ("gla", "chunk", "f16")])
def test_heads_may_share_keys_and_gates_and_rows_may_lie_anywhere(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, mode: str, dtype: str
) -> None:
    case = make(operator, (2, 4, 70, 36, 24), dtype)
    for name, heads in (("k", 2), ("v", 1), ("g", 2)):
        case.arrays[name] = case.arrays[name][:, :heads].repeat(4 // heads, 1)
    wanted = expected(case, 64)
    few = [case.arrays["q"], *(case.arrays[name][:, :: 4 // heads] for name, heads in (("k", 2), ("v", 1), ("g", 2)))]

    def strange(x: Any) -> Any:
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1] + 3), np.nan, dtype=x.dtype)[..., 1:-2:2]
        wide[...] = x
        return wide.swapaxes(1, 2)

    for options in ({}, {"reverse": True}):
        right = (
            wanted
            if not options
            else reference.states(*(case.arrays[name] for name in "kvg"), every=64, initial=case.initial, reverse=True)
        )
        _, states = gla(
            *(strange(xp.asarray(x)) for x in few),
            initial_state=xp.asarray(case.initial),
            states_every=64,
            mode=mode,
            layout="bthd",
            **options,
        )
        assert rms_error(asnumpy(states), right) < bar(operator, mode, right.size)


@pytest.mark.parametrize("reverse", [False, True])
def test_with_a_normalizer_there_are_normalizers_on_the_way(xp: ModuleType, asnumpy: AsNumpy, reverse: bool) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.random((1, 2, 150, n), "f") for n in (20, 20, 12))
    initial, normalizer = rng.random((1, 2, 20, 12), "f"), rng.random((1, 2, 20), "f")
    before: Any = {"initial_state": xp.asarray(initial), "initial_normalizer": xp.asarray(normalizer)}
    common: Any = {"normalize": True, "reverse": reverse, "feature_map": "relu"}
    on: Any = [xp.asarray(x) for x in (q, k, v)]
    common |= before
    o, last, z, states, sums = linear_attention(*on, return_state=True, states_every=64, **common)
    ones, first = np.ones((1, 2, 150, 1)), np.concatenate([initial, normalizer[..., None]], -1)
    wanted = reference.states(k, np.concatenate([v, ones], -1), every=64, initial=first, reverse=reverse)
    assert sums.shape == (1, 2, 3, 20)
    both = np.concatenate([asnumpy(states), asnumpy(sums)[..., None]], -1)
    assert rms_error(both, wanted) < rms_bar("f32", wanted.size)
    plain = linear_attention(*on, return_state=True, **common)
    assert all(np.array_equal(asnumpy(x), asnumpy(y)) for x, y in zip((o, last, z), plain, strict=True))
    rest = [x[:, :, :22] if reverse else x[:, :, 128:] for x in on]
    common |= {"initial_state": states[:, :, 2], "initial_normalizer": sums[:, :, 2]}
    again = linear_attention(*rest, **common)
    assert np.array_equal(asnumpy(again), asnumpy(o)[:, :, :22] if reverse else asnumpy(o)[:, :, 128:])


@pytest.mark.parametrize(("feature_map", "mode"), [("relu", "chunk"), ("exp(x / 2)", "recurrent")])
def test_features_make_states(xp: ModuleType, asnumpy: AsNumpy, feature_map: str, mode: str) -> None:
    case = make("linear_attention", (1, 2, 150, 36, 24), "bf16")
    _, _, states = call(xp, case, 64, feature_map=feature_map, mode=mode)
    k = case.arrays["k"].astype(np.float64)
    case.arrays["k"] = np.maximum(k, 0) if feature_map == "relu" else np.exp(k / 2)
    wanted = expected(case, 64)
    assert rms_error(asnumpy(states), wanted) < rms_bar("f32", wanted.size)


def test_a_call_gives_only_the_states_on_the_way_if_it_is_asked_for_them(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (1, 2, 128, 36, 24), "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    o, last, states = gla(*on, states_every=64, return_state=True)
    out = xp.full(o.shape, np.nan, dtype=o.dtype)
    again, alone = gla(*on, states_every=64, out=out)
    assert again is out and np.array_equal(asnumpy(out), asnumpy(o))
    assert np.array_equal(asnumpy(alone), asnumpy(states))
    assert rms_error(asnumpy(states)[:, :, 2], asnumpy(last)) < CHUNK_BAR


@pytest.mark.parametrize("mode", ["recurrent", "chunk"])
def test_what_it_takes_is_told(xp: ModuleType, mode: str) -> None:
    x = xp.ones((1, 2, 300, 64), "e")
    told = kgen.explain(gla, x, x, x, -x, states_every=64, mode=mode)
    if mode == "chunk":
        assert "5 states on the way are sums of stretches of 64" in told
        assert "gated_unpack" not in told  # they are added up where they are wanted
        assert kgen.workspace(gla, x, x, x, -x, states_every=64, mode=mode) >= 2 * 5 * 64 * 4
    else:
        assert "blocks, 4 times" in told
        assert kgen.workspace(gla, x, x, x, -x, states_every=64, mode=mode) == 0


@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"states_every": 0}, ValueError, "states_every is 0; it takes a multiple of 64"),
        ({"states_every": -64}, ValueError, "states_every is -64"),
        ({"states_every": 100}, ValueError, "states_every is 100"),
        ({"states_every": True}, TypeError, "states_every is a bool; it takes an integer"),
        ({"states_every": 64.0}, TypeError, "states_every is a float; it takes an integer"),
        (
            {"states_every": 64, "cu_seqlens": np.array([0, 4], "i4")},
            ValueError,
            "states_every is 64 beside cu_seqlens",
        ),
        ({"states_every": 64, "mode": "article"}, ValueError, "mode is 'article'; with states_every it takes"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    xp: ModuleType, operator: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    x = xp.zeros((1, 2, 4, 8), "f")
    gates = {"linear_attention": (), "simple_gla": (x[..., 0],), "gla": (x,), "rwkv6": (x, x[0, :, 0])}[operator]
    given = {name: xp.asarray(y) if isinstance(y, np.ndarray) else y for name, y in options.items()}
    with pytest.raises(error, match=f"^{operator}: {words}"):
        FORWARD[operator](x, x, x, *gates, **given)
