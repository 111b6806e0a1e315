"""Softmax and norms of rows that clusters, or blocks alone, take in turn: beside float64, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen import device
from kgen.backend import HOST, notice
from kgen.catalog import parse
from kgen.dtypes import DTYPES
from kgen.launch import listing_steps
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.norm import fused_add_rms_norm, layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.rows_ring import EDGE, EDGE_OF_LINES, THREADS, Cut
from kgen.ops.softmax.backward import log_softmax_backward, softmax_backward
from kgen.ops.softmax.ring import RING
from kgen.ops.softmax.softmax import log_softmax, softmax
from tests.ops import test_norm, test_softmax
from tests.ops.test_softmax import ULP

AsNumpy = Callable[[Any], np.ndarray]
Take = Callable[[Cut], None]

# Packs that all threads have and packs that some have; more rows than a ring has room for, and fewer than clusters.
CASES = [
    ("f32", 13, 12268, Cut(3, 4, 2, 2)),
    ("f32", 1, 12288, Cut(3, 4, 2, 2)),
    ("f32", 37, 16640, Cut(3, 4, 4, 3)),
    ("bf16", 33, 16344, Cut(2, 8, 2, 1)),
    ("f16", 17, 19680, Cut(2, 8, 4, 2)),
    ("f32", 1, 12287, Cut(3, 4, 2, 2, ragged=True)),
    ("f32", 37, 16642, Cut(3, 4, 4, 3, ragged=True)),
    ("bf16", 33, 16343, Cut(2, 8, 2, 1, ragged=True)),
    ("f16", 5, 19685, Cut(2, 8, 4, 2, ragged=True)),
]
# Of blocks that take rows in turn alone.
ALONE = [("bf16", 19, 8184, Cut(2, 8, 1, 3)), ("f32", 11, 6139, Cut(3, 4, 1, 2, ragged=True))]
# Some of these have no pack more than all threads have, where packs begin with a sector of memory, with a line, with a
# line behind a margin, or with any pack.
SECTORS = ("f32", 23, 8199, Cut(3, 4, 2, 2, ragged=True))
LINES = ("f32", 23, 8223, Cut(3, 4, 2, 2, ragged=True))
MASKED = ("f32", 23, 8231, Cut(3, 4, 2, 2, ragged=True))
EDGES = (EDGE, EDGE_OF_LINES)
ANY = ("f32", 23, 8197, Cut(3, 4, 2, 2, ragged=True))


@pytest.fixture
def take(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Has rows of any width taken in turn, by clusters of this cut."""
    if xp is not np and rows_cut.largest(0) == 1:
        pytest.skip("this device has no clusters")
    return lambda cut: monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cut)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Normal numbers about 3."""
    return (np.random.default_rng(seed).standard_normal(shape) + 3).astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize(("dtype", "rows", "columns", "cut"), [*CASES, LINES, *ALONE])
def test_softmax_of_rows_in_turn_agrees_with_float64(
    dtype: str, rows: int, columns: int, cut: Cut, xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(cut)
    host = numbers((rows, columns), dtype)
    x = xp.asarray(host)
    assert "softmax_ring" in explain(softmax, x, -1)
    test_softmax.assert_close(asnumpy(softmax(x, -1)), test_softmax.reference(host, -1), dtype)
    scaled = asnumpy(softmax(x, -1, scale=-0.5, out=xp.zeros_like(x)))
    test_softmax.assert_close(scaled, test_softmax.reference(host, -1, scale=-0.5), dtype)
    expected = test_softmax.reference(host, -1, log=True)
    result = asnumpy(log_softmax(x, -1, out=x))  # in its place
    test_softmax.assert_close(result, expected, dtype, ulps=1.5)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "cut", "own"),
    [(*case, own) for case, own in zip([*CASES, SECTORS, *ALONE], cycle(["f32", "bf16"]))],
)
def test_norms_of_rows_in_turn_agree_with_float64(
    dtype: str, rows: int, columns: int, cut: Cut, own: str, xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(cut)
    host, weight, bias = numbers((rows, columns), dtype), numbers((columns,), own, 2), numbers((columns,), own, 3)
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    assert "norm_ring" in explain(layer_norm, x, w, b)
    y, mean, rstd = layer_norm(x, w, b, return_stats=True)
    expected, means, rstds = test_norm.reference(host, (1,), weight, bias)
    test_norm.assert_close(asnumpy(y), expected, dtype, terms=8)
    np.testing.assert_allclose(asnumpy(mean), means, rtol=3e-7)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=3e-7)
    y, rstd = rms_norm(x, w, eps=1e-5, weight_offset=1.0, return_rstd=True)
    expected, _, rstds = test_norm.reference(host, (1,), weight, rms=True, offset=1.0)
    test_norm.assert_close(asnumpy(y), expected, dtype, terms=4)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=3e-7)
    expected, _, _ = test_norm.reference(host, (1,))
    plain = asnumpy(layer_norm(x, out=x))  # in its place, without weights
    test_norm.assert_close(plain, expected, dtype, terms=8)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "cut"),
    [
        ("f32", 29, 8184, Cut(2, 4, 2, 2)),
        ("bf16", 13, 32760, Cut(4, 8, 2, 1)),
        ("f32", 1, 8191, Cut(2, 4, 2, 2, ragged=True)),
        ("f16", 37, 16381, Cut(2, 8, 2, 3, ragged=True)),
        ("bf16", 50, 16379, Cut(2, 8, 2, 2, ragged=True)),
    ],
)
@pytest.mark.parametrize("own", ["f32", "bf16"])
def test_a_residual_is_added_to_rows_in_turn(
    dtype: str, rows: int, columns: int, cut: Cut, own: str, xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(cut)
    host, other = numbers((rows, columns), dtype), -numbers((rows, columns), dtype, 1)
    weight = numbers((columns,), own, 2)
    total = (host.astype("f4") + other.astype("f4")).astype(host.dtype)
    expected, _, rstds = test_norm.reference(total, (1,), weight, rms=True, offset=1.0)
    x, residual, w = (xp.asarray(array) for array in (host, other, weight))
    assert "norm_ring" in explain(rms_norm, x, w, residual=residual)
    y, sums, rstd = rms_norm(x, w, eps=1e-5, weight_offset=1.0, residual=residual, return_rstd=True)
    assert asnumpy(sums).tobytes() == total.tobytes()
    test_norm.assert_close(asnumpy(y), expected, dtype, terms=4)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=3e-7)
    result = fused_add_rms_norm(x, residual, w, eps=1e-5, weight_offset=1.0, out=x)  # all in their places
    assert asnumpy(residual).tobytes() == total.tobytes()
    assert asnumpy(result).tobytes() == asnumpy(x).tobytes() == asnumpy(y).tobytes()


@settings(max_examples=12)
@given(data=st.data(), dtype=st.sampled_from(["f32", "bf16", "f16"]), normal=st.booleans())
def test_rows_that_begin_anywhere_are_read_and_written_where_they_lie(
    data: st.DataObject, dtype: str, normal: bool
) -> None:
    """Any width, distance and first place of rows; what lies before, between and behind them is neither. Some have an
    edge of some packs."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    cut = Cut(2, vec, 2, data.draw(st.integers(1, 3)), ragged=True)
    rows = data.draw(st.integers(1, 19))
    edge = EDGE if normal else EDGE_OF_LINES
    columns = data.draw(st.integers((1025 + edge) * vec, (2049 + edge) * vec - 1))
    offset, apart = (data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2))
    x, y, other, total = (rows_apart(rows, columns, apart, offset, DTYPES[dtype].numpy) for _ in range(4))
    x[:], weight, bias = numbers((rows, columns), dtype), numbers((columns,), dtype, 2), numbers((columns,), dtype, 3)
    poison = surroundings(y).copy()
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        if normal:
            assert "ring" in explain(layer_norm, x, weight, bias, out=y)
            expected, _, _ = test_norm.reference(x, (1,), weight, bias)
            test_norm.assert_close(np.asarray(layer_norm(x, weight, bias, out=y)), expected, dtype, terms=8)
            other[:] = x
            total[:] = 2 * x
            expected, _, _ = test_norm.reference(total, (1,), weight, rms=True)
            assert "ring" in explain(rms_norm, x, weight, out=y)
            y = np.asarray(fused_add_rms_norm(x, other, weight, eps=1e-5, out=y))
            test_norm.assert_close(y, expected, dtype, terms=4)
            assert other.tobytes() == total.tobytes()
            expected, _, _ = test_norm.reference(x, (1,), weight, rms=True)
            test_norm.assert_close(np.asarray(rms_norm(x, weight, eps=1e-5, out=x)), expected, dtype, terms=4)
        else:
            assert "ring" in explain(softmax, x, -1, out=y)
            test_softmax.assert_close(np.asarray(softmax(x, -1, out=y)), test_softmax.reference(x, -1), dtype)
            expected = test_softmax.reference(x, -1, log=True)
            test_softmax.assert_close(np.asarray(log_softmax(x, -1, out=x)), expected, dtype, ulps=1.5)
    assert all(surroundings(array).tobytes() == poison.tobytes() for array in (x, y, other))


