"""Scans whose loading warps add up what the lanes read: where shared memory has room for it, and as exact as any."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.dtypes import F32
from kgen.ops.gated import scan
from kgen.ops.gated.scan_kernels import SCAN
from kgen.ops.gated.tiles import Tile
from tests.gpu.numerics import rms_bar, rms_error
from tests.ops.test_gated import check, make

AsNumpy = Callable[[Any], np.ndarray]

pytestmark = pytest.mark.usefixtures("shared_cache")

TILE = Tile(4, 8, 8, 1)


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "tile_for", lambda *about: TILE)


def launched(operator: Any, *arrays: Any, **options: Any) -> list[str]:
    return [word for word in str(kgen.explain(operator, *arrays, **options)).split() if word.startswith("gated_scan")]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("operator", ["simple_gla", "linear_attention"])
def test_both_passes_are_those_of_float64(xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str) -> None:
    case = make(operator, (1, 2, 53, 24, 29), dtype, gates="hard resets", reverse=dtype == "bf16")
    arrays = [xp.asarray(x) for x in case.arrays.values()]
    forward = launched(getattr(kgen, operator), *arrays, mode="recurrent")
    backward = launched(getattr(kgen, f"{operator}_backward"), xp.asarray(case.do), *arrays, mode="recurrent")
    posted = forward if operator == "simple_gla" else backward
    assert posted and all("posted" in name for name in posted)
    assert not any("posted" in name for name in forward + backward if name not in posted)
    check(xp, asnumpy, case, dtype)


def test_gradients_of_features_are_those_of_numpy(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("linear_attention", (1, 2, 55, 28, 24))
    q, k, v = case.arrays.values()
    wide = [x.astype(np.float64) for x in (q, k)]
    case.arrays = {"q": np.maximum(wide[0], 0), "k": np.maximum(wide[1], 0), "v": v}
    case.initial[...] = case.dstate[...] = 0
    _, _, grads = case.expected()
    on = [xp.asarray(x) for x in (case.do, q, k, v)]
    options: dict[str, Any] = {"feature_map": "relu", "mode": "recurrent"}
    assert all("posted" in name for name in launched(kgen.linear_attention_backward, *on, **options))
    made = kgen.linear_attention_backward(*on, **options)
    for x, wanted in zip(made, (grads["q"] * (wide[0] > 0), grads["k"] * (wide[1] > 0), grads["v"]), strict=True):
        assert rms_error(asnumpy(x), wanted) < 2 * rms_bar("f32", x.size)


def test_little_shared_memory_is_enough_without(monkeypatch: pytest.MonkeyPatch, xp: ModuleType) -> None:
    x, g = xp.ones((1, 2, 5, 32), dtype=np.float32), xp.zeros((1, 2, 5), dtype=np.float32)
    posted = SCAN.spec(dtype=F32, **TILE.axes, GATE=1, posted=True).derived["DYNAMIC_SMEM"]
    monkeypatch.setattr(scan, "shared_memory", lambda device: posted - 1)
    (name,) = launched(kgen.simple_gla, x, x, x, g, mode="recurrent")
    assert "posted" not in name


def test_a_gate_for_each_feature_leaves_no_room() -> None:
    with pytest.raises(kgen.KgenError, match="posted"):
        SCAN.spec(dtype=F32, **TILE.axes, GATE=2, posted=True)
