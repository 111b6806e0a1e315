"""Chunks with a gate for each feature beside float64: hard gates, numbers of any size, segments, sequences, strides."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import explain
from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.calls import OPERATORS as OPERATORS_BY_NAME
from kgen.ops.gated import chunk_vector, chunk_vector_backward, chunk_vector_walks
from kgen.ops.gated.gla import gla, gla_backward
from kgen.ops.gated.rwkv6 import rwkv6, rwkv6_backward
from tests import plans
from tests.gpu.numerics import GRADIENT_SLACK, rms_bar, rms_error
from tests.ops.test_gated import GATES, Case, make

AsNumpy = Callable[[Any], np.ndarray]

OPERATORS: dict[str, Callable[..., Any]] = {"gla": gla, "rwkv6": rwkv6}
BACKWARD: dict[str, Callable[..., Any]] = {"gla": gla_backward, "rwkv6": rwkv6_backward}
STATE_BAR = 3e-4
"""Of states: keys are rounded to binary16 with their decay."""
SMALL = (1, 2, 77, 52, 20)
"""Three chunks, of which the last is not full; features and values that do not fill their tiles."""
LONG = (1, 1, 300, 52, 20)
"""Cut into segments, of which the last is shorter."""

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.fixture(autouse=True)
def without_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that share sequences have tests of their own."""
    monkeypatch.setattr(chunk_vector, "segments_of", lambda *about: 0)
    plans.forget(OPERATORS_BY_NAME[name] for name in OPERATORS)


def check(xp: ModuleType, asnumpy: AsNumpy, case: Case, dtype: str) -> None:
    """The result and the last state, in chunks."""
    with np.errstate(under="ignore"):
        o, state = reference.gated(*case.arrays.values(), scale=case.scale, initial=case.initial, reverse=case.reverse)
    out = xp.full(o.shape, np.nan, dtype=case.do.dtype)
    result, last = OPERATORS[case.operator](
        *map(xp.asarray, case.arrays.values()),
        initial_state=xp.asarray(case.initial),
        return_state=True,
        reverse=case.reverse,
        scale=case.scale,
        mode="chunk",
        out=out,
    )
    assert result is out
    assert rms_error(asnumpy(out).astype(np.float64), o) < rms_bar(dtype, o.size)
    assert rms_error(asnumpy(last), state) < state_bar(state.size)


def check_gradients(xp: ModuleType, asnumpy: AsNumpy, case: Case, dtype: str, *, alone: bool = False) -> None:
    """All gradients, in chunks; those of states too, or `alone` without any."""
    with np.errstate(under="ignore"):
        expected = reference.gated_backward(
            case.do,
            *case.arrays.values(),
            scale=case.scale,
            initial=None if alone else case.initial,
            dstate=None if alone else case.dstate,
            reverse=case.reverse,
        )
    states = {} if alone else {"initial_state": xp.asarray(case.initial), "dstate": xp.asarray(case.dstate)}
    made = BACKWARD[case.operator](
        xp.asarray(case.do),
        *map(xp.asarray, case.arrays.values()),
        **states,
        scale=case.scale,
        reverse=case.reverse,
        mode="chunk",
    )
    for name, x in zip([*case.arrays, "initial"], made, strict=False):
        wanted = expected[name]
        bar = state_bar(wanted.size) if name == "initial" else GRADIENT_SLACK * rms_bar(dtype, wanted.size)
        assert rms_error(asnumpy(x).astype(np.float64), wanted) < bar, name


def state_bar(size: int) -> float:
    """As `rms_bar`: the roundings of a few numbers may all be large."""
    return STATE_BAR if size >= 4096 else STATE_BAR + 2**-11


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_kind_of_gate_is_within_the_bars(xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str) -> None:
    check(xp, asnumpy, make(operator, SMALL, "bf16", gates=gates, seed=3), "bf16")


@pytest.mark.parametrize("gates", ["as GLA begins", "hard resets"])
def test_segments_begin_with_the_state_of_those_before(xp: ModuleType, asnumpy: AsNumpy, gates: str) -> None:
    check(xp, asnumpy, make("gla", LONG, "bf16", gates=gates), "bf16")