def rows_apart(rows: int, columns: int, apart: int, offset: int, dtype: Any) -> np.ndarray:
    """Rows in the midst of NaN, so many elements apart, of which the first begins so many behind an aligned one."""
    pitch = columns + apart
    around = np.full(offset + rows * pitch + 64, np.nan, dtype)
    return around[offset : offset + rows * pitch].reshape(rows, pitch)[:, :columns]


def surroundings(x: np.ndarray) -> np.ndarray:
    """What lies between rows of `rows_apart`, before and behind them."""
    base = x
    while base.base is not None:
        base = base.base
    outside = np.ones(base.size, bool)
    first = (x.ctypes.data - base.ctypes.data) // x.itemsize
    for row in range(len(x)):
        begin = first + row * x.strides[0] // x.itemsize
        outside[begin : begin + x.shape[1]] = False
    return base[outside]


@pytest.mark.parametrize(("packs", "vec"), [(2, 4), (2, 8), (6, 4), (6, 8)])
@pytest.mark.parametrize("rows", [1, 3, 8, 17, 67])
def test_all_rows_are_taken_in_whatever_order(rows: int, packs: int, vec: int, take: Take) -> None:
    """Rows that begin anywhere, whose weights take up registers, follow one another by where in a sector they begin."""
    dtype = {4: "f32", 8: "bf16"}[vec]
    cluster = 2 if packs == 2 else 1
    for clusters in (1, 2, 9):
        take(Cut(packs, vec, cluster, clusters, ragged=True))
        columns = ((packs - 1) * cluster * THREADS + 1 + EDGE) * vec + 1 + 2 * clusters
        host = numbers((rows, columns), dtype)
        weight, bias = numbers(host.shape[1:], dtype, 2), numbers(host.shape[1:], dtype, 3)
        with kgen.backend("cpu"):
            result = np.asarray(layer_norm(host, weight, bias))
        test_norm.assert_close(result, test_norm.reference(host, (1,), weight, bias)[0], dtype, terms=8)


BLOCKS = (1, 256), (2, 512), (1, 512), (4, 256)
"""Of a cluster, and threads of each."""


