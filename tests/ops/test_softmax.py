"""Softmax, log_softmax and logsumexp beside float64, over shapes, axes, strides, masks and what is not finite."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen.catalog import parse
from kgen.dtypes import DTYPES
from kgen.errors import SpecError
from kgen.ops import rows, rows_cut, rows_ring
from kgen.ops.axes import normal_axes
from kgen.ops.softmax.backward import log_softmax_backward, softmax_backward
from kgen.ops.softmax.softmax import log_softmax, logsumexp, softmax
from kgen.render import render
from kgen.spec import Spec

AsNumpy = Callable[[Any], np.ndarray]
ULP = {"f32": 2**-23, "f16": 2**-10, "bf16": 2**-7}
SMALLEST = {"f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}
"""Below which a result has fewer digits, or none."""

examples = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def reference(x: np.ndarray, axis: Any, *, log: bool = False, scale: float = 1.0, keep: Any = None) -> np.ndarray:
    with np.errstate(all="ignore"):
        x = x.astype(np.float64) * scale
        if keep is not None:
            x = np.where(keep, x, -np.inf)
        x = x - x.max(axis=axis, keepdims=True)
        total = np.exp(x).sum(axis=axis, keepdims=True)
        return x - np.log(total) if log else np.exp(x) / total


def reference_sum(x: np.ndarray, axis: Any, keepdims: bool = False) -> np.ndarray:
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        top = x.max(axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        result = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
        return result if keepdims else result.squeeze(normal_axes("", axis, x.ndim))


def assert_close(result: np.ndarray, expected: np.ndarray, dtype: str, *, ulps: float = 4, floor: float = 0.0) -> None:
    """Equal but for a few units in the last place of each element, or of `floor`, where that is larger."""
    assert result.shape == expected.shape
    assert result.dtype == DTYPES[dtype].numpy
    result = result.astype(np.float64)
    off = ~np.isfinite(expected)
    np.testing.assert_array_equal(np.where(off, result, 0), np.where(off, expected, 0))
    bound = ulps * ULP[dtype] * np.maximum(np.abs(expected), floor) + 2 * SMALLEST[dtype]
    worst = np.where(off, 0, np.abs(result - np.where(off, 0, expected)) / np.where(off, 1, bound))
    assert np.isfinite(result[~off]).all()
    assert worst.max(initial=0) <= 1, (
        f"{worst.max()} times the bound at {np.unravel_index(worst.argmax(), worst.shape)}"
    )


def view(draw: Any, xp: Any, x: np.ndarray) -> tuple[Any, np.ndarray]:
    """The array, now and then turned, reversed, or cut out of a larger one; and the same for NumPy."""
    kind = draw(st.sampled_from(["plain", "turned", "reversed", "stepped", "shifted", "padded"]))
    if kind == "turned":
        order = draw(st.permutations(range(x.ndim)))
        return xp.asarray(x).transpose(order), x.transpose(order)
    if kind == "reversed":
        return xp.asarray(x)[..., ::-1], x[..., ::-1]
    if kind == "stepped":
        return xp.asarray(np.repeat(x, 2, axis=0))[::2], x
    if kind == "shifted":
        by = draw(st.integers(1, 7))
        flat = xp.asarray(np.concatenate([np.zeros(by, x.dtype), x.ravel()]))
        return flat[by:].reshape(x.shape), x
    if kind == "padded":
        by = draw(st.integers(1, 9))
        wide = np.concatenate([x, np.zeros((*x.shape[:-1], by), x.dtype)], axis=-1)
        return xp.asarray(wide)[..., : x.shape[-1]], x
    return xp.asarray(x), x


SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 32, 33, 64, 100, 129]), min_size=1, max_size=3)


@examples
@given(data=st.data())
def test_any_shape_axis_and_strides_agree_with_float64(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(["f32", "f16", "bf16"]))
    shape = draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = (rng.standard_normal(shape) * draw(st.sampled_from([1, 10]))).astype(DTYPES[dtype].numpy)
    given_x, seen = view(draw, xp, x)
    axis = draw(st.sampled_from([None, *range(-seen.ndim, seen.ndim), tuple(range(seen.ndim))[-2:]]))
    which = draw(st.sampled_from(["softmax", "log_softmax", "logsumexp"]))
    if which == "logsumexp":
        keepdims = draw(st.booleans())
        result = asnumpy(logsumexp(given_x, axis, keepdims))
        assert_close(result, reference_sum(seen, axis, keepdims), dtype, floor=1.0)
        return
    scale = draw(st.sampled_from([1, 0.125, -2.5, 0]))
    function = softmax if which == "softmax" else log_softmax
    result = asnumpy(function(given_x, axis, scale=scale))
    # The exponent is off by a rounding of the largest difference; a logarithm, by that of its terms.
    far = float(np.abs(seen.astype(np.float64)).max() * abs(scale)) * 2 + 4
    expected = reference(seen, axis, log=which == "log_softmax", scale=scale)
    ulps = 4 + far * ULP["f32"] / ULP[dtype]
    assert_close(result, expected, dtype, ulps=ulps, floor=1.0 if which == "log_softmax" else 0.0)


@pytest.mark.parametrize(("width", "dtype"), [(1, "f32"), (31, "bf16"), (129, "f16"), (1000, "bf16"), (10001, "f32")])
def test_rows_of_every_width_sum_to_one_and_agree_with_float64(
    width: int, dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    x = np.random.default_rng(width).standard_normal((3, width)).astype(DTYPES[dtype].numpy)
    result = asnumpy(softmax(xp.asarray(x), -1))
    # x - max(x) is less than 16, and rounded; what that costs shows in float32 only.
    assert_close(result, reference(x, -1), dtype, ulps=4 + 8 * ULP["f32"] / ULP[dtype])
    np.testing.assert_allclose(result.astype(np.float64).sum(-1), 1, rtol=2 * ULP[dtype])


def rows_in_turn(monkeypatch: pytest.MonkeyPatch, cluster: int) -> list[bool]:
    """Lets blocks or clusters take rows in turn, however few and narrow; gets filled with whether kernels do that."""
    looped: list[bool] = []

    def grid(spec: Spec, count: int, device: int, turns: int = 0) -> int:
        looped.append(bool(spec["looped"]))
        return original(spec, count, device, turns)

    original = rows.grid
    monkeypatch.setattr(rows_ring, "cut", lambda *about, **more: None)
    monkeypatch.setattr(rows_cut, "ALONE", 0)
    monkeypatch.setattr(rows_cut, "LOOPED_ROWS", 1)
    monkeypatch.setattr(rows_cut, "NARROW", ())
    monkeypatch.setattr(rows_cut, "LOOPED", ((512 // cluster, 8, cluster),))
    monkeypatch.setattr(rows, "grid", grid)
    return looped


@pytest.mark.parametrize(
    ("width", "dtype", "ahead", "cluster"), [(1032, "bf16", 0, 1), (1029, "f16", 3, 1), (2056, "bf16", 1, 2)]
)
def test_blocks_that_take_rows_in_turn_agree_with_float64(
    width: int, dtype: str, ahead: int, cluster: int, xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    looped = rows_in_turn(monkeypatch, cluster)
    rng = np.random.default_rng(width)
    x, dy = (rng.standard_normal((21 if xp is np else 601, width)).astype(DTYPES[dtype].numpy) for _ in range(2))
    y = reference(x, -1)
    rounded = y.astype(x.dtype)
    numbers = [np.concatenate([np.full(ahead, np.nan, a.dtype), a.ravel()]) for a in (x, dy, rounded, 0 * x)]
    given_x, given_dy, given_y, out = (xp.asarray(each)[ahead:].reshape(x.shape) for each in numbers)
    assert_close(asnumpy(softmax(given_x, -1, out=out)), y, dtype)
    assert_close(asnumpy(log_softmax(given_x, -1, scale=-0.5, out=out)), reference(x, -1, log=True, scale=-0.5), dtype)
    dx = asnumpy(softmax_backward(given_dy, given_y, -1, out=out)).astype(np.float64)
    g, v = dy.astype(np.float64), rounded.astype(np.float64)
    expected = v * (g - (g * v).sum(-1, keepdims=True))
    assert (np.abs(dx - expected) <= ULP[dtype] * np.abs(expected) + 16 * ULP["f32"] * 4 * v + SMALLEST[dtype]).all()
    assert looped == [True] * 3


@pytest.mark.parametrize(("function", "algorithm"), [(softmax, "softmax"), (log_softmax, "softmax_online")])
def test_what_is_not_finite_comes_out_as_in_scipy(
    function: Any, algorithm: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    inf, nan = np.inf, np.nan
    rows = [[0, 1, inf], [inf, inf, 0], [-inf, 0, 1], [-inf, -inf, -inf], [0, nan, 1], [nan, inf, -inf], [-inf, inf, 2]]
    x = np.repeat(np.array(rows, "f"), 50, axis=1)
    result = asnumpy(function(xp.asarray(x), -1, algorithm=algorithm))
    assert_close(result, reference(x, -1, log=function is log_softmax), "f32", floor=1.0)
    assert np.isnan(result[[0, 1, 3, 4, 5, 6]]).all()


@pytest.mark.parametrize(
    ("algorithm", "width"),
    [
        ("softmax_t128_n1_v4_c4_f32", 2040),
        ("softmax_t128_n2_v4_c2_looped_f32", 2040),
        ("softmax_t128_n1_v8_c4_ragged_bf16", 4091),
        ("softmax_t128_n1_v4_c4_log_f32", 2040),
    ],
)
def test_warps_of_a_cluster_that_see_nothing_but_infinity_leave_the_rest_of_their_row_alone(
    algorithm: str, width: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    dtype = algorithm.rpartition("_")[2]
    x = (np.random.default_rng(width).standard_normal((7, width)) * 3).astype("f")
    x[0, 7], x[1, -1], x[2], x[3, :900], x[5, 1:] = np.nan, np.inf, -np.inf, -np.inf, -np.inf
    x[3, 900:] -= 200  # the sum must not be scaled by exp(200)
    x[4, :1000] = -3e4
    x = x.astype(DTYPES[dtype].numpy)
    log = "_log_" in algorithm
    result = asnumpy((log_softmax if log else softmax)(xp.asarray(x), -1, algorithm=algorithm))
    expected = reference(x, -1, log=log)
    assert (np.isnan(result) == np.isnan(expected)).all()
    assert_close(result[3:], expected[3:], dtype, ulps=16, floor=1.0)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("copies", [1, 60, 5000])
def test_the_sum_of_what_is_not_finite_comes_out_as_in_scipy(
    copies: int, dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    inf, nan = np.inf, np.nan
    rows = [[0, 1, inf], [inf, inf, 0], [-inf, 0, 1], [-inf, -inf, -inf], [0, nan, 1], [nan, inf, -inf], [-inf, inf, 2]]
    x = np.repeat(np.array(rows, DTYPES[dtype].numpy), copies, axis=1)
    expected = [inf, inf, np.log(copies) + np.logaddexp(0, 1), -inf, nan, nan, inf]
    result = asnumpy(logsumexp(xp.asarray(x), -1)).astype("d")
    np.testing.assert_allclose(result, expected, rtol={"f32": 1e-6, "f16": 1e-3, "bf16": 1e-2}[dtype])


@pytest.mark.parametrize("columns", [3, 131, 5001])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_of_numbers_near_the_ends_of_their_range_the_greatest_is_what_counts(
    dtype: str, columns: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    """Where their logarithms of base 2 are no numbers any more, or differ by more than a float can tell apart."""
    most = {"f32": 3.4e38, "f16": 65504.0, "bf16": 3.38e38}[dtype]
    tops = np.array([most, -most, most / 1.5, -most / 1.5, most / 3, 1e-3 * most, 1e9, 1e8, 3e4, -3e4])
    x = np.clip(tops, -most, most)[:, None] * np.ones((1, columns))
    x[:, 2] = -most
    x = x.astype(DTYPES[dtype].numpy)
    result = asnumpy(logsumexp(xp.asarray(x), -1)).astype("d")
    top = x.astype("d").max(-1)
    expected = top + np.log(np.exp(x.astype("d") - top[:, None]).sum(-1))
    np.testing.assert_allclose(result, expected, rtol={"f32": 1e-6, "f16": 1e-3, "bf16": 1e-2}[dtype])


@pytest.mark.parametrize(
    ("shape", "dtype"), [((40, 131), "bf16"), ((5, 1001), "f16"), ((3, 50257), "bf16"), ((150, 20003), "f32")]
)
def test_rows_that_begin_anywhere_have_the_logarithms_of_float64(
    shape: tuple[int, int], dtype: str, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    count = shape[0] * shape[1] + 1
    x = (3 * np.random.default_rng(5).standard_normal(count)).astype(DTYPES[dtype].numpy)
    expected = np.log(np.exp(x[1:].astype("d").reshape(shape)).sum(1))
    assert_close(asnumpy(logsumexp(xp.asarray(x)[1:].reshape(shape), -1)), expected, dtype, ulps=4)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_largest_numbers_do_not_overflow(dtype: str, xp: ModuleType, asnumpy: AsNumpy) -> None:
    largest = {"f32": 3.4028235e38, "f16": 65504.0, "bf16": 3.3895e38}[dtype]
    x = np.array([[largest, largest, -largest, 0.0] * 9, [-largest] * 36], DTYPES[dtype].numpy)
    expected = [[1 / 18, 1 / 18, 0, 0] * 9, [1 / 36] * 36]
    assert_close(asnumpy(softmax(xp.asarray(x), -1)), np.array(expected), dtype)


@examples
@given(data=st.data())
def test_masks_and_causality_leave_elements_out(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(["f32", "bf16"]))
    batch, queries, keys = (
        draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [1, 4, 7, 33], [1, 8, 33, 64, 131, 150, 1029])
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.standard_normal((batch, 2, queries, keys)).astype(DTYPES[dtype].numpy)
    causal = draw(st.booleans())
    shape = draw(st.sampled_from([None, x.shape, (queries, keys), (batch, 1, 1, keys), (1, 2, queries, 1), (keys,)]))
    mask = None if shape is None else rng.random(shape) < 0.7
    keep = np.ones(x.shape, bool) if mask is None else np.broadcast_to(mask, x.shape)
    if causal:
        keep = keep & np.tri(queries, keys, keys - queries, dtype=bool)
    algorithm = draw(st.sampled_from([None, "softmax", "softmax_online"]))
    log, scale = draw(st.booleans()), draw(st.sampled_from([0.5, -0.5, 1]))
    given_x, given_mask = (a if a is None else begun(draw, xp, a) for a in (x, mask))
    result = (log_softmax if log else softmax)(
        given_x, -1, causal=causal, mask=given_mask, algorithm=algorithm, scale=scale
    )
    expected = reference(x, -1, log=log, scale=scale, keep=keep)
    assert_close(asnumpy(result), expected, dtype, floor=1.0 if log else 0.0)


def begun(draw: Any, xp: Any, x: np.ndarray) -> Any:
    """The array, its first element up to seven behind an aligned one, in the midst of set bits."""
    by = draw(st.integers(0, 7))
    flat = (
        np.full(by + x.size + 16, 0xFF, np.uint8).view(bool) if x.dtype == bool else np.full(x.size + 16 + by, np.nan)
    )
    flat = flat.astype(x.dtype)
    flat[by : by + x.size] = x.ravel()
    return xp.asarray(flat)[by : by + x.size].reshape(x.shape)


@pytest.mark.parametrize("axis", [-1, 0, None])
def test_the_result_may_be_in_float32_or_take_the_place_of_the_input(
    axis: int | None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    x = np.random.default_rng(0).standard_normal((40, 72)).astype(DTYPES["bf16"].numpy)
    wide = asnumpy(softmax(xp.asarray(x), axis, dtype="float32"))
    assert_close(wide, reference(x, axis), "f32", ulps=32)
    place = xp.asarray(x.copy())
    assert softmax(place, axis, out=place) is place
    assert_close(asnumpy(place), reference(x, axis), "bf16")


@pytest.mark.parametrize(("shape", "axis"), [((64, 128), -1), ((6, 20001), -1), ((3, 40000), None), ((2, 140000), -1)])
def test_what_all_numbers_of_a_row_have_in_common_is_as_good_as_exact(
    shape: tuple[int, ...], axis: int | None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    # Their own roundings cancel out in the sum of many; an error of the sum that all are divided by would not.
    x = np.random.default_rng(1).standard_normal(shape).astype("f")
    sums = asnumpy(softmax(xp.asarray(x), axis)).astype("d").sum(axis)
    assert np.abs(sums - 1).max() < 1.2 * 2.0**-24


@pytest.mark.parametrize(
    ("shape", "axis"), [((40, 1024), -1), ((2, 5000), -1), ((1500, 12), 0), ((2, 70000), -1), ((3, 40000), None)]
)
def test_logarithms_of_sums_of_many_float32_are_rounded_once(
    shape: tuple[int, ...], axis: int | None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    # Half a unit in the last place, and what the sum of many is off by: no error of its logarithm, nor of adding the
    # greatest number to that.
    x = np.random.default_rng(1).standard_normal(shape).astype("f")
    for function, expected in (
        (logsumexp, reference_sum(x, axis)),
        (log_softmax, reference(x, axis, log=True)),
    ):
        apart = np.abs(asnumpy(function(xp.asarray(x), axis)) - expected)
        beyond = apart - np.spacing(np.abs(expected).astype("f")) / 2
        assert beyond.max() < 2**-22.5, function.__name__


def test_the_logarithm_of_a_sum_is_not_lost_beside_the_greatest_number(xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = np.array([[3e38, 3e38, 1], [-2e30, -2e30, -2e30]], "f")
    result = asnumpy(log_softmax(xp.asarray(x), -1))
    np.testing.assert_allclose(result, [[-np.log(2), -np.log(2), -3e38], 3 * [-np.log(3)]], rtol=1e-6)


@pytest.mark.parametrize("columns", [5000])
def test_a_whole_array_is_one_row_however_many_blocks_share_it(columns: int, xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = np.random.default_rng(1).standard_normal((7, columns)).astype("f")
    for algorithm in (None, "softmax_online"):
        result = asnumpy(softmax(xp.asarray(x), algorithm=algorithm))
        assert_close(result, reference(x, None), "f32", ulps=8)
        again = asnumpy(softmax(xp.asarray(x), algorithm=algorithm))
        assert result.tobytes() == again.tobytes()
    np.testing.assert_allclose(asnumpy(logsumexp(xp.asarray(x))), reference_sum(x, None), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 2000, 33), (3, 300, 64), (1, 7, 1000)])
def test_columns_of_every_length_agree_with_float64(shape: tuple[int, ...], xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype("f")
    assert_close(asnumpy(softmax(xp.asarray(x), 1)), reference(x, 1), "f32", ulps=12)
    assert_close(asnumpy(log_softmax(xp.asarray(x), 1)), reference(x, 1, log=True), "f32", ulps=8, floor=1.0)
    assert_close(asnumpy(logsumexp(xp.asarray(x), 1)), reference_sum(x, 1), "f32", ulps=8)
    infinite = x.copy()
    infinite[0, :, 3] = -np.inf
    infinite[0, 1, 5] = np.inf
    infinite[0, 1, 7] = np.nan
    sums = asnumpy(logsumexp(xp.asarray(infinite), 1))[0, [3, 5, 7]]
    np.testing.assert_equal(sums, np.array([-np.inf, np.inf, np.nan], "f"))


def test_a_specialization_can_be_named(xp: ModuleType, asnumpy: AsNumpy) -> None:
    x = np.random.default_rng(2).standard_normal((9, 256)).astype("f")
    for name in ("softmax_t16_n4_v4_f32", "softmax_t128_n1_v2_f32", "softmax_online_t128_n1_v1_f32"):
        assert_close(asnumpy(softmax(xp.asarray(x), -1, algorithm=name)), reference(x, -1), "f32")


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_nothing_in_gives_nothing_out(shape: tuple[int, ...], xp: ModuleType) -> None:
    assert softmax(xp.zeros(shape, "f"), -1).shape == shape


def test_bad_arguments_are_refused_as_numpy_refuses_them(xp: ModuleType) -> None:
    x = xp.ones((4, 6), "f")
    for wrong, error, words in [
        ({"axis": 2}, np.exceptions.AxisError, "out of bounds"),
        ({"axis": (0, 0)}, ValueError, "twice"),
        ({"axis": 1.5}, TypeError, "axis is 1.5"),
        ({"axis": -1, "scale": "2"}, TypeError, "scale is a str"),
        ({"axis": 0, "causal": True}, ValueError, "causal"),
        ({"axis": -1, "mask": xp.ones((5,), bool)}, ValueError, "broadcast"),
        ({"axis": -1, "mask": xp.ones((6,), "f")}, TypeError, "mask has dtype float32"),
        ({"axis": -1, "dtype": "float16"}, TypeError, "dtype is 'float16'"),
        ({"axis": -1, "algorithm": "fence"}, SpecError, "no algorithm 'fence'"),
        ({"axis": -1, "algorithm": "softmax_t2_n1_v2_f32"}, SpecError, "room for 4 columns"),
        ({"axis": -1, "algorithm": "softmax_t32_n1_v4_log_f32"}, SpecError, "log"),
        ({"axis": -1, "out": xp.ones((4, 5), "f")}, ValueError, "out has shape"),
    ]:
        with pytest.raises(error, match=words):
            softmax(x, **wrong)
    with pytest.raises(ValueError, match="nothing along axis 1"):
        logsumexp(xp.ones((3, 0), "f"), 1)
    with pytest.raises(TypeError, match="x has dtype int32"):
        softmax(xp.ones(3, "i"))


@examples
@given(data=st.data())
def test_the_gradient_is_that_of_float64(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(["f32", "f16", "bf16"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(SHAPES)
    axis = draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    log, scale = draw(st.booleans()), draw(st.sampled_from([1, 0.25]))
    y = reference(rng.standard_normal(shape), axis, log=log).astype(DTYPES[dtype].numpy)
    dy = rng.standard_normal(shape).astype(DTYPES[dtype].numpy)
    taken, _ = view(draw, xp, dy)
    if taken.shape != shape:
        taken = xp.asarray(dy)
    dx = asnumpy((log_softmax_backward if log else softmax_backward)(taken, xp.asarray(y), axis, scale=scale))
    assert_gradient(dx, dy, y, log=log, scale=scale, axis=axis)


def assert_gradient(
    dx: np.ndarray, dy: np.ndarray, y: np.ndarray, *, log: bool = False, scale: float = 1.0, axis: Any = -1
) -> None:
    """That of float64, but for a rounding of the result and some of its terms."""
    g, v = dy.astype(np.float64), y.astype(np.float64)
    if log:
        expected = scale * (g - np.exp(v) * g.sum(axis=axis, keepdims=True))
        terms = 4 + np.abs(g).sum(axis=axis, keepdims=True) * np.exp(v)
    else:
        expected = scale * v * (g - (g * v).sum(axis=axis, keepdims=True))
        terms = 4 * v
    dtype = next(name for name, known in DTYPES.items() if known.numpy == dy.dtype)
    off = np.abs(dx.astype(np.float64) - expected)
    assert dx.dtype == dy.dtype
    assert (off <= ULP[dtype] * np.abs(expected) + 16 * ULP["f32"] * terms + SMALLEST[dtype]).all()


@pytest.mark.parametrize(
    "name",
    [
        "softmax_t128_n4_v4_log_scaled_f32",
        "softmax_t128_n4_v4_scaled_ragged_f32",
        "softmax_ring_n8_v4_c4_log_scaled_ragged_f32",
        "softmax_grid_n2_v4_s6_log_scaled_ragged_f32",
        "softmax_online_v4_log_scaled_f32",
        "softmax_strips_l8_n8_v4_c2_log_scaled_f32",
        "softmax_columns_t16_d16_n8_v4_log_scaled_online_apply_f32",
    ],
)
def test_a_scaled_number_is_rounded_before_the_greatest_is_taken_from_it(name: str) -> None:
    """Else the assembler may fuse the two, and what the difference lost is looked for in another number."""
    text = render(parse(name)).text
    assert "__fmul_rn(scale, " in text
    assert "scale *" not in text


def test_results_of_a_sum_may_lie_anywhere(xp, asnumpy):
    x = np.random.default_rng(0).standard_normal((5, 7, 8)).astype("f")
    expected = np.log(np.exp(x.astype("d")).sum(-1))
    for out in (xp.full((7, 5), np.nan, "f").T, xp.full((5, 7), np.nan, "f")[::-1]):
        assert logsumexp(xp.asarray(x), -1, out=out) is out
        np.testing.assert_allclose(asnumpy(out), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5)])
def test_over_no_axes_every_element_is_alone(xp, asnumpy, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("f")
    mask = np.random.default_rng(1).random(shape) < 0.5
    array = xp.asarray(x)
    np.testing.assert_array_equal(asnumpy(softmax(array, ())), np.ones(shape))
    np.testing.assert_array_equal(asnumpy(log_softmax(array, ())), np.zeros(shape))
    np.testing.assert_array_equal(asnumpy(logsumexp(array, ())), x)
    expected = np.where(mask, 1, np.nan)
    np.testing.assert_array_equal(asnumpy(softmax(array, (), mask=xp.asarray(mask))), expected)


@pytest.mark.parametrize(("own", "taken"), [("f4", "float32"), ("f2", "float16, that of x, or float32")])
def test_another_type_of_results_is_met_with_those_that_there_are(own: str, taken: str) -> None:
    with kgen.backend("cpu"), pytest.raises(TypeError, match=f"softmax: dtype is 'i4'; it takes {taken}$"):
        kgen.softmax(np.ones(3, own), dtype="i4")
