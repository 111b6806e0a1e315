"""Axes as NumPy names them, and arrays seen as rows: what is said of strides is true of addresses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.arrays import adopt
from kgen.backend import backend
from kgen.operand import Operand, joined
from kgen.ops.axes import as_planes, as_rows, normal_axes, others, staged
from kgen.ops.calls import Plan


def operand(array: np.ndarray) -> Operand:
    with backend("cpu"):
        return adopt(array, "op", "x")


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """An array of distinct numbers, turned, cut and reversed."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    array = np.arange(math.prod(shape), dtype="f").reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    cuts = tuple(draw(st.sampled_from([slice(None), slice(None, None, 2), slice(None, None, -1)])) for _ in shape)
    return array[cuts]


@given(views(), st.data())
def test_rows_and_planes_are_where_the_elements_are(array: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, array.ndim))
    axes = tuple(sorted(data.draw(st.permutations(range(array.ndim)))[:count]))
    x = operand(array)
    order = (*others(x, axes), *axes)
    flat = array.transpose(order).reshape(-1, math.prod(array.shape[axis] for axis in axes))
    memory = array.base if array.base is not None else array
    start = (array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]) // 4
    numbers = memory.ravel()
    rows = as_rows(x, axes)
    if rows is not None:
        assert (rows.rows, rows.columns) == flat.shape
        for row, column in itertools.product(range(rows.rows), range(rows.columns)):
            assert numbers[start + row * rows.pitch + column] == flat[row, column]
    planes = as_planes(x, axes)
    if planes is not None:
        cube = array.reshape(planes.planes, planes.length, planes.columns)
        for plane, step, column in np.ndindex(cube.shape):
            assert numbers[start + plane * planes.plane + step * planes.step + column] == cube[plane, step, column]


def test_contiguous_arrays_are_rows_along_their_last_axes_and_planes_along_others() -> None:
    x = operand(np.zeros((2, 3, 4, 5), "f"))
    assert as_rows(x, (3,)) == (24, 5, 5)
    assert as_rows(x, (2, 3)) == (6, 20, 20)
    assert as_rows(x, (0, 1, 2, 3)) == (1, 120, 120)
    assert as_rows(x, (1,)) is None
    assert as_planes(x, (1,)) == (2, 3, 20, 60, 20)
    assert as_planes(x, (0, 1)) == (1, 6, 20, 0, 20)


@given(st.integers(0, 4), st.data())
def test_axes_are_taken_and_refused_as_numpy_does(ndim: int, data: st.DataObject) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-5, 5), st.tuples(st.integers(-5, 5), st.integers(-5, 5))))
    x = np.zeros((2,) * ndim)
    try:
        expected = x.sum(axis=axis, keepdims=True).shape
    except (ValueError, TypeError) as error:  # AxisError is a ValueError
        with pytest.raises(type(error)):
            normal_axes("op", axis, ndim)
    else:
        axes = normal_axes("op", axis, ndim)
        assert tuple(1 if n in axes else 2 for n in range(ndim)) == expected
        assert axes == tuple(sorted(axes))


@given(views())
def test_collapsed_axes_run_through_the_same_addresses(array: np.ndarray) -> None:
    x = operand(array)
    shape, strides = joined(x.shape, x.strides)

    def addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
        return [sum(i * step for i, step in zip(index, strides, strict=True)) for index in np.ndindex(shape)]

    assert addresses(shape, strides) == addresses(x.shape, x.strides)
    assert len(shape) <= array.ndim


@given(views(), st.data())
def test_staged_operands_are_contiguous_copies_and_results_come_home(array: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, array.ndim))
    axes = tuple(sorted(data.draw(st.permutations(range(array.ndim)))[:count]))
    result = np.full_like(array, np.nan)
    x, y = operand(array.copy("K")), operand(result)

    def build(operands: object, axes: tuple[int, ...]) -> Plan:
        def launch(pointers: object, stream: int) -> None:
            source, target = pointers  # type: ignore[misc]
            size = array.size
            taken, given = (
                np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * size).from_address(p)) for p in (source, target)
            )
            given[:] = 2 * taken

        return Plan(launch, (), "")

    staged((x, y), 1, axes, (False, False), build).launch((x.ptr, y.ptr), 0)
    np.testing.assert_array_equal(result, 2 * array)