@pytest.mark.parametrize(
    ("dtype", "own", "cluster", "threads"),
    [
        (dtype, own, *blocks)  # of any two of the three, every pair
        for nth, own in enumerate(("f32", "bf16", "f16"))
        for other, dtype in enumerate(("f32", "bf16"))
        for blocks in BLOCKS[(nth + other) % 2 :: 2]
    ],
)
def test_weights_are_found_at_all_places_of_a_sector_where_rows_begin(
    dtype: str, own: str, cluster: int, threads: int, take: Take
) -> None:
    """In shared memory, of which the last packs reach beyond their block's columns. Weights begin anywhere, too."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    take(Cut(2, vec, cluster, 2, True, threads))
    for offset, columns in enumerate((2 * threads * cluster * vec - 3, (2 * threads * cluster - 61) * vec)):
        shape = (2 * vec + 3, columns, 1 - columns % 2, 3, DTYPES[dtype].numpy)
        x, residual, y = (rows_apart(*shape) for _ in range(3))
        weight, bias = (rows_apart(1, columns, 0, offset, DTYPES[own].numpy)[0] for _ in range(2))
        x[:], residual[:] = numbers(x.shape, dtype), numbers(x.shape, dtype, 1)
        weight[:], bias[:] = numbers((columns,), own, 2), numbers((columns,), own, 3)
        poison = surroundings(y).copy()
        with kgen.backend("cpu"):
            assert "norm_ring" in explain(layer_norm, x, weight, bias, out=y)
            layer_norm(x, weight, bias, out=y)
            test_norm.assert_close(y, test_norm.reference(x, (1,), weight, bias)[0], dtype, terms=8)
            layer_norm(x, None, bias, out=y)
            test_norm.assert_close(y, test_norm.reference(x, (1,), None, bias)[0], dtype, terms=8)
            rms_norm(x, weight, eps=1e-5, out=y)
            test_norm.assert_close(y, test_norm.reference(x, (1,), weight, rms=True)[0], dtype, terms=4)
            fused_add_rms_norm(x, residual, weight, eps=1e-5, out=y)  # leaves the sum in its place
        test_norm.assert_close(y, test_norm.reference(residual, (1,), weight, rms=True)[0], dtype, terms=4)
        assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("dtype", "own", "rows", "columns", "expected"),
    [
        ("bf16", "f32", 331, 1043, "norm_ring_t32_n4_v8_c1_weight_bias_wfloat_ragged_bf16"),
        (
            "bf16",
            "f32",
            101,
            1055,
            "norm_ring_t32_n4_v8_c1_weight_bias_wfloat_ragged_bf16",
        ),  # an edge as wide as a warp
        ("f16", "f16", 96, 1357, "norm_ring_t32_n6_v8_c1_weight_bias_ragged_f16"),
        ("f16", "f32", 203, 2051, "norm_ring_t64_n4_v8_c1_weight_bias_wfloat_ragged_f16"),
        ("bf16", "f32", 67, 4097, "norm_ring_t128_n4_v8_c1_weight_bias_wfloat_ragged_bf16"),
        ("bf16", "bf16", 37, 6467, "norm_ring_t128_n7_v8_c1_weight_bias_ragged_bf16"),
    ],
)
def test_blocks_normalise_several_rows_at_once(
    dtype: str, own: str, rows: int, columns: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow ones at fixed turns and the last of them claimed, as are all wide ones: again and again, as the counter of
    the claims is zero after each call."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 1)
    x, y = (rows_apart(rows, columns, 0, 3, DTYPES[dtype].numpy) for _ in range(2))
    weight, bias = (rows_apart(1, columns, 0, offset, DTYPES[own].numpy)[0] for offset in (1, 2))
    x[:], weight[:], bias[:] = numbers(x.shape, dtype), numbers((columns,), own, 2), numbers((columns,), own, 3)
    poison = surroundings(y).copy()
    wanted, means, rstds = test_norm.reference(x, (1,), weight, bias)
    with kgen.backend("cpu"):
        assert explain(layer_norm, x, weight, bias, out=y).startswith(f"{expected} on 1 block")
        for _ in range(3):
            y[:] = np.nan
            layer_norm(x, weight, bias, out=y)
            test_norm.assert_close(y, wanted, dtype, terms=8)
        mean, rstd = layer_norm(x, weight, bias, return_stats=True)[1:]
    np.testing.assert_allclose(mean, means, rtol=3e-7)
    np.testing.assert_allclose(rstd, rstds, rtol=3e-7)
    assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("dtype", "cut"),
    [
        ("f32", Cut(3, 4, 2, 2)),
        ("bf16", Cut(2, 8, 2, 2)),
        ("f32", Cut(3, 4, 2, 2, ragged=True)),
        ("bf16", Cut(2, 8, 2, 2, ragged=True)),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_nan_and_infinity_stay_in_their_row(
    dtype: str, cut: Cut, log: bool, xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(cut)
    x = (np.random.default_rng(7).standard_normal((9, 12000 + cut.ragged)) * 3).astype("f")
    x[0, 7], x[1, -1], x[2], x[3, :9000], x[5, 1:], x[7, 9] = np.nan, np.inf, -np.inf, -np.inf, -np.inf, -np.inf
    x[3, 9000:] -= 200  # the sum must not be scaled by exp(200)
    x[4, :9000] = -3e4
    host = x.astype(DTYPES[dtype].numpy)
    result = asnumpy((log_softmax if log else softmax)(xp.asarray(host), -1))
    expected = test_softmax.reference(host, -1, log=log)
    assert (np.isnan(result) == np.isnan(expected)).all()
    test_softmax.assert_close(result[3:], expected[3:], dtype, ulps=16, floor=1.0 if log else 0.0)
    normal = asnumpy(layer_norm(xp.asarray(host[[6, 0, 1, 8]])))
    assert np.isnan(normal[1:3]).all()
    assert np.isfinite(normal[[0, 3]].astype("f")).all()


def test_the_largest_numbers_do_not_overflow_in_a_cluster(xp: ModuleType, asnumpy: AsNumpy, take: Take) -> None:
    take(Cut(2, 4, 2, 1))
    x = np.zeros((2, 8000), "f")
    x[0, ::2], x[0, 1::4], x[1] = 3.4028235e38, -3.4028235e38, -3.4028235e38
    test_softmax.assert_close(asnumpy(softmax(xp.asarray(x), -1)), test_softmax.reference(x, -1), "f32")


def test_a_small_variance_beside_a_large_mean_is_found_by_a_cluster(
    xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(Cut(3, 4, 2, 2))
    host = (numbers((5, 12000), "f32").astype(np.float64) + 1e4).astype(np.float32)
    y, mean, rstd = layer_norm(xp.asarray(host), return_stats=True)
    expected, means, rstds = test_norm.reference(host, (1,))
    np.testing.assert_allclose(asnumpy(mean), means, rtol=ULP["f32"])
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-5)  # of means of parts that are rounded
    np.testing.assert_allclose(asnumpy(y), expected, atol=2e-3)  # of a mean that is rounded


@pytest.mark.parametrize("cut", [Cut(3, 4, 2, 2), Cut(3, 4, 2, 2, ragged=True), Cut(5, 4, 1, 2)])
def test_numbers_far_from_the_others_cost_a_row_no_precision(
    xp: ModuleType, asnumpy: AsNumpy, take: Take, cut: Cut
) -> None:
    """They are the first of a warp, of several lanes or of one."""
    take(cut)
    host = numbers((6, 10240 if cut.cluster == 1 else 12000 + cut.ragged), "f32")
    for row, many in enumerate((1, 4, 8, 64, 128)):
        host[row, :many] = host[row, 2048 : 2048 + many] = 1e4
    _, _, rstd = layer_norm(xp.asarray(host), return_stats=True)
    rstds = test_norm.reference(host, (1,))[2]
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=5e-7)


def test_rows_in_turn_have_the_same_bits_again_and_again_on_any_number_of_clusters(
    xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    host = numbers((23, 12020), "f32")
    results = []
    for clusters in (1, 2, 2, 5):
        take(Cut(3, 4, 2, clusters))
        x = xp.asarray(host[:, : 12000 + 4 * clusters])[:, :12000]  # of strides for which nothing is decided yet
        results.append([asnumpy(softmax(x, -1)).tobytes(), asnumpy(layer_norm(x)).tobytes()])
    assert results.count(results[0]) == 4


@pytest.mark.parametrize(
    ("rows", "clusters"), [(1, 1), (1, 3), (20, 1), (20, 2), (20, 5), (61, 2), (61, 4), (77, 8), (150, 9)]
)
@pytest.mark.parametrize("kind", ["softmax", "beside", "ordered"])
def test_the_counter_of_claimed_rows_is_zero_again(
    rows: int, clusters: int, kind: str, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that begin anywhere, with weights and biases in registers, are claimed once a cluster has done its own."""
    cuts = {
        "softmax": Cut(3, 4, 2, clusters),
        "beside": Cut(3, 4, 2, clusters, True),
        "ordered": Cut(6, 4, 1, clusters, True),
    }
    take(cuts[kind])
    claims = np.zeros(1, np.uint32)
    monkeypatch.setattr(rows_ring, "workspace", lambda *about: (0, notice(claims).ctypes.data, claims))
    host = numbers((rows, 12000 + 4 * clusters + (kind != "softmax")), "f32")
    weight, bias = numbers(host.shape[1:], "f32", 2), numbers(host.shape[1:], "f32", 3)
    for _ in range(2):
        result = host.copy()  # and in its place, so that no row is taken twice
        with kgen.backend("cpu"):
            _ = softmax(result, -1, out=result) if kind == "softmax" else layer_norm(result, weight, bias, out=result)
        assert claims[0] == 0
        if kind == "softmax":
            test_softmax.assert_close(result, test_softmax.reference(host, -1), "f32")
        else:
            test_norm.assert_close(result, test_norm.reference(host, (1,), weight, bias)[0], "f32", terms=8)