FADING: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
    "gone after 88 steps": lambda shape: np.full(shape, -1.0),
    "never gone": lambda shape: np.full(shape, -1e-3),
    "gone in all features but one": lambda shape: np.where(np.arange(shape[3]) == shape[3] - 1, -1e-3, -2.0),
    "reset in all features": lambda shape: np.where(np.arange(shape[2])[:, None] % 150 == 149, -np.inf, -1e-2),
    "gone after 11 steps": lambda shape: np.full(shape, -8.0),
}
"""Gates of which decays are soon below 2^-126, and that segments need not look further back than that; or not."""


def cut_in_two(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    """Segments, whose states are found by one block each, or by two that take chunks by turns."""
    cut = chunk_vector_walks.Cut(1, 2, slots, 64, 32)
    monkeypatch.setattr(chunk_vector, "cut_of", lambda problem: cut)
    square = cut._replace(values=64)
    monkeypatch.setattr(chunk_vector_backward, "cut_of", lambda problem, both_ways: square)


@pytest.mark.parametrize("gates", FADING)
@pytest.mark.parametrize("slots", [2, 4])
def test_segments_need_what_is_before_as_long_as_there_is_decay_left(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, slots: int, gates: str
) -> None:
    cut_in_two(monkeypatch, slots)
    case = make("gla", (1, 1, 600 + slots, 52, 20), "bf16", reverse=slots == 4)
    g = case.arrays["g"]
    case.arrays["g"] = np.broadcast_to(FADING[gates](g.shape), g.shape).astype(g.dtype)
    check(xp, asnumpy, case, "bf16")
    check_gradients(xp, asnumpy, case, "bf16")


@pytest.mark.parametrize("begun", [False, True])
def test_segments_of_sequences_one_after_the_other_are_each_ones_own(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    cut_in_two(monkeypatch, 4)
    ends = [0, 0, 5, 130, 130, 400]
    case = make("rwkv6", (1, 1, 400, 52, 20), "bf16", gates="as GLA begins")
    initial = np.random.default_rng(5).standard_normal((5, 1, 52, 20)).astype("f") if begun else None
    o, last = rwkv6(
        *map(xp.asarray, case.arrays.values()),
        initial_state=None if initial is None else xp.asarray(initial),
        return_state=True,
        cu_seqlens=xp.asarray(np.array(ends, np.int64)),
        mode="chunk",
    )
    for n, (begin, end) in enumerate(pairwise(ends)):
        part = {name: x if name == "u" else x[:, :, begin:end] for name, x in case.arrays.items()}
        from_there = None if initial is None else initial[n : n + 1]
        expected, state = reference.gated(*part.values(), scale=case.scale, initial=from_there)
        if begun or begin < end:
            assert rms_error(asnumpy(last)[n : n + 1], state) < state_bar(1)
        if begin < end:
            assert rms_error(asnumpy(o)[:, :, begin:end].astype(np.float64), expected) < rms_bar("bf16", 1)


@pytest.mark.parametrize("slots", [2, 4])
def test_a_segment_whose_decay_is_gone_does_not_look_further_back(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    cut_in_two(monkeypatch, slots)
    case = make("gla", (1, 1, 620 + slots, 52, 20), "bf16")
    case.arrays["g"] = np.full_like(case.arrays["g"], -1)
    expected, _ = reference.gated(*case.arrays.values(), scale=case.scale)
    case.arrays["v"][:, :, :100] = np.nan
    o = asnumpy(gla(*map(xp.asarray, case.arrays.values()), mode="chunk")).astype(np.float64)
    second = 384  # 320 of two slots, which are whole pieces of 64 time steps
    assert np.isnan(o[:, :, :100]).all()
    assert rms_error(o[:, :, second:], expected[:, :, second:]) < rms_bar("bf16", 1)


@pytest.mark.parametrize("operator", [pytest.param("gla", marks=pytest.mark.gpu), "rwkv6"])
def test_float16_with_gates_in_float32_from_the_last_step_to_the_first(
    xp: ModuleType, asnumpy: AsNumpy, operator: str
) -> None:
    check(xp, asnumpy, make(operator, SMALL, "f16", gate_dtype="f32", reverse=True), "f16")


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e12])
def test_numbers_beyond_float16_are_scaled(xp: ModuleType, asnumpy: AsNumpy, size: float) -> None:
    case = make("gla", SMALL, "bf16")
    kind = case.arrays["q"].dtype
    case.arrays["q"] = (case.arrays["q"].astype("f") * size).astype(kind)
    case.arrays["k"] = (case.arrays["k"].astype("f") / np.float32(size)).astype(kind)
    case.arrays["v"] = (case.arrays["v"].astype("f") * size).astype(kind)
    check(xp, asnumpy, case, "bf16")


def test_a_sequence_whose_size_changes_keeps_its_precision(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", SMALL, "bf16", gates="zero")
    grows = np.float32(2.0) ** (np.arange(77) / 4 - 10)[None, None, :, None]
    for name in "kv":
        case.arrays[name] = (case.arrays[name].astype("f") * grows).astype(case.do.dtype)
    check(xp, asnumpy, case, "bf16")


def test_any_strides_and_both_layouts_are_taken(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (2, 2, 77, 53, 21), "f16", gate_dtype="f32")

    def strange(x: Any) -> Any:
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1] + 3), np.nan, dtype=x.dtype)[..., 1:-2:2]
        wide[...] = x
        return wide[:, ::-1, ::-1][:, ::-1, ::-1]

    on = [xp.asarray(x) for x in case.arrays.values()]
    o, state = gla(*on, initial_state=xp.asarray(case.initial), return_state=True, mode="chunk")
    expected, _ = reference.gated(*case.arrays.values(), scale=case.scale, initial=case.initial)
    assert rms_error(asnumpy(o).astype(np.float64), expected) < rms_bar("f16", expected.size)
    out = strange(xp.zeros_like(o))
    again, last = gla(
        *map(strange, on),
        initial_state=strange(xp.asarray(case.initial)),
        return_state=True,
        mode="chunk",
        out=out,
    )
    assert again is out and np.array_equal(asnumpy(out), asnumpy(o)) and np.array_equal(asnumpy(last), asnumpy(state))
    turned = [xp.ascontiguousarray(x.swapaxes(1, 2)) for x in on]
    seq_first = gla(*turned, initial_state=xp.asarray(case.initial), mode="chunk", layout="bthd")
    assert np.array_equal(asnumpy(seq_first).swapaxes(1, 2), asnumpy(o))


