"""Sums and products with a vector in float32 are rounded once: as exact as in twice the precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen.arch import Arch
from kgen.cpu import library
from kgen.cpu.run import launch
from kgen.ops.calls import Operator
from kgen.ops.gemv.batched import matvec
from kgen.ops.gemv.gemv import gemv
from kgen.ops.reduce import dot, reduce
from kgen.spec import Spec
from tests.cpu.executing import fresh_plan

ToNumpy = Callable[[Any], np.ndarray]
MAX = np.finfo("f4").max
SLOW_DOUBLES = Arch.parse("sm_86")


@pytest.fixture(params=["cpu", "two floats", pytest.param("gpu", marks=pytest.mark.gpu)])
def xp(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The array library; with "two floats", kernels run as for a GPU whose double arithmetic is slow."""
    if request.param == "gpu":
        yield pytest.importorskip("cupy")
        return

    def library_of(spec: Spec, arch: Arch = SLOW_DOUBLES, *, check: bool = False) -> library.Library:
        return library.library_of(spec, SLOW_DOUBLES if request.param == "two floats" else library.ARCH, check=check)

    fresh = mock.patch.object(Operator, "_plan", fresh_plan)
    with kgen.backend("cpu"), mock.patch.object(launch, "library_of", library_of), fresh:
        yield np


def assert_rounded_once(got: np.ndarray, terms: np.ndarray, count: int = 1) -> None:
    """`got` is, nearly to half of its last place, the sum of `terms` [..., N], doubles, divided by `count`."""
    assert got.dtype == np.float32
    for one, each in zip(got.ravel(), terms.reshape(-1, terms.shape[-1]), strict=True):
        exact = math.fsum(each) / count
        half = float(np.spacing(np.abs(one))) / 2
        assert abs(float(one) - exact) <= half * (1 + 2**-16) + 2**-44 * math.fsum(abs(each)) / count, (one, exact)


def spread(rng: np.random.Generator, shape: tuple[int, ...], decades: int = 3) -> np.ndarray:
    """Numbers of many sizes."""
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-decades, decades, shape)).astype("f4")


def cancelling(rng: np.random.Generator, count: int) -> np.ndarray:
    """Great numbers and their opposites anywhere between ones: what is left of them is `count` // 3."""
    each = count // 3
    x = np.concatenate([np.full(each, 1e8), np.ones(each), np.full(each, -1e8), np.zeros(count - 3 * each)])
    rng.shuffle(x)
    return x.astype("f4")


