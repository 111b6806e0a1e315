"""Gradients of narrow norms, spans of which pass through shared memory: beside float64, and where they are taken."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.ops.norm import backward_span
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.questions import explain
from kgen.scratch import listing
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]

# Spans that are full, that end amid a chunk, and that one block has several of; columns of which two are divisible.
SPANS = [
    ("bf16", "bf16", 65, 129),
    ("bf16", "f32", 1300, 143),
    ("f16", "f16", 257, 144),
    ("bf16", "bf16", 1101, 151),
    ("f16", "f32", 3, 200),
    ("bf16", "bf16", 700, 262),
    ("f16", "f16", 133, 265),
    ("bf16", "bf16", 300, 350),
]


@pytest.mark.parametrize(("dtype", "own", "rows", "columns"), SPANS)
def test_gradients_of_spans_agree_with_float64(
    dtype: str,
    own: str,
    rows: int,
    columns: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = -(-columns // 2)
    lanes = 8 if total <= 72 else 16
    monkeypatch.setattr(backward_span, "cut", lambda *about, **more: backward_span.Cut(lanes, -(-total // lanes)))
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
        assert "norm_backward_span" in explain(function, *given)
        dx, *of_weights = (asnumpy(result) for result in function(*given))
        assert error(dx, expected) < 3 * BOUND[dtype]
        assert error(of_weights[0], (wide_dy * normal).sum(0)) < 3 * BOUND[own]
        if not rms:
            assert error(of_weights[1], wide_dy.sum(0)) < 3 * BOUND[own]
        assert [asnumpy(result).tobytes() for result in function(*given)] == [
            result.tobytes() for result in (dx, *of_weights)
        ]


def test_what_is_not_a_number_stays_in_its_row(xp: ModuleType, asnumpy: AsNumpy) -> None:
    rows, columns = 4000, 151
    x, dy = numbers((rows, columns), "bf16"), numbers((rows, columns), "bf16", 1)
    x[7] = np.inf
    dy[-1, 0] = np.nan
    statistics = (xp.zeros(rows, "f"), xp.ones(rows, "f"))
    given = (xp.asarray(dy), xp.asarray(x), *statistics, xp.ones(columns, dtype=xp.asarray(x).dtype))
    if "norm_backward_span" not in explain(layer_norm_backward, *given):
        pytest.skip("so few rows are taken otherwise on this device")
    with np.errstate(invalid="ignore"):
        dx = asnumpy(layer_norm_backward(*given)[0]).astype("f")
    finite = np.isfinite(dx).all(1)
    assert not finite[7]
    assert not finite[-1]
    assert finite.sum() == rows - 2


@pytest.mark.parametrize(
    ("dtype", "columns", "expected"),
    [
        ("bf16", 128, "norm_backward_t16_n1_v8_weight_sums_bias_bf16"),
        ("bf16", 129, "norm_backward_span_t8_n9_v2_bias_bf16 on 264 blocks"),
        ("bf16", 136, "norm_backward_t8_n5_v4_weight_sums_bias_bf16 on 528 blocks"),
        ("bf16", 151, "norm_backward_span_t16_n5_v2_bias_bf16 on 396 blocks"),
        ("f16", 192, "norm_backward_t8_n6_v4_weight_sums_bias_f16 on 396 blocks"),
        ("bf16", 200, "norm_backward_span_t16_n7_v2_bias_bf16"),
        ("bf16", 250, "norm_backward_t16_n2_v8_s2_weight_sums_bias_ragged_looped_bf16"),
        ("bf16", 256, "norm_backward_t16_n2_v8_s2_weight_sums_bias_looped_bf16"),
        ("bf16", 264, "norm_backward_t16_n5_v4_weight_sums_bias_bf16"),
        ("bf16", 350, "norm_backward_t16_n3_v8_s2_weight_sums_bias_ragged_looped_bf16"),
        ("bf16", 384, "norm_backward_t16_n3_v8_s2_weight_sums_bias_looped_bf16"),
        ("bf16", 392, "norm_backward_t32_n2_v8_s2_weight_sums_bias_looped_bf16"),
        ("f32", 151, "norm_backward_t16_n3_v4_weight_sums_bias_ragged_f32"),
    ],
)
def test_narrow_rows_are_taken_as_it_was_measured_to_pay(dtype: str, columns: int, expected: str) -> None:
    own = DTYPES[dtype].numpy
    rows = (1 << 28) // own.itemsize // columns
    x, statistics = np.empty((rows, columns), own), np.empty(rows, np.float32)
    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            assert explain(layer_norm_backward, x, x, statistics, statistics, x[0]).startswith(expected)
            few = [array[:40000] for array in (x, x, statistics, statistics)]
            assert "span" not in explain(layer_norm_backward, *few, x[0])
    finally:
        stand_for(HOST_FACTS)
