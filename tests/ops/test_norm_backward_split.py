"""Gradients of norms of rows that nothing holds: beside float64, wherever rows begin, in however many parts."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.ops import rows_cut
from kgen.ops.norm import backward_plans, backward_split
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.questions import explain
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]
MARGIN = 64  # poisoned elements around an array


@pytest.fixture(autouse=True)
def too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing holds a row, and there are three multiprocessors."""
    monkeypatch.setattr(rows_cut, "cut", lambda *about, **more: None)
    monkeypatch.setattr(backward_plans, "_summed", lambda *about, **more: None)
    monkeypatch.setattr(backward_plans, "plan_grid", lambda *about, **more: None)
    monkeypatch.setattr(backward_split, "multiprocessors", lambda device: 3)


def placed(xp: ModuleType, array: np.ndarray, begin: int = 0, gap: int = 0) -> Any:
    """The array from the element `begin` of an aligned one on, its rows `gap` further apart, amid NaN."""
    height, width = array.shape
    around = np.full(MARGIN + height * (width + gap) + MARGIN, np.nan, np.float32).astype(array.dtype)
    inner = around[MARGIN + begin : MARGIN + begin + height * (width + gap)].reshape(height, width + gap)
    inner[:, :width] = array
    whole = xp.asarray(around)
    return whole[MARGIN + begin : MARGIN + begin + height * (width + gap)].reshape(height, -1)[:, :width]


def gradients(
    dy: np.ndarray, x: np.ndarray, weight: np.ndarray | None, *, rms: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The statistics, and what is expected."""
    dy, x = dy.astype(np.float64), x.astype(np.float64)
    mean = np.zeros((len(x), 1)) if rms else x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    normal = (x - mean) * rstd
    weighed = dy if weight is None else dy * weight.astype(np.float64)
    less = 0 if rms else weighed.mean(-1, keepdims=True)
    dx = rstd * (weighed - less - normal * (weighed * normal).mean(-1, keepdims=True))
    known = [rstd] if rms else [mean, rstd]
    of_weights = [] if weight is None else [(dy * normal).sum(0), dy.sum(0)][: 1 if rms else 2]
    return [each[:, 0].astype(np.float32) for each in known], [dx, *of_weights]


ROWS = [  # type, that of weights, rows, columns, where dy, x, dx and weights begin, gaps between rows
    ("f32", "f32", 1, 9000, (0, 0, 0, 0), (0, 0, 0)),
    ("f32", None, 3, 40004, (0, 0, 0, 0), (0, 0, 0)),
    ("f32", None, 2, 1, (0, 0, 0, 0), (0, 0, 0)),
    ("f32", "bf16", 2, 12289, (0, 0, 0, 0), (0, 0, 0)),
    ("f32", "f32", 2, 8194, (2, 0, 0, 0), (0, 2, 0)),
    ("bf16", "bf16", 5, 16392, (0, 0, 0, 1), (8, 0, 16)),
    ("bf16", "f32", 1, 24568, (0, 0, 0, 2), (0, 0, 0)),
    ("f16", "f32", 2, 20004, (0, 4, 0, 0), (0, 4, 8)),
    ("f16", None, 60, 17, (1, 0, 3, 0), (0, 0, 0)),
]


@pytest.mark.parametrize(("dtype", "own", "height", "width", "begins", "gaps"), ROWS)
def test_gradients_of_rows_in_parts_agree_with_float64(
    dtype: str, own: str | None, height: int, width: int, begins: Any, gaps: Any, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    dy, x = numbers((height, width), dtype), numbers((height, width), dtype, 1)
    weight = None if own is None else numbers((1, width), own, 2)
    for rms in (False, True):
        statistics, expected = gradients(dy, x, weight, rms=rms)
        weights = [] if weight is None else [placed(xp, weight, begins[3])[0]]
        known = [xp.asarray(each) for each in statistics]
        given = (placed(xp, dy, begins[0], gaps[0]), placed(xp, x, begins[1], gaps[1]), *known, *weights)
        out = placed(xp, np.full_like(x, 7), begins[2], gaps[2])
        function = rms_norm_backward if rms else layer_norm_backward
        assert "norm_backward_split" in explain(function, *given, out=out)
        results = function(*given, out=out)
        results = results if isinstance(results, tuple) else (results,)
        assert width == 1 or error(asnumpy(out), expected[0]) < 3 * BOUND[dtype]
        assert np.isfinite(asnumpy(out).astype(np.float64)).all()
        for found, right in zip(results[1:], expected[1:]):
            assert error(asnumpy(found), right) < 3 * BOUND[own or dtype]
        before = asnumpy(out).tobytes()
        function(*given, out=out)
        assert asnumpy(out).tobytes() == before  # the parts are added in one order
        around = asnumpy(out.base)
        assert np.isnan(around.astype(np.float64)).sum() >= 2 * MARGIN  # and nothing beside the rows is written


def test_what_is_not_finite_stays_in_its_row(xp: ModuleType, asnumpy: AsNumpy) -> None:
    dy, x = numbers((4, 9000), "f32"), numbers((4, 9000), "f32", 1)
    statistics, (expected,) = gradients(dy, x, None, rms=False)
    x[1, 8999], dy[2, 5] = np.nan, np.inf
    dx = asnumpy(layer_norm_backward(*map(xp.asarray, (dy, x, *statistics))))
    assert error(dx[[0, 3]], expected[[0, 3]]) < 3 * BOUND["f32"]
    assert np.isnan(dx[1]).all()
    assert not np.isfinite(dx[2]).any()


def test_an_offset_is_added_to_the_weights_of_rows_in_parts(xp: ModuleType, asnumpy: AsNumpy) -> None:
    dy, x, weight = numbers((2, 9000), "bf16"), numbers((2, 9000), "bf16", 1), numbers((9000,), "bf16", 2)
    statistics, (expected, _) = gradients(dy, x, weight.astype(np.float64) + 1.5, rms=True)
    dx, _ = rms_norm_backward(*map(xp.asarray, (dy, x, *statistics, weight)), weight_offset=1.5)
    assert error(asnumpy(dx), expected) < 3 * BOUND["bf16"]


def test_the_sums_of_rows_in_parts_are_as_those_of_doubles(xp: ModuleType, asnumpy: AsNumpy) -> None:
    """All of dy is one number: its mean is that number, of which nothing is left."""
    x, dy = numbers((1, 200_000), "f32"), np.full((1, 200_000), 0.1, np.float32)
    mean, rstd = np.zeros(1, np.float32), np.full(1, 1e-3, np.float32)
    dx = asnumpy(layer_norm_backward(*map(xp.asarray, (dy, x, mean, rstd))))
    normal = x.astype(np.float64) * np.float64(rstd[0])
    expected = np.float64(rstd[0]) * -normal * (np.float64(dy[0, 0]) * normal).mean()
    assert np.abs(dx - expected).max() < np.float64(rstd[0]) * 2**-24 * 0.2


@pytest.mark.parametrize(
    ("rows", "columns", "parts"), [(1, 1 << 26, 512), (4, 1 << 24, 512), (16, 1 << 22, 128), (300, 1 << 20, 8)]
)
def test_all_multiprocessors_have_parts(rows: int, columns: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_split, "multiprocessors", lambda device: 132)
    x, statistics = np.empty((rows, columns), np.float32), np.empty(rows, np.float32)
    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"):
            said = explain(rms_norm_backward, x, x, statistics)
    finally:
        stand_for(HOST_FACTS)
    assert f"in {parts} parts each" in said
