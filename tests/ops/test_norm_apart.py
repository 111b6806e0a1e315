"""Norms of rows taken in turn whose results begin elsewhere in their packs: beside float64, wherever both begin."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.dtypes import DTYPES
from kgen.ops import rows_ring
from kgen.ops.norm.norm import layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.rows_ring import EDGE, Cut
from tests.ops import test_norm
from tests.ops.test_norm_words import rows_from
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings


def taking(cut: Cut) -> Any:
    return mock.patch.object(rows_ring, "cut", lambda *about, **more: cut)


@settings(max_examples=24)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f32", "bf16", "f16"]),
    own=st.sampled_from(["f32", "bf16"]),
    size=st.sampled_from([(256, 1, 2), (256, 1, 5), (512, 1, 2), (256, 2, 3)]),
    given=st.sampled_from(["weight", "bias", "both", "none"]),
    rms=st.booleans(),
)
def test_rows_and_results_may_begin_anywhere(
    data: st.DataObject, dtype: str, own: str, size: tuple[int, int, int], given: str, rms: bool
) -> None:
    vec = 16 // DTYPES[dtype].numpy.itemsize
    lanes, cluster, packs = size
    room = lanes * cluster * vec
    rows = data.draw(st.integers(1, 13))
    columns = data.draw(st.integers((packs - 1) * room + (EDGE + 1) * vec, packs * room + (EDGE + 1) * vec - 1))
    offset, further = data.draw(st.integers(0, vec - 1)), data.draw(st.integers(1, vec - 1))
    x, y = (
        rows_apart(rows, columns, data.draw(st.integers(0, 2 * vec - 1)), begin, DTYPES[dtype].numpy)
        for begin in (offset, offset + further)
    )
    x[:], weight, bias = numbers(x.shape, dtype), numbers((columns,), own, 1), numbers((columns,), own, 2)
    has_weight, has_bias = given in ("weight", "both"), given in ("bias", "both") and not rms
    kept: dict[str, Any] = {"weight": weight if has_weight else None, "bias": bias if has_bias else None}
    poison = surroundings(y).copy()
    teams = data.draw(st.integers(1, 3))
    with taking(Cut(packs, vec, cluster, teams, ragged=True, threads=lanes)), kgen.backend("cpu"):
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


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("packs", [4, 5])
def test_a_row_is_in_registers_until_it_is_written(dtype: str, packs: int) -> None:
    """While its numbers are multiplied, later rows come where it lay: more of them than shared memory has room for."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    columns = 256 * packs * vec - 5
    x, y = (rows_from(np.empty(37 * columns + 64, DTYPES[dtype].numpy), by, (37, columns)) for by in (1, 0))
    x[:], weight, bias = numbers(x.shape, dtype), numbers((columns,), dtype, 1), numbers((columns,), dtype, 2)
    with taking(Cut(packs, vec, 1, 2, ragged=True, threads=256)), kgen.backend("cpu"):
        assert "shifted" in explain(layer_norm, x, weight, bias, out=y)
        layer_norm(x, weight, bias, out=y)
    expected, _, _ = test_norm.reference(x, (1,), weight, bias)
    test_norm.assert_close(np.asarray(y), expected, dtype, terms=8)
