"""Counts and edges are NumPy's, exactly; sums of weights are those of exact arithmetic, and the same at every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kgen
from kgen.backend import HOST
from kgen.checking import watching
from kgen.ops.histogram import histogram as histogram_module
from kgen.ops.histogram import kernels, parts
from kgen.ops.histogram.histogram import bincount, histogram
from kgen.ops.histogram.weights import weighted_bincount, weighted_histogram
from tests.plans import forget

ToNumpy = Callable[[Any], np.ndarray]
RANDOM = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(("i1", "u1", "i2", "i4", "u4", "i8", "u8", "?")),
    size=st.sampled_from((0, 1, 3, 17, 1000, 20_011)),
    bins=st.sampled_from((2, 10, 100, 900, 5000, 30_000, 65_536, 300_000)),
    common=st.sampled_from((0.0, 0.5, 1.0)),
    minlength=st.sampled_from((0, 5, 2000)),
    step=st.sampled_from((1, 2, -1)),
)
@RANDOM
def test_bincount_counts_as_numpy(
    xp: ModuleType,
    asnumpy: ToNumpy,
    seed: int,
    dtype: str,
    size: int,
    bins: int,
    common: float,
    minlength: int,
    step: int,
) -> None:
    rng = np.random.default_rng(seed)
    bins = 2 if dtype == "?" else min(bins, np.iinfo(dtype).max + 1)
    x = rng.integers(0, bins, size)
    x[rng.random(size) < common] = bins // 2
    x = x.astype(dtype)
    want = np.bincount(x[1:][::step], minlength=minlength)
    got = bincount(xp.asarray(x)[1:][::step], minlength=minlength)
    assert asnumpy(got).dtype == np.int64
    np.testing.assert_array_equal(asnumpy(got), want)
    np.testing.assert_array_equal(asnumpy(bincount(xp.asarray(x)[1:][::step], length=len(want))), want)


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(("f4", "f8", "i4", "u1", "?")),
    shape=st.sampled_from(((0,), (1,), (1001,), (33, 57), (20_011,))),
    bins=st.sampled_from((1, 3, 10, 100, 3000, 40_000, "edges")),
    bounds=st.sampled_from((None, (-1.0, 2.0), (0, 7))),
    rounded=st.booleans(),
    density=st.booleans(),
)
# Float32 edges beside zero, whose difference is not a float32.
@example(seed=0, dtype="f4", shape=(1,), bins=10, bounds=(-1.0, 2.0), rounded=False, density=True)
@RANDOM
def test_histogram_counts_and_edges_are_numpys(
    xp: ModuleType,
    asnumpy: ToNumpy,
    seed: int,
    dtype: str,
    shape: tuple[int, ...],
    bins: Any,
    bounds: Any,
    rounded: bool,
    density: bool,
) -> None:
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.standard_normal(shape) if dtype[0] == "f" else rng.integers(0, 200, shape)).astype(dtype)
    if rounded:
        x = np.asarray(np.round(x.astype("f8") * 4) / 4).astype(dtype)  # onto edges
    if dtype[0] == "f" and bounds:
        x[rng.random(shape) < 0.05] = np.nan
    if bins == "edges":
        bins = np.sort(np.concatenate([rng.standard_normal(20) * 3, [0, 1, 1]]))
    host, device = (a[:, ::2] if len(shape) > 1 else a[::-1] for a in (x, xp.asarray(x)))
    counted = host.astype("u1") if host.dtype == bool else host  # what NumPy does, and warns of
    with np.errstate(all="ignore"):
        want, want_edges = np.histogram(counted, bins, bounds, density)
    got, edges = map(asnumpy, histogram(device, bins, bounds, density=density))
    assert (got.dtype, edges.dtype) == (want.dtype, want_edges.dtype)
    np.testing.assert_array_equal(edges, want_edges)
    if density:
        counts = np.histogram(counted, bins, bounds)[0]
        with np.errstate(all="ignore"):
            exact = counts / np.diff(want_edges.astype("f8")) / counts.sum()
        np.testing.assert_allclose(got, exact, rtol=1e-14)
        # NumPy subtracts edges in their own type.
        np.testing.assert_allclose(got, want, rtol=1e-14 if want_edges.dtype == np.float64 else 2.0**-23)
    else:
        np.testing.assert_array_equal(got, want)


def test_float16_falls_into_the_bin_that_its_value_is_in(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = (np.round(np.random.default_rng(0).standard_normal(3000) * 4) / 4).astype("f2")
    edges = np.array([-2, -0.3, 0, 0.25, 1, 3])
    got, _ = histogram(xp.asarray(x), edges)
    np.testing.assert_array_equal(asnumpy(got), np.histogram(x.astype("f8"), edges)[0])


@pytest.mark.parametrize(
    ("dtype", "bins", "bounds"),
    [
        ("f4", 100, (0.0, 1.0)),
        ("f4", 5000, (-3.0, 2.0)),
        ("f4", 1 << 20, (0.5, 1.0)),
        ("f4", 24, (1000.0, 1000.01)),  # few of x's numbers in a bin
        ("f4", 100, (np.float64(1 / 3), np.float64(0.7))),  # bounds that x's type has not
        ("f4", 10, (-1e-42, 3e-42)),  # more bins in a unit than a float can be
        ("f4", 3, (-1e-30, 1e38)),
        ("f2", 7, (-0.1, 0.3)),
        ("f2", 24, (1000.0, 1024.0)),
    ],
)
def test_numbers_beside_an_edge_fall_into_the_bins_that_they_are_in(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, bins: int, bounds: tuple[float, float]
) -> None:
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, bounds)
    near = edges.astype(dtype)
    x = np.concatenate([near, np.nextafter(near, -np.inf, dtype=dtype), np.nextafter(near, np.inf, dtype=dtype)])
    inside = x[(x >= edges[0]) & (x <= edges[-1])]
    bin_ = np.minimum(np.searchsorted(edges, inside, side="right") - 1, bins - 1)
    got, _ = histogram(xp.asarray(x), bins, bounds)
    np.testing.assert_array_equal(asnumpy(got), np.bincount(bin_, minlength=bins))


@pytest.mark.parametrize("bins", [(), [1.0]])
@pytest.mark.parametrize(("density", "weighted"), [(False, False), (True, False), (False, True)])
def test_fewer_than_two_edges_bound_no_bins(
    xp: ModuleType, asnumpy: ToNumpy, bins: object, density: bool, weighted: bool
) -> None:
    x = np.ones(3)
    got = histogram(xp.asarray(x), bins, None, xp.asarray(x) if weighted else None, density)
    for one, right in zip(got, np.histogram(x, bins, None, density, x if weighted else None)):
        assert one.dtype == right.dtype
        np.testing.assert_array_equal(asnumpy(one), right)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2"])
@pytest.mark.parametrize("bound", [float, np.float16, np.float32, np.float64])
def test_edges_have_the_type_that_elements_and_bounds_have_together(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, bound: type
) -> None:
    x, bounds = np.arange(20).astype(dtype), (bound(0.1), bound(17.7))
    want = np.histogram_bin_edges(x, 7, bounds)
    got = asnumpy(histogram(xp.asarray(x), 7, bounds)[1])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2"])
def test_bounds_may_be_arrays_without_axes_as_other_operators_return_them(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str
) -> None:
    x = np.arange(-3, 20).astype(dtype)
    given_x = xp.asarray(x)
    want, want_edges = np.histogram(x, 7, (x.min(), x.max()))
    for _ in range(2):
        got, edges = map(asnumpy, histogram(given_x, 7, (kgen.min(given_x), kgen.max(given_x))))
        assert edges.dtype == want_edges.dtype
        np.testing.assert_array_equal(edges, want_edges)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bins", [[0, 1, np.nan], [np.nan, 0, 1]])
def test_edges_that_are_nan_are_refused_for_they_are_in_no_order(xp: ModuleType, bins: list[float]) -> None:
    with pytest.raises(ValueError, match="histogram: bins has an edge that is NaN"):
        histogram(xp.ones(3), bins)  # NumPy counts -3 elements below the one and 3 below the other


def test_more_bins_than_kernels_count_are_refused_before_there_is_memory_for_them(xp: ModuleType) -> None:
    x = xp.asarray([0, 1])
    for call in (
        lambda: bincount(x, length=1 << 31),
        lambda: bincount(x, minlength=1 << 31),
        lambda: bincount(xp.asarray([1 << 31])),
        lambda: histogram(x, 1 << 31),
    ):
        with pytest.raises(ValueError, match=r"^(bincount|histogram): .* up to 2147483647"):
            call()


def test_edges_are_the_callers_own(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.asarray(np.arange(20, dtype="f4"))
    for weights in (None, xp.asarray(np.ones(20))):
        for _ in range(2):
            counts, edges = histogram(x, 4, (0.0, 20.0), weights)
            np.testing.assert_array_equal(asnumpy(edges), [0, 5, 10, 15, 20])
            np.testing.assert_array_equal(asnumpy(counts), [5, 5, 5, 5])
            edges[:] = -1


def test_a_repeated_call_looks_for_no_edges(xp: ModuleType, asnumpy: ToNumpy, monkeypatch: pytest.MonkeyPatch) -> None:
    x = xp.asarray(np.linspace(-1, 9, 3001, dtype="f4"))
    first, edges = histogram(x, 37, (0.0, 8.0))
    monkeypatch.setattr(histogram_module, "edges_of", None)
    again, same_edges = histogram(x, 37, (0.0, 8.0))
    assert asnumpy(first).tolist() == asnumpy(again).tolist()
    assert asnumpy(edges).tobytes() == asnumpy(same_edges).tobytes()
    with pytest.raises(TypeError):  # what has other edges goes the long way
        histogram(x, 37, (0.0, 8.5))
    with pytest.raises(TypeError):
        histogram(x.astype("f8"), 37, (0.0, 8.0))
    with pytest.raises(TypeError):
        histogram(x, 37, (np.float64(0), np.float64(8)))


def test_edges_are_remembered_for_devices_that_have_no_hash() -> None:
    """As CuPy's have none: no call may fail for it."""

    class Device:
        __hash__ = None  # type: ignore[assignment]
        id = 3

    class OnDevice:
        dtype, device = np.dtype("f4"), Device()

    kind = histogram_module._kind_of(OnDevice(), 37, (0.0, 8.0))
    assert kind is not None
    assert hash(kind) == hash(histogram_module._kind_of(OnDevice(), 37, (0.0, 8.0)))


