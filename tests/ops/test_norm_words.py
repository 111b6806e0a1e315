"""Norms of wide rows whose results begin elsewhere in their packs: beside float64, wherever both begin."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.ops.norm import words
from kgen.ops.norm.norm import fused_add_rms_norm, layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.rows import SHARED
from kgen.ops.rows_ring import EDGE, Cut
from kgen.scratch import listing
from tests.ops import test_norm
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings


def drawn_rows(data: st.DataObject, rows: int, columns: int, dtype: str, vec: int) -> np.ndarray:
    """Of poison, that begin anywhere, and so far apart."""
    apart, offset = (data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2))
    return rows_apart(rows, columns, apart, offset, DTYPES[dtype].numpy)


def taking(cut: Cut) -> Any:
    return mock.patch.object(words, "cut", lambda *about: cut)


@settings(max_examples=24)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f32", "bf16", "f16"]),
    own=st.sampled_from(["f32", "bf16"]),
    size=st.sampled_from([(128, 1, 2), (256, 1, 3), (512, 1, 2), (128, 2, 11), (512, 2, 2)]),
    given=st.sampled_from(["weight", "bias", "both", "none"]),
    rms=st.booleans(),
)
def test_rows_and_results_may_begin_anywhere(
    data: st.DataObject, dtype: str, own: str, size: tuple[int, int, int], given: str, rms: bool
) -> None:
    vec = 16 // DTYPES[dtype].numpy.itemsize
    lanes, cluster, packs = size
    if packs > 8 and dtype != "f32":
        own = "bf16"  # threads of so many packs have no registers for two vectors of float beside 16 bits
    room = lanes * cluster * vec
    rows = data.draw(st.integers(1, 13))
    columns = data.draw(st.integers((packs - 1) * room + (EDGE + 1) * vec, packs * room + (EDGE + 1) * vec - 1))
    x, y = (drawn_rows(data, rows, columns, dtype, vec) for _ in range(2))
    x[:], weight, bias = numbers(x.shape, dtype), numbers((columns,), own, 1), numbers((columns,), own, 2)
    has_weight, has_bias = given in ("weight", "both"), given in ("bias", "both") and not rms
    kept = {"weight": weight if has_weight else None, "bias": bias if has_bias else None}
    poison = surroundings(y).copy()
    with taking(Cut(packs, vec, cluster, data.draw(st.integers(1, 3)), threads=lanes)), kgen.backend("cpu"):
        if rms:
            y, rstd = rms_norm(x, kept["weight"], eps=1e-5, out=y, return_rstd=True)
        else:
            y, mean, rstd = layer_norm(x, **kept, out=y, return_stats=True)
    expected, means, rstds = test_norm.reference(x, (1,), **kept, rms=rms)
    test_norm.assert_close(np.asarray(y), expected, dtype, terms=8)
    bound = 3e-7 if dtype == "f32" else 6e-7  # of the others the root is one of two units in the last place
    np.testing.assert_allclose(rstd, rstds, rtol=bound)
    if not rms:
        np.testing.assert_allclose(mean, means, rtol=bound)
    assert surroundings(y).tobytes() == poison.tobytes()


@settings(max_examples=12)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f32", "bf16", "f16"]),
    size=st.sampled_from([(128, 1, 2), (512, 1, 2), (256, 2, 2), (128, 2, 6)]),
)
def test_a_residual_may_begin_anywhere_else(data: st.DataObject, dtype: str, size: tuple[int, int, int]) -> None:
    vec = 16 // DTYPES[dtype].numpy.itemsize
    lanes, cluster, packs = size
    room = lanes * cluster * vec
    rows = data.draw(st.integers(1, 13))
    columns = data.draw(st.integers((packs - 1) * room + (EDGE + 1) * vec, packs * room + (EDGE + 1) * vec - 1))
    x, residual, y = (drawn_rows(data, rows, columns, dtype, vec) for _ in range(3))
    x[:], residual[:], weight = numbers(x.shape, dtype), numbers(x.shape, dtype, 1), numbers((columns,), dtype, 2)
    total = (x.astype(np.float32) + residual.astype(np.float32)).astype(x.dtype)
    before = surroundings(y).tobytes(), surroundings(residual).tobytes()
    with taking(Cut(packs, vec, cluster, data.draw(st.integers(1, 3)), threads=lanes)), kgen.backend("cpu"):
        fused_add_rms_norm(x, residual, weight, eps=1e-5, out=y)
    np.testing.assert_array_equal(residual, total)
    expected, _, _ = test_norm.reference(total, (1,), weight, rms=True)
    test_norm.assert_close(np.asarray(y), expected, dtype, terms=4)
    assert (surroundings(y).tobytes(), surroundings(residual).tobytes()) == before


def rows_from(around: np.ndarray, by: int, shape: tuple[int, int]) -> np.ndarray:
    """So many elements behind an aligned place."""
    begin = -around.ctypes.data % 32 // around.itemsize + by
    return around[begin : begin + shape[0] * shape[1]].reshape(shape)


@pytest.mark.parametrize(
    ("dtype", "columns", "operator", "own", "expected"),
    [
        ("f32", 4095, "layer_norm", "f32", "norm_sectors_t256_n4_v4_h1_weight_bias_shifted_f32"),
        ("f32", 131071, "layer_norm", "f32", "norm_words_t256_n16_v4_c8_weight_bias_f32"),
        ("f32", 50257, "layer_norm", "f32", "norm_ring_t256_n13_v4_c4_weight_bias_ragged_shifted_f32"),
        ("f32", 8193, "rms_norm", "f32", "norm_ring_n4_v4_c1_rms_weight_ragged_shifted_f32"),
        ("f32", 12001, "rms_norm", "f32", "norm_t512_n6_v4_rms_weight_ragged_shifted_f32"),
        ("f32", 50257, "rms_norm", "f32", "norm_ring_n4_v4_c8_rms_weight_ragged_shifted_f32"),
        ("bf16", 10000, "layer_norm", "bf16", "norm_ring_t256_n5_v8_c1_weight_bias_ragged_shifted_bf16"),
        ("bf16", 12000, "layer_norm", "bf16", "norm_ring_t256_n6_v8_c1_weight_bias_ragged_shifted_bf16"),
        ("bf16", 16384, "layer_norm", "bf16", "norm_ring_t256_n4_v8_c2_weight_bias_ragged_shifted_bf16"),
        ("bf16", 65536, "layer_norm", "bf16", "norm_ring_t256_n8_v8_c4_weight_bias_ragged_shifted_bf16"),
        ("bf16", 8193, "layer_norm", "f32", "norm_ring_t256_n4_v8_c1_weight_bias_wfloat_ragged_shifted_bf16"),
        ("bf16", 50257, "rms_norm", "bf16", "norm_ring_t256_n13_v8_c2_rms_weight_ragged_shifted_bf16"),
        ("bf16", 12001, "fused_add_rms_norm", "bf16", "norm_t384_n4_v8_rms_residual_weight_ragged_shifted_bf16"),
        ("bf16", 20001, "fused_add_rms_norm", "bf16", "norm_words_t256_n5_v8_c2_rms_residual_weight_bf16"),
        ("f16", 262184, "fused_add_rms_norm", "f16", "norm_t512_n5_v8_c16_rms_residual_weight_shifted_f16"),
        ("bf16", 129, "layer_norm", "f32", "norm_span_t8_n9_v2_weight_bias_wfloat_apart_bf16"),
        ("bf16", 221, "layer_norm", "bf16", "norm_span_t8_n14_v2_weight_bias_apart_bf16"),
        ("bf16", 285, "layer_norm", "bf16", "norm_span_t16_n9_v2_weight_bias_apart_bf16"),
        ("bf16", 301, "layer_norm", "bf16", "norm_span_t32_n5_v2_weight_bias_apart_bf16"),
        ("f32", 511, "layer_norm", "f32", "norm_t32_n4_v4_weight_bias_ragged_shifted_f32"),
        ("bf16", 801, "rms_norm", "bf16", "norm_span_t32_n13_v2_rms_weight_apart_bf16"),
        ("f16", 2049, "layer_norm", "f16", "norm_sectors_t64_n4_v8_h2_weight_bias_shifted_f16"),
        ("bf16", 4097, "layer_norm", "f32", "norm_sectors_t128_n4_v8_h2_weight_bias_wfloat_shifted_bf16"),
        ("bf16", 7001, "layer_norm", "bf16", "norm_sectors_t256_n4_v8_h2_weight_bias_shifted_bf16"),
        ("bf16", 10001, "layer_norm", "bf16", "norm_ring_t256_n5_v8_c1_weight_bias_ragged_shifted_bf16"),
        ("bf16", 28001, "layer_norm", "bf16", "norm_ring_t256_n7_v8_c2_weight_bias_ragged_shifted_bf16"),
        ("bf16", 50257, "layer_norm", "f32", "norm_ring_t128_n13_v8_c4_weight_bias_wfloat_ragged_shifted_bf16"),
        ("f32", 12001, "layer_norm", "f32", "norm_ring_t256_n6_v4_c2_weight_bias_ragged_shifted_f32"),
    ],
)
def test_rows_are_taken_by_sectors_in_turn_or_word_by_word_where_that_takes_less_time(
    dtype: str, columns: int, operator: str, own: str, expected: str
) -> None:
    """Of 268 MB, one element behind an aligned place, on an H200; the result begins at one."""
    kind = DTYPES[dtype].numpy
    rows = 2**28 // kind.itemsize // columns
    x, y = (rows_from(np.empty(rows * columns + 64, kind), by, (rows, columns)) for by in (1, 0))
    weights = [np.empty(columns, DTYPES[own].numpy)] * (2 if operator == "layer_norm" else 1)
    given = (x, np.empty_like(y), *weights) if "add" in operator else (x, *weights)
    stand_for(Facts(132, SHARED, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            assert explain(getattr(kgen, operator), *given, out=y).split()[0] == expected
    finally:
        stand_for(HOST_FACTS)


def test_a_device_without_room_for_a_cluster_leaves_such_rows_to_others() -> None:
    x, y = (rows_from(np.empty(64 * 262144 + 64, np.float32), by, (64, 262144)) for by in (1, 0))
    stand_for(Facts(13, SHARED, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            assert "norm_words" not in explain(layer_norm, x, np.empty(262144, np.float32), out=y)
    finally:
        stand_for(HOST_FACTS)
