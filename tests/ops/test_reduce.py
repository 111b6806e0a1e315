"""Reductions are NumPy's: values, types, axes, empty arrays, NaN, ties, errors; and the same bits at every run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen.backend import HOST
from kgen.checking import watching
from kgen.launch import Step, bind
from kgen.ops.questions import explain
from kgen.ops.reduce import narrow, passes, plan, reduce, waves
from kgen.spec import Axis

ToNumpy = Callable[[Any], np.ndarray]
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(name) for name in ("float64", "float32", "float16")] + [BF16]
INTEGERS = [np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
EXACT = ("max", "min", "argmax", "argmin")
# Of the sum of magnitudes: a rounding of the result, and a few of sums in float32 and float64.
BARS = {"float64": 1e-14, "float32": 5e-7, "float16": 6e-4, "bfloat16": 5e-3}


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random numbers, sometimes with ties or NaN; integers over their whole range or in small numbers."""
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if rng.random() < 0.5 else (0, 4)
        return np.asarray(rng.integers(low, high, shape, dtype=dtype, endpoint=True))
    x = np.asarray(rng.standard_normal(shape)).astype(dtype)
    if rng.random() < 0.3:
        x = np.asarray(np.round(x.astype("f4"))).astype(dtype)
    if rng.random() < 0.2:
        x[np.asarray(rng.random(shape)) < 0.05] = np.nan
    return x


def views(rng: np.random.Generator, *arrays: Any) -> list[Any]:
    """The same slicing, flipping and transposing of each array."""
    made = list(arrays)
    for _ in range(rng.integers(0, 3)):
        ndim = made[0].ndim
        if not ndim:
            break
        axis, kind = int(rng.integers(ndim)), rng.integers(4)
        if kind == 0:
            order = [int(i) for i in rng.permutation(ndim)]
            made = [x.transpose(order) for x in made]
        else:
            cut = (slice(1, None), slice(None, None, -1), slice(None, None, 2))[kind - 1]
            made = [x[(slice(None),) * axis + (cut,)] for x in made]
    return made


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's of empty means
            return function(*args, **kwargs)
    except Exception as error:
        return error


@given(
    seed=st.integers(0, 2**32 - 1),
    op=st.sampled_from(("sum", "prod", "mean", *EXACT)),
    dtype=st.sampled_from([*FLOATS, *INTEGERS, np.dtype(bool)]),
    shape=st.lists(st.sampled_from((0, 1, 2, 3, 7, 8, 16, 33, 100, 1000)), max_size=4).filter(
        lambda shape: np.prod(shape) < 40_000
    ),
    keepdims=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_reduction_of_any_view_matches_numpy(
    xp: ModuleType, asnumpy: ToNumpy, seed: int, op: str, dtype: np.dtype, shape: list[int], keepdims: bool
) -> None:
    rng = np.random.default_rng(seed)
    host = operand(rng, tuple(shape), dtype)
    host, device = views(rng, host, xp.asarray(host))
    axes = tuple(int(axis) for axis in np.flatnonzero(rng.random(host.ndim) < 0.5))
    axis: Any = None if rng.random() < 0.2 or not host.ndim else axes
    if op.startswith("arg") and axis is not None:
        axis = int(rng.integers(-host.ndim, host.ndim))
    floating = dtype in FLOATS
    wide = host.astype("f8") if floating or op == "mean" else host
    want = outcome(getattr(np, op), wide, axis=axis, keepdims=keepdims)
    got = outcome(getattr(reduce, op), device, axis, keepdims=keepdims)
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), got
        return
    assert not isinstance(got, Exception), got
    got = asnumpy(got)
    kept = dtype if op in ("max", "min") or (floating and op not in EXACT) else np.asarray(want).dtype
    assert (got.shape, got.dtype) == (want.shape, kept)
    if op in EXACT or got.dtype not in FLOATS:
        np.testing.assert_array_equal(got.astype(want.dtype), want)
        return
    magnitude = getattr(np, op)(np.abs(wide.astype("f8")), axis=axis, keepdims=keepdims)
    bar = BARS[got.dtype.name] * (wide.size if op == "prod" else 1)
    with np.errstate(all="ignore"):
        close = np.abs(got.astype("f8") - want) <= bar * magnitude + 1e-7 * (op == "prod")
        unrepresentable = magnitude > float(ml_dtypes.finfo(got.dtype).max)
    assert (close | (np.isnan(want) & np.isnan(got.astype("f8"))) | unrepresentable).all()