def test_a_counter_of_16_bits_does_not_run_over(xp: ModuleType, asnumpy: ToNumpy) -> None:
    """65536 bins are counted in half words; a few of them get everything."""
    x = np.repeat(np.array([0, 1, 40_001, 65_535], "i4"), [70_000, 33_000, 66_000, 131_073])
    np.random.default_rng(0).shuffle(x)
    np.testing.assert_array_equal(asnumpy(bincount(xp.asarray(x), length=65_536)), np.bincount(x))
    assert "_packed_" in kgen.explain(bincount, xp.asarray(x), length=65_536)


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(("u2", "i4", "i8")), few=st.sampled_from((1, 2, 9, 300)))
@RANDOM
def test_frequent_elements_of_too_many_bins_for_shared_memory(seed: int, dtype: str, few: int) -> None:
    rng, bins = np.random.default_rng(seed), 60_001
    frequent = rng.integers(0, bins, few)[rng.integers(0, few, 9_000)]
    x = np.where(rng.random(9_000) < 0.7, frequent, rng.integers(-9, bins + 9, 9_000))
    x = np.concatenate([np.full(5_000, frequent[0]), x]).astype(dtype)
    with pytest.MonkeyPatch.context() as patch, watching() as watch:
        patch.setattr(kernels, "PASSES", 0)
        assert "histogram_k0" in str(kgen.explain(bincount, x, length=bins))
        counts = bincount(x, length=bins)
    assert watch.findings == []
    inside = x[(x >= 0) & (x < bins)].astype(np.int64)
    assert np.array_equal(counts, np.bincount(inside, minlength=bins))


