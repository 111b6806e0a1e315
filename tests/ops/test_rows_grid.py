"""Softmax and norms of rows that teams of blocks share: beside float64, however many blocks, rows and turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen.dtypes import DTYPES
from kgen.ops import rows_cut, rows_grid
from kgen.ops.norm.norm import fused_add_rms_norm, group_norm, layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.softmax.softmax import log_softmax, softmax

AsNumpy = Callable[[Any], np.ndarray]
BOUND = {"f32": 4e-7, "f16": 6e-4, "bf16": 4e-3}


@pytest.fixture(autouse=True)
def teams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Teams for rows of any width, as if no cluster held one; the fixture says how many multiprocessors there are."""

    def among(multiprocessors: int) -> None:
        monkeypatch.setattr(rows_grid, "multiprocessors", lambda device: multiprocessors)

    monkeypatch.setattr(rows_cut, "cut", lambda *about, **more: None)
    among(4)
    yield among


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Normal numbers about 3."""
    return (np.random.default_rng(seed).standard_normal(shape) + 3).astype(DTYPES[dtype].numpy)


def error(result: np.ndarray, expected: np.ndarray) -> float:
    """Relative RMS."""
    assert result.shape == expected.shape
    return float(np.sqrt(((result.astype(np.float64) - expected) ** 2).mean() / (expected**2).mean()))


def exact_softmax(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    number = scale * x.astype(np.float64)
    power = np.exp(number - number.max(-1, keepdims=True))
    result: np.ndarray = power / power.sum(-1, keepdims=True)
    return result


def exact_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    wide = x.astype(np.float64)
    wide = wide if bias is None else wide - wide.mean(-1, keepdims=True)
    result: np.ndarray = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight.astype(np.float64)
    return result if bias is None else result + bias.astype(np.float64)


# Few rows and many turns, whole packs and odd widths; teams of odd rows begin at the same place in a pack.
CASES = [("f32", 5, 6000, 4), ("f32", 19, 4099, 8), ("bf16", 23, 9000, 4), ("bf16", 17, 8195, 12), ("f16", 3, 9008, 4)]


@pytest.mark.parametrize(("dtype", "rows", "columns", "multiprocessors"), CASES)
def test_softmax_of_shared_rows_agrees_with_float64(
    dtype: str, rows: int, columns: int, multiprocessors: int, xp: ModuleType, asnumpy: AsNumpy, teams: Any
) -> None:
    teams(multiprocessors)
    host = numbers((rows, columns), dtype)
    x = xp.asarray(host)
    assert "softmax_grid" in explain(softmax, x, -1)
    assert error(asnumpy(softmax(x, -1)), exact_softmax(host)) < BOUND[dtype]
    for scale in (0.5, -0.5):
        assert "softmax_grid" in explain(softmax, x, -1, scale=scale)
        assert error(asnumpy(softmax(x, -1, scale=scale)), exact_softmax(host, scale)) < BOUND[dtype]
    assert error(asnumpy(softmax(x, -1, scale=0)), exact_softmax(host, 0)) < BOUND[dtype]
    assert error(asnumpy(log_softmax(x, -1)), np.log(exact_softmax(host))) < BOUND[dtype]


@pytest.mark.parametrize(("dtype", "rows", "columns", "multiprocessors"), CASES)
def test_norms_of_shared_rows_agree_with_float64(
    dtype: str, rows: int, columns: int, multiprocessors: int, xp: ModuleType, asnumpy: AsNumpy, teams: Any
) -> None:
    teams(multiprocessors)
    host, residual = numbers((rows, columns), dtype), numbers((rows, columns), dtype, 1)
    weight, bias = numbers((columns,), dtype, 2), numbers((columns,), dtype, 3)
    x, w, b, r = (xp.asarray(array) for array in (host, weight, bias, residual))
    assert "norm_grid" in explain(layer_norm, x, w, b)
    y, mean, rstd = layer_norm(x, w, b, return_stats=True)
    assert error(asnumpy(y), exact_norm(host, weight, bias)) < BOUND[dtype]
    assert error(asnumpy(mean), host.astype(np.float64).mean(-1)) < 1e-6
    assert error(asnumpy(rstd), 1 / np.sqrt(host.astype(np.float64).var(-1) + 1e-5)) < 1e-6
    assert error(asnumpy(rms_norm(x, w, eps=1e-5)), exact_norm(host, weight)) < BOUND[dtype]
    total = (host.astype(np.float32) + residual.astype(np.float32)).astype(host.dtype)
    assert error(asnumpy(fused_add_rms_norm(x, r, w, eps=1e-5)), exact_norm(total, weight)) < BOUND[dtype]
    assert (asnumpy(r).view(np.uint8) == total.view(np.uint8)).all()


def test_a_team_may_have_more_blocks_than_a_warp_has_lanes(xp: ModuleType, asnumpy: AsNumpy, teams: Any) -> None:
    teams(42)
    host = numbers((3, 190_004), "f32")
    weight, bias = numbers(host.shape[1:], "f32", 1), numbers(host.shape[1:], "f32", 2)
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    assert "teams of 42 blocks" in explain(softmax, x, -1)
    assert error(asnumpy(softmax(x, -1)), exact_softmax(host)) < BOUND["f32"]
    assert error(asnumpy(layer_norm(x, w, b)), exact_norm(host, weight, bias)) < BOUND["f32"]


def test_the_same_rows_give_the_same_bits_again_and_again(xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = xp.asarray(numbers((9, 5000), "f32"))
    first = asnumpy(softmax(x, -1))
    for _ in range(3):
        assert (asnumpy(softmax(x, -1)) == first).all()


def test_nan_and_infinity_stay_in_their_row_of_a_team(xp: ModuleType, asnumpy: AsNumpy) -> None:
    host = numbers((7, 5000), "f32")
    host[1, 3], host[2, 4999], host[3], host[4, :4000], host[5, 9] = np.nan, np.inf, -np.inf, -np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = exact_softmax(host)
    result = asnumpy(softmax(xp.asarray(host), -1))
    assert (np.isnan(result) == np.isnan(expected)).all()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)
    normal = asnumpy(layer_norm(xp.asarray(host[[0, 1, 2, 6]])))
    assert np.isnan(normal[1:3]).all()
    assert np.isfinite(normal[[0, 3]]).all()


def test_a_small_variance_beside_a_large_mean_is_found_by_a_team(xp: ModuleType, asnumpy: AsNumpy) -> None:
    host = (numbers((4, 6000), "f32").astype(np.float64) + 1e4).astype(np.float32)
    expected = exact_norm(host, np.ones(6000), np.zeros(6000))
    assert error(asnumpy(layer_norm(xp.asarray(host))), expected) < 1e-3  # of a mean that is rounded


def test_groups_of_channels_are_shared_by_teams(xp: ModuleType, asnumpy: AsNumpy) -> None:
    host = numbers((2, 8, 20, 40), "f32")
    weight, bias = numbers((8,), "f32", 1), numbers((8,), "f32", 2)
    x, w, b = (xp.asarray(array) for array in (host, weight, bias))
    assert "norm_grid" in explain(group_norm, x, 2, w, b)
    normal = exact_norm(host.reshape(2, 2, -1), np.ones(1), np.zeros(1)).reshape(host.shape)
    expected = normal * weight[:, None, None] + bias[:, None, None]
    assert error(asnumpy(group_norm(x, 2, w, b)), expected) < BOUND["f32"]
