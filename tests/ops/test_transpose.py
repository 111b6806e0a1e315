"""Permutations of axes, bit for bit, for every size of element and every layout that views make, on both devices."""

from __future__ import annotations

import itertools
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.backend import HOST
from kgen.checking import watching
from kgen.launch import bind, listing_steps
from kgen.ops.moving import transpose_short, transpose_steps
from kgen.ops.moving.transpose import _transpose, transpose
from kgen.ops.moving.transpose_short import ShortRows
from kgen.ops.questions import explain

SIZES = ("uint8", "float16", "float32", "int64")


def pattern(xp, shape, dtype):
    """Numbers of which neighbours differ, in every axis."""
    size = int(np.prod(shape))
    return xp.asarray((np.arange(size) * 2654435761 % 251).astype(dtype).reshape(shape))


def assert_permuted(xp, asnumpy, x, axes):
    result = transpose(x, axes)
    assert result.flags.c_contiguous
    assert result.dtype == x.dtype
    assert np.array_equal(asnumpy(result), np.transpose(asnumpy(x), axes))


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("shape", [(64, 128), (129, 257), (1, 5), (7, 1), (300, 3), (3, 300)])
def test_a_matrix_turns_over(xp, asnumpy, shared_cache, dtype, shape):
    assert_permuted(xp, asnumpy, pattern(xp, shape, dtype), None)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_every_order_of_four_axes(xp, asnumpy, shared_cache, axes):
    assert_permuted(xp, asnumpy, pattern(xp, (3, 5, 4, 6), "float32"), axes)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_view_of_any_rank(data):
    import kgen

    rank = data.draw(st.integers(1, 6))
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    steps = tuple(slice(None, None, data.draw(st.sampled_from((1, 1, 2, -1)))) for _ in range(rank))
    axes = tuple(data.draw(st.permutations(range(rank))))
    x = pattern(np, shape, "float32")[steps]
    with kgen.backend("cpu"):
        assert_permuted(np, np.asarray, x, axes)


def test_views_of_a_matrix(xp, asnumpy, shared_cache):
    x = pattern(xp, (70, 133), "float16")
    for view in (x[1:, 1:], x[:, ::-1], x[::2, ::3], x[:, 5:6], xp.broadcast_to(x[0], (9, 133)), x.T):
        assert_permuted(xp, asnumpy, view, None)


def test_more_axes_than_a_kernel_walks(xp, asnumpy, shared_cache):
    x = pattern(xp, (2, 2, 2, 2, 2, 2, 2, 2, 3, 2), "int32")
    assert_permuted(xp, asnumpy, x, (9, 1, 7, 3, 5, 4, 6, 2, 8, 0))


def test_bfloat16_moves_as_bits(xp, asnumpy, shared_cache):
    host = np.array([[1, np.nan, -0.0], [np.inf, 3, 4]], ml_dtypes.bfloat16)
    x = host if xp is np else xp.asarray(host.view(np.uint16)).view(host.dtype)
    assert asnumpy(transpose(x).view(xp.uint16)).tolist() == host.T.view(np.uint16).tolist()


def test_an_empty_array_and_a_number(xp, shared_cache):
    assert transpose(xp.ones((0, 3), xp.float32)).shape == (3, 0)
    assert transpose(xp.ones((), xp.float32)).shape == ()


def test_out_is_written(xp, asnumpy, shared_cache):
    x, out = pattern(xp, (5, 7), "float32"), xp.full((7, 5), xp.nan, xp.float32)
    assert transpose(x, out=out) is out
    assert np.array_equal(asnumpy(out), asnumpy(x).T)


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 1, 2), (0, 2), (-3, 0), ("x", 0)])
def test_axes_that_numpy_refuses_are_refused_alike(xp, axes):
    x = np.ones((2, 3), np.float32)
    with pytest.raises((ValueError, TypeError)) as numpys:
        np.transpose(x, axes)
    with pytest.raises(numpys.type, match="transpose: axes" if axes[0] != "x" else None):
        transpose(xp.asarray(x), axes)


def test_an_out_with_gaps_is_refused(xp):
    with pytest.raises(ValueError, match="transpose: out has strides"):
        transpose(xp.ones((2, 3), xp.float32), out=xp.ones((3, 4), xp.float32)[:, ::2])


