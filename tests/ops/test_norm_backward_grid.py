"""Gradients of norms of rows that all blocks share: beside float64, however many blocks and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.ops import rows_cut
from kgen.ops.norm import backward_grid, backward_plans
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.questions import explain
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]


@pytest.fixture
def among(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """No cluster holds a row; the fixture says how many blocks there are."""

    def blocks(count: int) -> None:
        monkeypatch.setattr(backward_grid, "blocks", lambda device: count)

    monkeypatch.setattr(backward_grid, "LEAST", 0)
    monkeypatch.setattr(rows_cut, "cut", lambda *about, **more: None)
    monkeypatch.setattr(backward_plans, "_summed", lambda *about, **more: None)
    blocks(3)
    yield blocks


GRADIENTS = [
    ("f32", "f32", 21, 6000, 3),
    ("f32", "f32", 11, 24000, 3),
    ("f32", "f16", 3, 12280, 3),
    ("bf16", "bf16", 9, 24568, 2),
    ("f16", "f32", 1, 9008, 5),
    ("f32", "f32", 2, 9600, 42),
]


@pytest.mark.parametrize(("dtype", "own", "rows", "columns", "blocks"), GRADIENTS)
def test_gradients_of_shared_rows_agree_with_float64(
    dtype: str, own: str, rows: int, columns: int, blocks: int, xp: ModuleType, asnumpy: AsNumpy, among: Any
) -> None:
    among(blocks)
    x, dy = numbers((rows, columns), dtype), numbers((rows, columns), dtype, 1)
    weight = numbers((columns,), own, 2)
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
        assert "norm_backward_grid" in explain(function, *given)
        dx, *of_weights = (asnumpy(result) for result in function(*given))
        assert error(dx, expected) < 3 * BOUND[dtype]
        assert error(of_weights[0], (wide_dy * normal).sum(0)) < 3 * BOUND[own]
        if not rms:
            assert error(of_weights[1], wide_dy.sum(0)) < BOUND[own]
        assert asnumpy(function(*given)[0]).tobytes() == dx.tobytes()


def test_rows_that_no_cluster_holds_are_shared_by_all() -> None:
    def told(rows: int, columns: int, dtype: str) -> str:
        x, statistics = np.empty((rows, columns), DTYPES[dtype].numpy), np.empty(rows, np.float32)
        return explain(layer_norm_backward, x, x, statistics, statistics, x[0]).split()[0]

    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"):
            assert told(4, 524288, "f32") == "norm_backward_grid_n2_v4_s7_bias_f32"
            assert told(4, 300000, "f32") == "norm_backward_grid_n2_v4_s12_bias_f32"  # narrower: more of them
            assert told(4, 300000, "bf16") == "norm_backward_grid_n1_v8_s16_bias_bf16"
            assert told(4, 1048576, "bf16") == "norm_backward_grid_n2_v8_s7_bias_bf16"
            assert told(64, 262144, "f32").startswith("norm_backward_ring")
            assert told(4, 1 << 22, "f32").startswith("norm_backward_split")  # nor do all blocks
    finally:
        stand_for(HOST_FACTS)
