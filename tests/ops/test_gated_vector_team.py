"""Teams of blocks that share sequences with a gate for each feature beside float64, wherever they are cut."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import explain
from kgen import gated_reference as reference
from kgen.backend import HOST
from kgen.device import current_device, multiprocessors
from kgen.dtypes import DTYPES
from kgen.ops.calls import OPERATORS as OPERATORS_BY_NAME
from kgen.ops.gated import chunk_vector
from kgen.ops.gated.gla import gla
from kgen.ops.gated.vector_team import LARGEST, LONGEST, SHORTEST
from tests import plans
from tests.gpu.numerics import rms_bar, rms_error
from tests.ops.test_gated import GATES, make
from tests.ops.test_gated_chunk_vector import OPERATORS, AsNumpy, check, state_bar

SIZES = (1, 1, 300, 52, 20)
"""Ten chunks, of which the last is not full; features and values that do not fill their tiles."""

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Into so many segments from now on."""

    def into(segments: int) -> None:
        monkeypatch.setattr(chunk_vector, "segments_of", lambda *about: segments)
        forget()

    yield into
    forget()


def forget() -> None:
    """What operators remember of calls, which no cut is part of."""
    plans.forget(OPERATORS_BY_NAME[name] for name in OPERATORS)


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_kind_of_gate_is_within_the_bars(
    xp: ModuleType, asnumpy: AsNumpy, cut: Any, operator: str, gates: str
) -> None:
    cut(3)
    check(xp, asnumpy, make(operator, SIZES, "bf16", gates=gates, seed=3), "bf16")


@pytest.mark.parametrize("segments", [2, 4, 5, 9, 13])
def test_a_team_may_have_any_number_of_blocks_some_with_nothing_to_do(
    xp: ModuleType, asnumpy: AsNumpy, cut: Any, segments: int
) -> None:
    cut(segments)
    check(xp, asnumpy, make("rwkv6", SIZES, "f16", gate_dtype="f32", reverse=True), "f16")
    check(xp, asnumpy, make("gla", (2, 2, 70, 52, 20), "bf16", gates="zero"), "bf16")


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e12])
def test_numbers_beyond_float16_are_scaled(xp: ModuleType, asnumpy: AsNumpy, cut: Any, size: float) -> None:
    cut(4)
    case = make("gla", SIZES, "bf16")
    kind = case.arrays["q"].dtype
    case.arrays["q"] = (case.arrays["q"].astype("f") * size).astype(kind)
    case.arrays["k"] = (case.arrays["k"].astype("f") / np.float32(size)).astype(kind)
    case.arrays["v"] = (case.arrays["v"].astype("f") * size).astype(kind)
    check(xp, asnumpy, case, "bf16")


def test_a_state_of_long_ago_is_all_that_is_left_of_it(xp: ModuleType, asnumpy: AsNumpy, cut: Any) -> None:
    """Nothing is added behind the first time steps: what later ones read has decayed by almost all that floats hold."""
    cut(3)
    case = make("gla", SIZES, "bf16")
    case.arrays["k"][:, :, 8:] = 0
    case.arrays["g"][...] = -0.25
    check(xp, asnumpy, case, "bf16")


def test_any_strides_and_both_layouts_are_taken(xp: ModuleType, asnumpy: AsNumpy, cut: Any) -> None:
    cut(3)
    case = make("gla", (2, 2, 177, 53, 21), "f16", gate_dtype="f32")

    def strange(x: Any) -> Any:
        wide = xp.full((*x.shape[:-1], 2 * x.shape[-1] + 3), np.nan, dtype=x.dtype)[..., 1:-2:2]
        wide[...] = x
        return wide[:, ::-1, ::-1][:, ::-1, ::-1]

    on = [xp.asarray(x) for x in case.arrays.values()]
    initial = xp.asarray(case.initial)
    o, state = gla(*on, initial_state=initial, return_state=True, mode="chunk")
    expected, _ = reference.gated(*case.arrays.values(), scale=case.scale, initial=case.initial)
    assert rms_error(asnumpy(o).astype(np.float64), expected) < rms_bar("f16", expected.size)
    out = strange(xp.zeros_like(o))
    again, last = gla(*map(strange, on), initial_state=strange(initial), return_state=True, mode="chunk", out=out)
    assert again is out and np.array_equal(asnumpy(out), asnumpy(o)) and np.array_equal(asnumpy(last), asnumpy(state))
    turned = [xp.ascontiguousarray(x.swapaxes(1, 2)) for x in on]
    seq_first = gla(*turned, initial_state=initial, mode="chunk", layout="bthd")
    assert np.array_equal(asnumpy(seq_first).swapaxes(1, 2), asnumpy(o))