def test_sequences_one_after_the_other_are_as_good_as_apart(xp: ModuleType, asnumpy: AsNumpy) -> None:
    ends = [0, 0, 5, 60, 60, 193]
    case = make("rwkv6", (1, 2, 200, 52, 20), "bf16")
    initial = np.random.default_rng(5).standard_normal((5, 2, 52, 20)).astype("f")
    offsets = xp.asarray(np.array(ends, np.int32))
    out = xp.zeros((1, 2, 200, 20), dtype=case.do.dtype)
    o, last = rwkv6(
        *map(xp.asarray, case.arrays.values()),
        initial_state=xp.asarray(initial),
        return_state=True,
        cu_seqlens=offsets,
        mode="chunk",
        out=out,
    )
    assert not asnumpy(o)[:, :, ends[-1] :].astype("f").any()  # outside of all sequences nothing is written
    for n, (begin, end) in enumerate(pairwise(ends)):
        part = {name: x if name == "u" else x[:, :, begin:end] for name, x in case.arrays.items()}
        expected, state = reference.gated(*part.values(), scale=case.scale, initial=initial[n : n + 1])
        assert rms_error(asnumpy(last)[n : n + 1], state) < state_bar(1)
        if begin < end:
            assert rms_error(asnumpy(o)[:, :, begin:end].astype(np.float64), expected) < rms_bar("bf16", 1)


