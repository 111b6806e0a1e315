"""Layer, RMS and group normalisation beside float64, over shapes, axes, strides and weights of their own dtypes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.backend import HOST, backend
from kgen.dtypes import BF16, DTYPES, F32, DType
from kgen.launch import bind
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm import backward_ahead, backward_plans, backward_ring, sectors
from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
from kgen.ops.norm.backward_kernels import BACKWARD, TOTAL
from kgen.ops.norm.backward_ring_kernel import RING
from kgen.ops.norm.norm import fused_add_rms_norm, group_norm, layer_norm, rms_norm
from kgen.ops.questions import explain
from kgen.ops.rows import Cut
from kgen.step import Step
from tests.ops.test_softmax import ULP, examples, rows_in_turn, view

AsNumpy = Callable[[Any], np.ndarray]


def reference(
    x: np.ndarray,
    axes: Any,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    eps: float = 1e-5,
    rms: bool = False,
    offset: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, mean, rstd in float64; weight and bias broadcast."""
    x = x.astype(np.float64)
    mean = np.zeros_like(x.mean(axis=axes, keepdims=True)) if rms else x.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    y = (x - mean) * rstd
    if weight is not None:
        y = y * (offset + weight.astype(np.float64))
    if bias is not None:
        y = y + bias.astype(np.float64)
    return y, mean.squeeze(axes), rstd.squeeze(axes)


def assert_close(result: np.ndarray, expected: np.ndarray, dtype: str, *, ulps: float = 8, terms: float = 1.0) -> None:
    """Within a few units in the last place of each element, or of the terms that it is the sum of."""
    assert result.shape == expected.shape
    assert result.dtype == DTYPES[dtype].numpy
    bound = (ulps * ULP["f32"] * (np.abs(expected) + terms)) + ULP[dtype] * np.abs(expected) + 2.0**-24
    worst = np.abs(result.astype(np.float64) - expected) / bound
    assert np.isfinite(result.astype(np.float64)).all()
    assert worst.max(initial=0) <= 1, (
        f"{worst.max()} times the bound at {np.unravel_index(worst.argmax(), worst.shape)}"
    )


SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 32, 33, 64, 100, 129]), min_size=1, max_size=3)


