"""The inner product is NumPy's, for any strides and alignment, in one fixed order."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kgen
from kgen.ops.reduce.dot import dot, vdot

ToNumpy = Callable[[Any], np.ndarray]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [*map(np.dtype, ("f8", "f4", "f2", "i8", "i4", "u1", "?")), BF16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_numbers_are_exact_at_any_length_alignment_and_stride(
    xp: ModuleType, asnumpy: ToNumpy, dtype: np.dtype
) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    for n in (0, 1, 5, 31, 1000, 9001):
        for start, step in ((0, 1), (1, 1), (2, 1), (0, 2), (-1, -1)):
            a, b = (rng.integers(0, 2, 2 * n + 4).astype(dtype) for _ in range(2))
            a[rng.random(a.shape) < 1 - 8 / (n + 8)] = 0  # so that a result is small
            got = dot(xp.asarray(a)[start::step][:n], xp.asarray(b)[:n])
            want = np.dot(*(x if dtype.kind == "b" else x.astype("f8") for x in (a[start::step][:n], b[:n])))
            assert got.shape == ()
            assert asnumpy(got).dtype == dtype
            assert asnumpy(got) == want.astype(dtype), (n, start, step)


@pytest.mark.parametrize(("dtype", "bar"), [("f8", 1e-15), ("f4", 2e-7), ("f2", 5e-4)])
def test_errors_are_a_few_roundings_of_the_sum_of_magnitudes(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, bar: float
) -> None:
    a, b = (np.random.default_rng(i).standard_normal(50_021).astype(dtype) for i in range(2))
    exact = a.astype("f8") @ b.astype("f8")
    error = abs(float(asnumpy(vdot(xp.asarray(a), xp.asarray(b)))) - exact)
    assert error <= bar * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8")))


def test_vdot_is_of_all_elements_in_order(xp: ModuleType, asnumpy: ToNumpy) -> None:
    numbers = np.random.default_rng(0).integers(-9, 9, (2, 6, 8, 10)).astype("f4")
    a, b = (np.ascontiguousarray(x) for x in numbers)
    for cut in (
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::2, :, 1:],
        lambda x: x[..., :1].T,
        lambda x: x[::-1, ::-1, ::-1],
        lambda x: x[0, 0, :1].reshape(()),
        lambda x: x[:, :0],
    ):
        here, there = cut(a), cut(b)
        views = [cut(xp.asarray(x)) for x in (a, b)]
        for left, right in (views, (views[0], views[1].reshape(-1)), (views[0].reshape(-1), views[1])):
            got = asnumpy(vdot(left, right))
            assert (got.shape, got.dtype, got) == ((), np.dtype("f4"), np.vdot(here, there))
    told = kgen.explain(vdot, xp.asarray(a)[::2, :, 1:], xp.zeros(3 * 8 * 9, "f4"))
    assert told.splitlines()[1].startswith("dot_v4_i2_f32")


def test_the_same_input_gives_the_same_bits_and_so_does_the_ladder_nearly(xp: ModuleType, asnumpy: ToNumpy) -> None:
    a, b = (xp.asarray(np.random.default_rng(i).standard_normal(30_003).astype("f4")) for i in range(2))
    first = asnumpy(dot(a, b))
    assert all(asnumpy(dot(a, b)) == first for _ in range(5))
    for algorithm in ("naive", "vec4"):
        assert asnumpy(dot(a, b, algorithm=algorithm)) == pytest.approx(float(first), abs=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a, b: dot(a[:3], b[:4]), ValueError, "dot: a has 3 elements and b 4"),
        (lambda a, b: dot(a.reshape(2, 4), b), ValueError, "matmul"),
        (lambda a, b: dot(a, b.astype("f8")), TypeError, "one dtype"),
        (lambda a, b: dot(a, b, algorithm="vec8"), ValueError, "vec8"),
        (lambda a, b: vdot(a[0], b), (ValueError, TypeError), "vdot: a"),
        (lambda a, b: vdot(a.reshape(2, 4), b[:7]), ValueError, "vdot: a has shape .2, 4. and b .7,."),
    ],
)
def test_what_is_wrong_is_named(xp: ModuleType, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(xp.ones(8, "f4"), xp.ones(8, "f4"))