def test_heads_that_share_an_input_are_as_good_as_a_repeated_one(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (2, 4, 77, 52, 20), "bf16")
    few = {name: x[:, :heads] for (name, x), heads in zip(case.arrays.items(), (4, 2, 1, 2), strict=True)}
    repeated = [np.repeat(x, 4 // x.shape[1], 1) for x in few.values()]
    o = gla(*(xp.asarray(np.ascontiguousarray(x)) for x in few.values()), mode="chunk")
    assert np.array_equal(asnumpy(o), asnumpy(gla(*map(xp.asarray, repeated), mode="chunk")))


def test_two_halves_with_the_state_passed_on_are_one_call(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("rwkv6", SMALL, "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    whole, last = rwkv6(*on, return_state=True, mode="chunk")
    first, middle = rwkv6(*(x if x.ndim == 2 else x[:, :, :40] for x in on), return_state=True, mode="chunk")
    second, end = rwkv6(
        *(x if x.ndim == 2 else x[:, :, 40:] for x in on), initial_state=middle, return_state=True, mode="chunk"
    )
    joined = np.concatenate([asnumpy(first), asnumpy(second)], 2).astype(np.float64)
    assert rms_error(joined, asnumpy(whole).astype(np.float64)) < rms_bar("bf16", joined.size)
    assert rms_error(asnumpy(end), asnumpy(last).astype(np.float64)) < state_bar(1)


def test_a_call_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy) -> None:
    on = [xp.asarray(x) for x in make("gla", LONG, "bf16").arrays.values()]
    first, again = (asnumpy(gla(*on, mode="chunk")) for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_team_for_whole_sequences_has_no_states_and_gives_the_same_bits(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setattr(chunk_vector, "segments_of", lambda *about: 3)
    plans.forget([OPERATORS_BY_NAME[operator]])
    arrays = [xp.asarray(x) for x in make(operator, LONG, "bf16").arrays.values()]
    call = OPERATORS[operator]
    assert "_stateless_" in explain(call, *arrays, mode="chunk")
    assert "_stateless_" not in explain(call, *arrays, mode="chunk", return_state=True)
    alone, (beside, _) = call(*arrays, mode="chunk"), call(*arrays, mode="chunk", return_state=True)
    np.testing.assert_array_equal(asnumpy(alone).view(np.uint16), asnumpy(beside).view(np.uint16))
    plans.forget([OPERATORS_BY_NAME[operator]])


def test_a_sequence_without_time_steps_leaves_the_state_as_it_is(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (1, 2, 0, 52, 20), "bf16")
    on = map(xp.asarray, case.arrays.values())
    o, last = gla(*on, initial_state=xp.asarray(case.initial), return_state=True, mode="chunk")
    assert o.shape == (1, 2, 0, 20) and np.array_equal(asnumpy(last), case.initial)


def test_what_chunks_do_not_take_is_refused_by_name_and_walked_step_by_step_otherwise(
    xp: ModuleType, asnumpy: AsNumpy
) -> None:
    narrow = [xp.zeros((1, 1, 64, 20), dtype="f4") for _ in range(4)]
    with pytest.raises(ValueError, match=r"gla: mode='chunk' does not take this: .*float32"):
        gla(*narrow, mode="chunk")
    assert not asnumpy(gla(*narrow)).any()


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_are_within_the_bars_whatever_the_gates(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str
) -> None:
    check_gradients(xp, asnumpy, make(operator, SMALL, "bf16", gates=gates, seed=3), "bf16")


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_segments(xp: ModuleType, asnumpy: AsNumpy, operator: str, alone: bool) -> None:
    check_gradients(xp, asnumpy, make(operator, LONG, "bf16"), "bf16", alone=alone)


@pytest.mark.parametrize("length", [32, 63, 65, 95])
def test_gradients_of_sequences_of_any_length(xp: ModuleType, asnumpy: AsNumpy, length: int) -> None:
    check_gradients(xp, asnumpy, make("rwkv6", (1, 1, length, 52, 20), "bf16", gates="strong"), "bf16")


def test_gradients_in_float16_with_gates_in_float32_and_any_strides(xp: ModuleType, asnumpy: AsNumpy) -> None:
    check_gradients(xp, asnumpy, make("gla", (2, 2, 77, 51, 21), "f16", gate_dtype="f32", reverse=True), "f16")


def test_what_cancels_in_a_sum_of_gates_gradients_does_so_to_the_last_bit(xp: ModuleType, asnumpy: AsNumpy) -> None:
    """A pair of steps adds to dg between them and takes it away outside, where its two roundings must not be left."""
    case = make("rwkv6", (1, 1, 130, 128, 64), "f16", gates="as RWKV6 begins")
    made = rwkv6_backward(xp.asarray(case.do), *map(xp.asarray, case.arrays.values()), scale=case.scale, mode="chunk")
    expected = reference.gated_backward(case.do, *case.arrays.values(), scale=case.scale)
    assert rms_error(asnumpy(made[3]).astype(np.float64), expected["g"]) < 7e-4  # 1.2e-3 where they are left


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_sequences_one_after_the_other_are_as_good_as_apart(
    xp: ModuleType, asnumpy: AsNumpy, operator: str
) -> None:
    ends = [0, 0, 5, 60, 60, 193]
    case = make(operator, (1, 2, 193, 52, 20), "bf16")
    initial, dstate = (np.random.default_rng(5).standard_normal((5, 2, 52, 20)).astype("f") for _ in range(2))
    made = BACKWARD[operator](
        xp.asarray(case.do),
        *map(xp.asarray, case.arrays.values()),
        initial_state=xp.asarray(initial),
        dstate=xp.asarray(dstate),
        scale=case.scale,
        cu_seqlens=xp.asarray(np.array(ends, np.int32)),
        mode="chunk",
    )
    bonus = 0.0
    for n, (begin, end) in enumerate(pairwise(ends)):
        part = {name: x if name == "u" else x[:, :, begin:end] for name, x in case.arrays.items()}
        states = {"initial": initial[n : n + 1], "dstate": dstate[n : n + 1]}
        expected = reference.gated_backward(case.do[:, :, begin:end], *part.values(), scale=case.scale, **states)
        bonus = bonus + expected["u"]
        assert rms_error(asnumpy(made[-1])[n : n + 1], expected["initial"]) < state_bar(1)
        for name, x in zip("qkvg", made, strict=False):
            if begin < end:
                error = rms_error(asnumpy(x)[:, :, begin:end].astype(np.float64), expected[name])
                assert error < GRADIENT_SLACK * rms_bar("bf16", 1), name
    if operator == "rwkv6":
        assert rms_error(asnumpy(made[4]).astype(np.float64), bonus) < GRADIENT_SLACK * rms_bar("bf16", 1)


def test_gradients_that_chunks_do_not_take_are_refused_by_name(xp: ModuleType) -> None:
    x = [xp.zeros((1, 2, 64, 20), dtype=DTYPES["f16"].numpy) for _ in range(5)]
    with pytest.raises(ValueError, match=r"gla_backward: mode='chunk' does not take this: .*as many heads"):
        gla_backward(*x[:4], x[4][:, :1], mode="chunk")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "sizes", "dtype", "gates"),
    [
        ("gla", (2, 66, 65, 128, 128), "bf16", "as RWKV6 begins"),
        ("gla", (1, 2, 4097, 128, 128), "bf16", "as GLA begins"),
        ("rwkv6", (1, 3, 1000, 128, 256), "f16", "as RWKV6 begins"),
        ("rwkv6", (2, 70, 127, 64, 64), "bf16", "sometimes -1000"),
        ("gla", (1, 1, 2048, 96, 100), "f16", "hard resets"),
        ("gla", (1, 2, 200, 1, 1), "bf16", "wide"),
    ],
    ids=str,
)
def test_large_and_small_heads(operator: str, sizes: tuple[int, int, int, int, int], dtype: str, gates: str) -> None:
    import cupy

    case = make(operator, sizes, dtype, gates=gates)
    check(cupy, cupy.asnumpy, case, dtype)
    if sizes[-1] <= 128:
        check_gradients(cupy, cupy.asnumpy, case, dtype)