@settings(max_examples=16)
@given(data=st.data(), dtype=st.sampled_from(["f32", "bf16", "f16"]), log=st.booleans(), masked=st.booleans())
def test_results_may_begin_at_other_places_than_what_is_read(
    data: st.DataObject, dtype: str, log: bool, masked: bool
) -> None:
    """Of each row: distances differ, too."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    rows = data.draw(st.integers(1, 13))
    columns = data.draw(st.integers((1025 + EDGE_OF_LINES) * vec, (2049 + EDGE_OF_LINES) * vec - 1))
    places = [[data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2)] for _ in range(2)]
    x, y = (rows_apart(rows, columns, apart, offset, DTYPES[dtype].numpy) for apart, offset in places)
    x[:] = numbers(x.shape, dtype)
    poison = surroundings(y).copy()
    cut = Cut(2, vec, 2, data.draw(st.integers(1, 3)), ragged=True)
    keep = np.random.default_rng(3).random(x.shape) < 0.6 if masked else None
    function = log_softmax if log else softmax
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        assert "softmax_ring" in explain(function, x, -1, mask=keep, out=y)
        function(x, -1, mask=keep, out=y)
    expected = test_softmax.reference(x, -1, log=log, keep=keep)
    test_softmax.assert_close(np.asarray(y), expected, dtype, ulps=1.5 if log else 4)
    assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("dtype", "columns", "by"),
    [*(("f32", 12268, by) for by in (1, 2, 3)), *(("bf16", 16344, by) for by in (1, 2, 5))],
)
def test_results_of_aligned_rows_may_begin_anywhere(dtype: str, columns: int, by: int) -> None:
    vec = 16 // DTYPES[dtype].numpy.itemsize
    x = numbers((11, columns), dtype)
    y = rows_apart(11, columns, 0, by, DTYPES[dtype].numpy)
    poison = surroundings(y).copy()
    cut = Cut(3 if vec == 4 else 2, vec, 2, 2, ragged=True)
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        with listing_steps() as steps:
            softmax(x, -1, out=y)
        assert [step.spec["shifted"] for step in steps] == [True]
        softmax(x, -1, out=y)
    test_softmax.assert_close(np.asarray(y), test_softmax.reference(x, -1), dtype)
    assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize("scale", [1.0, -1.0])
@pytest.mark.parametrize(("dtype", "by"), [("f32", 3), ("bf16", 1), ("bf16", 7), ("f16", 2)])
def test_the_greatest_number_is_found_wherever_the_parts_of_warps_meet(dtype: str, by: int, scale: float) -> None:
    """Without it the exponentials of a warp overflow."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    columns, rows = 1032 * vec, 2 * vec + 9
    x, y = (rows_apart(rows, columns, 0, offset, DTYPES[dtype].numpy) for offset in (by, 0))
    x[:] = -200 * scale
    x[np.arange(rows), 32 * vec + np.arange(rows)] = 200 * scale
    x[:, [0, -1]] = 199 * scale
    cut = Cut(2, vec, 1, 2, ragged=True)
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        assert "shifted" in explain(softmax, x, -1, scale=scale, out=y)
        softmax(x, -1, scale=scale, out=y)
    test_softmax.assert_close(np.asarray(y), test_softmax.reference(x.astype(np.float32) * scale, -1), dtype)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "cut", "causal", "masked"),
    [(*case, *out) for case, out in zip([*CASES, MASKED, *ALONE], cycle([(True, True), (False, True), (True, False)]))],
)
def test_what_is_left_out_of_rows_in_turn_is_left_out(
    dtype: str,
    rows: int,
    columns: int,
    cut: Cut,
    causal: bool,
    masked: bool,
    xp: ModuleType,
    asnumpy: AsNumpy,
    take: Take,
) -> None:
    """A query that sees no key, rows of which nothing is left, and a mask for all groups of rows."""
    take(cut)
    host = numbers((2, rows, columns), dtype)[:, : min(rows, 17)]
    keep = np.random.default_rng(1).random(host.shape[1:]) < 0.7
    keep[len(keep) // 2] = False
    keep[0, 5000:] = False
    x, mask = xp.asarray(host), xp.asarray(keep) if masked else None
    kept = np.broadcast_to(keep if masked else True, host.shape)
    if causal:
        kept = kept & np.tri(*host.shape[1:], host.shape[2] - host.shape[1], dtype=bool)
    about: dict[str, Any] = {"causal": causal, "mask": mask}
    assert "softmax_ring" in explain(softmax, x, -1, **about)
    test_softmax.assert_close(asnumpy(softmax(x, -1, **about)), test_softmax.reference(host, -1, keep=kept), dtype)
    expected = test_softmax.reference(host, -1, log=True, scale=-0.5, keep=kept)
    result = asnumpy(log_softmax(x, -1, scale=-0.5, out=x, **about))  # in its place
    test_softmax.assert_close(result, expected, dtype, ulps=1.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "columns", "cut", "stages"),
    [
        ("f32", 17429, Cut(9, 4, 2, 1, ragged=True, threads=256), (3, 2)),  # slots behind those of lanes take the rest
        ("f32", 19003, Cut(10, 4, 2, 2, ragged=True, threads=256), (2, 2)),
        ("bf16", 18439, Cut(5, 8, 2, 2, ragged=True, threads=256), (3, 3)),
    ],
)
def test_two_blocks_that_share_a_multiprocessor_take_rows_in_turn(
    dtype: str, columns: int, cut: Cut, stages: tuple[int, int], by: int, causal: bool
) -> None:
    """Of float32, where there is no room for three rows, exponentials stay in registers."""
    x, y = (rows_apart(11, columns, 0, offset, DTYPES[dtype].numpy) for offset in (by, 0))
    x[:] = numbers(x.shape, dtype) * np.linspace(1, 30, 11, dtype="f")[:, None]
    x[3, 700:] -= 60  # of most warps far below the greatest number
    keep = np.tri(*x.shape, columns - len(x), dtype=bool) if causal else np.ones(x.shape, bool)
    poison = surroundings(y).copy()
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        with listing_steps() as steps:
            softmax(x, -1, causal=causal, out=y)
        constants = [(step.spec.derived["STAGES"], step.spec.derived["RESIDENT"]) for step in steps]
        assert constants == [(stages[by], 2)]
        softmax(x, -1, causal=causal, out=y)
    test_softmax.assert_close(np.asarray(y), test_softmax.reference(x, -1, keep=keep), dtype)
    assert surroundings(y).tobytes() == poison.tobytes()


