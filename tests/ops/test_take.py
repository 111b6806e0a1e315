"""Rows by their indices as NumPy takes them, bit for bit, with its errors, on both devices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.checking import watching
from kgen.ops.moving.take import MODES, embedding, take


def numbers(shape, dtype):
    return (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("width", [1, 3, 64, 1300])
def test_rows_of_every_width(xp, asnumpy, shared_cache, dtype, index, width):
    table = numbers((50, width), dtype)
    indices = np.random.default_rng(width).integers(-50, 50, (7, 3)).astype(index)
    result = asnumpy(take(xp.asarray(table), xp.asarray(indices)))
    assert np.array_equal(result, np.take(table, indices, 0))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, None])
@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
def test_every_axis_and_mode_is_numpys(xp, asnumpy, shared_cache, axis, mode):
    table = numbers((4, 5, 6), "float32")
    low, high = (-4, 4) if mode == "raise" else (-20, 20)
    indices = np.random.default_rng(1).integers(low, high, (3, 2))
    result = asnumpy(take(xp.asarray(table), xp.asarray(indices), axis, mode=mode))
    assert np.array_equal(result, np.take(table, indices, axis, mode=mode))


def test_a_view_is_flattened_where_no_axis_is_named_and_explain_knows(xp, asnumpy, shared_cache):
    table, indices = numbers((4, 6, 5), "float32"), np.array([[0, -1], [7, 23]])
    for cut in (np.s_[:], np.s_[:, ::2], np.s_[::-1, 1:3, ::-1], np.s_[0, 0, 0, ...]):
        view = xp.asarray(table)[cut]
        chosen = indices % table[cut].size
        assert kgen.explain(take, view, xp.asarray(chosen), None)
        assert np.array_equal(asnumpy(take(view, xp.asarray(chosen), None)), np.take(table[cut], chosen))
    with pytest.raises(IndexError, match="index 60, number 1, is out of bounds for axis 0 with size 60"):
        take(xp.asarray(table)[:, ::2], xp.asarray(np.array([0, 60])), None)


def test_an_embedding_names_itself_and_the_index_of_any_kind_of_array():
    with kgen.backend("cpu"):
        with pytest.raises(IndexError, match="embedding: index 5, number 1, is out of bounds for axis 0 with size 5"):
            embedding(np.array([0, 5]), np.ones((5, 4), "f"), mode="raise")
        with pytest.warns(PendingDeprecationWarning):
            indices = np.matrix([[1, 7]])  # which stays one, whatever it is reshaped to
        with pytest.raises(IndexError, match="take: index 7, number 1, is out of bounds"):
            take(np.ones((5, 4), "f"), indices)


def test_views_are_taken_from(xp, asnumpy, shared_cache):
    table, indices = numbers((9, 8, 10), "float32"), np.arange(24).reshape(2, 3, 4) % 8
    for view in (table[::2, :, 1:7], table.transpose(2, 1, 0), table[:, ::-1, ::3], table[:, 1:]):
        given = view if xp is np else xp.asarray(np.ascontiguousarray(view))
        for chosen in (indices, indices.transpose(2, 0, 1), indices[:, ::2, ::-1]):
            chosen = chosen % view.shape[1]
            assert np.array_equal(asnumpy(take(given, xp.asarray(chosen), 1)), np.take(view, chosen, 1))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_that_begin_anywhere_are_written_in_packs(data):
    dtype = np.dtype(data.draw(st.sampled_from(("uint8", "float16", "float32"))))
    widths = st.integers(17, 255).filter(lambda n: n * dtype.itemsize % 16)
    width = data.draw(widths if dtype.itemsize == 4 else widths | st.just(5001))
    first, count, mode = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 150)), data.draw(st.sampled_from(MODES))
    table = numbers((9, width + first), dtype)[::-1, first:]
    indices = np.random.default_rng(width).integers(-9, 9, count)
    with watching() as watch:
        assert str(kgen.explain(take, table, indices, 0, mode=mode)).startswith("take_flat")
        expected = np.take(table, indices, 0, mode="raise" if mode == "fill" else mode)
        assert np.array_equal(take(table, indices, mode=mode), expected)
    assert watch.findings == []


def test_a_number_and_nothing_as_indices(xp, asnumpy, shared_cache):
    table = numbers((5, 4), "float32")
    assert np.array_equal(asnumpy(take(xp.asarray(table), xp.asarray(np.int64(2)))), table[2])
    assert take(xp.asarray(table), xp.zeros((0, 3), xp.int64)).shape == (0, 3, 4)


def test_a_table_without_axes_is_a_vector_of_one_entry(xp, asnumpy, shared_cache):
    table = np.array(3, "f")
    for axis in (0, -1, None):
        for indices in (np.array(0), np.array([0, -1, 0]), np.zeros(0, "i8")):
            got, want = asnumpy(take(xp.asarray(table), xp.asarray(indices), axis)), np.take(table, indices, axis)
            assert got.shape == want.shape and np.array_equal(got, want)
        with pytest.raises(IndexError, match="index 1, number 2, is out of bounds"):
            take(xp.asarray(table), xp.asarray(np.array([0, -1, 1])), axis or 0)
    with pytest.raises(np.exceptions.AxisError, match="take: axis"):
        take(xp.asarray(table), xp.asarray(np.array([0])), 1)


def test_an_embedding_gives_nan_for_a_token_that_is_not_there(xp, asnumpy, shared_cache):
    table = numbers((5, 24), "float16")
    result = asnumpy(embedding(xp.asarray(np.array([4, 5, -5, -6, 2**31], np.int64)), xp.asarray(table)))
    assert np.array_equal(result[[0, 2]], table[[4, 0]])
    assert np.isnan(result[[1, 3, 4]]).all()


def test_bfloat16_rows_move_as_bits(xp, asnumpy, shared_cache):
    host = numbers((6, 9), ml_dtypes.bfloat16)
    table = host if xp is np else xp.asarray(host.view(np.uint16)).view(host.dtype)
    result = embedding(xp.asarray(np.array([5, 0], np.int32)), table)
    assert asnumpy(result.view(xp.uint16)).tolist() == host[[5, 0]].view(np.uint16).tolist()


@pytest.mark.parametrize("indices", [[0, 5], [1, -6], [2**40], [0, 1, 2, 7, 8]])
def test_an_index_out_of_bounds_is_numpys_error_and_the_first_is_named(xp, shared_cache, indices):
    table, indices = numbers((5, 4), "float32"), np.array(indices)
    with pytest.raises(IndexError):
        np.take(table, indices, 0)
    first = next(i for i in indices if not -5 <= i < 5)
    with pytest.raises(IndexError, match=f"take: index {first}, number .*, is out of bounds for axis 0 with size 5"):
        take(xp.asarray(table), xp.asarray(indices))


@pytest.mark.parametrize(("width", "dtype"), [(1, "float32"), (33, "float16"), (1300, "float32")])
def test_of_wrong_indices_in_many_blocks_the_first_is_told_and_the_next_call_finds_none(xp, shared_cache, width, dtype):
    rng = np.random.default_rng(width)
    table, right = xp.asarray(numbers((50, width), dtype)), rng.integers(-50, 50, 3000)
    for _ in range(3):
        at = np.sort(rng.choice(right.size, 5, replace=False))
        wrong = right.copy()
        wrong[at] = rng.choice([50, -51, 2**40, -(2**40)], at.size)
        with pytest.raises(IndexError, match=f"take: index {wrong[at[0]]}, number {at[0]}, is out of bounds"):
            take(table, xp.asarray(wrong))
        take(table, xp.asarray(right))


@pytest.mark.parametrize(
    ("table", "indices", "options", "error", "match"),
    [
        (np.ones((0, 4), "f"), np.zeros(2, "i8"), {}, IndexError, "no entries"),
        (np.ones((3, 4), "f"), np.zeros(2, "i8"), {"axis": 2}, np.exceptions.AxisError, "take: axis"),
        (np.ones((3, 4), "f"), np.zeros(2, "f"), {}, TypeError, "indices has dtype float32"),
        (np.ones((3, 4), "f"), np.zeros(2, "i8"), {"mode": "drop"}, ValueError, "mode is 'drop'"),
        (np.ones((3, 4), "f"), np.zeros(2, "i8"), {"out": np.ones((2, 3), "f")}, ValueError, "out has shape"),
    ],
)
def test_bad_input_is_refused_by_name(xp, table, indices, options, error, match):
    options = {name: xp.asarray(value) if name == "out" else value for name, value in options.items()}
    with pytest.raises(error, match=match):
        take(xp.asarray(table), xp.asarray(indices), **options)
