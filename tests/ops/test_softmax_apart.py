"""Softmax of rows in registers whose results begin at other places in packs of memory than what is read."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.dtypes import DTYPES
from kgen.launch import listing_steps
from kgen.ops import rows, rows_cut
from kgen.ops.softmax.softmax import log_softmax, softmax
from tests.ops import test_softmax
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings

CUTS = [rows.Cut(8, 3, 0, 1), rows.Cut(16, 3, 0, 1), rows.Cut(32, 2, 0, 1), rows.Cut(64, 4, 0, 1)]
CUTS += [rows.Cut(128, 2, 0, 1), rows.Cut(128, 5, 0, 1), rows.Cut(256, 3, 0, 1), rows.Cut(256, 2, 0, 2)]


@settings(max_examples=16)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f32", "bf16", "f16"]),
    cut=st.sampled_from(CUTS),
    log=st.booleans(),
    causal=st.booleans(),
    masked=st.booleans(),
)
def test_results_begin_elsewhere(
    data: st.DataObject, dtype: str, cut: rows.Cut, log: bool, causal: bool, masked: bool
) -> None:
    """Of each row: distances differ, too. Nothing is read or written beside a row."""
    vec = 16 // DTYPES[dtype].numpy.itemsize
    cut = cut._replace(vec=vec)
    height = data.draw(st.integers(1, 5))
    room = cut.lanes * cut.packs * cut.cluster * vec
    columns = data.draw(st.integers(8 * vec, room))
    places = [[data.draw(st.integers(0, 2 * vec - 1)) for _ in range(2)] for _ in range(2)]
    x, y = (rows_apart(height, columns, apart, offset, DTYPES[dtype].numpy) for apart, offset in places)
    x[:] = numbers(x.shape, dtype)
    poison = surroundings(y).copy()
    keep = np.random.default_rng(3).random(x.shape) < 0.6 if masked else None
    seen = np.tri(height, columns, columns - height, dtype=bool) if causal else np.ones(x.shape, bool)
    function = log_softmax if log else softmax
    with mock.patch.object(rows_cut, "cut", lambda *about, **more: cut), kgen.backend("cpu"):
        function(x, -1, causal=causal, mask=keep, out=y)
    kept = seen if keep is None else seen & keep
    expected = test_softmax.reference(x, -1, log=log, keep=kept)
    test_softmax.assert_close(np.asarray(y), expected, dtype, ulps=1.5 if log else 4)
    assert surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize(
    ("dtype", "columns", "name"),
    [("f32", 1024, "softmax_t64_n4_v4_shifted_f32"), ("bf16", 4096, "softmax_t128_n4_v8_shifted_bf16")],
)
def test_a_view_of_all_but_the_first_number(dtype: str, columns: int, name: str) -> None:
    rows_of_x = numbers((300 * columns + 1,), dtype)[1:].reshape(300, columns)
    with kgen.backend("cpu"):
        with listing_steps() as steps:
            softmax(rows_of_x, -1)
        y = softmax(rows_of_x, -1)
    assert [step.spec.name for step in steps] == [name]
    test_softmax.assert_close(y, test_softmax.reference(rows_of_x, -1), dtype)
