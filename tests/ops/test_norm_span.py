"""Norms of many narrow rows that pass through shared memory, beside float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen import launch
from kgen.backend import backend
from kgen.catalog import parse
from kgen.dtypes import DTYPES
from kgen.ops.norm import problem, span
from kgen.ops.norm.norm import fused_add_rms_norm, layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.step import Step
from tests.ops.test_norm import assert_close, reference
from tests.ops.test_softmax import examples

AsNumpy = Callable[[Any], np.ndarray]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are, of whatever width, and all of them for a few blocks."""
    monkeypatch.setattr(span, "SPANS", 0)
    any_width = {key: range(1 << 30) for of_kind in span.PAYS.values() for key in of_kind}
    monkeypatch.setattr(span, "PAYS", dict.fromkeys(span.PAYS, any_width))
    monkeypatch.setattr(span, "FILLED", {key: {} for key in span.FILLED})
    monkeypatch.setattr(span, "multiprocessors", lambda device: 1)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Normal numbers about 3."""
    return (np.random.default_rng(seed).standard_normal(shape) + 3).astype(DTYPES[dtype].numpy)


def between_poison(xp: ModuleType, x: np.ndarray, ahead: int) -> tuple[Any, Any]:
    """A copy of x that begins so many elements behind a multiple of a vector, and all around it."""
    around = np.full(x.size + 64 + ahead, np.nan, x.dtype)
    around[32 + ahead : 32 + ahead + x.size] = x.ravel()
    on = xp.asarray(around)
    return on[32 + ahead : 32 + ahead + x.size].reshape(x.shape), on


def assert_norms_agree(
    kernel: str,
    shape: tuple[int, int],
    dtype: str,
    own: str,
    ahead: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    behind: int = 0,
) -> None:
    """Of rows that begin so far behind a multiple of a vector, and of results that begin so much further behind one."""
    begin, columns = (ahead + behind) % (16 // DTYPES[dtype].itemsize), shape[1]
    host, weight, bias = (
        numbers(s, d, n) for n, (s, d) in enumerate(((shape, dtype), ((columns,), own), ((columns,), own)))
    )
    (x, _), (out, around) = between_poison(xp, host, ahead), between_poison(xp, np.full_like(host, np.nan), begin)
    w, b = xp.asarray(weight), xp.asarray(bias)
    assert kernel in explain(layer_norm, x, w, b, out=out)
    layer_norm(x, w, b, out=out)
    expected, means, rstds = reference(host, (1,), weight, bias)
    assert_close(asnumpy(out), expected, dtype, terms=8)
    outside = asnumpy(around).astype(np.float64)
    assert np.isnan(outside[: 32 + begin]).all() and np.isnan(outside[32 + begin + host.size :]).all()
    for written in (out, None):
        y, mean, rstd = layer_norm(x, w, b, return_stats=True, out=written)
        assert_close(asnumpy(y), expected, dtype, terms=8)
        np.testing.assert_allclose(asnumpy(mean), means, rtol=1e-6)
        np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-6)
    if behind:
        return
    expected, _, rstds = reference(host, (1,), weight, rms=True, offset=1.0)
    assert kernel in explain(rms_norm, x, w, out=x)
    rms_norm(x, w, eps=1e-5, weight_offset=1.0, out=x)  # in its place
    assert_close(asnumpy(x), expected, dtype, terms=4)


@pytest.mark.parametrize(
    ("dtype", "shape", "own", "ahead"),
    [
        ("bf16", (67, 65), "bf16", 0),
        ("bf16", (259, 129), "bf16", 3),  # rows begin at both halves of a word
        ("f16", (65, 452), "f16", 5),  # all at the second half
        ("f16", (130, 191), "f32", 0),
        ("bf16", (150, 255), "f32", 7),
        ("bf16", (41, 511), "bf16", 1),
        ("f16", (40, 895), "bf16", 2),
        ("f32", (100, 33), "f32", 0),
        ("f32", (259, 129), "f32", 3),
        ("f32", (70, 191), "f16", 1),
        ("f32", (20, 765), "f32", 2),
        ("f32", (1, 129), "bf16", 0),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_rows_that_pass_through_shared_memory_agree_with_float64(
    dtype: str, shape: tuple[int, int], own: str, ahead: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    assert_norms_agree("norm_span", shape, dtype, own, ahead, xp, asnumpy)


@pytest.mark.parametrize(
    ("dtype", "shape", "own", "ahead", "behind"),
    [
        ("bf16", (259, 129), "bf16", 1, -1),
        ("bf16", (130, 255), "f32", 2, 3),
        ("f16", (65, 451), "f16", 0, 1),  # a word of results is one of what is read
        ("f16", (41, 1023), "f32", 3, 4),
        ("bf16", (20, 1535), "f32", 1, -1),
        ("f32", (259, 129), "f32", 1, -1),
        ("f32", (70, 511), "bf16", 0, 3),
        ("f32", (1, 129), "f32", 2, 1),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_results_may_begin_elsewhere(
    dtype: str, shape: tuple[int, int], own: str, ahead: int, behind: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    assert_norms_agree("norm_span", shape, dtype, own, ahead, xp, asnumpy, behind)


@pytest.mark.parametrize(
    ("dtype", "shape", "own", "ahead"),
    [
        ("bf16", (259, 129), "bf16", 3),
        ("f16", (130, 255), "f32", 0),
        ("bf16", (37, 447), "bf16", 7),
        ("bf16", (1, 129), "f32", 1),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_a_residual_passes_through_shared_memory_too(
    dtype: str,
    shape: tuple[int, int],
    own: str,
    ahead: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, weight = [numbers(shape, dtype, seed) for seed in (1, 2)], numbers(shape[1:], own, 3)
    (x, around_x), (residual, around) = (between_poison(xp, host, ahead) for host in hosts)
    w = xp.asarray(weight)
    launched: list[str] = []

    def bind(steps: Sequence[Step], device: int) -> Any:
        launched.extend(map(str, steps))
        return launch.bind(steps, device)

    monkeypatch.setattr(problem, "bind", bind)
    fused_add_rms_norm(x, residual, w, eps=1e-5, out=x)
    assert "residual" in launched[0]
    total = (hosts[0].astype(np.float32) + hosts[1].astype(np.float32)).astype(hosts[0].dtype)
    assert asnumpy(residual).tobytes() == total.tobytes()
    assert_close(asnumpy(x), reference(total, (1,), weight, rms=True)[0], dtype, terms=4)
    for array in (around_x, around):
        outside = asnumpy(array).astype(np.float64)
        assert np.isnan(outside[: 32 + ahead]).all() and np.isnan(outside[32 + ahead + total.size :]).all()


@examples
@given(data=st.data())
@pytest.mark.usefixtures("everywhere")
def test_rows_of_any_narrow_width_agree_with_float64(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    dtype = data.draw(st.sampled_from(["f32", "f16", "bf16"]))
    full = 16 // DTYPES[dtype].itemsize
    columns = data.draw(st.integers(4 * full, 150).map(lambda n: 2 * n + 1))
    rows, ahead = data.draw(st.integers(1, 200)), data.draw(st.integers(0, full - 1))
    own, behind = data.draw(st.sampled_from(["f32", dtype])), data.draw(st.integers(0, full - 1))
    assert_norms_agree("norm_span", (rows, columns), dtype, own, ahead, xp, asnumpy, behind)


def test_calls_are_alike_to_the_bit(xp: ModuleType, asnumpy: AsNumpy, everywhere: None) -> None:
    x, w, b = (xp.asarray(numbers(shape, "bf16", 1)) for shape in ((200, 129), (129,), (129,)))
    assert asnumpy(layer_norm(x, w, b)).tobytes() == asnumpy(layer_norm(x, w, b)).tobytes()


@pytest.mark.usefixtures("everywhere")
def test_other_rows_are_left_to_other_kernels() -> None:
    """Which lie apart, have no weights, or begin with a vector; and with a residual those that begin elsewhere in a
    chunk than their results, and float32."""
    x, w = np.ones((40, 160), "e"), np.ones(129, "e")
    rows, apart = np.ones((40, 129), "e"), np.ones(40 * 129 + 1, "e")[1:].reshape(40, 129)
    with backend("cpu"):
        assert "norm_span" in explain(layer_norm, rows, w, w)
        assert "norm_span" not in explain(layer_norm, x[:, :129], w, w)
        assert "norm_span" in explain(layer_norm, rows, w, w, out=apart)
        assert "norm_span" not in explain(layer_norm, rows)
        assert "norm_span" in explain(rms_norm, rows, w, residual=rows)
        assert "norm_span" not in explain(rms_norm, rows, w, residual=apart)
        single = rows.astype("f")
        assert "norm_span" not in explain(rms_norm, single, w.astype("f"), residual=single)
        assert "norm_span" not in explain(layer_norm, x, x[0], x[0])


def test_as_many_blocks_are_resident_as_keep_memory_busy() -> None:
    """And have registers."""
    for name, blocks in {
        "norm_span_t8_n5_v2_weight_bias_bf16": 4,
        "norm_span_t8_n9_v2_weight_bias_bf16": 3,
        "norm_span_t8_n9_v2_rms_weight_bf16": 3,
        "norm_span_t32_n10_v2_weight_bias_bf16": 2,
        "norm_span_t8_n17_v1_weight_bias_f32": 3,
        "norm_span_t8_n24_v1_weight_bias_f32": 2,
        "norm_span_t8_n9_v2_weight_bias_apart_bf16": 3,
        "norm_span_t16_n7_v2_weight_bias_apart_bf16": 4,
        "norm_span_t8_n17_v2_weight_bias_apart_bf16": 2,
        "norm_span_t32_n18_v2_weight_bias_apart_bf16": 2,
        "norm_span_t32_n20_v2_weight_bias_apart_bf16": 1,
        "norm_span_t16_n8_v2_rms_residual_weight_bf16": 3,
        "norm_span_t16_n14_v2_rms_residual_weight_bf16": 2,  # of these shared memory has no room for more
    }.items():
        assert parse(name).derived["RESIDENT"] == blocks


@pytest.mark.parametrize(
    ("columns", "kernel"),
    [(200, "norm_span_t16"), (352, "norm_span_t32"), (360, "norm_t16"), (600, "norm_span_t32"), (1000, "norm_t32")],
)
def test_columns_that_fill_vectors_take_a_span_where_results_begin_apart(columns: int, kernel: str) -> None:
    """Of 16 bits and with two vectors, as far as that pays; with one vector, packs in registers do better."""
    rows = 1 << 12
    x = np.ones(rows * columns + 1, "e")[1:].reshape(rows, columns)
    w = np.ones(columns, "e")
    with backend("cpu"):
        assert explain(layer_norm, x, w, w).startswith(kernel)
        assert explain(rms_norm, x, w).startswith("norm_t")


@pytest.mark.parametrize(
    ("dtype", "columns", "layer", "rms"),
    [
        ("f16", 257, "norm_span_t8", "norm_span_t8"),
        ("f16", 303, "norm_span_t32", "norm_span_t32"),  # half a warp would have ten packs of each thread
        ("f16", 463, "norm_span_t32", "norm_span_t32"),
        ("f16", 701, "norm_span_t32", "norm_t32"),
        ("f32", 97, "norm_span_t8", "norm_span_t8"),
        ("f32", 225, "norm_span_t16", "norm_t16"),
        ("f32", 241, "norm_t16", "norm_t16"),
        ("f32", 347, "norm_span_t32", "norm_t"),
    ],
)
def test_odd_columns_take_a_span_unless_vectors_fill_lanes(dtype: str, columns: int, layer: str, rms: str) -> None:
    """Where results begin apart; what is before and after vectors counts more in narrow rows."""
    rows = 1 << 12
    x = np.ones(rows * columns + 1, DTYPES[dtype].numpy)[1:].reshape(rows, columns)
    w = np.ones(columns, x.dtype)
    with backend("cpu"):
        assert explain(layer_norm, x, w, w).startswith(layer)
        assert explain(rms_norm, x, w).startswith(rms)
