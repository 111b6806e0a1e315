"""Heads of more features or values than a block of chunks takes: parts of them, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen import gated_reference as reference
from kgen.checking import watching
from kgen.dtypes import DTYPES
from kgen.ops.gated.gla import gla
from kgen.ops.gated.rwkv6 import rwkv6, rwkv6_backward
from tests.gpu.numerics import GRADIENT_SLACK, rms_bar, rms_error
from tests.ops import test_gated_states
from tests.ops.test_gated import GATES, make
from tests.ops.test_gated_chunk_vector import OPERATORS, check, check_gradients, state_bar

AsNumpy = Callable[[Any], np.ndarray]

SMALL = (1, 2, 77, 136, 20)
"""A second part of a few features."""
BOTH = (1, 1, 77, 136, 140)
"""And a second tile of a few values."""

pytestmark = pytest.mark.usefixtures("shared_cache")
examples = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_parts_of_features_are_within_the_bars_whatever_the_gates(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str
) -> None:
    check(xp, asnumpy, make(operator, SMALL, "bf16", gates=gates, seed=3), "bf16")


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_parts_are_within_the_bars_whatever_the_gates(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, gates: str
) -> None:
    check_gradients(xp, asnumpy, make(operator, BOTH, "bf16", gates=gates, seed=3), "bf16")


@examples
@given(data=st.data())
def test_heads_of_any_size_up_to_512(xp: ModuleType, asnumpy: AsNumpy, data: st.DataObject) -> None:
    features, values = data.draw(st.integers(129, 512), label="K"), data.draw(st.integers(1, 300), label="V")
    length, seed = data.draw(st.integers(1, 150), label="T"), data.draw(st.integers(0, 99), label="seed")
    reverse = data.draw(st.booleans(), label="reverse")
    case = make("rwkv6", (1, 1, length, features, values), "bf16", gate_dtype="f32", reverse=reverse, seed=seed)
    check(xp, asnumpy, case, "bf16")
    check_gradients(xp, asnumpy, case, "bf16", alone=data.draw(st.booleans(), label="alone"))


def test_wide_heads_in_float16_from_the_last_step_to_the_first(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("rwkv6", (1, 1, 70, 250, 129), "f16", reverse=True)
    check(xp, asnumpy, case, "f16")
    check_gradients(xp, asnumpy, case, "f16")


@pytest.mark.parametrize("sizes", [(1, 1, 70, 132, 24), (1, 1, 70, 24, 132)], ids=["features", "values"])
def test_gradients_where_only_features_or_only_values_are_many(
    xp: ModuleType, asnumpy: AsNumpy, sizes: tuple[int, int, int, int, int]
) -> None:
    check_gradients(xp, asnumpy, make("gla", sizes, "bf16"), "bf16")


def test_segments_of_parts_begin_with_the_state_of_those_before(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", (1, 1, 300, 136, 140), "bf16", gates="as GLA begins")
    check(xp, asnumpy, case, "bf16")
    check_gradients(xp, asnumpy, case, "bf16")


def test_sequences_of_wide_heads_keep_to_their_time_steps(xp: ModuleType, asnumpy: AsNumpy) -> None:
    ends = [3, 3, 8, 63, 63, 193]
    case = make("rwkv6", (1, 2, 200, 136, 140), "bf16")
    initial, dstate = (np.random.default_rng(5).standard_normal((5, 2, 136, 140)).astype("f") for _ in range(2))
    on = [xp.asarray(x) for x in case.arrays.values()]
    common: Any = {
        "initial_state": xp.asarray(initial),
        "cu_seqlens": xp.asarray(np.array(ends, np.int64)),
        "scale": case.scale,
        "mode": "chunk",
    }
    out = xp.zeros(case.do.shape, dtype=case.do.dtype)
    o, last = rwkv6(*on, return_state=True, out=out, **common)
    made = rwkv6_backward(xp.asarray(case.do), *on, dstate=xp.asarray(dstate), **common)
    assert not asnumpy(o)[:, :, : ends[0]].astype("f").any() and not asnumpy(o)[:, :, ends[-1] :].astype("f").any()
    bonus: Any = 0.0
    for n, (begin, end) in enumerate(pairwise(ends)):
        part = {name: x if name == "u" else x[:, :, begin:end] for name, x in case.arrays.items()}
        first, grown = initial[n : n + 1], dstate[n : n + 1]
        expected, state = reference.gated(*part.values(), scale=case.scale, initial=first)
        slopes = reference.gated_backward(
            case.do[:, :, begin:end], *part.values(), scale=case.scale, initial=first, dstate=grown
        )
        bonus = bonus + slopes["u"]
        assert rms_error(asnumpy(last)[n : n + 1], state) < state_bar(1)
        assert rms_error(asnumpy(made[-1])[n : n + 1], slopes["initial"]) < state_bar(1)
        if begin < end:
            assert rms_error(asnumpy(o)[:, :, begin:end].astype(np.float64), expected) < rms_bar("bf16", 1)
            for name, x in zip("qkvg", made, strict=False):
                error = rms_error(asnumpy(x)[:, :, begin:end].astype(np.float64), slopes[name])
                assert error < GRADIENT_SLACK * rms_bar("bf16", 1), name
    assert rms_error(asnumpy(made[4]).astype(np.float64), bonus) < GRADIENT_SLACK * rms_bar("bf16", 1)


def test_wide_heads_of_any_strides_in_both_layouts_that_share_inputs_give_the_same_bits(
    xp: ModuleType, asnumpy: AsNumpy
) -> None:
    case = make("gla", (2, 4, 40, 130, 5), "f16", gate_dtype="f32")
    few = {name: x[:, :heads] for (name, x), heads in zip(case.arrays.items(), (4, 2, 1, 2), strict=True)}
    repeated = [xp.asarray(np.repeat(x, 4 // x.shape[1], 1)) for x in few.values()]
    o = asnumpy(gla(*repeated, mode="chunk"))

    def strange(x: Any) -> Any:
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1] + 3), np.nan, dtype=x.dtype)[..., 1:-2:2]
        wide[...] = x
        return wide

    out = strange(xp.zeros(o.shape, dtype=case.do.dtype))
    made = gla(*(strange(xp.asarray(np.ascontiguousarray(x))) for x in few.values()), mode="chunk", out=out)
    assert made is out and np.array_equal(asnumpy(out), o)
    turned = [xp.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in few.values()]
    assert np.array_equal(asnumpy(gla(*turned, mode="chunk", layout="bthd")).swapaxes(1, 2), o)


@pytest.mark.parametrize(("features", "values"), [(136, 140), (256, 128)])
def test_states_on_the_way_of_wide_heads(xp: ModuleType, asnumpy: AsNumpy, features: int, values: int) -> None:
    case = make("gla", (1, 2, 150, features, values), "bf16", gates="as GLA begins")
    test_gated_states.check(xp, asnumpy, case, 64, "chunk")


def test_a_wide_head_goes_on_from_the_state_that_another_call_left(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("gla", SMALL, "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    whole, last = gla(*on, return_state=True, mode="chunk")
    first, middle = gla(*(x[:, :, :40] for x in on), return_state=True, mode="chunk")
    second, end = gla(*(x[:, :, 40:] for x in on), initial_state=middle, return_state=True, mode="chunk")
    joined = np.concatenate([asnumpy(first), asnumpy(second)], 2).astype(np.float64)
    assert rms_error(joined, asnumpy(whole).astype(np.float64)) < rms_bar("bf16", joined.size)
    assert rms_error(asnumpy(end), asnumpy(last).astype(np.float64)) < state_bar(1)


def test_the_workspace_has_room_for_a_result_of_each_part_in_float(xp: ModuleType) -> None:
    arrays = [xp.asarray(x) for x in make("gla", (2, 3, 60, 300, 20), "bf16").arrays.values()]
    assert kgen.workspace(gla, *arrays, mode="chunk") == 3 * (2 * 3 * 60 * 24) * 4  # three parts, rows of whole eights
    assert "in 3 parts of 128 features" in kgen.explain(gla, *arrays, mode="chunk")


@pytest.mark.parametrize(
    ("shape", "forward", "backward"),
    [
        ((1, 1, 31), False, False),
        ((1, 16, 32), False, False),
        ((1, 16, 100), False, True),
        ((3, 1, 100), False, True),
        ((1, 1, 256), True, True),
        ((3, 1, 256), True, True),
        ((1, 64, 64), True, True),
    ],
    ids=str,
)
def test_parts_are_chosen_where_an_h200_was_faster_with_them(
    xp: ModuleType, shape: tuple[int, int, int], forward: bool, backward: bool
) -> None:
    x, u = xp.zeros((*shape, 130), dtype=DTYPES["f16"].numpy), xp.zeros((shape[1], 130), dtype=DTYPES["f16"].numpy)
    assert ("in chunks" in kgen.explain(rwkv6, x, x, x, x, u)) == forward
    assert ("in chunks" in kgen.explain(rwkv6_backward, x, x, x, x, x, u)) == backward


def test_a_call_on_wide_heads_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("rwkv6", BOTH, "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    first, again = (rwkv6_backward(xp.asarray(case.do), *on, mode="chunk") for _ in range(2))
    assert all(np.array_equal(asnumpy(x), asnumpy(y)) for x, y in zip(first, again, strict=True))


def test_blocks_of_wide_heads_read_what_was_written_and_race_for_nothing() -> None:
    case = make("rwkv6", (1, 1, 66, 132, 140), "bf16")
    states: Any = {"initial_state": case.initial, "scale": case.scale, "mode": "chunk"}
    with watching() as watch:
        rwkv6(*case.arrays.values(), return_state=True, **states)
        rwkv6_backward(case.do, *case.arrays.values(), dstate=case.dstate, **states)
    assert not watch.findings, watch


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "sizes", "dtype", "gates"),
    [
        ("gla", (2, 33, 65, 256, 256), "bf16", "as RWKV6 begins"),
        ("gla", (1, 2, 2049, 256, 256), "bf16", "as GLA begins"),
        ("rwkv6", (1, 3, 500, 256, 256), "f16", "as RWKV6 begins"),
        ("rwkv6", (2, 3, 127, 512, 300), "bf16", "sometimes -1000"),
        ("gla", (1, 1, 1000, 192, 64), "f16", "hard resets"),
        ("rwkv6", (1, 2, 300, 64, 192), "bf16", "strong"),
    ],
    ids=str,
)
def test_large_and_small_heads_in_parts(
    operator: str, sizes: tuple[int, int, int, int, int], dtype: str, gates: str
) -> None:
    import cupy

    case = make(operator, sizes, dtype, gates=gates)
    check(cupy, cupy.asnumpy, case, dtype)
    check_gradients(cupy, cupy.asnumpy, case, dtype)