def test_float16_sums_are_accumulated_in_float32(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.ones((2, 4096), "f2")
    assert asnumpy(reduce.sum(x, 1)).tolist() == [4096, 4096]  # 2048 + 1 is 2048 in float16
    assert float(reduce.mean(xp.full(100_000, 60_000, "f2"))) == 60_000  # a sum beyond float16's range


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_long_sum_of_float32_is_as_good_as_rounded_once(xp: ModuleType, asnumpy: ToNumpy, axis: int | None) -> None:
    x = np.random.default_rng(4).random((3001, 203) if axis == 0 else (20, 30_001), "f4")
    want = x.sum(axis, dtype="f8")
    assert np.abs(asnumpy(reduce.sum(xp.asarray(x), axis)) / want - 1).max() < 2.0**-24 + 1e-8


def test_a_sum_of_float32_can_be_taken_in_double(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.asarray(np.array([1, 2**-40, -1], "f4"))
    got = asnumpy(reduce.sum(x, dtype="f8"))
    assert got.dtype == np.float64
    assert got == 2.0**-40


@pytest.mark.parametrize(
    ("given_type", "dtype"), [("i4", "i2"), ("i8", "u1"), ("u1", "f4"), ("f4", BF16), ("f2", "f4")]
)
def test_a_sum_has_the_type_that_was_asked_for(xp: ModuleType, asnumpy: ToNumpy, given_type: str, dtype: Any) -> None:
    x = np.arange(60).reshape(3, 4, 5).astype(given_type)
    got = asnumpy(reduce.sum(xp.asarray(x), (0, 2), dtype=dtype))
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, x.astype("i8").sum((0, 2)).astype(dtype))


def test_integer_sums_wrap_as_numpys_do(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = np.full(3, 2**62, "i8")
    assert int(asnumpy(reduce.sum(xp.asarray(x)))) == int(np.sum(x))
    assert int(asnumpy(reduce.prod(xp.asarray(x + 1)))) == int(np.prod(x + 1))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(5000,), (40, 130), (130, 40)])
def test_the_first_nan_wins_then_the_first_of_equals(
    xp: ModuleType, asnumpy: ToNumpy, op: str, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 3, shape).astype("f4")
    for axis in (None, 0, -1):
        np.testing.assert_array_equal(asnumpy(getattr(reduce, op)(xp.asarray(x), axis)), getattr(np, op)(x, axis))
    x[rng.random(shape) < 0.1] = np.nan
    for axis in (None, 0, -1):
        np.testing.assert_array_equal(asnumpy(getattr(reduce, op)(xp.asarray(x), axis)), getattr(np, op)(x, axis))


@pytest.mark.parametrize("worst", [-np.inf, np.inf])
def test_rows_of_one_infinity_have_it_at_index_0(xp: ModuleType, asnumpy: ToNumpy, worst: float) -> None:
    x = xp.full((3, 1000), worst, "f4")
    for op in ("argmax", "argmin"):
        assert asnumpy(getattr(reduce, op)(x, 1)).tolist() == [0, 0, 0]
    assert asnumpy(reduce.max(x, 1)).tolist() == [worst] * 3