@examples
@given(data=st.data())
def test_any_shape_axes_strides_and_weights_agree_with_float64(
    data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    draw = data.draw
    dtype, own = (draw(st.sampled_from(["f32", "f16", "bf16"])) for _ in range(2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = (rng.standard_normal(draw(SHAPES)) + draw(st.sampled_from([0, 3]))).astype(DTYPES[dtype].numpy)
    given_x, seen = view(draw, xp, x)
    last = draw(st.integers(1, seen.ndim))
    axis = draw(st.sampled_from([-1, tuple(range(seen.ndim - last, seen.ndim)), draw(st.integers(0, seen.ndim - 1))]))
    axes = axis if isinstance(axis, tuple) else (axis % seen.ndim,)
    shape = tuple(seen.shape[a] for a in axes)
    spread = tuple(size if n in axes else 1 for n, size in enumerate(seen.shape))
    weight, bias = (
        rng.standard_normal(shape).astype(DTYPES[own].numpy) if draw(st.booleans()) else None for _ in range(2)
    )
    w, b = (None if v is None else v.reshape(spread) for v in (weight, bias))
    given_w, given_b = (None if v is None else xp.asarray(v) for v in (weight, bias))
    # What the statistics lose, a small variance beside a large mean magnifies.
    terms = 4 + float(
        np.abs(seen.astype(np.float64)).max() / np.sqrt(1e-2 + seen.astype(np.float64).var(axis=axes).min())
    )
    if draw(st.booleans()):
        y, mean, rstd = layer_norm(given_x, given_w, given_b, axis=axis, eps=1e-2, return_stats=True)
        expected, means, rstds = reference(seen, axes, w, b, eps=1e-2)
        np.testing.assert_allclose(asnumpy(mean), means, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-5)
    else:
        offset = draw(st.sampled_from([0.0, 1.0]))
        y, rstd = rms_norm(given_x, given_w, axis=axis, eps=1e-2, weight_offset=offset, return_rstd=True)
        expected, _, rstds = reference(seen, axes, w, None, eps=1e-2, rms=True, offset=offset)
        np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-5)
    assert_close(asnumpy(y), expected, dtype, terms=terms)


@pytest.mark.parametrize(
    ("rms", "width", "dtype"), [(False, 1, "f32"), (True, 129, "bf16"), (False, 1000, "f16"), (False, 10001, "bf16")]
)
def test_rows_of_every_width_agree_with_float64(
    rms: bool, width: int, dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(width)
    x = rng.standard_normal((3, width)).astype(DTYPES[dtype].numpy)
    weight = rng.standard_normal(width).astype("f")
    y = (
        rms_norm(xp.asarray(x), xp.asarray(weight), eps=1e-3)
        if rms
        else layer_norm(xp.asarray(x), xp.asarray(weight), eps=1e-3)
    )
    assert_close(asnumpy(y), reference(x, (1,), weight, rms=rms, eps=1e-3)[0], dtype, terms=8)


@pytest.mark.parametrize(
    ("width", "dtype", "own", "ahead", "cluster"),
    [
        (1032, "f32", "f32", 0, 4),
        (1029, "bf16", "bf16", 3, 1),
        (1031, "f16", "f32", 5, 2),
        (2056, "bf16", "bf16", 1, 1),
    ],
)
def test_blocks_that_take_rows_in_turn_agree_with_float64(
    width: int,
    dtype: str,
    own: str,
    ahead: int,
    cluster: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looped = rows_in_turn(monkeypatch, cluster)
    rng = np.random.default_rng(width)
    x = rng.standard_normal((21 if xp is np else 601, width)).astype(DTYPES[dtype].numpy)
    weight, bias = (rng.standard_normal(width).astype(DTYPES[own].numpy) for _ in range(2))
    places = [xp.asarray(np.concatenate([np.full(ahead, np.nan, a.dtype), a.ravel()])) for a in (x, 0 * x)]
    given_x, out = (place[ahead:].reshape(x.shape) for place in places)
    given_w, given_b = xp.asarray(weight), xp.asarray(bias)
    y, mean, rstd = layer_norm(given_x, given_w, given_b, return_stats=True, out=out)
    expected, means, rstds = reference(x, (1,), weight, bias)
    assert_close(asnumpy(y), expected, dtype, terms=8)
    np.testing.assert_allclose(asnumpy(mean), means, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-5)
    y = rms_norm(given_x, given_w, eps=1e-5, out=out)
    assert_close(asnumpy(y), reference(x, (1,), weight, rms=True)[0], dtype, terms=8)
    assert looped == [True] * 2


@pytest.mark.parametrize(
    ("width", "dtype", "expected"),
    [
        (255, "f4", "norm_t16_n4_v4_"),
        (393, "f4", "norm_t16_n7_v4_"),
        (1029, "f4", "norm_t64_n5_v4_"),
        (2007, "f4", "norm_t96_n6_v4_"),
        (1024, "f4", "norm_t64_n4_v4_"),
        (2007, "e", "norm_t64_n4_v8_"),
    ],
)
def test_odd_rows_with_biases_have_more_packs_for_each_thread(
    width: int, dtype: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is moved for each pack costs the same; what each thread does for a row besides does not."""
    monkeypatch.setattr(sectors, "PAYS", {})  # as if there were too few rows for that
    x, weight = np.zeros((20000, width), dtype), np.ones(width, dtype)
    with backend("cpu"):
        assert explain(layer_norm, x, weight, weight).startswith(expected)


def test_many_odd_rows_share_the_weights_that_were_moved_for_them(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_cut, "LOOPED_ROWS", 1)
    rng = np.random.default_rng(7)
    x = rng.standard_normal((300 if xp is np else 5001, 131)).astype("e")
    weight, bias = (rng.standard_normal(131).astype("e") for _ in range(2))
    y, mean, _ = layer_norm(*map(xp.asarray, (x, weight, bias)), return_stats=True)
    expected, means, _ = reference(x, (1,), weight, bias)
    assert_close(asnumpy(y), expected, "f16", terms=8)
    np.testing.assert_allclose(asnumpy(mean), means, rtol=1e-5, atol=1e-6)
    assert "looped" in explain(layer_norm, *map(xp.asarray, (x, weight, bias)))


def test_a_small_variance_beside_a_large_mean_is_not_lost(xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = (np.random.default_rng(0).standard_normal((5, 4096)) + 4096).astype("f")
    y = asnumpy(layer_norm(xp.asarray(x)))
    np.testing.assert_allclose(y, reference(x, (1,))[0], atol=2e-3)  # a difference of sums of squares is off by 1
    y = asnumpy(group_norm(xp.asarray(x.reshape(1, 5, 4096)), 1))
    np.testing.assert_allclose(y, reference(x.reshape(1, 1, -1), (2,))[0].reshape(1, 5, 4096), atol=2e-3)


@pytest.mark.parametrize(("width", "dtype"), [(100, "f32"), (1023, "bf16"), (8192, "f16"), (30001, "bf16")])
def test_a_residual_is_added_in_place_and_rounded_before_it_is_normalised(
    width: int, dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(width)
    x, residual = (rng.standard_normal((2, 3, width)).astype(DTYPES[dtype].numpy) for _ in range(2))
    weight = rng.standard_normal(width).astype(DTYPES[dtype].numpy)
    total = (x.astype("f") + residual.astype("f")).astype(x.dtype)
    expected = reference(total, (2,), weight, rms=True, eps=1e-6, offset=1.0)[0]
    place, kept = xp.asarray(residual.copy()), xp.asarray(x.copy())
    y = fused_add_rms_norm(kept, place, xp.asarray(weight), weight_offset=1.0, out=kept)
    assert y is kept
    assert asnumpy(place).tobytes() == total.tobytes()
    assert_close(asnumpy(y), expected, dtype, terms=8)
    y, both = rms_norm(xp.asarray(x), xp.asarray(weight), residual=xp.asarray(residual), weight_offset=1.0)
    assert asnumpy(both).tobytes() == total.tobytes()
    assert_close(asnumpy(y), expected, dtype, terms=8)


def test_a_sum_and_its_norm_are_not_written_to_one_place(xp: ModuleType) -> None:
    x, residual = xp.ones((2, 8), "f"), xp.ones((2, 8), "f")
    with pytest.raises(ValueError, match="fused_add_rms_norm: residual shares memory with out"):
        fused_add_rms_norm(x, residual, out=residual)
    with pytest.raises(ValueError, match="fused_add_rms_norm: residual shares memory with x"):
        fused_add_rms_norm(residual[:, 1:], residual[:, :-1], out=x[:, 1:])


def test_a_residual_that_cannot_be_written_is_refused_by_its_name() -> None:
    residual = np.ones((2, 8), "f")
    residual.flags.writeable = False
    with backend("cpu"), pytest.raises(ValueError, match="fused_add_rms_norm: residual is read-only"):
        fused_add_rms_norm(np.ones((2, 8), "f"), residual)


@pytest.mark.parametrize("shape", [(40, 700), (64, 128), (6, 20001)])
def test_rows_have_the_variance_that_they_are_divided_by(
    shape: tuple[int, int], xp: ModuleType, asnumpy: AsNumpy
) -> None:
    # The roundings of single numbers cancel out in the sum of many; an error of rstd would not.
    x = np.random.default_rng(1).standard_normal(shape).astype("f")
    squares = (asnumpy(layer_norm(xp.asarray(x))).astype("d") ** 2).mean(1)
    variance = x.astype("d").var(1)
    assert np.abs(squares * (variance + 1e-5) / variance - 1).max() < 1.5 * 2.0**-24


@pytest.mark.parametrize(
    ("shape", "groups", "dtype"),
    [
        ((2, 6), 2, "f32"),
        ((3, 4, 5), 1, "bf16"),
        ((2, 8, 4, 4), 2, "f16"),
        ((1, 2, 700, 500), 1, "f32"),
        ((3, 6, 7, 7), 2, "f16"),  # packs that lie in two channels, of rows that begin anywhere
        ((2, 20, 57, 57), 2, "bf16"),
        ((300, 2, 4401), 1, "bf16"),
    ],
)
def test_groups_of_channels_are_normalised_each_by_itself(
    shape: tuple[int, ...], groups: int, dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype(DTYPES[dtype].numpy)
    weight, bias = (rng.standard_normal(shape[1]).astype("f") for _ in range(2))
    y, mean, rstd = group_norm(xp.asarray(x), groups, xp.asarray(weight), xp.asarray(bias), return_stats=True)
    parts = x.reshape(shape[0], groups, -1)
    normal, means, rstds = reference(parts, (2,))
    spread = (shape[1], *(1 for _ in shape[2:]))
    expected = normal.reshape(shape) * weight.reshape(spread) + bias.reshape(spread)
    assert_close(asnumpy(y), expected, dtype, terms=8)
    np.testing.assert_allclose(asnumpy(mean), means, atol=1e-6)
    np.testing.assert_allclose(asnumpy(rstd), rstds, rtol=1e-5)


def test_nan_and_infinity_stay_in_their_row(xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = np.ones((4, 200), "f")
    x[:, ::2] = 2
    x[1, 7] = np.nan
    x[2, 9] = np.inf
    for y in (layer_norm(xp.asarray(x)), rms_norm(xp.asarray(x))):
        bad = ~np.isfinite(asnumpy(y))
        assert not bad[[0, 3]].any()
        assert bad[1].all()
        assert np.isnan(asnumpy(y)[2, 9])
    assert np.isnan(asnumpy(layer_norm(xp.asarray(x)))[2]).all()


def test_bad_arguments_are_refused_as_numpy_refuses_them(xp: ModuleType) -> None:
    x, six = xp.ones((4, 6), "f"), xp.ones(6, "f")
    for call, error, words in [
        (lambda: layer_norm(x, axis=2), np.exceptions.AxisError, "out of bounds"),
        (lambda: layer_norm(x, axis=None), TypeError, "axis is None"),
        (lambda: layer_norm(x, xp.ones(5, "f")), ValueError, r"weight has shape \(5,\)"),
        (lambda: layer_norm(x, six, six.astype("e")), TypeError, "must have one dtype"),
        (lambda: layer_norm(x, eps="1"), TypeError, "eps is a str"),
        (lambda: layer_norm(xp.ones((3, 0), "f")), ValueError, "nothing along axis -1"),
        (lambda: rms_norm(x, residual=xp.ones((4, 5), "f")), ValueError, "residual"),
        (lambda: rms_norm(x, residual=x.astype("e")), TypeError, "residual"),
        (lambda: group_norm(x, 4), ValueError, "4 groups"),
        (lambda: group_norm(six, 1), ValueError, "two axes"),
        (lambda: group_norm(xp.ones((2, 6, 0), "f"), 3), ValueError, "with nothing to normalise"),
        (lambda: layer_norm(xp.ones((), "f")), ValueError, r"x has shape \(\), and so no axis"),
        (lambda: fused_add_rms_norm(*(xp.ones((), "f") for _ in range(2))), ValueError, "and so no axis"),
        (lambda: rms_norm_backward(*(xp.ones((), "f") for _ in range(3))), ValueError, "and so no axis"),
        (lambda: layer_norm(x.astype("i")), TypeError, "x has dtype int32"),
    ]:
        with pytest.raises(error, match=words):
            call()


@examples
@given(data=st.data())
def test_the_gradients_are_those_of_float64(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    draw = data.draw
    dtype, own = (draw(st.sampled_from(["f32", "f16", "bf16"])) for _ in range(2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(SHAPES)
    axis = draw(st.sampled_from([-1, 0, tuple(range(len(shape)))]))
    axes = axis if isinstance(axis, tuple) else (axis % len(shape),)
    rms = draw(st.booleans())
    x, dy = (rng.standard_normal(shape).astype(DTYPES[dtype].numpy) for _ in range(2))
    inner = tuple(shape[a] for a in axes)
    spread = tuple(size if n in axes else 1 for n, size in enumerate(shape))
    weight = rng.standard_normal(inner).astype(DTYPES[own].numpy) if draw(st.booleans()) else None
    _, mean, rstd = reference(x, axes, rms=rms, eps=1e-2)
    mean, rstd = np.asarray(mean, "f"), np.asarray(rstd, "f")
    given_x, seen = view(draw, xp, x)
    if seen.shape != shape or not np.array_equal(seen, x):
        given_x = xp.asarray(x)
    given_w = None if weight is None else xp.asarray(weight)
    if rms:
        results = rms_norm_backward(xp.asarray(dy), given_x, xp.asarray(rstd), given_w, axis=axis)
    else:
        results = layer_norm_backward(xp.asarray(dy), given_x, xp.asarray(mean), xp.asarray(rstd), given_w, axis=axis)
    dx, *gradients = results if weight is not None else (results,)

    wide = [np.asarray(v, np.float64) for v in (x, dy, mean, rstd)]
    wide[2:] = [v.reshape([1 if n in axes else size for n, size in enumerate(shape)]) for v in wide[2:]]
    value, upstream, centre, inverse = wide
    normal = (value if rms else value - centre) * inverse
    inner_upstream = upstream if weight is None else upstream * weight.astype(np.float64).reshape(spread)
    product = (inner_upstream * normal).mean(axis=axes, keepdims=True)
    shift = 0 if rms else inner_upstream.mean(axis=axes, keepdims=True)
    expected = inverse * (inner_upstream - shift - normal * product)
    terms = inverse * (np.abs(inner_upstream) + np.abs(shift) + np.abs(normal * product) + 1)
    result = asnumpy(dx).astype(np.float64)
    assert (np.abs(result - expected) <= ULP[dtype] * np.abs(expected) + 32 * ULP["f32"] * terms).all()
    rest = tuple(n for n in range(len(shape)) if n not in axes)
    sums = [(upstream * normal), upstream][: len(gradients)]
    for gradient, addends in zip(gradients, sums, strict=True):
        total = addends.sum(axis=rest).reshape(inner)
        scale = np.abs(addends).sum(axis=rest).reshape(inner)
        off = np.abs(asnumpy(gradient).astype(np.float64) - total)
        assert (off <= ULP[own] * np.abs(total) + 32 * ULP["f32"] * scale + 2.0**-24).all()


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("axis", [-1, 0])
def test_statistics_may_lie_apart(axis: int, weighed: bool, xp: ModuleType, asnumpy: AsNumpy) -> None:
    rng = np.random.default_rng(1)
    x, dy = (xp.asarray(rng.standard_normal((14, 14)).astype("f")) for _ in range(2))
    weight = (xp.asarray(rng.standard_normal(14).astype("f")),) if weighed else ()
    apart = xp.full((14, 4), np.nan, "f")
    apart[:, 0], apart[:, 3] = xp.asarray(rng.standard_normal((2, 14)).astype("f"))
    mean, rstd = apart[:, 0], apart[:, 3]
    results = layer_norm_backward(dy, x, mean, rstd, *weight, axis=axis)
    wanted = layer_norm_backward(dy, x, mean.copy(), rstd.copy(), *weight, axis=axis)
    for result, same in zip(results, wanted, strict=True) if weighed else [(results, wanted)]:
        assert asnumpy(result).tobytes() == asnumpy(same).tobytes()
    result, same = (rms_norm_backward(dy, x, each, axis=axis) for each in (rstd, rstd.copy()))
    assert asnumpy(result).tobytes() == asnumpy(same).tobytes()


@pytest.mark.parametrize(
    ("width", "dtype", "cut"),
    [
        (1032, "bf16", Cut(128, 1, 8, 2, True)),
        (1029, "f32", Cut(128, 3, 4, 1, True)),
        (104, "f16", Cut(8, 2, 8, 1)),
        (152, "bf16", Cut(8, 5, 4, 1)),
        (192, "f16", Cut(8, 6, 4, 1)),
    ],
)
def test_threads_add_up_the_gradients_of_the_weights_of_their_columns(
    width: int, dtype: str, cut: Cut, xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cut.cluster > 1 and xp is not np and rows_cut.largest(0) == 1:
        pytest.skip("this device has no clusters")
    monkeypatch.setattr(rows_cut, "summing", lambda *about, **how: cut)
    rng = np.random.default_rng(width)
    x, dy = (rng.standard_normal((77 if xp is np else 5001, width)).astype(DTYPES[dtype].numpy) for _ in range(2))
    weight = rng.standard_normal(width).astype(DTYPES[dtype].numpy)
    _, mean, rstd = reference(x, (1,))
    given = [xp.asarray(v) for v in (dy, x, mean.astype("f"), rstd.astype("f"), weight)]
    dx, dweight, dbias = map(asnumpy, layer_norm_backward(*given))
    wide_x, wide_dy, upstream = (v.astype(np.float64) for v in (x, dy, dy.astype(np.float64) * weight))
    normal = (wide_x - mean[:, None]) * rstd[:, None]
    product = (upstream * normal).mean(1, keepdims=True)
    expected = rstd[:, None] * (upstream - upstream.mean(1, keepdims=True) - normal * product)
    assert_close(dx, expected, dtype, terms=16)
    for result, addends in ((dweight, wide_dy * normal), (dbias, wide_dy)):
        off = np.abs(result.astype(np.float64) - addends.sum(0))
        assert (off <= ULP[dtype] * np.abs(addends.sum(0)) + 32 * ULP["f32"] * np.abs(addends).sum(0)).all()
    again = layer_norm_backward(*given)
    assert [asnumpy(v).tobytes() for v in again] == [v.tobytes() for v in (dx, dweight, dbias)]


@pytest.mark.parametrize("rows", [3, 47])
@pytest.mark.parametrize(
    ("width", "dtype", "cut"),
    [
        (5000, "f32", backward_ring.Cut(512, 2, 4, 2, 3)),
        (8197, "f32", backward_ring.Cut(512, 3, 4, 2, 8)),
        (16383, "f32", backward_ring.Cut(512, 2, 4, 4, 3)),
        (1020, "f32", backward_ring.Cut(128, 2, 4, 1, 3)),
        (1021, "f32", backward_ring.Cut(128, 2, 4, 1, 2)),
        (257, "f32", backward_ring.Cut(32, 2, 4, 1, 1)),
        (40000, "f32", backward_ring.Cut(512, 3, 4, 8, 2)),
        (32700, "f32", backward_ring.Cut(512, 8, 4, 2, 3)),
        (16381, "f32", backward_ring.Cut(512, 8, 4, 1, 8)),
        (6104, "bf16", backward_ring.Cut(256, 3, 8, 1, 3)),
        (8000, "bf16", backward_ring.Cut(512, 2, 8, 1, 5)),
        (16389, "bf16", backward_ring.Cut(512, 4, 8, 2, 16)),
        (16389, "bf16", backward_ring.Cut(512, 2, 8, 2, 16)),
        (32771, "bf16", backward_ring.Cut(512, 3, 8, 4, 5)),
        (16000, "bf16", backward_ring.Cut(512, 2, 8, 2, 3)),
        (505, "bf16", backward_ring.Cut(32, 2, 8, 1, 1)),
        (2041, "bf16", backward_ring.Cut(64, 4, 8, 1, 2)),
        (2005, "bf16", backward_ring.Cut(128, 2, 8, 1, 4)),
        (4097, "f16", backward_ring.Cut(512, 2, 8, 1, 16)),
        (16000, "f16", backward_ring.Cut(512, 2, 8, 4, 3)),
        (8500, "f32", backward_ring.Cut(512, 4, 4, 1, 8)),  # more than packs have room for, as the next ones
        (16500, "bf16", backward_ring.Cut(512, 2, 8, 2, 16)),
        (33501, "bf16", backward_ring.Cut(512, 2, 8, 4, 5)),
        (8193, "f32", backward_ring.Cut(512, 2, 4, 2, 32, True)),
        (12501, "bf16", backward_ring.Cut(512, 3, 8, 1, 64, True)),
    ],
)
def test_rows_in_turn_have_the_gradients_of_float64_beside_those_that_are_on_their_way(
    rows: int,
    width: int,
    dtype: str,
    cut: backward_ring.Cut,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if xp is not np and rows_cut.largest(0) == 1:
        pytest.skip("this device has no clusters")
    monkeypatch.setattr(backward_ahead, "cut", lambda *about, **more: None)
    monkeypatch.setattr(backward_ring, "cut", lambda *about, **more: cut)
    rng = np.random.default_rng(width)
    x, dy = (rng.standard_normal((rows, width)).astype(DTYPES[dtype].numpy) for _ in range(2))
    weight = rng.standard_normal(width).astype("f")
    wide_x, wide_dy = (v.astype(np.float64) for v in (x, dy))
    for rms, offset in ((False, 0), (True, 0), (True, 1)):
        _, mean, rstd = reference(x, (1,), rms=rms)
        statistics = [rstd] if rms else [mean, rstd]
        given = [xp.asarray(v) for v in (dy, x, *(s.astype("f") for s in statistics), weight)]
        operator = partial(rms_norm_backward, weight_offset=offset) if rms else layer_norm_backward
        out = xp.full((rows, width), np.nan, given[1].dtype)  # the same memory each time: rows begin where they did
        dx, *gradients = map(asnumpy, operator(*given, out=out))
        once = [v.tobytes() for v in (dx, *gradients)]
        assert [asnumpy(v).tobytes() for v in operator(*given, out=out)] == once
        upstream, normal = wide_dy * (weight + offset), (wide_x - mean[:, None]) * rstd[:, None]
        less = 0 if rms else upstream.mean(1, keepdims=True)
        expected = rstd[:, None] * (upstream - less - normal * (upstream * normal).mean(1, keepdims=True))
        assert_close(dx, expected, dtype, terms=16)
        for result, addends in zip(gradients, (wide_dy * normal, wide_dy), strict=False):
            np.testing.assert_allclose(result, addends.sum(0), rtol=1e-5, atol=1e-4)
        said = explain(rms_norm_backward if rms else operator, *given, **({"weight_offset": offset} if rms else {}))
        assert "norm_backward_ring" in said
        assert ("_offset" in said) == (offset > 0)
        assert f"are sums of {cut.teams} part" in said  # wherever their rows begin


@pytest.mark.parametrize("lanes", [8, 32, 128, 512])
@pytest.mark.parametrize(("parts", "columns"), [(1, 1), (16, 517), (17, 8), (64, 131), (65, 513), (1030, 3)])
def test_parts_of_sums_are_added_as_if_rounded_once(
    parts: int, columns: int, lanes: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(parts)
    given = rng.standard_normal((2, parts, columns)).astype("f")
    expected = given.astype(np.float64).sum(1).astype("f")
    memory = [xp.asarray(given), xp.full((2, columns), np.nan, "f")]  # the parts are needed once
    spec = TOTAL.spec(LANES=lanes, bias=True, dtype=DTYPES["f32"])
    step = Step(spec, -(-columns // lanes) * 2, 4, (parts, columns))
    starts = [m[i].ctypes.data if xp is np else m[i].data.ptr for m in memory for i in range(2)]
    bind([step], HOST if xp is np else 0)[0](starts, 0 if xp is np else xp.cuda.get_current_stream().ptr)
    np.testing.assert_array_equal(asnumpy(memory[1]), expected)


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize(("dtype", "weights", "launches"), [("f32", "f32", 1), ("bf16", "f32", 1), ("f32", "bf16", 2)])
@pytest.mark.parametrize("shape", [(2, 40), (4, 256)])
def test_sums_of_a_single_part_are_the_gradients_of_float32_weights(
    shape: tuple[int, int], dtype: str, weights: str, launches: int, rms: bool, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal(shape).astype(DTYPES[dtype].numpy) for _ in range(2))
    weight = rng.standard_normal(shape[1]).astype(DTYPES[weights].numpy)
    _, mean, rstd = (part.astype("f") for part in reference(x, -1, rms=rms))
    statistics = (rstd,) if rms else (mean, rstd)
    arrays = [xp.asarray(array) for array in (dy, x, *statistics, weight)]
    backward = rms_norm_backward if rms else layer_norm_backward
    assert explain(backward, *arrays).count(" on ") == launches
    dweight, *dbias = (asnumpy(part) for part in backward(*arrays)[1:])
    terms = dy.astype("d") * (x.astype("d") - (0 if rms else mean[:, None])) * rstd[:, None]
    assert_close(dweight, terms.sum(0), weights, terms=np.abs(terms).max())
    for found in dbias:
        assert_close(found, dy.astype("d").sum(0), weights, terms=np.abs(dy.astype("d")).max())


@pytest.mark.parametrize("waves", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 130, 257])
@pytest.mark.parametrize(("width", "dtype"), [(40, "f32"), (131, "bf16"), (321, "f32"), (328, "bf16"), (1025, "f16")])
def test_blocks_that_start_later_leave_no_row_out(
    width: int,
    dtype: str,
    count: int,
    waves: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backward_plans, "waves_of", lambda *about, **how: waves)
    rng = np.random.default_rng(count)
    dy, x = (rng.integers(-2, 3, (count, width)).astype(DTYPES[dtype].numpy) for _ in range(2))
    rstd, weight = (np.ones(n, "f") for n in (count, width))
    dx, found = rms_norm_backward(*(xp.asarray(v) for v in (dy, x, rstd, weight)))
    wide_x, wide_dy = (v.astype(np.float64) for v in (x, dy))
    assert_close(asnumpy(dx), wide_dy - wide_x * (wide_dy * wide_x).mean(1, keepdims=True), dtype, terms=16)
    np.testing.assert_array_equal(asnumpy(found), (wide_dy * wide_x).sum(0))  # of small integers: exact


def test_there_are_as_many_waves_as_leave_the_parts_small_beside_the_rows() -> None:
    def waves(height: float, dtype: DType = F32, *, lanes: int = 32, bias: bool = True, stages: int = 1) -> int:
        cut = {"LANES": lanes, "PACKS": 2, "VEC": 16 // dtype.itemsize, "CLUSTER": 1, "STAGES": stages}
        spec = BACKWARD.spec(**cut, weight=True, sums=True, bias=bias, looped=stages > 1, dtype=dtype)
        return backward_plans.waves_of(height, spec)

    assert [waves(n) for n in (1, 40, 54, 80, 1e6)] == [1, 1, 2, 3, 3]
    assert [waves(n, bias=False) for n in (1, 13, 14, 27, 40, 1e6)] == [1, 1, 1, 2, 3, 3]  # half the sums
    assert [waves(1e6, BF16, bias=bias, stages=n) for n in (1, 2) for bias in (False, True)] == [1, 1, 3, 1]
    assert [waves(1e6, lanes=512, bias=bias, stages=n) for n in (1, 2) for bias in (False, True)] == [1, 1, 3, 1]


@pytest.mark.parametrize(
    ("columns", "vec", "bias", "expected"),
    [
        (319 * 8, 8, False, (128, 3, 1)),
        (312, 8, True, None),
        (320, 8, True, (32, 2, 1)),
        (320, 8, False, (32, 2, 1)),
        (320, 4, False, None),
        (1000, 4, True, (128, 2, 1)),
        (1000, 4, False, (128, 2, 1)),
        (1536, 4, True, None),
        (1023, 4, True, (64, 4, 1)),
        (2049, 4, True, None),
        (1024, 8, False, None),
        (1024, 8, True, (64, 2, 1)),
        (1023, 8, True, (64, 2, 1)),
        (2049, 8, False, None),
        (1537, 8, False, (64, 3, 1)),
        (4097, 8, True, None),
        (4096, 8, False, (256, 2, 1)),
        (5120, 8, True, (256, 3, 1)),
        (5120, 4, True, None),
        (6401, 4, True, None),
        (8191, 4, True, (512, 2, 2)),
        (8191, 8, False, (512, 2, 1)),
        (6401, 8, True, (512, 2, 1)),
        (13105, 8, True, (512, 4, 1)),
        (16383, 8, True, (512, 4, 1)),
        (16383, 8, False, (512, 2, 2)),
        (16383, 4, True, (512, 4, 2)),
        (32768, 4, True, (512, 2, 8)),
        (50257, 8, True, (512, 3, 4)),  # and some elements one by one
        (53249, 8, True, (512, 4, 4)),
        (262145, 4, True, (512, 8, 16)),
        (262143, 8, True, (512, 4, 16)),
        (262144, 4, True, (512, 8, 16)),
        (262143, 4, False, (512, 8, 16)),
        (262148, 4, True, None),
        (262152, 8, True, None),
    ],
)
def test_gradients_of_many_rows_take_turns_where_that_pays(
    columns: int, vec: int, bias: bool, expected: tuple[int, int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    taken = rows_cut.Packs(vec, ragged=columns % vec > 0, full=True)
    cut = backward_ring.cut(10**6, columns, taken, HOST, bias=bias)
    assert (cut and (cut.lanes, cut.packs, cut.cluster)) == expected


@pytest.mark.parametrize("multiprocessors", [61, 132])
def test_ragged_rows_of_the_same_threads_begin_at_the_same_place(
    multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: multiprocessors)
    shared = set()
    for columns in range(321, 32768, 62):
        cut = backward_ring.cut(10**6, columns, rows_cut.Packs(8, ragged=True, full=True), HOST, bias=True)
        if cut is not None and not cut.sorted(ragged=True):
            spec = RING.spec(**cut.values(), ragged=True, bias=True, dtype=DTYPES["bf16"])
            apart = cut.teams * (spec.threads // cut.lanes)
            assert apart % (64 if cut.lined else 8 if cut.lanes in (128, 256) else 16) == 0
            shared.add((cut.lanes, cut.cluster))
    assert shared == {(32, 1), (64, 1), (128, 1), (256, 1), (512, 1), (512, 2)}


def test_few_parts_of_many_columns_are_added_by_a_thread_for_each_column() -> None:
    assert [backward_plans.lanes_of(sums) for sums in (0, 31, 32, 127, 500, 3972)] == [8, 8, 32, 32, 128, 512]


def test_at_most_a_third_of_the_threads_of_rows_in_turn_have_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: 132)
    for columns in range(4096, 262145, 64):
        cut = backward_ring.cut(10**6, columns, rows_cut.Packs(8, full=True), HOST, bias=True)
        assert cut is not None
        places = cut.lanes * cut.packs * cut.cluster * cut.vec
        assert columns <= places <= 1.5 * columns, columns


@pytest.mark.parametrize("multiprocessors", [1, 2, 4, 8, 14, 132])
def test_wide_rows_take_turns_only_where_the_device_has_room_for_a_cluster(
    multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the executor has not for four blocks, and a slice of a GPU for sixteen."""
    monkeypatch.setattr(rows_ring, "multiprocessors", lambda device: multiprocessors)
    x, means = np.zeros((2, 9248), "f"), np.zeros(2, "f")
    for columns in (4100, 9248, 65536):
        cut = backward_ring.cut(10**6, columns, rows_cut.Packs(4, full=True), HOST, bias=True)
        assert cut is None or cut.teams
    with backend("cpu"):
        layer_norm_backward(x, x, means, means, x[0])


def test_weights_of_any_stride_are_taken(xp: ModuleType, asnumpy: AsNumpy) -> None:
    rng = np.random.default_rng(4)
    x, weight = rng.standard_normal((3, 6, 5)).astype("f"), rng.standard_normal(12).astype("f")
    y = asnumpy(layer_norm(xp.asarray(x), xp.asarray(weight)[:10:2]))
    assert_close(y, reference(x, (2,), weight[:10:2])[0], "f32")
    for groups in (2, 6):
        y = asnumpy(group_norm(xp.asarray(x), groups, xp.asarray(weight)[::-2]))
        normal = reference(x.reshape(3, groups, -1), (2,))[0].reshape(x.shape)
        assert_close(y, normal * weight[::-2, None].astype(np.float64), "f32")


def test_a_call_explains_itself(xp: ModuleType) -> None:
    x = xp.ones((4, 6), "f")
    calls = [(layer_norm, (x,)), (rms_norm, (x,)), (fused_add_rms_norm, (x, x)), (group_norm, (x, 2))]
    for function, arguments in calls:
        assert explain(function, *arguments).startswith("norm_t")


@pytest.mark.parametrize("shape", [(5000, 40), (3000, 200)])
def test_gradients_of_weights_are_sums_with_few_roundings(
    shape: tuple[int, int], xp: ModuleType, asnumpy: AsNumpy
) -> None:
    rng = np.random.default_rng(1)
    dy, x = rng.standard_normal((2, *shape)).astype("f")
    mean, rstd = x.mean(1), (1 / np.sqrt(x.astype("d").var(1) + 1e-5)).astype("f")
    given = (xp.asarray(a) for a in (dy, x, mean, rstd, np.ones(shape[1], "f")))
    _, weight, bias = layer_norm_backward(*given)
    normal = (x - mean[:, None].astype("d")) * rstd[:, None]
    for found, terms in ((weight, dy * normal), (bias, dy.astype("d"))):
        exact = terms.sum(0)
        error = np.sqrt(np.square(asnumpy(found) - exact).mean() / np.square(exact).mean())
        assert error < 1.9 * 2.0**-24
