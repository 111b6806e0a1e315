"""Gradients of softmax along rows that are cut into parts, which two launches read: beside float64."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.ops import rows_cut, rows_ring
from kgen.ops.questions import explain
from kgen.ops.rows import SHARED
from kgen.ops.softmax import backward_split
from kgen.ops.softmax.backward import log_softmax_backward, softmax_backward
from kgen.scratch import listing
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings
from tests.plans import forget

BAR = {"f32": 3e-7, "f16": 6e-4, "bf16": 5e-3}  # of the largest term


@pytest.fixture
def in_parts() -> Iterator[None]:
    """However narrow rows are, each has a few parts."""
    forget()
    with (
        mock.patch.object(rows_ring, "cut", lambda *about, **more: None),
        mock.patch.object(rows_cut, "cut", lambda *about, **more: None),
        mock.patch.object(backward_split, "multiprocessors", lambda device: 2),
    ):
        yield
    forget()


@settings(max_examples=24)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f32", "bf16", "f16"]),
    rows=st.integers(1, 9),
    columns=st.integers(1, 40000),
    log=st.booleans(),
    scale=st.sampled_from([1, 0.3]),
)
@pytest.mark.usefixtures("in_parts")
def test_rows_of_any_width_that_begin_anywhere_agree_with_float64(
    data: st.DataObject, dtype: str, rows: int, columns: int, log: bool, scale: float
) -> None:
    kind = DTYPES[dtype].numpy
    places = st.tuples(st.sampled_from([0, 0, 1, 4, 8]), st.sampled_from([0, 0, 1, 4]))
    dy, y, dx = (rows_apart(rows, columns, *data.draw(places), kind) for _ in range(3))
    dy[:] = numbers((rows, columns), dtype)
    x = numbers((rows, columns), dtype, 1).astype(np.float64)
    logarithm = x - x.max(1, keepdims=True)
    logarithm -= np.log(np.exp(logarithm).sum(1, keepdims=True))
    y[:] = logarithm if log else np.exp(logarithm)
    before = surroundings(dx).copy()
    backward = log_softmax_backward if log else softmax_backward
    with kgen.backend("cpu"):
        backward(dy, y, -1, scale=scale, out=dx)
        first = dx.copy()
        backward(dy, y, -1, scale=scale, out=dx)
    assert first.tobytes() == dx.tobytes()
    upstream, value = dy.astype(np.float64), y.astype(np.float64)
    total = (upstream if log else upstream * value).sum(1, keepdims=True)
    terms = (upstream, np.exp(value) * total) if log else (upstream * value, value * total)
    off = np.abs(dx.astype(np.float64) - scale * (terms[0] - terms[1]))
    assert (off <= BAR[dtype] * scale * (np.abs(terms[0]) + np.abs(terms[1])) + 1e-7).all()
    assert surroundings(dx).tobytes() == before.tobytes()


@pytest.mark.usefixtures("in_parts")
def test_the_result_may_take_the_place_of_an_operand_and_nan_stays_in_its_row() -> None:
    y = np.full((3, 20000), 5e-5, np.float32)
    dy = numbers((3, 20000), "f32")
    with kgen.backend("cpu"):
        expected = softmax_backward(dy, y, -1)
        for place in (0, 1):
            operands = [dy.copy(), y.copy()]
            assert softmax_backward(*operands, -1, out=operands[place]).tobytes() == expected.tobytes()
        dy[1, 7777] = np.nan
        found = softmax_backward(dy, y, -1)
    assert np.isnan(found[1]).all()
    assert found[::2].tobytes() == expected[::2].tobytes()


@pytest.mark.parametrize(("shape", "blocks"), [((1, 1 << 24), 512), ((300, 1 << 20), 600)])
def test_few_rows_are_shared_by_all_multiprocessors(shape: tuple[int, int], blocks: int) -> None:
    """A row had a block of its own, which is 1 % of what memory can do where there is one row."""
    y = np.empty(shape, np.float32)
    stand_for(Facts(132, SHARED, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            told = explain(softmax_backward, y, y, -1)
    finally:
        stand_for(HOST_FACTS)
    assert f"softmax_backward_split_v4_partial_f32 on {blocks} blocks" in told
    assert f"softmax_backward_split_v4_f32 on {blocks} blocks" in told
