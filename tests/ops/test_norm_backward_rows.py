"""Gradients of norms whose rows a block takes several of side by side, fetched ahead: beside float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.errors import SpecError
from kgen.ops.norm import backward_ahead
from kgen.ops.norm.backward_ahead import Cut
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.questions import explain
from kgen.scratch import listing
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]

# Rows of parts of a warp, of some warps, of whole blocks and of clusters; that begin at packs, and anywhere; few and many.
CASES = [
    ("bf16", "bf16", 900, 129, Cut(8, 2, 8, 1, 2)),
    ("bf16", "f32", 500, 255, Cut(16, 2, 8, 1, 2)),
    ("f16", "f16", 400, 512, Cut(32, 2, 8, 1, 3)),
    ("bf16", "bf16", 301, 1000, Cut(64, 2, 8, 1, 2)),
    ("bf16", "f32", 211, 1023, Cut(64, 2, 8, 1, 2)),
    ("f16", "f16", 150, 2049, Cut(128, 2, 8, 1, 3)),
    ("f32", "bf16", 67, 1023, Cut(256, 1, 4, 1, 3)),
    ("f32", "f32", 99, 1000, Cut(64, 4, 4, 1, 1)),
    ("bf16", "bf16", 45, 4097, Cut(256, 2, 8, 1, 2)),
    ("f32", "f32", 33, 2049, Cut(512, 1, 4, 1, 3)),
    ("bf16", "bf16", 5, 8191, Cut(512, 2, 8, 1, 2)),
    ("f32", "f32", 21, 2049, Cut(128, 2, 4, 2, 2)),
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
    monkeypatch.setattr(backward_ahead, "cut", lambda *about, **more: cut)
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
        assert "_looped_" in explain(function, *given)
        out = xp.empty_like(given[1])  # sums go by where its rows begin in a sector
        dx, *of_weights = (np.array(asnumpy(result)) for result in function(*given, out=out))
        assert error(dx, expected) < 3 * BOUND[dtype]
        assert error(of_weights[0], (wide_dy * normal).sum(0)) < 3 * BOUND[own]
        if not rms:
            assert error(of_weights[1], wide_dy.sum(0)) < 3 * BOUND[own]
        assert [asnumpy(result).tobytes() for result in function(*given, out=out)] == [
            result.tobytes() for result in (dx, *of_weights)
        ]


@pytest.mark.parametrize(
    ("dtype", "columns", "layer", "rms"),
    [
        ("bf16", 1000, "t64_n2", "t64_n2"),
        ("bf16", 1023, None, "t64_n2"),
        ("bf16", 700, None, None),
        ("bf16", 2049, None, "t256_n1"),
        ("bf16", 4096, "t256_n2", "t256_n2"),
        ("bf16", 4097, None, None),
        ("bf16", 8191, "t512_n2", "t512_n2"),
        ("f32", 1000, None, "t256_n1"),
        ("f32", 1023, "t256_n1", "t256_n1"),
        ("f32", 2049, "t512_n1", None),
        ("f32", 4096, None, None),
    ],
)
def test_rows_are_fetched_ahead_as_it_was_measured_to_pay(
    dtype: str, columns: int, layer: str | None, rms: str | None
) -> None:
    own = DTYPES[dtype].numpy
    rows = (1 << 28) // own.itemsize // columns
    x, statistics = np.empty((rows, columns), own), np.empty(rows, np.float32)
    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            for function, known, expected in ((layer_norm_backward, 2, layer), (rms_norm_backward, 1, rms)):
                said = explain(function, x, x, *[statistics] * known, x[0])
                assert ("_ahead_" in said) == (expected is not None)
                assert expected is None or said.startswith(f"norm_backward_{expected}")
                few = explain(function, x[:500], x[:500], *[statistics[:500]] * known, x[0])
                assert "_ahead_" not in few
    finally:
        stand_for(HOST_FACTS)


def test_no_block_has_fewer_rows_than_one() -> None:
    """Such specializations were listed, and divided by no threads when they were built."""
    assert kgen.parse("norm_backward_t512_n3_v4_weight_sums_looped_ahead_f32").threads == 512
    with pytest.raises(SpecError, match="at most 512 threads"):
        kgen.parse("norm_backward_t1024_n3_v4_weight_sums_looped_ahead_f32")
