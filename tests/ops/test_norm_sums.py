"""RMS norms of sums of rows so wide that shared memory has no room for several: beside float64, wherever they begin."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.dtypes import DTYPES
from kgen.ops import rows_ring
from kgen.ops.norm import plans, sums
from kgen.ops.norm.norm import fused_add_rms_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.rows_ring import EDGE, Cut
from tests.ops import test_norm
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings

VEC = 4


@settings(max_examples=6)
@given(
    data=st.data(),
    own=st.sampled_from(["f32", "bf16", None]),
    size=st.sampled_from([(2, 3)]),
    ragged=st.booleans(),
)
def test_sums_stay_in_registers(data: st.DataObject, own: str | None, size: tuple[int, int], ragged: bool) -> None:
    """Of more rows than clusters know, and fewer than there are clusters; what lies around results stays as it is."""
    cluster, packs = size
    room, rows = cluster * rows_ring.THREADS, data.draw(st.integers(1, 19))
    columns = data.draw(st.integers((packs - 1) * room + 1, packs * room)) * VEC
    offset = apart = 0
    if ragged:
        columns += EDGE * VEC + data.draw(st.integers(0, VEC - 1))
    x, residual, y = (rows_apart(rows, columns, apart, offset, np.float32) for _ in range(3))
    x[:], residual[:] = numbers(x.shape, "f32"), -numbers(x.shape, "f32", 1)
    weight = numbers((columns,), own, 2) if own else None
    total = x + residual
    before = surroundings(y).tobytes(), surroundings(residual).tobytes()
    cut = Cut(packs, VEC, cluster, data.draw(st.integers(1, 3)), ragged=ragged)
    with (
        mock.patch.object(rows_ring, "cut", lambda *about, **more: cut),
        mock.patch.object(plans, "plan_ring", lambda *about: None),
        kgen.backend("cpu"),
    ):
        assert ragged or explain(fused_add_rms_norm, x, residual, weight, out=y).startswith("norm_sums")
        fused_add_rms_norm(x, residual, weight, eps=1e-5, out=y)
        np.testing.assert_array_equal(residual, total)
        expected, _, rstds = test_norm.reference(total, (1,), weight, rms=True)
        test_norm.assert_close(y, expected, "f32", terms=4)
        if not ragged:  # a sum of its own begins with a pack
            residual[:] = -numbers(x.shape, "f32", 1)
            y, _, rstd = rms_norm(x, weight, eps=1e-5, weight_offset=1.0, residual=residual, return_rstd=True, out=y)
            np.testing.assert_allclose(rstd, rstds, rtol=3e-7)
            expected, _, _ = test_norm.reference(total, (1,), weight, rms=True, offset=1.0)
            test_norm.assert_close(np.asarray(y), expected, "f32", terms=4)
    assert (surroundings(y).tobytes(), surroundings(residual).tobytes()) == before


@pytest.mark.parametrize(
    ("dtype", "columns", "expected"),
    [
        ("f32", 131072, "norm_ring_n4_v4_c16_rms_residual_weight_f32"),
        ("f32", 131100, "norm_sums_n5_v4_c16_weight_f32 on 112 blocks"),
        ("f32", 200001, "norm_sums_n7_v4_c16_weight_ragged_f32 on 112 blocks"),
        ("f32", 262144, "norm_sums_n8_v4_c16_weight_f32 on 112 blocks"),
        ("f32", 262180, "norm_t512_n9_v4_c16_rms_residual_weight_f32"),
        ("bf16", 262144, "norm_ring_n4_v8_c16_rms_residual_weight_bf16"),
    ],
)
def test_sums_stay_there_where_shared_memory_has_no_room_for_several(
    dtype: str, columns: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    x = np.empty((1000, columns), DTYPES[dtype].numpy)
    with kgen.backend("cpu"):
        assert explain(rms_norm, x, np.empty(columns, x.dtype), residual=x).startswith(expected)


def test_no_more_packs_are_in_flight_than_shared_memory_has_room_for() -> None:
    few, many = (sums.SUMS.spec(PACKS=packs, VEC=VEC, CLUSTER=16, dtype=DTYPES["f32"]) for packs in (4, 8))
    assert (few.derived["RING"], many.derived["RING"]) == (8, 14)
