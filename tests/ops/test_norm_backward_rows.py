"""Gradients of norms whose rows a block takes several of side by side, fetched ahead: beside float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen.ops import rows_cut
from kgen.ops.norm import backward_ring, backward_span
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.questions import explain
from kgen.ops.rows import Cut
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]

# Rows of a few lanes, of some warps and of whole blocks; that begin at packs, and anywhere; few and many.
CASES = [
    ("bf16", "bf16", 1500, 255, Cut(32, 1, 8, 1, True)),
    ("f16", "f32", 700, 128, Cut(8, 2, 8, 1, True)),
    ("f32", "f32", 333, 129, Cut(16, 2, 4, 1, True)),
    ("bf16", "bf16", 301, 1000, Cut(64, 2, 8, 1, True)),
    ("bf16", "f32", 211, 1023, Cut(64, 2, 8, 1, True)),
    ("f16", "f16", 150, 2049, Cut(128, 2, 8, 1, True)),
    ("f32", "bf16", 67, 2049, Cut(128, 4, 4, 1, True)),
    ("bf16", "bf16", 45, 4097, Cut(256, 2, 8, 1, True)),
    ("f32", "f32", 33, 2049, Cut(512, 1, 4, 1, True)),
    ("bf16", "bf16", 5, 8191, Cut(512, 2, 8, 1, True)),
]


@pytest.mark.parametrize(("dtype", "own", "rows", "columns", "cut"), CASES)
def test_gradients_of_rows_fetched_ahead_agree_with_float64(
    dtype: str,
    own: str,
    rows: int,
    columns: int,
    cut: Cut,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((backward_span, "cut"), (backward_ring, "cut"), (rows_cut, "fours")):
        monkeypatch.setattr(module, name, lambda *about, **more: None)
    monkeypatch.setattr(rows_cut, "summing", lambda *about, **more: cut)
    x, dy, weight = numbers((rows, columns), dtype), numbers((rows, columns), dtype, 1), numbers((columns,), own, 2)
    wide_x, wide_dy, wide_weight = (array.astype(np.float64) for array in (x, dy, weight))
    for rms in (False, True):
        mean = np.zeros((rows, 1)) if rms else wide_x.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt(((wide_x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        normal, weighed = (wide_x - mean) * rstd, wide_dy * wide_weight
        less = 0 if rms else weighed.mean(-1, keepdims=True)
        expected = rstd * (weighed - less - normal * (weighed * normal).mean(-1, keepdims=True))
        known = (rstd,) if rms else (mean, rstd)
        statistics = [xp.asarray(each[:, 0].astype(np.float32)) for each in known]
        given = (xp.asarray(dy), xp.asarray(x), *statistics, xp.asarray(weight))
        function = rms_norm_backward if rms else layer_norm_backward
        assert f"norm_backward_t{cut.lanes}_n{cut.packs}" in explain(function, *given)
        out = xp.empty_like(given[1])  # sums go by where its rows begin in a sector
        dx, *of_weights = (np.array(asnumpy(result)) for result in function(*given, out=out))
        assert error(dx, expected) < 3 * BOUND[dtype]
        assert error(of_weights[0], (wide_dy * normal).sum(0)) < 3 * BOUND[own]
        if not rms:
            assert error(of_weights[1], wide_dy.sum(0)) < 3 * BOUND[own]
        assert [asnumpy(result).tobytes() for result in function(*given, out=out)] == [
            result.tobytes() for result in (dx, *of_weights)
        ]
