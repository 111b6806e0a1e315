"""Group normalisation beside float64: channels of any size, which begin and end anywhere in a pack, on every kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kgen
from kgen.catalog import parse
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.norm import group_norm
from kgen.ops.questions import explain
from kgen.ops.rows_ring import Cut
from kgen.samples import call, cases_of, complaint
from tests.ops.test_norm import assert_close, reference
from tests.ops.test_rows_ring import rows_apart, surroundings
from tests.ops.test_softmax import ULP, examples, rows_in_turn

AsNumpy = Callable[[Any], np.ndarray]

PLACES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 64, 100, 255)


def exact(
    x: np.ndarray, groups: int, weight: np.ndarray | None, bias: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, mean, rstd in float64."""
    spread = (x.shape[1], *(1 for _ in x.shape[2:]))
    normal, mean, rstd = reference(x.reshape(x.shape[0], groups, -1), (2,))
    y = normal.reshape(x.shape)
    y = y if weight is None else y * weight.astype(np.float64).reshape(spread)
    return y if bias is None else y + bias.astype(np.float64).reshape(spread), mean, rstd


@pytest.fixture
def h200() -> Iterator[None]:
    """The executor answers as an H200 where it is asked what would be launched."""
    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    yield
    stand_for(HOST_FACTS)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Normal numbers about 1."""
    return (np.random.default_rng(seed).standard_normal(shape) + 1).astype(DTYPES[dtype].numpy)


@examples
@given(data=st.data())
def test_any_groups_agree_with_float64_and_nothing_beside_them_is_written(data: st.DataObject) -> None:
    """Items lie anywhere, and some elements apart; what lies before, between and behind them is neither."""
    draw = data.draw
    dtype, own = (draw(st.sampled_from(["f32", "f16", "bf16"])) for _ in range(2))
    items, groups, places = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 32])), draw(st.sampled_from(PLACES))
    channels = groups * draw(st.integers(1, 9))
    weight, bias = (numbers((channels,), own, seed) if draw(st.booleans()) else None for seed in (1, 2))
    shape = (items, channels, places)
    x, y = (
        rows_apart(items * groups, channels // groups * places, 0, draw(st.integers(0, 9)), DTYPES[dtype].numpy)
        for _ in range(2)
    )
    x[:] = numbers(shape, dtype).reshape(x.shape)
    expected, means, rstds = exact(x.reshape(shape), groups, weight, bias)
    poison = surroundings(y).copy()
    with kgen.backend("cpu"):
        result, mean, rstd = group_norm(x.reshape(shape), groups, weight, bias, out=y.reshape(shape), return_stats=True)
    assert_close(np.asarray(result), expected, dtype, terms=40)
    np.testing.assert_allclose(mean, means, atol=1e-6)
    np.testing.assert_allclose(rstd, rstds, rtol=1e-4)
    assert surroundings(y).tobytes() == poison.tobytes()


# Items, channels, places, groups: packs within channels, across them, and rows that begin anywhere; several rows for
# each of the clusters, of as many groups as there are not clusters.
RINGS = [
    ("f32", (9, 6, 4092), 2, Cut(3, 4, 2, 2)),
    ("f32", (9, 8, 2041), 2, Cut(2, 4, 2, 2)),
    ("bf16", (5, 16, 2041), 2, Cut(2, 8, 2, 2)),
    ("f32", (9, 6, 4091), 2, Cut(3, 4, 2, 2, ragged=True)),
    ("f32", (3, 10, 1641), 2, Cut(3, 4, 2, 3, ragged=True)),
    ("bf16", (7, 9, 5464), 3, Cut(3, 8, 2, 2)),
    ("bf16", (7, 9, 5471), 3, Cut(3, 8, 2, 2, ragged=True)),
    ("f16", (5, 1028, 17), 1, Cut(3, 8, 2, 2, ragged=True)),
    ("f16", (5, 4, 9841), 2, Cut(2, 8, 4, 2, ragged=True)),
    # One warp of each block finds out for all what follows for a row, in more turns than there are exchanges or stages.
    ("f32", (19, 8, 4104), 2, Cut(3, 4, 4, 2)),
    ("f32", (19, 8, 4099), 2, Cut(3, 4, 4, 2, ragged=True)),
    ("bf16", (9, 8, 8209), 2, Cut(2, 8, 8, 1, ragged=True)),
]


@pytest.mark.parametrize(
    ("dtype", "shape", "groups", "cut", "own"), [(*ring, ("f32", "bf16")[nth % 2]) for nth, ring in enumerate(RINGS)]
)
def test_groups_that_clusters_take_in_turn_agree_with_float64(
    dtype: str,
    shape: tuple[int, ...],
    groups: int,
    cut: Cut,
    own: str,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if xp is not np and rows_cut.largest(0) == 1:
        pytest.skip("this device has no clusters")
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cut)
    host, weight, bias = numbers(shape, dtype), numbers(shape[1:2], own, 1), numbers(shape[1:2], own, 2)
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    assert "norm_ring" in explain(group_norm, x, groups, w, b)
    y, mean, rstd = group_norm(x, groups, w, b, return_stats=True)
    expected, means, rstds = exact(host, groups, weight, bias)
    assert_close(asnumpy(y), expected, dtype, terms=8)
    np.testing.assert_allclose(asnumpy(mean), means, rtol=1e-6)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-6)
    assert_close(asnumpy(group_norm(x, groups, w)), exact(host, groups, weight, None)[0], dtype, terms=8)
    expected = exact(host, groups, None, bias)[0]
    assert_close(asnumpy(group_norm(x, groups, None, b, out=x)), expected, dtype, terms=8)  # in its place


@pytest.mark.parametrize(("dtype", "places"), [("bf16", 5462), ("f16", 5461)])
def test_a_large_mean_of_groups_costs_less_than_the_rounding_of_results(
    dtype: str, places: int, xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring numbers of 16 bits far from zero: the largest mean that they can have, counted in deviations."""
    if xp is not np and rows_cut.largest(0) == 1:
        pytest.skip("this device has no clusters")
    cut = Cut(2, 8, 2, 2, ragged=True)
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cut)
    step = 2.0 ** -(7 if dtype == "bf16" else 10) * 64
    host = (64 + step * np.random.default_rng(0).integers(0, 3, (5, 6, places))).astype(DTYPES[dtype].numpy)
    weight, bias = numbers((6,), "f32", 1), numbers((6,), "f32", 2)
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    for about in ((w, b), (w, None), (None, b)):
        expected, _, _ = exact(host, 2, *(None if a is None else asnumpy(a) for a in about))
        apart = np.abs(asnumpy(group_norm(x, 2, *about)).astype(np.float64) - expected)
        assert (apart <= ULP[dtype] * (np.abs(expected) + 1)).all()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((26, 640, 3969), "norm_ring_n5_v4_c8_weight_bias_channels_across_ragged_f32"),
        ((31, 128, 16385), "norm_ring_n8_v4_c4_weight_bias_channels_across_ragged_f32"),
        ((31, 128, 16386), "norm_ring_n8_v4_c4_weight_bias_channels_across_ragged_f32"),
        ((31, 128, 16400), "norm_ring_n5_v4_c8_weight_bias_channels_f32"),
        ((31, 128, 16384), "norm_ring_n8_v4_c4_weight_bias_channels_f32"),
    ],
)
def test_packs_of_groups_that_begin_amid_sectors_are_those_of_sectors(
    shape: tuple[int, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with them elements are left to the edge, which would take one more pack of each thread."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    around, w = np.empty(math.prod(shape) + 8, "f"), np.empty(shape[1], "f")
    x = around[-around.ctypes.data // 4 % 8 :][: math.prod(shape)].reshape(shape)
    with kgen.backend("cpu"):
        assert explain(group_norm, x, 32, w, w).startswith(expected)


@pytest.mark.parametrize("apart", [0, 4])
def test_groups_amid_sectors_are_read_and_written_where_they_lie(apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 2)
    x, y = (rows_apart(16, 4 * 4099, 0, 4 + more, np.dtype("f")).reshape(8, 8, 4099) for more in (0, apart))
    x[:], weight, bias = numbers(x.shape, "f32"), numbers((8,), "f32", 1), numbers((8,), "f32", 2)
    poison = surroundings(y.reshape(16, -1)).copy()
    with kgen.backend("cpu"):
        group_norm(x, 2, weight, bias, out=y)
    assert_close(y, exact(x, 2, weight, bias)[0], "f32", terms=8)
    assert surroundings(y.reshape(16, -1)).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("shape", "groups", "dtype", "cluster"),
    [((67, 4, 516), 2, "bf16", 1), ((67, 4, 515), 2, "f16", 1), ((67, 6, 1371), 2, "bf16", 2)],
)
def test_groups_that_blocks_take_in_turn_agree_with_float64(
    shape: tuple[int, ...],
    groups: int,
    dtype: str,
    cluster: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looped = rows_in_turn(monkeypatch, cluster)
    host, weight, bias = numbers(shape, dtype), numbers(shape[1:2], dtype, 1), numbers(shape[1:2], dtype, 2)
    y = group_norm(xp.asarray(host), groups, xp.asarray(weight), xp.asarray(bias))
    assert looped == [True]
    assert_close(asnumpy(y), exact(host, groups, weight, bias)[0], dtype, terms=8)


@pytest.mark.parametrize(
    "name",
    [
        "norm_t512_n3_v4_weight_bias_channels_f32",
        "norm_t128_n2_v4_weight_channels_across_f32",
        "norm_t128_n4_v8_c2_bias_channels_across_ragged_bf16",
        "norm_t512_n2_v8_weight_bias_channels_across_looped_bf16",
        "norm_t8_n4_v4_weight_bias_grouped_ragged_f32",
        "norm_ring_n2_v4_c2_weight_bias_channels_across_f32",
        "norm_grid_n2_v4_s5_weight_bias_channels_across_f32",
    ],
)
def test_sample_calls_of_groups_are_right(name: str) -> None:
    spec = parse(name)
    for case in cases_of(spec):
        with kgen.backend("cpu"):
            assert not complaint(case, call(case))


def test_groups_of_any_length_have_weights_by_channel(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows too wide for registers are cut: a part begins in the midst of a channel."""
    monkeypatch.setattr(rows_cut, "cut", lambda *about, **more: None)
    monkeypatch.setattr("kgen.ops.rows_grid.cut", lambda *about, **more: None)
    for places in (1, 3, 4, 1375):
        host = numbers((2, 1500 if places < 9 else 18, places), "bf16")
        weight, bias = (numbers(host.shape[1:2], "f32", seed) for seed in (1, 2))
        x, w, b = (xp.asarray(array) for array in (host, weight, bias))
        assert "norm_split" in explain(group_norm, x, 2, w, b)
        assert_close(asnumpy(group_norm(x, 2, w, b)), exact(host, 2, weight, bias)[0], "bf16", terms=8)


@pytest.mark.parametrize(
    ("channels", "cut", "expected"),
    [
        (2560, Cut(6, 4, 1, 2, ragged=True), "norm_ring_n6_v4_c1_weight_bias_channels_across_ragged_f32"),
        (2562, Cut(6, 4, 1, 2, ragged=True), "norm_t"),
        (2802, Cut(7, 4, 1, 2, ragged=True), "norm_ring_n7_v4_c1_weight_bias_channels_across_ragged_f32"),
    ],
)
def test_weights_of_as_many_channels_as_shared_memory_has_room_for(
    channels: int, cut: Cut, expected: str, xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cut)
    host, weight, bias = (
        numbers((3, channels, 9), "f32"),
        numbers((channels,), "f32", 1),
        numbers((channels,), "f32", 2),
    )
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    assert explain(group_norm, x, 2, w, b).startswith(expected)
    assert_close(asnumpy(group_norm(x, 2, w, b)), exact(host, 2, weight, bias)[0], "f32", terms=8)


@pytest.mark.parametrize(("dtype", "channels", "places"), [("bf16", 1280, 8), ("f16", 1131, 9), ("bf16", 4, 2557)])
def test_a_block_gathers_the_weights_of_any_group_that_it_holds(dtype: str, channels: int, places: int) -> None:
    """A channel has as many elements as a pack, at least, so that there is room for all."""
    cut = rows_cut.Cut(256, 5, 8, 1)
    x, y = (rows_apart(4, channels * places, 0, 1, DTYPES[dtype].numpy).reshape(2, 2 * channels, places) for _ in "xy")
    x[:], weight, bias = numbers(x.shape, dtype), numbers(x.shape[1:2], dtype, 1), numbers(x.shape[1:2], dtype, 2)
    with mock.patch.object(rows_cut, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        for about in ((weight, bias), (weight, None), (None, bias)):
            assert "across_ragged" in explain(group_norm, x, 2, *about, out=y)
            group_norm(x, 2, *about, out=y)
            assert_close(y, exact(x, 2, *about)[0], dtype, terms=40)


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((64, 320, 1024), "norm_t"),
        ((64, 2048, 1), "grouped"),  # as a layer norm whose weights are those of the row's group
        ((64, 320, 4096), "norm_ring"),
        ((64, 640, 3969), "norm_ring"),
        ((64, 512, 16384), "norm_ring"),
        ((64, 512, 65536), "norm_grid"),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_usual_groups_are_read_in_whole_packs(shape: tuple[int, ...], kernel: str, dtype: str, h200: None) -> None:
    x, w = np.empty(shape, DTYPES[dtype].numpy), np.empty(shape[1], DTYPES[dtype].numpy)
    with kgen.backend("cpu"):
        found = explain(group_norm, x, 32, w, w)
    assert kernel in found
    assert f"_v{16 // x.itemsize}_" in found


@pytest.mark.parametrize(
    ("shape", "dtype", "cut"),
    [
        ((256, 640, 1024), "bf16", "norm_t512_n5_v8_"),  # of so many rows, and not in turn
        ((256, 640, 1023), "f16", "norm_t512_n5_v8_"),
        ((4096, 256, 81), "f32", "norm_t32_n6_v4_"),
        ((4096, 256, 49), "bf16", "norm_t16_n4_v8_"),
        ((4096, 256, 1), "f32", "norm_t2_n1_v4_"),
    ],
)
def test_groups_have_the_cut_that_was_measured_to_be_fastest(
    shape: tuple[int, ...], dtype: str, cut: str, h200: None
) -> None:
    x, w = np.empty(shape, DTYPES[dtype].numpy), np.empty(shape[1], DTYPES[dtype].numpy)
    with kgen.backend("cpu"):
        found = explain(group_norm, x, 32, w, w)
    assert found.startswith(cut)
    assert "looped" not in found