def test_from_nothing_to_nothing_a_call_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy, cut: Any) -> None:
    cut(3)
    case = make("gla", (1, 2, 300, 52, 20), "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    first, again = (asnumpy(gla(*on, mode="chunk")) for _ in range(2))
    assert np.array_equal(first, again)
    expected, _ = reference.gated(*case.arrays.values(), scale=case.scale)
    assert rms_error(first.astype(np.float64), expected) < rms_bar("bf16", expected.size)


def test_heads_that_share_an_input_are_as_good_as_a_repeated_one(xp: ModuleType, asnumpy: AsNumpy, cut: Any) -> None:
    cut(2)
    case = make("gla", (2, 4, 177, 52, 20), "bf16")
    few = {name: x[:, :heads] for (name, x), heads in zip(case.arrays.items(), (4, 2, 1, 2), strict=True)}
    repeated = [np.repeat(x, 4 // x.shape[1], 1) for x in few.values()]
    o = gla(*(xp.asarray(np.ascontiguousarray(x)) for x in few.values()), mode="chunk")
    assert np.array_equal(asnumpy(o), asnumpy(gla(*map(xp.asarray, repeated), mode="chunk")))


def test_a_team_leaves_the_state_that_one_block_leaves(xp: ModuleType, asnumpy: AsNumpy, cut: Any) -> None:
    case = make("gla", SIZES, "bf16")
    on = [xp.asarray(x) for x in case.arrays.values()]
    lasts = []
    for segments in (0, 5):
        cut(segments)
        lasts.append(asnumpy(gla(*on, return_state=True, mode="chunk")[1]).astype(np.float64))
    assert rms_error(*lasts) < state_bar(1)


def test_teams_take_sequences_of_few_segments_of_few_chunks(xp: ModuleType) -> None:
    few = multiprocessors(HOST if xp is np else current_device())
    most = min(few, LARGEST)
    cases = (
        (1, 3 * SHORTEST, True),
        (1, 3 * SHORTEST - 1, False),
        (1, (LARGEST + 1) * SHORTEST, False),
        (few // most, most * LONGEST, True),
        (few // most, most * LONGEST + 1, False),
        (few // 2, 2 * SHORTEST, False),
        (few, 4 * SHORTEST, False),
    )
    for heads, length, found in cases:
        x = xp.zeros((1, heads, length, 32), DTYPES["bf16"].numpy)
        assert ("gated_vector_team" in explain(gla, x, x, x, x)) is found, (heads, length)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "sizes", "dtype", "gates"),
    [
        ("gla", (1, 16, 2048, 128, 128), "bf16", "as RWKV6 begins"),
        ("gla", (1, 16, 2047, 128, 128), "bf16", "as GLA begins"),
        ("rwkv6", (1, 16, 2048, 128, 128), "bf16", "zero"),
        ("rwkv6", (2, 4, 1000, 128, 256), "f16", "as GLA begins"),
        ("gla", (2, 9, 1111, 96, 100), "f16", "sometimes -50"),
        ("rwkv6", (1, 33, 1001, 64, 64), "bf16", "hard resets"),
    ],
    ids=str,
)
def test_teams_as_large_as_they_come(
    operator: str, sizes: tuple[int, int, int, int, int], dtype: str, gates: str
) -> None:
    import cupy

    case = make(operator, sizes, dtype, gates=gates)
    assert "gated_vector_team" in explain(OPERATORS[operator], *map(cupy.asarray, case.arrays.values()))
    check(cupy, cupy.asnumpy, case, dtype)