def test_what_is_out_of_bounds_is_not_counted_with_a_length(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.asarray(np.array([-1, 0, 5, 6, -(2**31), 2**31 - 1, 5], "i4"))
    assert asnumpy(bincount(x, length=6)).tolist() == [1, 0, 0, 0, 0, 2]


def test_bincount_writes_into_out(xp: ModuleType, asnumpy: ToNumpy) -> None:
    out = xp.full((4, 2), -7, "i8")
    assert bincount(xp.asarray(np.array([3, 0, 3])), length=4, out=out[:, 1]) is not None
    assert asnumpy(out).tolist() == [[-7, 1], [-7, 0], [-7, 0], [-7, 2]]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bins", [3, 700])
def test_sums_of_weights_are_those_of_exact_arithmetic(xp: ModuleType, asnumpy: ToNumpy, dtype: str, bins: int) -> None:
    rng = np.random.default_rng(bins)
    x = rng.integers(0, bins, 3001)
    w = (rng.standard_normal(3001) * 10.0 ** rng.integers(-8, 8, 3001)).astype(dtype)
    got = asnumpy(bincount(xp.asarray(x), xp.asarray(w)))
    exact = np.array([math.fsum(w[x == b].astype("f8")) for b in range(bins)])
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, exact, rtol=4e-16, atol=1e-26 * np.abs(w).max())
    again = [asnumpy(bincount(xp.asarray(x), xp.asarray(w))).tobytes() for _ in range(3)]
    assert again == [got.tobytes()] * 3
    order = rng.permutation(3001)
    assert asnumpy(bincount(xp.asarray(x[order]), xp.asarray(w[order]))).tobytes() == got.tobytes()


