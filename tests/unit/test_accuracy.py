"""How far results are from what is right, in samples and benchmarks."""

from __future__ import annotations

import numpy as np
import pytest

from kgen.samples.accuracy import rms_error


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_an_error_is_relative_where_float32_could_not_hold_the_squares_of_what_is_expected(size: float) -> None:
    expected = np.full(8, size, np.float32)
    assert rms_error(expected, expected) == 0
    assert rms_error(2 * expected, expected) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [np.array([1.0, np.nan]), np.array([1.0, np.inf]), np.array([1.0])])
def test_what_is_not_finite_or_of_another_shape_is_infinitely_wrong(wrong: np.ndarray) -> None:
    assert rms_error(wrong, np.array([1.0, 2.0])) == float("inf")