def test_the_greatest_of_numbers_below_zero_is_found() -> None:
    """Below another one the exponentials overflow: as integers, such numbers have the order turned round."""
    below = -np.random.default_rng(4).permutation(np.geomspace(1, 1000, 8192))
    x = np.stack([below, below + 1, below - 5]).astype("f")
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: Cut(2, 4, 2, 1)), kgen.backend("cpu"):
        test_softmax.assert_close(np.asarray(softmax(x, -1)), test_softmax.reference(x, -1), "f32")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_query_is_not_weighed_by_the_keys_of_another_one(dtype: str, take: Take) -> None:
    """Where nothing is fetched for it, what an earlier query saw still lies: there it saw more, and larger numbers."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    cut = Cut(2, vec, 2, 1)
    take(cut)
    stages = RING.spec(**cut.values(), dtype=DTYPES[dtype]).derived["STAGES"]
    queries, keys = stages + 2 * vec, 2048 * vec  # where the last query's keys lay come those of one that sees less
    host = numbers((5, queries, keys), dtype)
    host[:, -1] = 500
    with kgen.backend("cpu"):
        result = np.asarray(softmax(host, -1, causal=True))
    keep = np.tri(queries, keys, keys - queries, dtype=bool)
    test_softmax.assert_close(result, test_softmax.reference(host, -1, keep=keep), dtype)


@settings(max_examples=12)
@given(data=st.data(), dtype=st.sampled_from(["f32", "bf16"]), causal=st.booleans())
def test_a_mask_may_begin_anywhere_beside_rows_in_turn(data: st.DataObject, dtype: str, causal: bool) -> None:
    """Every element of the mask but those of rows would choose what is not theirs."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    rows = data.draw(st.integers(1, 13))
    columns = data.draw(st.integers((1025 + EDGE_OF_LINES) * vec, (2049 + EDGE_OF_LINES) * vec - 1))
    offset, apart = (data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2))
    mask_offset, mask_apart = (data.draw(st.integers(0, 9)) for _ in range(2))
    x, y = (rows_apart(rows, columns, apart, offset, DTYPES[dtype].numpy) for _ in range(2))
    x[:] = numbers(x.shape, dtype)
    mask = rows_apart(rows, columns, mask_apart, mask_offset, np.dtype(bool))
    mask[:] = np.random.default_rng(3).random(x.shape) < 0.6
    poison = surroundings(y).copy()
    keep = mask & np.tri(rows, columns, columns - rows, dtype=bool) if causal else mask
    cut = Cut(2, vec, 2, data.draw(st.integers(1, 3)), ragged=True)
    scale = data.draw(st.sampled_from([1, -0.5]))
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        assert "ring" in explain(softmax, x, -1, mask=mask, causal=causal, scale=scale, out=y)
        softmax(x, -1, mask=mask, causal=causal, scale=scale, out=y)
    test_softmax.assert_close(np.asarray(y), test_softmax.reference(x, -1, scale=scale, keep=keep), dtype)
    assert surroundings(y).tobytes() == poison.tobytes()