def test_empty_arrays_have_numpys_results(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.empty((0, 3), "f4")
    assert asnumpy(reduce.sum(x, 0)).tolist() == [0, 0, 0]
    assert asnumpy(reduce.prod(x, 0)).tolist() == [1, 1, 1]
    assert np.isnan(asnumpy(reduce.mean(x, 0))).all()
    assert reduce.max(x, 1).shape == (0,)
    for op in EXACT:
        with pytest.raises(ValueError, match=f"{op}: x has shape .* no such element"):
            getattr(reduce, op)(x, 0)
        with pytest.raises(ValueError, match=r"attempt|zero-size"):
            getattr(np, op)(np.empty((0, 3)), 0)


@pytest.mark.parametrize(("cut", "axis"), [(np.s_[:0], 0), (np.s_[:, :0], 1), (np.s_[::-1, :0, ::2], (0, 1))])
def test_slices_of_nothing_have_the_results_of_empty_arrays(
    xp: ModuleType, asnumpy: ToNumpy, cut: Any, axis: Any
) -> None:
    """They have strides, unlike NumPy's empty arrays, by which columns are told from rows."""
    for shape in ((4, 5, 7), (4, 5, 20_000)):
        x = xp.ones(shape, "f4")[cut]
        for op, nothing in (("sum", 0.0), ("prod", 1.0), ("mean", np.nan)):
            got = asnumpy(getattr(reduce, op)(x, axis))
            np.testing.assert_array_equal(got, np.full(np.sum(np.ones(shape)[cut], axis).shape, nothing, "f4"))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_an_array_without_axes_takes_axis_0_and_the_last_as_numpys_does(
    xp: ModuleType, asnumpy: ToNumpy, op: str
) -> None:
    x = np.array(3, "f4")
    for axis in (0, -1):
        want, got = getattr(np, op)(x, axis), asnumpy(getattr(reduce, op)(xp.asarray(x), axis))
        assert (got.shape, got) == (want.shape, want)
    assert asnumpy(reduce.mean(xp.asarray(x), 0)) == 3  # which NumPy refuses, though it takes the sum
    for axis in (1, (0,)):
        with pytest.raises(np.exceptions.AxisError if op[:3] != "arg" or axis == 1 else TypeError, match="axis"):
            getattr(reduce, op)(xp.asarray(x), axis)


def test_results_go_into_out_of_any_strides(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = np.random.default_rng(0).standard_normal((6, 50, 7)).astype("f4")
    out = xp.full((7, 12), np.nan, "f4")
    view = out.T[::2]
    assert reduce.max(xp.asarray(x), 1, out=view) is view
    np.testing.assert_array_equal(asnumpy(out)[:, ::2].T, x.max(1))
    assert np.isnan(asnumpy(out)[:, 1::2]).all()


def test_more_kept_axes_than_a_kernel_walks(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = np.random.default_rng(1).standard_normal((4, 3, 4, 3, 4, 3, 6)).astype("f4")
    host, device = (a[::2, :, ::2, :, ::2, :, ::3] for a in (x, xp.asarray(x)))
    np.testing.assert_array_equal(asnumpy(reduce.max(device, 3)), host.max(3))
    np.testing.assert_array_equal(asnumpy(reduce.argmin(device)), host.argmin())


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "bf16", "i1"])
@pytest.mark.parametrize("op", ["sum", "max", "argmin"])
def test_columns_of_rows_that_begin_anywhere_are_read_in_packs(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, op: str
) -> None:
    own = BF16 if dtype == "bf16" else np.dtype(dtype)
    for shape in ((301, 130), (40, 515), (3, 29, 1002)):
        x = np.random.default_rng(4).integers(-9, 9, shape).astype(own)
        given_x = xp.asarray(x)[..., 1:]
        if shape[-1] > 500:
            assert "_ragged_" in explain(getattr(reduce, op), given_x, -2)
        got = asnumpy(getattr(reduce, op)(given_x, -2))
        np.testing.assert_array_equal(got, getattr(np, op)(x[..., 1:].astype("f8"), -2).astype(got.dtype))


@pytest.mark.parametrize("lanes", [16, 24, 48, 64])
@pytest.mark.parametrize("dtype", ["f4", "bf16"])
@pytest.mark.parametrize("op", ["sum", "max", "argmin"])
def test_whole_columns_of_blocks_as_wide_as_fill_a_wave(
    xp: ModuleType, asnumpy: ToNumpy, monkeypatch: pytest.MonkeyPatch, op: str, dtype: str, lanes: int
) -> None:
    monkeypatch.setattr(plan, "multiprocessors", lambda device: 4)  # of which they are enough for a wave
    monkeypatch.setattr(waves, "lanes_of_columns", lambda *about: lanes)
    own = BF16 if dtype == "bf16" else np.dtype(dtype)
    x = np.random.default_rng(lanes).integers(-9, 9, (3, 41, 712 * 16 // own.itemsize + lanes)).astype(own)
    function = getattr(reduce, op)
    assert f"_columns_l{lanes}_" in explain(function, xp.asarray(x), 1)
    got = asnumpy(function(xp.asarray(x), 1))
    np.testing.assert_array_equal(got, getattr(np, op)(x.astype("f8"), 1).astype(got.dtype))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_columns_beside_nan_and_the_end_of_memory(data: st.DataObject) -> None:
    """Rows that begin anywhere, apart, in reverse, one upon the other or all the same; what lies between is NaN."""
    own = data.draw(st.sampled_from((*FLOATS, np.dtype("i1"))))
    columns = data.draw(st.integers(8 * 16 // own.itemsize, 600))
    rows = data.draw(st.integers(1, 90) | st.just(700))
    ahead = data.draw(st.integers(0, 16))
    pitch = data.draw(st.sampled_from((0, 1, 5)) | st.integers(columns, columns + 20))
    flat = np.full(ahead + (rows - 1) * pitch + columns, np.nan if own.kind != "i" else 77, own)
    x = np.lib.stride_tricks.as_strided(flat[ahead:], (rows, columns), (pitch * own.itemsize, own.itemsize))
    x[...] = np.random.default_rng(rows).integers(-3, 4, (rows, columns))
    if data.draw(st.booleans()):
        x = x[::-1]
    op = data.draw(st.sampled_from(("sum", "max", "argmax")))
    with kgen.backend("cpu"), watching() as watch:
        got = np.asarray(getattr(reduce, op)(x, 0))
    assert watch.findings == []
    np.testing.assert_array_equal(got, getattr(np, op)(x.astype("f8"), 0).astype(got.dtype))


@pytest.mark.parametrize(
    ("dtype", "width", "expected"),
    [
        ("f4", 4096, "sum_rows_g256_v4_i4_o32_f32"),
        ("f4", 5120, "sum_rows_g256_v4_i5_o32_f32"),
        ("f4", 6144, "sum_rows_g256_v4_i6_o32_f32"),
        ("f4", 14336, "sum_rows_g256_v4_i5_o32_f32"),
        ("f2", 5120, "sum_rows_g128_v8_i5_o16_f16"),
    ],
)
def test_a_threads_loads_are_in_flight_together_in_turns_that_are_full(
    xp: ModuleType, asnumpy: ToNumpy, dtype: str, width: int, expected: str
) -> None:
    x = np.random.default_rng(6).standard_normal((1600, width)).astype(dtype)
    assert explain(reduce.sum, xp.asarray(x), 1).startswith(expected)
    some = xp.asarray(x[:3])
    np.testing.assert_allclose(asnumpy(reduce.sum(some, 1)), x[:3].astype("f8").sum(1), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4"])
@pytest.mark.parametrize("op", ["max", "argmax", "argmin"])
def test_extremes_of_columns_are_numpys_with_ties_nan_and_infinity(
    xp: ModuleType, asnumpy: ToNumpy, op: str, dtype: str
) -> None:
    for shape in ((600, 64), (77, 33), (40, 300)):
        x = (np.random.default_rng(3).standard_normal(shape) * 3).round().astype(dtype)
        if dtype[0] == "f":
            x[:, 0], x[shape[0] // 2, 1], x[9, 2], x[:, 3] = -np.inf, np.nan, np.inf, np.nan
        np.testing.assert_array_equal(asnumpy(getattr(reduce, op)(xp.asarray(x), 0)), getattr(np, op)(x, 0))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1"])
@pytest.mark.parametrize("op", ["sum", "max", "argmin"])
def test_short_rows_that_lie_one_behind_the_other_are_numpys(
    xp: ModuleType, asnumpy: ToNumpy, op: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BUSY", 0)
    monkeypatch.setattr(narrow, "FROM", 99)
    for width, rows in ((2, 8201), (3, 9001), (6, 4097), (7, 1300), (15, 600)):
        x = np.random.default_rng(width).integers(-4, 4, (rows, width)).astype(dtype)
        if dtype[0] == "f" and op != "sum":
            x[5], x[rows - 1, 1], x[9, -1] = -np.inf, np.nan, np.inf
        alike = op == "max" or (op == "sum" and dtype[0] == "f")  # results and elements take the same room
        kind = "packs" if alike and width <= 8 else "short"
        kernel = f"{op}_{kind}_" + (f"n{width}" if width <= 8 else "")
        assert explain(getattr(reduce, op), xp.asarray(x), 1).startswith(kernel)
        np.testing.assert_array_equal(asnumpy(getattr(reduce, op)(xp.asarray(x), 1)), getattr(np, op)(x, 1))


@pytest.mark.parametrize("width", [1, 7, 32, 96, 1024])
def test_reduce_combines_neighbours(xp: ModuleType, asnumpy: ToNumpy, width: int) -> None:
    x = np.random.default_rng(width).integers(-9, 9, 5 * width).astype("i4")
    for op in ("sum", "max", "argmin"):
        got = asnumpy(reduce.reduce(xp.asarray(x), op, width))
        np.testing.assert_array_equal(got, getattr(np, op)(x.reshape(-1, width), 1))
    with pytest.raises(ValueError, match="multiple of 2 elements"):
        reduce.reduce(xp.ones(5, "f4"), width=2)


@pytest.mark.parametrize("algorithm", ["naive", "vec4", None])
def test_every_step_of_the_ladder_agrees(xp: ModuleType, asnumpy: ToNumpy, algorithm: str | None) -> None:
    x = np.random.default_rng(2).standard_normal(30_011).astype("f4")
    got = float(asnumpy(reduce.sum(xp.asarray(x), algorithm=algorithm)))
    assert got == pytest.approx(float(x.astype("f8").sum()), abs=1e-3)


def test_the_same_input_gives_the_same_bits(xp: ModuleType, asnumpy: ToNumpy) -> None:
    x = xp.asarray(np.random.default_rng(3).standard_normal((3, 70_001)).astype("f4"))
    for axis in (None, 0, 1):
        first = asnumpy(reduce.sum(x, axis)).tobytes()
        assert all(asnumpy(reduce.sum(x, axis)).tobytes() == first for _ in range(5))


def test_a_long_row_is_cut_into_parts(xp: ModuleType) -> None:
    assert "_split_f32 on " in kgen.explain(reduce.sum, xp.ones(200_000, "f4"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: reduce.sum(x, 2), np.exceptions.AxisError, "sum: axis 2 is out of bounds for array of dimension 2"),
        (lambda x: reduce.max(x, -3), np.exceptions.AxisError, "max: axis -3"),
        (lambda x: reduce.sum(x, (0, 0)), ValueError, "names an axis twice"),
        (lambda x: reduce.sum(x, 1.5), TypeError, "axis is 1.5"),
        (lambda x: reduce.argmax(x, (0, 1)), TypeError, "argmax: axis is a .*; it takes an integer"),
        (lambda x: reduce.sum(x, dtype="i4"), TypeError, "sum: dtype is int32; a result of float32 is"),
        (lambda x: reduce.sum(x, dtype="nonsense"), TypeError, "nonsense"),
        (lambda x: reduce.sum(x, algorithm="vec8"), ValueError, "vec8 is not a load of 16 bytes for float32"),
        (lambda x: reduce.sum(x, algorithm="magic"), ValueError, "naive"),
        (lambda x: reduce.sum(x.astype("c8")), TypeError, "complex64"),
        (lambda x: reduce.sum(x, 0, out=x[0, :2]), ValueError, "out has shape"),
        (lambda x: reduce.sum(x, 0, out=x[0]), ValueError, "shares memory"),
    ],
)
def test_what_is_wrong_is_named(xp: ModuleType, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(xp.ones((4, 3), "f4"))


BLOCK_TEMPLATE = """\
{% include "common/header.j2" %}

{% include "common/block_reduce.cuh.j2" %}

struct Sum {
    using Value = int;
    static __device__ Value identity() { return 0; }
    static __device__ Value combine(Value a, Value b) { return a + b; }
};
struct Max {
    using Value = int;
    static __device__ Value identity() { return -1000000; }
    static __device__ Value combine(Value a, Value b) { return a > b ? a : b; }
};

extern "C" __global__ void __launch_bounds__({{ THREADS }}) {{ symbol }}(const int* x, int* out)
{
    const int own = x[threadIdx.x];
    const int sum = block_reduce<Sum, {{ THREADS }}>(own);
    const int top = block_reduce<Max, {{ THREADS }}>(own);
    const int of_eight = warp_reduce<Sum, 8>(own);
    out[threadIdx.x] = sum;
    out[{{ THREADS }} + threadIdx.x] = top;
    out[2 * {{ THREADS }} + threadIdx.x] = of_eight;
}
"""


@pytest.mark.parametrize("threads", [32, 96, 160, 224, 1024])
def test_block_reduce_gives_every_thread_the_result_for_any_number_of_warps(
    xp: ModuleType, asnumpy: ToNumpy, make_kernel: Any, threads: int
) -> None:
    sizes = (32, 96, 160, 224, 1024)
    kernel = make_kernel(
        "blocky",
        BLOCK_TEMPLATE,
        axes=[Axis("N", "n", sizes, "threads")],
        flags=(),
        derive=lambda spec: {"THREADS": spec["N"], "STATIC_SMEM": spec["N"] // 4},
    )
    x = np.random.default_rng(threads).integers(-1000, 1000, threads).astype("i4")
    device, out = xp.asarray(x), xp.zeros((3, threads), "i4")
    step = Step(kernel.spec(N=threads, dtype="f32"), 1, 2)
    if xp is np:
        bind([step], HOST)[0]((device.ctypes.data, out.ctypes.data), 0)
    else:
        bind([step], 0)[0]((device.data.ptr, out.data.ptr), xp.cuda.get_current_stream().ptr)
    got = asnumpy(out)
    assert (got[0] == x.sum()).all()
    assert (got[1] == x.max()).all()
    np.testing.assert_array_equal(got[2], np.repeat(x.reshape(-1, 8).sum(1), 8))


@pytest.mark.gpu
def test_a_graph_with_many_sums_replays_beside_its_stream() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.default_rng(0).standard_normal((20, 1 << 20), dtype="f4")
    want = [reduce.sum(row) for row in x]
    results = [cupy.zeros((), "f4") for _ in range(20)]
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        reduce.sum(x[0], out=results[0])
        stream.begin_capture()
        for row, out in zip(x, results):
            reduce.sum(row, out=out)
        graph = stream.end_capture()
    for _ in range(20):
        graph.launch(stream)
        assert all(float(reduce.sum(row)) == float(w) for row, w in zip(x[:3], want))
    stream.synchronize()
    assert [float(out) for out in results] == [float(w) for w in want]


@pytest.mark.gpu
def test_more_than_2_to_the_32_elements() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.ones((1 << 32) + 5, "i1")
    x[-2] = 100
    assert int(reduce.sum(x)) == (1 << 32) + 5 + 99
    assert int(reduce.argmax(x)) == (1 << 32) + 3
    wide = x[: 1 << 32].reshape(1 << 16, 1 << 16)
    assert (reduce.sum(wide, 0) == 1 << 16).all()
    assert (reduce.sum(wide, 1) == 1 << 16).all()