SHAPES = [(1, 1), (3, 7), (257, 9), (5, 33), (64, 128), (33, 1023), (2, 9001), (3000, 13), (1100, 129)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_sum_and_a_mean_of_any_numbers(
    xp: ModuleType, asnumpy: ToNumpy, shape: tuple[int, int], axis: int | None
) -> None:
    rng = np.random.default_rng(shape[1])
    whole = spread(rng, (shape[0], shape[1] + 1))
    for cut in (slice(0, -1), slice(1, None)):  # the second begins beside a multiple of any load
        x = whole[:, cut]
        lines = np.moveaxis(x.astype("f8"), 0 if axis == 0 else 1, -1)
        lines = lines.reshape(1, -1) if axis is None else lines
        given = xp.asarray(whole)[:, cut]
        assert_rounded_once(asnumpy(reduce.sum(given, axis)), lines)
        assert_rounded_once(asnumpy(reduce.mean(given, axis)), lines, lines.shape[-1])


def test_short_rows_of_any_numbers(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = spread(np.random.default_rng(1), (140_000, 5))
    got = asnumpy(reduce.sum(xp.asarray(x), 1))
    exact, magnitude = x.sum(1, dtype="f8"), np.abs(x).sum(1, dtype="f8")
    assert (np.abs(got - exact) <= np.spacing(np.abs(got)) / 2 + 2.0**-44 * magnitude).all()


def test_a_sum_over_axes_that_lie_apart_is_rounded_once_as_well(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = spread(np.random.default_rng(2), (40, 6, 70))
    lines = x.astype("f8").transpose(1, 0, 2).reshape(6, -1)
    assert_rounded_once(asnumpy(reduce.sum(xp.asarray(x), (0, 2))), lines)
    assert_rounded_once(asnumpy(reduce.mean(xp.asarray(x), (0, 2))), lines, lines.shape[-1])


@pytest.mark.parametrize("length", [2, 1000, 50_021])
def test_a_dot_product_of_any_numbers(xp: ModuleType, asnumpy: ToNumpy, length: int) -> None:
    a, b = spread(np.random.default_rng(3), (2, length))
    assert_rounded_once(asnumpy(dot.dot(xp.asarray(a), xp.asarray(b))), a.astype("f8") * b.astype("f8"))


@pytest.mark.parametrize("shape", [*SHAPES, (2, 70_000), (9, 4097), (300, 260)], ids=str)
@pytest.mark.parametrize("trans", [False, True])
def test_a_product_with_a_vector_of_any_numbers(
    xp: ModuleType, asnumpy: ToNumpy, shape: tuple[int, int], trans: bool
) -> None:
    rng = np.random.default_rng(shape[1])
    a, x = spread(rng, shape, 1), spread(rng, (shape[1],), 1)
    terms = a.astype("f8") * x.astype("f8")
    given = xp.asarray(np.ascontiguousarray(a.T)) if trans else xp.asarray(a)
    assert_rounded_once(asnumpy(gemv(given, xp.asarray(x), trans=trans)), terms)
    assert_rounded_once(asnumpy(gemv(given.T, xp.asarray(x), trans=not trans)), terms)


@pytest.mark.parametrize("shape", [(37, 300), (2, 70_000)], ids=str)
@pytest.mark.parametrize("trans", [False, True])
def test_alpha_and_beta_are_multiplied_by_before_the_rounding(
    xp: ModuleType, asnumpy: ToNumpy, shape: tuple[int, int], trans: bool
) -> None:
    rng = np.random.default_rng(4)
    a, x, y = spread(rng, shape, 1), spread(rng, (shape[1],), 1), spread(rng, (shape[0],), 3)
    alpha, beta = float(np.float32(0.3)), float(np.float32(-1.7))
    given = xp.asarray(np.ascontiguousarray(a.T)) if trans else xp.asarray(a)
    got = asnumpy(gemv(given, xp.asarray(x), xp.asarray(y), alpha=alpha, beta=beta, trans=trans))
    assert_rounded_once(got, np.hstack([alpha * (a.astype("f8") * x), beta * y.astype("f8")[:, None]]))


def test_batches_of_products(xp: ModuleType, asnumpy: ToNumpy) -> None:
    rng = np.random.default_rng(5)
    a, x = spread(rng, (3, 5, 201), 1), spread(rng, (3, 201), 1)
    got = asnumpy(matvec(xp.asarray(a), xp.asarray(x)))
    assert_rounded_once(got, a.astype("f8") * x.astype("f8")[:, None])


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(3, 20_000), columns=st.sampled_from((1, 4, 9)))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_great_numbers_that_cancel_leave_what_is_beside_them(
    xp: ModuleType, asnumpy: ToNumpy, seed: int, count: int, columns: int
) -> None:
    rng = np.random.default_rng(seed)
    x = cancelling(rng, count)
    many = np.stack([rng.permutation(x) for _ in range(columns)])
    left, given, ones = count // 3, xp.asarray(many), xp.ones(count, "f4")
    assert float(reduce.sum(xp.asarray(x))) == left
    assert float(dot.dot(xp.asarray(x), ones)) == left
    for matrix, axis in ((given, 1), (xp.asarray(np.ascontiguousarray(many.T)), 0)):
        assert (asnumpy(reduce.sum(matrix, axis)) == left).all()
        assert (asnumpy(gemv(matrix, ones, trans=axis == 0)) == left).all()


def test_products_that_cancel_leave_what_rounding_takes_from_them(xp: ModuleType, asnumpy: ToNumpy) -> None:
    e = np.float32(2.0**-12)
    a, x = np.tile(np.float32([1 + e, 1]), (40, 50)), np.tile(np.float32([1 + e, -(1 + 2 * e)]), 50)
    left = np.float32(50 * 2.0**-24)  # of (1 + e)^2 - (1 + 2e)
    assert (asnumpy(gemv(xp.asarray(a), xp.asarray(x))) == left).all()
    assert (asnumpy(gemv(xp.asarray(np.ascontiguousarray(a.T)), xp.asarray(x), trans=True)) == left).all()
    assert float(dot.dot(xp.asarray(a[0]), xp.asarray(x))) == left


@pytest.mark.parametrize("length", [5, 64, 1023, 20_001])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_not_finite_stays_what_it_is(xp: ModuleType, asnumpy: ToNumpy, length: int, axis: int) -> None:
    at, other = length // 3, length - 1
    x = np.ones((9, length), "f4")
    x[0, at] = np.inf
    x[1, other] = -np.inf
    x[2, at], x[2, other] = np.inf, -np.inf
    x[3, at] = np.nan
    x[4, at], x[4, other] = np.inf, np.inf
    x[5] = 0
    x[5, at] = MAX
    x[6] = MAX  # its sum is infinite
    x[7] = -MAX
    want = np.float32([np.inf, -np.inf, np.nan, np.nan, np.inf, MAX, np.inf, -np.inf, length])
    given = xp.asarray(x if axis else np.ascontiguousarray(x.T))
    np.testing.assert_array_equal(asnumpy(reduce.sum(given, axis)), want)
    ones = xp.ones(length, "f4")
    np.testing.assert_array_equal(asnumpy(gemv(given, ones, trans=axis == 0)), want)
    twos = xp.full(length, 2, "f4")  # with which a product is infinite
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(asnumpy(gemv(given, twos, trans=axis == 0)), want * np.float32(2))


def test_the_least_numbers_are_added_exactly(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = (np.random.default_rng(6).integers(-9, 10, (7, 1001)) * np.float64(2.0**-149)).astype("f4")
    for axis in (0, 1):
        np.testing.assert_array_equal(asnumpy(reduce.sum(xp.asarray(x), axis)), x.sum(axis, dtype="f8").astype("f4"))
    got = asnumpy(gemv(xp.asarray(x), xp.ones(1001, "f4")))
    np.testing.assert_array_equal(got, x.sum(1, dtype="f8").astype("f4"))