def test_a_plan_for_one_misaligned_array_does_not_serve_another():
    def starting_at(offset):
        memory = np.zeros(40 * 40 * 4 + 128, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        return memory[start : start + 40 * 40 * 4].view("f4").reshape(40, 40)

    with watching() as watch:
        for of_input, of_result in ((4, 0), (0, 4)):
            x, out = starting_at(of_input), starting_at(of_result)
            x[...] = np.arange(1600).reshape(40, 40)
            np.testing.assert_array_equal(transpose(x, out=out), x.T)
    assert watch.findings == []


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 3, 16, 300), (0, 2, 3, 1)),  # channels to the end
        ((2, 16, 300, 3), (0, 3, 1, 2)),  # and back
        ((2, 9600), None),
        ((9600, 8), None),
        ((3, 5, 2, 4, 96), (0, 1, 3, 4, 2)),  # two long axes, which are one
        ((7, 2, 160, 6), (1, 0, 3, 2)),
    ],
)
def test_short_rows_are_taken_whole(xp, asnumpy, shared_cache, dtype, shape, axes):
    x = pattern(xp, shape, dtype)
    assert explain(transpose, x, axes).startswith("transpose_narrow")
    assert_permuted(xp, asnumpy, x, axes)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_of_some_dozens_of_elements_are_taken_whole(data):
    dtype = np.dtype(data.draw(st.sampled_from(SIZES)))
    pack = 16 // dtype.itemsize
    width = data.draw(st.integers(9, 128).filter(lambda n: n * dtype.itemsize % 16))
    long = pack * data.draw(st.integers(2, 6000 // pack))
    outer = data.draw(st.sampled_from(((), (2,), (3, 2))))
    matrix = data.draw(st.permutations((long, width)))
    axes = (*reversed(range(len(outer))), len(outer) + 1, len(outer))
    x = pattern(np, (*outer, *matrix), dtype)
    if matrix[1] == width:
        sectors = long * dtype.itemsize % 32 == 0
        in_words = {1: sectors or width % 4 == 0, 2: sectors and width % 2 == 1 and width <= 33}.get(dtype.itemsize)
    else:
        in_words = width <= 80 or dtype.itemsize < 8
    with watching() as watch:
        assert explain(transpose, x, axes).startswith("transpose_short") is bool(in_words)
        assert_permuted(np, np.asarray, x, axes)
    assert watch.findings == []


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_small_elements_are_turned_over_in_words_wherever_long_rows_begin(data):
    """Rows apart or in reverse; packs at the ends of all rows hold what lies beside, where nothing is written."""
    split = data.draw(st.booleans())
    dtype = np.dtype(np.uint8 if split else data.draw(st.sampled_from((np.uint8, np.uint16))))
    most = transpose_short.MOST_IN_WORDS[dtype.itemsize]
    width = (
        4 * data.draw(st.integers(1, 79))
        if split
        else data.draw(st.integers(9, most).filter(lambda n: n <= 192 or n % 16))
    )
    long = data.draw(st.integers(100, 1500).filter(lambda n: n % 16))
    pitch = long + (0 if split else data.draw(st.integers(1, 5)))
    begin, first = (0, data.draw(st.integers(1, 9))) if split else (data.draw(st.integers(0, 3)), 16)
    shape = (long, width) if split else (width, pitch)
    flat = pattern(np, (begin + int(np.prod(shape)),), dtype)
    x = flat[begin:].reshape(shape)[:, : width if split else long]
    x = x if split or data.draw(st.booleans()) else x[::-1]
    around = np.full(x.size + 64, 0xA5, np.uint8).repeat(dtype.itemsize).view(dtype)
    out = around[first : first + x.size].reshape(x.shape[::-1])
    kept = around.copy()
    with watching() as watch, mock.patch.object(transpose_short, "LARGE", 0):  # wide rows of bytes, too
        transpose(x, out=out)
        assert "_anywhere_" in explain(transpose, x, out=out).split(" on ")[0]
    assert watch.findings == []
    assert np.array_equal(out, x.T)
    assert np.array_equal(around[:first], kept[:first])
    assert np.array_equal(around[first + x.size :], kept[first + x.size :])


def test_short_rows_that_begin_anywhere_are_not_taken_in_packs(xp, asnumpy, shared_cache):
    x = pattern(xp, (3, 1300), "float16")
    for view in (x[:, 1:1281], x[:, :1279]):
        assert not explain(transpose, view).startswith("transpose_narrow")
        assert_permuted(xp, asnumpy, view, None)


@pytest.mark.parametrize("dtype", SIZES[:3])
@pytest.mark.parametrize(("shape", "first"), [((331, 385), 0), ((330, 357), 3), ((325, 650), 2), ((3, 331, 397), 0)])
def test_rows_that_begin_anywhere_are_moved_in_packs(xp, asnumpy, shared_cache, dtype, shape, first):
    x = pattern(xp, shape, dtype)[..., first:]
    axes = (0, 2, 1)[-x.ndim :] if x.ndim == 3 else None
    assert explain(transpose, x, axes).startswith("transpose_ragged_r")
    assert_permuted(xp, asnumpy, x, axes)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_short_rows_of_any_width_and_place_are_taken_whole(data):
    """Long rows apart or in reverse; packs at the ends of all rows hold what lies beside, where nothing is written."""
    dtype = np.dtype(data.draw(st.sampled_from(SIZES)))
    split = data.draw(st.booleans())

    def padded(width):
        return ShortRows(width, 1, 1, split, (), (), dtype.itemsize).crowded

    widths = st.integers(2, transpose_short.MOST_SPLIT[dtype.itemsize] if split else transpose_short.MOST_MERGED)
    width = data.draw(widths.filter(lambda n: padded(n) or (n % 16 and n * dtype.itemsize % 16)))
    long = data.draw(st.integers(306 if split else 400, 1200).filter(lambda n: n % 2))
    outer = data.draw(st.sampled_from(((), (2,))))
    pitch = long + (0 if split else data.draw(st.integers(0, 3)))
    shape = (*outer, long, width) if split else (*outer, width, pitch)
    flat = pattern(np, (data.draw(st.integers(0, 3)) + int(np.prod(shape)),), dtype)
    x = flat[len(flat) - int(np.prod(shape)) :].reshape(shape)[..., : width if split else long]
    x = x if split or data.draw(st.booleans()) else x[..., ::-1, :]
    around = np.full(x.size + 64, 0xA5, np.uint8).repeat(dtype.itemsize).view(dtype)
    first = data.draw(st.integers(1, 9))
    turned = (*outer, width, long) if split else (*outer, long, width)
    axes = (*range(len(outer)), len(outer) + 1, len(outer))
    out = around[first : first + x.size].reshape(turned)
    kept = around.copy()
    with watching() as watch, mock.patch.object(ShortRows, "cut", lambda *_, **__: None):
        transpose(x, axes, out=out)
        found = explain(transpose, x, axes, out=out)
    assert watch.findings == []
    assert found.startswith(f"transpose_{'padded' if padded(width) else 'ragged'}_short")
    assert np.array_equal(out, np.transpose(x, axes))
    assert np.array_equal(around[:first], kept[:first])
    assert np.array_equal(around[first + x.size :], kept[first + x.size :])


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", SIZES)
def test_no_two_blocks_that_split_short_rows_write_to_one_line(dtype, large, monkeypatch):
    """Nor to one pair of lines, where the matrix is large."""
    monkeypatch.setattr(transpose_short, "LARGE", 0 if large else 1 << 40)
    x, around = np.ones((3001, 37), dtype), np.zeros(3001 * 37 + 5, dtype)
    out = around[5:].reshape(37, 3001)
    with mock.patch.object(ShortRows, "cut", lambda *_, **__: None), kgen.backend("cpu"), listing_steps() as steps:
        transpose(x, out=out)
    assert steps[0].spec.name.startswith("transpose_ragged_short") and steps[0].blocks > 2
    (first_two,) = bind([steps[0]._replace(blocks=2)], HOST)
    first_two((x.ctypes.data, out.ctypes.data), 0)
    for row in out:
        written = int(row.astype(bool).sum())
        assert row[:written].all() and (row.ctypes.data + written * row.itemsize) % (256 if large else 128) == 0


@pytest.mark.parametrize("width", [31, 96])
def test_long_rows_of_less_than_a_pack_are_read_no_further_than_memory(width):
    flat = pattern(np, (width * 12 - 2,), "uint8")
    x = np.lib.stride_tricks.as_strided(flat, (width, 10), (12, 1))
    with watching() as watch:
        assert_permuted(np, np.asarray, x, None)
    assert watch.findings == []


@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_that_begin_anywhere_are_read_no_further_than_memory(data):
    """Rows behind each other, apart, in reverse, or one upon the other: packs at their ends hold what lies beside."""
    dtype = np.dtype(data.draw(st.sampled_from(SIZES[:3])))
    rows, columns = (data.draw(st.integers(64, 450)) for _ in range(2))
    pitch = columns + data.draw(st.integers(0, 5) | st.just(-3))
    flat = pattern(np, (data.draw(st.integers(0, 9)) + (rows - 1) * pitch + columns,), dtype)
    x = np.lib.stride_tricks.as_strided(
        flat[len(flat) - (rows - 1) * pitch - columns :], (rows, columns), (pitch * dtype.itemsize, dtype.itemsize)
    )
    x = x[::-1] if data.draw(st.booleans()) else x
    with watching() as watch:
        assert_permuted(np, np.asarray, x, None)
    assert watch.findings == []


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_whole_rows_that_begin_anywhere_are_written_in_packs(data):
    dtype = np.dtype(data.draw(st.sampled_from(SIZES[:3])))
    width = data.draw(st.integers(17, 300).filter(lambda n: n * dtype.itemsize % 16) | st.just(5001))
    outer = data.draw(st.sampled_from(((3, 7), (70, 2), (2, 5, 3))))
    first = data.draw(st.integers(0, 3))
    x = pattern(np, (*outer, width + first), dtype)[..., first:]
    axes = (*reversed(range(len(outer))), len(outer))
    with watching() as watch:
        assert explain(transpose, x, axes).startswith("transpose_flat")
        assert_permuted(np, np.asarray, x, axes)
        assert_permuted(np, np.asarray, x[::-1, ::-1], axes)
    assert watch.findings == []


@settings(max_examples=16, deadline=None, derandomize=True)
@given(data=st.data())
def test_tiles_come_in_either_order(data):
    dtype = np.dtype(data.draw(st.sampled_from(SIZES)))
    outer = data.draw(st.sampled_from(((), (2,), (2, 3))))
    x = pattern(np, (*outer, data.draw(st.integers(330, 450)), 2 * data.draw(st.integers(200, 300)) + 1), dtype)
    axes = (*reversed(range(len(outer))), len(outer) + 1, len(outer))
    _transpose._plans.clear()
    with mock.patch.multiple(
        transpose_steps, _STRIP=data.draw(st.sampled_from((0, 1 << 40))), _TALL=100, _TALL_BYTES=0
    ):
        found = explain(transpose, x, axes)
        assert ("_across" in found) is (transpose_steps._STRIP == 0)
        assert_permuted(np, np.asarray, x, axes)
    _transpose._plans.clear()


def test_a_result_that_begins_anywhere_is_not_written_in_packs(xp, asnumpy, shared_cache):
    x = pattern(xp, (5, 3, 77), "uint16")
    out = xp.empty(x.size + 1, x.dtype)[1:].reshape(3, 5, 77)
    assert np.array_equal(asnumpy(transpose(x, (1, 0, 2), out=out)), np.transpose(asnumpy(x), (1, 0, 2)))


@pytest.mark.parametrize("dtype", SIZES[:2])
@pytest.mark.parametrize("shape", [(128, 33), (64, 1), (260, 63)])
def test_narrow_matrices_read_only_what_was_written(dtype, shape):
    x = pattern(np, shape, dtype)
    with watching() as watch:
        assert_permuted(np, np.asarray, x, None)
    assert watch.findings == []


@pytest.mark.parametrize("axes", [[1, 0, 2], np.array([1, 0, 2])], ids=["list", "array"])
def test_what_is_asked_about_takes_the_axes_that_a_call_does(axes):
    x = np.ones((2, 3, 4), "f")
    with kgen.backend("cpu"):
        assert explain(transpose, x, axes) == explain(transpose, x, (1, 0, 2))
        assert kgen.workspace(transpose, x, axes) == 0
        with pytest.raises(TypeError, match="transpose: axes is a int; it takes a sequence"):
            explain(transpose, x, 1)