def test_weights_that_are_not_finite_stay_in_their_bins(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = np.array([0, 1, 2, 2, 3, 4, 4])
    w = np.array([np.inf, -np.inf, np.inf, -np.inf, np.nan, 1.5, 5e-324])
    np.testing.assert_array_equal(asnumpy(bincount(xp.asarray(x), xp.asarray(w))), np.bincount(x, w))
    tiny = np.full(5, 5e-324)
    assert asnumpy(bincount(xp.asarray(x[:5]), xp.asarray(tiny))).tolist() == np.bincount(x[:5], tiny).tolist()


def test_weights_are_added_down_to_a_part_of_the_largest_as_documented(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.asarray(np.array([0, 1, 2]))
    for largest in (1.0, -1.0, 1e300):
        weights = np.array([largest, largest * 2.0**-92, largest * 2.0**-94])
        got = asnumpy(bincount(x, xp.asarray(weights)))
        assert got[0] == largest
        assert abs(got - weights).max() <= 2.0**-93 * abs(largest)


@pytest.mark.parametrize("function", [bincount, histogram])
def test_more_weights_than_a_sum_has_room_for_are_refused_by_name(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgen.ops.histogram.weights.LONGEST", 7)
    more = {"length": 3} if function is bincount else {"range": (0, 3)}
    message = f"^{function.__name__}: x has 8 elements; with weights it takes up to 7$"
    with kgen.backend("cpu"), pytest.raises(ValueError, match=message):
        function(np.ones(8, "i1"), weights=np.ones(8, "f4"), **more)


def test_histogram_takes_weights_and_densities_of_them(xp: ModuleType, asnumpy: ToNumpy) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((40, 50)).astype("f4"), rng.random((40, 50))
    for density in (False, True):
        got, _ = histogram(xp.asarray(x).T, 20, (-2, 2), xp.asarray(w).T, density)
        np.testing.assert_allclose(asnumpy(got), np.histogram(x.T, 20, (-2, 2), density, w.T)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "numpys", "error"),
    [
        (lambda xp: bincount(xp.asarray([0, -1])), lambda: np.bincount([0, -1]), ValueError),
        (lambda xp: bincount(xp.asarray([0.5])), lambda: np.bincount(np.array([0.5])), TypeError),
        (lambda xp: bincount(xp.ones((2, 2), int)), lambda: np.bincount(np.ones((2, 2), int)), ValueError),
        (lambda xp: bincount(xp.asarray([1]), minlength=-1), lambda: np.bincount([1], minlength=-1), ValueError),
        (lambda xp: bincount(xp.asarray([1]), minlength="x"), lambda: np.bincount([1], minlength="x"), TypeError),
        (lambda xp: bincount(xp.asarray([1]), xp.ones(2)), lambda: np.bincount([1], np.ones(2)), ValueError),
        (lambda xp: histogram(xp.ones(3), 0), lambda: np.histogram(np.ones(3), 0), ValueError),
        (lambda xp: histogram(xp.ones(3), [1, 0]), lambda: np.histogram(np.ones(3), [1, 0]), ValueError),
        (lambda xp: histogram(xp.ones(3), 2.5), lambda: np.histogram(np.ones(3), 2.5), TypeError),
        (
            lambda xp: histogram(xp.ones(3), np.array(["2000", "2001"], "M8[Y]")),
            lambda: np.histogram(np.ones(3), np.array(["2000", "2001"], "M8[Y]")),
            TypeError,
        ),
        (lambda xp: histogram(xp.ones(3), {0: 1}), lambda: np.histogram(np.ones(3), {0: 1}), TypeError),
        (lambda xp: histogram(xp.ones(3), 3, (1, 0)), lambda: np.histogram(np.ones(3), 3, (1, 0)), ValueError),
        (lambda xp: histogram(xp.asarray([np.nan])), lambda: np.histogram([np.nan]), ValueError),
        (
            lambda xp: histogram(xp.ones(3), 3, weights=xp.ones(2)),
            lambda: np.histogram(np.ones(3), 3, weights=np.ones(2)),
            ValueError,
        ),
    ],
)
def test_bad_input_raises_what_numpy_raises(xp: ModuleType, call: Any, numpys: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        numpys()
    with pytest.raises(error, match=r"^(bincount|histogram): "):
        call(xp)


@pytest.mark.gpu
def test_a_graph_of_counts_replays() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.default_rng(0).integers(0, 256, 1 << 20, dtype="i4")
    counts, stream = cupy.zeros(256, "i8"), cupy.cuda.Stream(non_blocking=True)
    with stream:
        bincount(x, length=256, out=counts)
        stream.begin_capture()
        bincount(x, length=256, out=counts)
        graph = stream.end_capture()
    counts[...] = -1
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert (counts == cupy.bincount(x)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bins", [5, 3000, 20_000, 40_000, 130_000])
def test_weights_add_up_in_copies_and_in_global_memory(xp, asnumpy, shared_cache, bins, dtype):
    rng = np.random.default_rng(bins)
    x = rng.integers(-3, bins + 3, 9000)
    x[:3000] = bins // 2
    weights = (rng.standard_normal(9000) * 10.0 ** rng.integers(-9, 9, 9000)).astype(dtype)
    inside = (x >= 0) & (x < bins)
    expected = np.bincount(x[inside], weights[inside], minlength=bins)
    size = np.bincount(x[inside], abs(weights[inside]), minlength=bins)
    found = asnumpy(bincount(xp.asarray(x), xp.asarray(weights), length=bins))
    assert (abs(found - expected) <= 1e-13 * size + 2.0**-90 * abs(weights).max()).all()
    assert np.array_equal(found, asnumpy(bincount(xp.asarray(x), xp.asarray(weights), length=bins)))


@contextmanager
def sorting() -> Iterator[None]:
    """Inside the block, weights of more bins than shared memory holds are sorted by parts, however few there are."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LEAST", 1)
        patch.setattr(parts, "PER_BIN", 0)
        forget((weighted_bincount, weighted_histogram))
        yield
        forget((weighted_bincount, weighted_histogram))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bins", [14_337, 40_000, 130_000])
@pytest.mark.parametrize("kind", ["uniform", "one bin", "sorted"])
def test_weights_that_are_sorted_by_parts_of_the_bins_add_up_to_the_same_bits(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, bins: int, kind: str
) -> None:
    rng = np.random.default_rng(bins)
    x = rng.integers(-3, bins + 3, 20_011, "i4")
    x = {"uniform": x, "one bin": np.where(x % 7, bins - 1, x), "sorted": np.sort(x)}[kind]
    weights = (rng.standard_normal(x.size) * 10.0 ** rng.integers(-12, 12, x.size)).astype(dtype)
    weights[[5, 500, 5000, 5001]] = np.inf, -np.inf, np.nan, 0
    given = xp.asarray(x), xp.asarray(weights)
    plain = bincount(*given, length=bins)
    assert "histogram_weights_k0" in kgen.explain(bincount, *given, length=bins)
    with sorting():
        assert "histogram_parts" in kgen.explain(bincount, *given, length=bins)
        assert asnumpy(bincount(*given, length=bins)).tobytes() == asnumpy(plain).tobytes()


@pytest.mark.parametrize("bound", [None, (-2.0, 2.0)])
def test_numbers_in_many_bins_are_sorted_by_parts_too(xp: ModuleType, asnumpy: ToNumpy, bound: Any) -> None:
    rng = np.random.default_rng(3)
    x, weights = rng.standard_normal(9001).astype("f4"), rng.standard_normal(9001)
    bins = 15_000 if bound else np.sort(rng.standard_normal(15_001))
    plain, _ = histogram(xp.asarray(x), bins, bound, xp.asarray(weights))
    with sorting():
        got, _ = histogram(xp.asarray(x), bins, bound, xp.asarray(weights))
    np.testing.assert_allclose(asnumpy(got), np.histogram(x, bins, bound, weights=weights)[0], rtol=1e-12, atol=1e-15)
    assert asnumpy(got).tobytes() == asnumpy(plain).tobytes()


def test_sorting_pays_from_some_number_of_elements_on() -> None:
    assert parts.sorting_pays(parts.LEAST, 65_536, HOST)
    assert not parts.sorting_pays(parts.LEAST - 1, 65_536, HOST)
    assert parts.sorting_pays(1 << 22, 1 << 20, HOST)
    assert not parts.sorting_pays((1 << 22) - 1, 1 << 20, HOST)
    assert parts.sorting_pays(1 << 27, parts.ROOM * parts.CELLS, HOST)
    assert not parts.sorting_pays(1 << 27, parts.ROOM * parts.CELLS + 1, HOST)


@pytest.mark.parametrize(
    ("bins", "log_length", "fastest"),
    [
        (20_000, 20, {32, 64, 128}),  # 26 us for float64 weights on an H200; in 8 parts 40, in two 90
        (65_536, 20, {32, 64, 128}),  # 28 to 31; in 8 parts 51
        (20_000, 22, {8, 16, 32, 64}),  # 65 to 68; in two 122
        (65_536, 22, {32, 64, 128}),  # 68; in 8 parts 86
        (65_536, 24, {16, 32, 64}),  # 196 to 198; in 8 parts 209
        (20_000, 27, {4, 8, 16}),  # 1247 to 1257; in 32 parts 1290
        (65_536, 27, {8, 16}),  # 1259 and 1266, skewed indices 1675 and 1883; in 32 parts 1290 and 2030
        (1 << 20, 27, {128}),  # the fewest for which blocks have room
    ],
)
def test_bins_are_in_as_many_parts_as_were_measured_to_be_fastest(
    bins: int, log_length: int, fastest: set[int]
) -> None:
    assert parts.parts_for(bins, 1 << log_length, 132) in fastest


def test_a_range_that_is_found_and_not_finite_is_called_what_numpy_calls_it() -> None:
    with kgen.backend("cpu"), pytest.raises(ValueError, match=r"histogram: autodetected range of \[nan, nan\] is not"):
        histogram(np.array([1, np.nan], "f"))


def test_one_far_element_does_no_harm_to_later_calls():
    with kgen.backend("cpu"):
        for far in (1 << 45, 1 << 62):
            with pytest.raises((MemoryError, ValueError)):
                bincount(np.array([far, 0, 1]))
            assert bincount(np.array([1, 0, 1])).tolist() == [1, 2]
        assert len(bincount(np.array([10_000, 0, 1]))) == 10_001
        counts = bincount(np.array([1, 0, 1]))
    assert counts.base is None or counts.base.size < 10_001
    with kgen.backend("cpu"), pytest.raises(ValueError, match=f"bincount: x has the element {1 << 62}"):
        bincount(np.array([1 << 62]))
