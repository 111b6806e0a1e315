"""Norms of rows that blocks take in turn, two or several at once, wherever their results begin, beside float64."""

from __future__ import annotations

import numpy as np
import pytest

import kgen
from kgen.catalog import parse
from kgen.dtypes import DTYPES
from kgen.ops import rows_ring
from kgen.ops.norm.norm import layer_norm
from kgen.ops.questions import explain
from kgen.ops.rows_ring import EDGE, Cut
from tests.ops import test_norm
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("dtype", "own", "threads", "packs", "cluster"),
    [
        ("bf16", "bf16", 256, 5, 1),
        ("f16", "f32", 256, 6, 1),
        ("f32", "f32", 256, 5, 2),
        ("bf16", "f16", 256, 7, 2),
        ("f16", "bf16", 128, 5, 2),
        ("bf16", "f32", 128, 13, 2),
        ("bf16", "bf16", 64, 4, 1),
        ("f16", "f32", 128, 3, 1),
    ],
)
def test_blocks_and_clusters_have_several_rows_at_once(
    dtype: str, own: str, threads: int, packs: int, cluster: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, as the counter of the claims is zero after each call; of two clusters, and of one row."""
    kind = DTYPES[dtype].numpy
    vec = 16 // kind.itemsize
    room = threads * packs * cluster * vec
    cut = Cut(packs, vec, cluster, 2, True, threads)
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: cut)
    for rows, columns in ((2 * vec + 21, room - 5 * vec + 1), (1, room + (EDGE + 1) * vec - 1)):
        x, y = (rows_apart(rows, columns, 0, offset, kind) for offset in (3, 3 + apart))
        weight, bias = (rows_apart(1, columns, 0, offset, DTYPES[own].numpy)[0] for offset in (1, 2))
        x[:], weight[:], bias[:] = numbers(x.shape, dtype), numbers((columns,), own, 2), numbers((columns,), own, 3)
        poison = surroundings(y).copy()
        wanted, means, rstds = test_norm.reference(x, (1,), weight, bias)
        with kgen.backend("cpu"):
            name = explain(layer_norm, x, weight, bias, out=y).split()[0]
            assert (parse(name)["shifted"], parse(name).derived["ROWS"] > 1) == (apart, True)
            for _ in range(2):
                y[:] = np.nan
                _, mean, rstd = layer_norm(x, weight, bias, out=y, return_stats=True)
                test_norm.assert_close(y, wanted, dtype, terms=8)
        np.testing.assert_allclose(mean, means, rtol=6e-7)
        np.testing.assert_allclose(rstd, rstds, rtol=6e-7)
        assert surroundings(y).tobytes() == poison.tobytes()


def test_a_number_far_from_all_others_costs_no_more_than_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is among the first of a warp, whose mean all its numbers are taken about."""
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: Cut(4, 8, 1, 1, True, 256))
    x, y = (rows_apart(3, 8193, 0, 0, DTYPES["f16"].numpy) for _ in range(2))
    x[:], weight = numbers(x.shape, "f16"), numbers((8193,), "f16", 1)
    x[0, :32], x[1, 15:17], x[2, 16] = 60000, -60000, 60000
    with kgen.backend("cpu"):
        assert "t256" in explain(layer_norm, x, weight, weight, out=y)
        _, mean, rstd = layer_norm(x, weight, weight, out=y, return_stats=True)
    wanted, means, rstds = test_norm.reference(x, (1,), weight, weight)
    test_norm.assert_close(y, wanted, "f16", terms=8)
    np.testing.assert_allclose(mean, means, rtol=1e-5)
    np.testing.assert_allclose(rstd, rstds, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("norm_ring_t256_n4_v8_c1_weight_bias_ragged_shifted_bf16", 1),  # two such blocks share a multiprocessor
        ("norm_ring_t256_n5_v8_c2_weight_bias_ragged_bf16", 2),
        ("norm_ring_t256_n6_v8_c4_weight_bias_wfloat_ragged_shifted_bf16", 2),
        ("norm_ring_t256_n7_v8_c4_weight_bias_wfloat_ragged_shifted_bf16", 1),  # there is no room for two
        ("norm_ring_t256_n8_v8_c1_weight_bias_ragged_shifted_bf16", 1),
        ("norm_ring_t256_n7_v8_c1_rms_weight_ragged_shifted_bf16", 1),
        ("norm_ring_t128_n13_v8_c4_weight_bias_wfloat_ragged_bf16", 2),
        ("norm_ring_t128_n4_v8_c1_weight_bias_ragged_shifted_f16", 4),
    ],
)
def test_a_block_has_as_many_rows_as_pay_and_there_is_room_for(name: str, rows: int) -> None:
    assert parse(name).derived["ROWS"] == rows