# Of which a ring has no room for three: packs come one by one, and of the widest rows some stay in registers.
BY_PACKS = [
    ("f32", 7, 20460, Cut(5, 4, 2, 1)),
    ("f32", 8, 53243, Cut(13, 4, 2, 1, ragged=True)),
    ("f32", 17, 32768, Cut(8, 4, 2, 3)),
    ("f32", 9, 65536, Cut(16, 4, 2, 2)),
    ("bf16", 9, 73723, Cut(9, 8, 2, 2, ragged=True)),
    ("f16", 1, 81920, Cut(10, 8, 2, 2)),
]


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "cut", "log"),
    [(*case, log) for case, log in zip([*CASES, SECTORS, *BY_PACKS], cycle([False, True]))],
)
def test_gradients_of_rows_in_turn_agree_with_float64(
    dtype: str, rows: int, columns: int, cut: Cut, log: bool, xp: ModuleType, asnumpy: AsNumpy, take: Take
) -> None:
    take(cut)
    dy = numbers((rows, columns), dtype, 1)
    y = test_softmax.reference(numbers((rows, columns), dtype), -1, log=log).astype(dy.dtype)
    backward = log_softmax_backward if log else softmax_backward
    given_dy, given_y = xp.asarray(dy), xp.asarray(y.copy())
    assert "softmax_backward_ring" in explain(backward, given_dy, given_y, -1)
    test_softmax.assert_gradient(asnumpy(backward(given_dy, given_y, -1, scale=-0.5)), dy, y, log=log, scale=-0.5)
    dx = asnumpy(backward(given_dy, given_y, -1, out=given_y))  # in its place
    test_softmax.assert_gradient(dx, dy, y, log=log)


