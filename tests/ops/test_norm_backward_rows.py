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
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.norm.backward_ahead import Cut
from kgen.ops.questions import explain
from kgen.scratch import listing
from tests.ops.test_rows_grid import BOUND, error, numbers

AsNumpy = Callable[[Any], np.ndarray]

# Rows of parts of a warp, of some warps, of whole blocks and of clusters; that begin at packs, and anywhere.
CASES = [
    ("bf16", "bf16", 900, 129, Cut(8, 2, 8, 1, 2)),
    ("bf16", "f32", 500, 255, Cut(16, 2, 8, 1, 2)),
    ("f16", "f16", 400, 512, Cut(32, 2, 8, 1, 3)),
    ("bf16", "bf16", 301, 1000, Cut(64, 2, 8, 1, 2)),
    ("bf16", "f32", 211, 1023, Cut(64, 2, 8, 1, 2)),
    ("f16", "f16", 150, 2049, Cut(128, 2, 8, 1, 3)),
    ("f32", "bf16", 67, 1023, Cut(256, 1, 4, 1, 3)),
    ("f32", "f32", 99, 1000, Cut(128, 2, 4, 1, 2)),
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
        ("bf16", 255, "t16_n2", "t16_n2"),
        ("bf16", 768, "t32_n3", "t32_n3"),  # of two packs, a quarter would be idle
        ("bf16", 1000, "t64_n2", "t64_n2"),
        ("bf16", 1100, None, None),  # more than a quarter
        ("bf16", 2049, "t128_n2", "t128_n2"),
        ("bf16", 4097, "t256_n2", "t256_n2"),
        ("bf16", 6000, None, None),  # there would be 256 threads with 24 numbers each
        ("bf16", 8191, "t512_n2", "t512_n2"),
        ("f32", 128, None, None),
        ("f32", 129, "t16_n2", "t16_n2"),
        ("f32", 700, None, None),
        ("f32", 1023, "t128_n2", "t128_n2"),
        ("f32", 2049, "t256_n2", None),
        ("f32", 4096, "t512_n2", "t512_n2"),
        ("f32", 8191, None, None),
    ],
)
def test_rows_are_fetched_ahead_where_few_lanes_are_idle_and_threads_fill_multiprocessors(
    dtype: str, columns: int, layer: str | None, rms: str | None
) -> None:
    rows = (1 << 28) // DTYPES[dtype].itemsize // columns
    for function, expected in ((layer_norm_backward, layer), (rms_norm_backward, rms)):
        told = said(function, (rows, columns), dtype)
        assert ("_s2_" in told) == (expected is not None)
        assert expected is None or told.startswith(f"norm_backward_{expected}")
        assert "_s2_" not in said(function, (100, columns), dtype)


def test_blocks_start_in_waves_where_multiprocessors_would_be_idle_at_the_end() -> None:
    """Those that start later have fewer rows. Where sums are many, or rows wide and of 16 bits, there is one wave."""
    for function, shape, dtype, blocks in (
        (rms_norm_backward, (65600, 1023), "f32", 3 * 528),
        (layer_norm_backward, (65600, 1023), "f32", 528),
        (layer_norm_backward, (67108, 1000), "f32", 3 * 132),
        (rms_norm_backward, (16384, 4096), "f32", 3 * 132),
        (rms_norm_backward, (131200, 1023), "bf16", 3 * 132),
        (layer_norm_backward, (131200, 1023), "bf16", 132),
        (rms_norm_backward, (32768, 4096), "bf16", 132),
    ):
        assert f" on {blocks} block" in said(function, shape, dtype)


def said(function: Callable[..., Any], shape: tuple[int, int], dtype: str) -> str:
    """What takes such rows on an H200."""
    x, statistics = np.empty(shape, DTYPES[dtype].numpy), np.empty(shape[0], np.float32)
    stand_for(Facts(132, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            return explain(function, x, x, *[statistics] * (1 if function is rms_norm_backward else 2), x[0])
    finally:
        stand_for(HOST_FACTS)


def test_no_block_has_fewer_rows_than_one() -> None:
    """Such specializations were listed, and divided by no threads when they were built."""
    assert kgen.parse("norm_backward_t512_n3_v4_s2_weight_sums_looped_f32").threads == 512
    with pytest.raises(SpecError, match="at most 512 threads"):
        kgen.parse("norm_backward_t1024_n3_v4_s2_weight_sums_looped_f32")