@settings(max_examples=8)
@given(data=st.data(), dtype=st.sampled_from(["f32", "bf16"]))
def test_gradients_of_rows_that_begin_anywhere_are_written_where_they_lie(data: st.DataObject, dtype: str) -> None:
    vec = 16 // DTYPES[dtype].numpy.itemsize
    rows, packs = data.draw(st.integers(1, 13)), data.draw(st.sampled_from([2, 5, 9]))
    room = 1024 * packs
    columns = data.draw(st.integers((room - 1023 + EDGE) * vec, (room + 1 + EDGE) * vec - 1))
    offset, apart = (data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2))
    dy, y, dx = (rows_apart(rows, columns, apart, offset, DTYPES[dtype].numpy) for _ in range(3))
    dy[:] = numbers(dy.shape, dtype, 1)
    y[:] = test_softmax.reference(numbers(y.shape, dtype), -1)
    poison = surroundings(dx).copy()
    cut = Cut(packs, vec, 2, data.draw(st.integers(1, 3)), ragged=True)
    with mock.patch.object(rows_ring, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        assert "ring" in explain(softmax_backward, dy, y, -1, out=dx)
        softmax_backward(dy, y, -1, out=dx)
    test_softmax.assert_gradient(np.asarray(dx), np.asarray(dy), np.asarray(y))
    assert surroundings(dx).tobytes() == poison.tobytes()


@settings(max_examples=200)
@given(
    columns=st.integers(16400, 500000),
    vec=st.sampled_from([4, 8]),
    threads=st.sampled_from([THREADS // 2, THREADS]),
    about=st.sampled_from([(EDGE, 0), (EDGE, 8), (EDGE_OF_LINES, 0), (EDGE_OF_LINES, 8), (0, 0)]),
)
def test_rows_that_begin_anywhere_have_the_packs_that_all_threads_take(
    columns: int, vec: int, threads: int, about: tuple[int, int]
) -> None:
    """All but a thread's last, wherever a row begins; and threads for its edge, which is what the packs leave.

    With a mask, or where results begin elsewhere, a pack at most is left to the edge on both sides.
    """
    edge, margin = about[0], min(about[1], vec)
    with mock.patch.object(rows_ring, "multiprocessors", lambda device: 132):
        cut = rows_ring.cut(
            10**6, columns, rows_cut.Packs(vec, ragged=True, full=True), HOST, edge=edge, threads=threads
        )
    if cut is not None:
        head = max(edge - 2, 1) * vec - 1 + margin  # elements before a row's packs, at most
        of_row = cut.cluster * threads
        assert (cut.packs - 1) * of_row <= (columns - head - margin) // vec
        assert columns - cut.packs * of_row * vec < (edge + 1) * vec
        assert head + (edge + 2) * vec + margin <= threads


@pytest.mark.parametrize(
    "columns", [4 * (4096 + edge) + more for edge, more in ((0, 4), (0, 7), *((e, m) for e in EDGES for m in (3, 4)))]
)
def test_an_edge_of_some_packs_is_what_a_cut_leaves(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has eight packs of all rows but the widest, which make five of two blocks."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 2)
    x, y = (rows_apart(32, columns, 1 - columns % 2, 3, np.dtype("f")) for _ in range(2))
    x[:] = numbers(x.shape, "f32")
    poison = surroundings(y).copy()
    cuts, cut = [], rows_ring.cut
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cuts.append(cut(*about, **more)) or cuts[-1])
    with kgen.backend("cpu"):
        softmax(x, -1, out=y)
    of_layer_norm, of_softmax = (
        Cut(5, 4, 2, 1, ragged=True) if columns >= 4 * (4097 + edge) else Cut(8, 4, 1, 2, ragged=True) for edge in EDGES
    )
    softmaxes = len(cuts)  # which may take two blocks of half as many threads for one
    assert cuts[0] == of_softmax
    test_softmax.assert_close(y, test_softmax.reference(x, -1), "f32")
    assert surroundings(y).tobytes() == poison.tobytes()
    x += 30
    with kgen.backend("cpu"):
        _, mean, rstd = layer_norm(x, out=y, return_stats=True)
    assert cuts[softmaxes:] == [of_layer_norm]
    expected, means, rstds = test_norm.reference(x, (1,))
    np.testing.assert_allclose(mean, means, rtol=3e-7)
    np.testing.assert_allclose(rstd, rstds, rtol=3e-7)
    test_norm.assert_close(y, expected, "f32", terms=32)
    assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("dtype", "columns", "taken"),
    [
        ("f32", 16396, {"softmax": "t256_n8_v4_c2_ragged", "layer_norm": "n4_v4_c2_weight_bias_ragged"}),
        ("f32", 16416, {"softmax": "t256_n8_v4_c2_ragged", "layer_norm": "n5_v4_c2_weight_bias_ragged"}),
        ("f32", 16440, {"softmax": "n5_v4_c2", "layer_norm": "n5_v4_c2_weight_bias_ragged"}),
        ("bf16", 16648, {"softmax": "t256_n5_v8_c2_ragged", "layer_norm": "n5_v8_c1_weight_bias_ragged"}),
        ("bf16", 32776, {"softmax": "n4_v8_c2_ragged", "layer_norm": "n4_v8_c2_weight_bias_ragged"}),
    ],
)
def test_packs_of_rows_that_begin_amid_sectors_are_those_of_sectors(
    dtype: str, columns: int, taken: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those of rows of a few packs more than all threads take."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 2)
    x, y = (rows_apart(32, columns, 0, 0, DTYPES[dtype].numpy) for _ in range(2))
    x[:], weight, bias = numbers(x.shape, dtype), numbers((columns,), dtype, 1), numbers((columns,), dtype, 2)
    poison = surroundings(y).copy()
    for function, about in ((softmax, (-1,)), (layer_norm, (weight, bias))):
        with kgen.backend("cpu"):
            name = explain(function, x, *about).split()[0]
            function(x, *about, out=y)
        kernel = "softmax_ring" if function is softmax else "norm_ring"
        assert name == f"{kernel}_{taken[function.__name__]}_{dtype}"
        if function is softmax:
            test_softmax.assert_close(y, test_softmax.reference(x, -1), dtype)
        else:
            test_norm.assert_close(y, test_norm.reference(x, (1,), weight, bias)[0], dtype, terms=8)
        assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("function", "dtype", "columns", "cut"),
    [
        (softmax, "bf16", 65536, "n4_v8_c4"),
        (softmax, "f16", 61440, "n4_v8_c4"),
        (softmax, "bf16", 61432, "n8_v8_c2_ragged"),
        (softmax, "bf16", 131072, "n4_v8_c8"),
        (softmax, "bf16", 262144, "n8_v8_c8"),
        (softmax, "f32", 65536, "t256_n8_v4_c8"),
        (log_softmax, "bf16", 65536, "n8_v8_c2_log"),
    ],
)
def test_a_softmax_of_16_bits_takes_twice_as_many_blocks_where_four_packs_of_their_threads_are_full(
    function: Callable[..., Any], dtype: str, columns: int, cut: str
) -> None:
    x = np.empty((2048, columns), DTYPES[dtype].numpy)
    device.stand_for(device.Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"):
            assert explain(function, x, -1).startswith(f"softmax_ring_{cut}_{dtype} on ")
    finally:
        device.stand_for(device.HOST_FACTS)


@pytest.mark.parametrize("multiprocessors", [1, 2, 4, 8, 14, 132])
def test_wide_rows_take_turns_only_where_the_device_has_room_for_a_cluster(
    multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the executor has not for eight blocks, and a slice of a GPU for sixteen."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: multiprocessors)
    for columns in (16400, 40000, 131072, 262144, 300000):
        for weights in (0, 32, 64):
            cut = rows_ring.cut(10**6, columns, rows_cut.Packs(4, full=True), HOST, weights=weights)
            assert cut is None or cut.clusters
    x = np.zeros((2, 20000), "f")
    with kgen.backend("cpu"):
        for function in (softmax, layer_norm, rms_norm):
            function(x)


@pytest.mark.parametrize(
    ("rows", "columns", "packs", "why"),
    [
        (10**6, 16384, rows_cut.Packs(4, full=True), "a block has room for a row"),
        (10**6, 20000, rows_cut.Packs(4, ragged=True, shifted=True, full=True), "results begin elsewhere in a pack"),
        (10**6, 20000, rows_cut.Packs(2), "packs are too short"),
        (10**6, 10**6, rows_cut.Packs(4, full=True), "no cluster has room for a row"),
        (9, 20000, rows_cut.Packs(4, full=True), "there are few"),
    ],
)
def test_other_rows_are_left_to_other_kernels(rows: int, columns: int, packs: rows_cut.Packs, why: str) -> None:
    assert rows_ring.cut(rows, columns, packs, HOST) is None, why


@pytest.mark.parametrize(
    ("dtype", "columns", "taken", "residual", "expected"),
    [
        ("f32", 32769, "weight bias", False, "norm_ring_n4_v4_c4_weight_bias_ragged_f32 on 120 blocks"),
        ("f32", 262143, "weight bias", False, "norm_ring_n8_v4_c16_weight_bias_ragged_f32 on 112 blocks"),
        ("f32", 16383, "weight", False, "norm_t"),
        ("f32", 16384, "weight", True, "norm_ring_n4_v4_c2_rms_residual_weight_f32 on 132 blocks"),
        ("f32", 8191, "weight", True, "norm_t"),
        ("f32", 131072, "weight", True, "norm_ring_n4_v4_c16_rms_residual_weight_f32 on 112 blocks"),
        ("f32", 131100, "weight", True, "norm_sums_n5_v4_c16_weight_f32 on 112 blocks"),
        ("f32", 126676, "weight", True, "norm_ring_n4_v4_c16_rms_residual_weight_ragged_f32 on 112 blocks"),
        ("bf16", 16384, "weight", True, "norm_t"),
        ("bf16", 32769, "weight bias", False, "norm_ring_n4_v8_c2_weight_bias_ragged_bf16 on 132 blocks"),
        ("bf16", 50257, "weight", True, "norm_ring_n4_v8_c4_rms_residual_weight_ragged_bf16 on 120 blocks"),
        ("bf16", 50257, "weight", False, "norm_ring_n7_v8_c2_rms_weight_ragged_bf16 on 132 blocks"),
        ("bf16", 50257, "weight bias", False, "norm_ring_t256_n7_v8_c4_weight_bias_ragged_bf16 on 120 blocks"),
        ("bf16", 100003, "weight bias", False, "norm_ring_t256_n13_v8_c4_weight_bias_ragged_bf16 on 120 blocks"),
    ],
)
def test_norms_take_turns_where_that_pays(
    dtype: str, columns: int, taken: str, residual: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a residual where two arrays fill half a ring; by blocks of half as many threads where rows with biases leave
    some idle otherwise."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    x = np.empty((1000, columns), DTYPES[dtype].numpy)
    vectors = [np.empty(columns, x.dtype) for _ in taken.split()]
    function, about = (rms_norm, {"residual": x} if residual else {}) if len(vectors) == 1 else (layer_norm, {})
    with kgen.backend("cpu"):
        assert explain(function, x, *vectors, **about).startswith(expected)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("norm_ring_n5_v4_c2_weight_bias_ragged_f32", True),
        ("norm_ring_n6_v4_c2_weight_bias_ragged_f32", False),
        ("norm_ring_n8_v4_c2_bias_ragged_f32", False),
        ("norm_ring_n4_v8_c1_weight_bias_wfloat_ragged_bf16", True),
        ("norm_ring_n7_v8_c2_rms_weight_ragged_bf16", True),
        ("norm_ring_n4_v8_c2_rms_residual_weight_ragged_bf16", True),
        ("norm_ring_n3_v8_c2_rms_residual_weight_wfloat_ragged_bf16", True),
        ("norm_ring_n4_v8_c2_weight_bias_bf16", False),
        ("norm_ring_n4_v8_c2_ragged_bf16", False),
    ],
)
def test_weights_beside_rows_that_begin_anywhere_lie_in_shared_memory_where_there_is_room(
    name: str, beside: bool
) -> None:
    """For three rows, too; and with them one warp finds out for all what follows for a row."""
    text = kgen.render(parse(name)).text
    assert ("Affine* const affines" in text) == beside == ("post(exchange, know(" in text)
    assert ("row_at(" in text) == ("bias_ragged" in name and not beside)
    assert parse(name).derived["STAGES"] >= 3


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("softmax_ring_n4_v4_c8_f32", 3),  # there is room for seven
        ("softmax_ring_n2_v4_c8_f32", 6),
        ("softmax_ring_t256_n4_v4_c8_f32", 3),  # of each of two blocks
        ("norm_ring_n4_v8_c4_rms_weight_ragged_bf16", 3),
        ("norm_ring_n3_v8_c2_weight_bias_bf16", 4),
    ],
)
def test_shared_memory_has_no_more_rows_than_keep_memory_busy(name: str, stages: int) -> None:
    """96 KB of a multiprocessor, or three rows: what is on chip when all has been read, memory waits for."""
    assert parse(name).derived["STAGES"] == stages


@pytest.mark.parametrize(
    ("dtype", "columns", "expected"),
    [
        ("f32", 8193, "softmax_backward_ring_n2_v4_c2_ragged_f32 on 132 blocks"),  # a block alone is not generated
        ("bf16", 16387, "softmax_backward_ring_n2_v8_c2_ragged_bf16 on 132 blocks"),
        ("f32", 32768, "softmax_backward_ring_n4_v4_c4_f32 on 120 blocks"),
        ("f32", 65536, "softmax_backward_ring_n8_v4_c4_f32 on 120 blocks"),
        ("f32", 131072, "softmax_backward_ring_n8_v4_c8_f32 on 120 blocks"),
        ("f32", 262143, "softmax_backward_ring_n8_v4_c16_ragged_f32 on 112 blocks"),
        ("f32", 524288, "softmax_backward_ring_n16_v4_c16_f32 on 112 blocks"),
        ("f32", 524292, "softmax_backward_split_v4_partial_f32"),
        ("bf16", 524288, "softmax_backward_ring_n8_v8_c16_bf16 on 112 blocks"),
        ("bf16", 720904, "softmax_backward_split_v8_partial_bf16"),
    ],
)
def test_gradients_take_turns_as_long_as_a_cluster_has_room_for_a_row(
    dtype: str, columns: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    y = np.empty((1000, columns), DTYPES[dtype].numpy)
    with kgen.backend("cpu"):
        assert explain(softmax_backward, y, y, -1).startswith(expected)


def test_a_cluster_of_sixteen_is_announced_to_the_driver() -> None:
    for kernel in ("softmax_ring", "norm_ring"):
        assert parse(f"{kernel}_n8_v4_c16_f32").derived["CLUSTER"] == 16  # more than a launch gets without asking


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("norm_ring_n5_v4_c8_weight_bias_channels_across_ragged_f32", True),
        ("norm_ring_n5_v8_c4_weight_channels_bf16", True),
        ("norm_ring_n5_v4_c2_weight_channels_f32", False),
        ("norm_ring_n8_v4_c4_weight_bias_f32", False),
        ("norm_ring_n8_v4_c1_rms_weight_ragged_f32", False),
    ],
)
def test_one_warp_finds_out_what_follows_for_groups_of_large_clusters(name: str, expected: bool) -> None:
    assert ("post(exchange, know(" in kgen.render(parse(name)).text) == expected


@pytest.mark.parametrize(
    "name", ["norm_ring_n8_v4_c4_f32", "softmax_ring_n8_v4_c4_f32", "softmax_backward_ring_n4_v4_c4_f32"]
)
def test_what_comes_of_a_claim_is_used_a_turn_later(name: str) -> None:
    """Added to at once, it would have to be there: a thread waits where it first uses what it loads."""
    text = kgen.render(parse(name)).text
    assert "return static_cast<int>(atomicInc(" in text
    assert "unclaimed + exchange" in text
