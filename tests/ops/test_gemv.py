"""A matrix times a vector against float64, in every memory order, for plain and quantized matrices, on both devices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.checking import watching
from kgen.dtypes import BF16, F16, F32, FLOATS, dtype_of
from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.ops.gemv import types
from kgen.ops.gemv.batched import matvec
from kgen.ops.gemv.column_plans import cut_columns
from kgen.ops.gemv.gemv import gemv
from kgen.ops.gemv.kernels import COLUMNS, COLUMNS_QUANTIZED, GEMV, GEMV_QUANTIZED
from kgen.ops.gemv.product import Product
from kgen.ops.gemv.row_plans import cut_rows
from kgen.ops.questions import explain

ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}
QUANTIZED = {"int8": np.int8, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def on(xp, host):
    """The array on the test's device; CuPy copies no fp8, but views it."""
    if xp is np:
        return host
    plain = {1: np.uint8, 2: np.uint16}.get(host.dtype.itemsize)
    return xp.asarray(host.view(plain)).view(host.dtype) if plain and host.dtype.kind not in "biu" else xp.asarray(host)


def exact(x):
    return np.asarray(x).astype(np.float64)


def draw(rng, shape, dtype):
    return rng.standard_normal(shape).astype(TYPES[dtype])


def quantized(rng, shape, dtype):
    return (rng.integers(-127, 128, shape) if dtype == "int8" else 4 * rng.standard_normal(shape)).astype(
        QUANTIZED[dtype]
    )


def assert_product(y, a, x, dtype):
    """Within the rounding of the result and of a sum of that many products in float32."""
    a, x, y = exact(a), exact(x), exact(y)
    slack = 2.0**-49 if dtype == "float64" else 2.0**-21
    bound = slack * (abs(a) @ abs(x)) + ROUNDING[dtype] * abs(a @ x) + 1e-7
    assert (abs(y - a @ x) <= bound).all()


LAYOUTS = {
    "rows": lambda rng, shape, dtype: draw(rng, shape, dtype),
    "columns": lambda rng, shape, dtype: draw(rng, shape[::-1], dtype).T,
    "view": lambda rng, shape, dtype: draw(rng, (shape[0] + 1, shape[1] + 3), dtype)[1:, 1:-2],
    "steps": lambda rng, shape, dtype: draw(rng, (shape[0], 2 * shape[1]), dtype)[:, ::-2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_memory_order_matches_float64(xp, asnumpy, shared_cache, layout, dtype):
    rng = np.random.default_rng(1)
    for rows, depth in ((37, 300), (5, 64), (1, 1)) if layout != "view" else ((70, 301),):
        a, x = LAYOUTS[layout](rng, (rows, depth), dtype), draw(rng, depth, dtype)
        given = on(xp, a) if xp is np else on(xp, np.ascontiguousarray(a))
        assert_product(asnumpy(gemv(given, on(xp, x))), a, x, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_transposed_matrix_matches_float64(xp, asnumpy, shared_cache, layout):
    rng = np.random.default_rng(2)
    a, x = LAYOUTS[layout](rng, (301, 70), "float32"), draw(rng, 301, "float32")
    given = a if xp is np else LAYOUTS[layout](np.random.default_rng(2), (301, 70), "float32")
    assert_product(asnumpy(gemv(on(xp, given), on(xp, x), trans=True)), a.T, x, "float32")


def test_sums_that_are_cut_into_parts_match_float64(xp, asnumpy, shared_cache):
    rng = np.random.default_rng(3)
    a, x = draw(rng, (2, 70_000), "float32"), draw(rng, 70_000, "float32")
    assert "gemv_sum" in gemv_steps(on(xp, a), on(xp, x), False)
    assert_product(asnumpy(gemv(on(xp, a), on(xp, x))), a, x, "float32")
    assert "partial" in gemv_steps(on(xp, a.T.copy()), on(xp, x), True)
    assert_product(asnumpy(gemv(on(xp, a.T.copy()), on(xp, x), trans=True)), a, x, "float32")


@pytest.mark.parametrize("shape", [(4096, 128), (5000, 96)])
def test_sums_across_rows_are_more_exact_than_in_one_chain(xp, asnumpy, shared_cache, shape):
    rng = np.random.default_rng(7)
    a, x = draw(rng, shape, "float32"), draw(rng, shape[0], "float32")
    exactly = exact(a.T) @ exact(x)
    off = asnumpy(gemv(on(xp, a), on(xp, x), trans=True)) - exactly
    assert np.sqrt((off**2).mean() / (exactly**2).mean()) < 1.8e-7  # one chain: 2e-7 to 3e-7


@pytest.mark.parametrize("dtype", TYPES)
def test_a_few_rows_of_middling_length_take_one_launch(xp, asnumpy, shared_cache, dtype):
    rng = np.random.default_rng(3)
    depth = 8 * 512 * 16 // draw(rng, 1, dtype).itemsize + 48
    a, x = draw(rng, (3, depth), dtype), draw(rng, depth, dtype)
    assert "gemv_sum" not in gemv_steps(on(xp, a), on(xp, x), False)
    assert_product(asnumpy(gemv(on(xp, a), on(xp, x))), a, x, dtype)


def test_a_small_matrix_takes_one_launch_either_way(xp, asnumpy, shared_cache):
    rng = np.random.default_rng(3)
    a, x = draw(rng, (300, 260), "float32"), draw(rng, 300, "float32")
    assert "gemv_sum" not in gemv_steps(on(xp, a), on(xp, x), True)
    assert_product(asnumpy(gemv(on(xp, a), on(xp, x), trans=True)), a.T, x, "float32")


def gemv_steps(a, x, trans):
    return explain(gemv, a, x, trans=trans)


@pytest.mark.parametrize(("weight", "dtype"), [("int8", "float16"), ("e4m3", "bfloat16"), ("e5m2", "float32")])
@pytest.mark.parametrize("scales", ["none", "tensor", "row", "block"])
def test_quantized_matrices_match_float64(xp, asnumpy, shared_cache, weight, dtype, scales):
    rng = np.random.default_rng(4)
    a, x = quantized(rng, (40, 256), weight), draw(rng, 256, dtype)
    scale = {
        "none": None,
        "tensor": np.float32(0.3).reshape(1),
        "row": rng.random(40).astype(np.float32),
        "block": rng.random((40, 4)).astype(np.float32),
    }[scales]
    full = exact(a)
    if scale is not None:
        full = full * (np.repeat(exact(scale), 64, 1) if scales == "block" else exact(scale).reshape(-1, 1))
    given = on(xp, a), on(xp, x), None if scale is None else on(xp, scale)
    assert_product(asnumpy(gemv(given[0], given[1], scale=given[2])), full, x, dtype)
    x = draw(rng, 40, dtype)
    assert_product(asnumpy(gemv(given[0], on(xp, x), scale=given[2], trans=True)), full.T, x, dtype)


@pytest.mark.parametrize("trans", [False, True])
def test_rows_scales_follow_a_matrix_that_is_stored_by_columns(xp, asnumpy, shared_cache, trans):
    rng = np.random.default_rng(5)
    a, x, scale = quantized(rng, (64, 48), "int8"), draw(rng, 64 if trans else 48, "float32"), rng.random(64)
    scale = scale.astype(np.float32)
    full = exact(a) * scale[:, None].astype(np.float64)
    y = gemv(on(xp, a.T.copy()).T, on(xp, x), scale=on(xp, scale), trans=trans)
    assert_product(asnumpy(y), full.T if trans else full, x, "float32")


@pytest.mark.parametrize("trans", [False, True])
def test_blocks_of_a_sliding_window_are_of_its_rows(xp, asnumpy, shared_cache, trans):
    rng = np.random.default_rng(5)
    memory, scale = rng.integers(-127, 128, 40 + 64, "i1"), rng.random((41, 4)).astype("f")
    a, x = np.lib.stride_tricks.sliding_window_view(memory, 64), draw(rng, 41 if trans else 64, "float32")
    full = exact(a) * np.repeat(exact(scale), 16, 1)
    given = xp.lib.stride_tricks.as_strided(on(xp, memory), a.shape, a.strides)
    y = gemv(given, on(xp, x), scale=on(xp, scale), trans=trans)
    assert_product(asnumpy(y), full.T if trans else full, x, "float32")


def test_alpha_and_beta_are_those_of_blas_and_out_may_be_y(xp, asnumpy, shared_cache):
    rng = np.random.default_rng(6)
    a, x, y = draw(rng, (50, 30), "float32"), draw(rng, 30, "float32"), draw(rng, 50, "float32")
    expected = 2 * exact(a) @ exact(x) - 0.5 * exact(y)
    held = on(xp, y.copy())
    assert np.allclose(asnumpy(gemv(on(xp, a), on(xp, x), held, alpha=2, beta=-0.5)), expected, 1e-5, 1e-5)
    assert gemv(on(xp, a), on(xp, x), held, alpha=2, beta=-0.5, out=held) is held
    assert np.allclose(asnumpy(held), expected, 1e-5, 1e-5)


def test_out_may_be_another_view_of_y_and_explain_knows(xp, asnumpy, shared_cache):
    a, x, y = xp.ones((8, 8), xp.float32), xp.ones(8, xp.float32), xp.ones(16, xp.float32)
    assert explain(gemv, a, x, y[::2], beta=3, out=y[::2]).startswith("gemv")
    gemv(a, x, y[::2], beta=3, out=y[::2])
    assert asnumpy(y).tolist() == [11, 1] * 8
    with pytest.raises(ValueError, match="out shares memory with y"):
        gemv(a, x, y[:8], beta=3, out=y[1:9])


@pytest.mark.gpu
def test_a_numpy_y_that_is_out_is_read_before_it_is_written():
    a, x, y = np.ones((8, 8), "f"), np.ones(8, "f"), np.ones(8, "f")
    with kgen.backend("gpu"):
        assert gemv(a, x, y, beta=3, out=y) is y
    assert (y == 11).all()


def test_y_is_not_read_where_beta_is_zero(xp, asnumpy, shared_cache):
    a, x = xp.ones((8, 8), xp.float32), xp.ones(8, xp.float32)
    assert (asnumpy(gemv(a, x, xp.full(8, xp.nan, xp.float32))) == 8).all()


def test_an_empty_sum_leaves_beta_y(xp, asnumpy, shared_cache):
    a, x, y = xp.ones((8, 0), xp.float32), xp.ones(0, xp.float32), xp.ones(8, xp.float32)
    assert (asnumpy(gemv(a, x, y, beta=3)) == 3).all()
    assert (asnumpy(gemv(a, x)) == 0).all()
    assert gemv(xp.ones((0, 8), xp.float32), xp.ones(8, xp.float32)).shape == (0,)
    codes, scale = xp.ones((0, 8), xp.int8), xp.ones((0, 2), xp.float32)
    assert (asnumpy(gemv(codes, a[0], scale=scale, trans=True)) == 0).all()


def test_an_infinity_reaches_its_own_row_only(xp, asnumpy, shared_cache):
    a = np.ones((9, 101), np.float32)
    a[4, 100] = np.inf
    y = asnumpy(gemv(on(xp, a), xp.ones(101, xp.float32)))
    assert np.isinf(y[4])
    assert (np.delete(y, 4) == 101).all()


@pytest.mark.parametrize(
    "name", ["gemv_v1_l32_r1_u1_f32", "gemv_v4_l32_r1_u1_f32", "gemv_v1_l16_r1_u1_f32", "gemv_v4_l512_r1_u2_t512_f32"]
)
def test_the_variants_of_the_ladder_agree(xp, asnumpy, shared_cache, name):
    rng = np.random.default_rng(7)
    a, x = draw(rng, (33, 128), "float32"), draw(rng, 128, "float32")
    assert_product(asnumpy(gemv(on(xp, a), on(xp, x), algorithm=name)), a, x, "float32")


@pytest.mark.parametrize(
    ("lead_a", "lead_x"), [((3, 2), (3, 2)), ((3, 1), (2,)), ((), (4,)), ((2, 1, 3), (2, 3)), ((0,), ())]
)
def test_leading_axes_broadcast_as_in_numpy(xp, asnumpy, shared_cache, lead_a, lead_x):
    rng = np.random.default_rng(8)
    a, x = draw(rng, (*lead_a, 5, 12), "float32"), draw(rng, (*lead_x, 12), "float32")
    expected = np.einsum("...ij,...j->...i", exact(a), exact(x))
    y = asnumpy(matvec(on(xp, a), on(xp, x)))
    assert y.shape == expected.shape
    assert np.allclose(y, expected, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"x": np.ones(5, "f")}, ValueError, r"gemv: x has shape \(5,\); with a \(3, 4\), of 4 columns"),
        ({"a": np.ones(4, "f")}, ValueError, "it takes a matrix and a vector"),
        ({"x": np.ones(4, "e")}, TypeError, "x is float16; with a matrix of float32 it takes float32"),
        ({"a": np.ones((3, 4), "i4")}, TypeError, "a has dtype int32"),
        ({"y": np.ones(4, "f"), "beta": 1}, ValueError, r"y has shape \(4,\); the result has \(3,\)"),
        ({"beta": 1}, ValueError, "there is no y"),
        ({"beta": "1"}, TypeError, "beta is a str; it takes a real number"),
        ({"beta": [0, 1]}, TypeError, "beta is a list"),
        ({"scale": np.ones(3, "f")}, TypeError, "scale is for a quantized matrix"),
        ({"a": np.ones((3, 4), "i1"), "scale": np.ones(2, "f")}, ValueError, r"scale has shape \(2,\)"),
        ({"out": np.ones(4, "f")}, ValueError, "out has shape"),
        ({"algorithm": "gemv_v4_l32_r1_u1_f16"}, SpecError, "other dtypes"),
        ({"algorithm": "gemv_columns_v4_l32_u8_f32"}, SpecError, "takes gemv, not gemv_columns"),
        ({"algorithm": "nonsense"}, SpecError, "nonsense"),
    ],
)
def test_bad_input_is_refused_by_name(xp, change, error, match):
    given = {"a": np.ones((3, 4), "f"), "x": np.ones(4, "f")} | change
    given = {name: on(xp, value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
    with pytest.raises(error, match=match):
        gemv(given.pop("a"), given.pop("x"), given.pop("y", None), **given)


def test_out_may_not_be_x(xp):
    x = xp.ones(4, xp.float32)
    with pytest.raises(ValueError, match="out shares memory with x"):
        gemv(xp.ones((4, 4), xp.float32), x, out=x)


def test_matvec_refuses_what_numpy_refuses(xp):
    with pytest.raises(ValueError, match="do not broadcast"):
        matvec(xp.ones((2, 3, 4), xp.float32), xp.ones((3, 4), xp.float32))
    with pytest.raises(ValueError, match="last axis must be 4 long"):
        matvec(xp.ones((3, 4), xp.float32), xp.ones(3, xp.float32))


# Plans, with no device


def problem(rows, depth, dtype, pitch, along, ptr):
    value = F32 if dtype in types.QUANTIZED else dtype
    a = Operand(ptr, (rows, depth), (pitch, 1), dtype, 0, "cupy", "a", None, None)
    x = Operand(4096, (depth,), (1,), value, 0, "cupy", "x", None, None)
    out = Operand(8192, (rows,), (1,), value, 0, "cupy", "out", None, None)
    strides = (pitch, 1, 0) if along else (1, pitch, 0)
    sizes = (rows, depth) if along else (depth, rows)
    return Product(a, x, out, *sizes, 1, strides, (1, 0), (1, 0), (1, 0), 1.0, 0.0)


@settings(max_examples=200)
@given(
    st.integers(1, 300_000),
    st.integers(1, 300_000),
    st.sampled_from((*FLOATS, *types.QUANTIZED)),
    st.integers(0, 17),
    st.booleans(),
    st.sampled_from((0, 2, 4, 8)),
)
def test_every_shape_has_a_legal_cut_that_fills_no_more_than_it_must(rows, depth, dtype, padding, along, offset):
    offset -= offset % dtype.itemsize
    made = problem(rows, depth, dtype, depth + padding, along, 4096 + offset)
    cut = cut_rows if made.along_rows else cut_columns
    spec, splits = cut(made, 132)
    rows, columns = (GEMV_QUANTIZED, COLUMNS_QUANTIZED) if dtype in types.QUANTIZED else (GEMV, COLUMNS)
    assert spec.kernel is (rows if made.along_rows else columns)
    assert 1 <= splits <= max(1, made.depth)
    if made.along_rows and not spec["ragged"]:
        assert made.depth % spec["VEC"] == 0
        assert made.a_strides[0] % spec["VEC"] == 0 or made.rows == 1
        assert offset % (spec["VEC"] * dtype.itemsize) == 0


def test_half_types_and_float32_load_sixteen_bytes_where_they_may():
    for dtype in (F32, F16, BF16):
        spec, _ = cut_rows(problem(4096, 4096, dtype, 4096, True, 4096), 132)
        assert spec["VEC"] * dtype.itemsize == 16


@settings(max_examples=16, deadline=None, derandomize=True)
@given(data=st.data())
def test_what_lies_beside_rows_that_begin_anywhere_counts_for_nothing(data):
    kind = data.draw(st.sampled_from(("float32", "float16", "bfloat16", "int8", "e4m3")))
    trans = data.draw(st.booleans())
    shape = data.draw(st.tuples(st.integers(1, 90), st.integers(256, 700).map(lambda n: n | 1)))
    first, behind = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    rng = np.random.default_rng(shape)
    a = quantized(rng, shape, kind) if kind in QUANTIZED else draw(rng, shape, kind)
    around = np.full((shape[0], first + shape[1] + behind), 99 if kind == "int8" else np.nan).astype(a.dtype)
    around[:, first : first + shape[1]] = a
    flipped = data.draw(st.booleans())
    view = around[:: -1 if flipped else 1, first : first + shape[1]]
    x_type = data.draw(st.sampled_from(("float32", "float16", "bfloat16"))) if kind in QUANTIZED else kind
    x = draw(rng, (shape[0] if trans else shape[1]) + first, x_type)[first:]
    with watching() as watch:
        assert "ragged" in str(kgen.explain(gemv, view, x, trans=trans))
        result = gemv(view, x, trans=trans)
    assert watch.findings == []
    assert_product(result, view.T if trans else view, x, x_type)


@settings(max_examples=16, deadline=None, derandomize=True)
@given(data=st.data())
def test_threads_take_two_packs_of_rows_that_begin_anywhere(data):
    kind = data.draw(st.sampled_from(("float32", "float16", "bfloat16", "int8")))
    lanes = data.draw(st.sampled_from((8, 16) if kind == "int8" else (8, 16, 32)))
    vec = 16 // np.dtype(kind if kind != "bfloat16" else "float16").itemsize
    depth, columns = data.draw(st.integers(1, 150)), data.draw(st.integers(8 * vec, 5 * lanes * vec))
    first, behind = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    rng = np.random.default_rng(depth)
    a = quantized(rng, (depth, columns), kind) if kind == "int8" else draw(rng, (depth, columns), kind)
    around = np.full((depth, first + columns + behind), 99 if kind == "int8" else np.nan).astype(a.dtype)
    around[:, first : first + columns] = a
    view = around[:: data.draw(st.sampled_from((1, -1))), first : first + columns]
    x_type = "float32" if kind == "int8" else kind
    x = draw(rng, depth, x_type)
    name = "gemv_columns_quantized" if kind == "int8" else "gemv_columns"
    threads = "" if kind == "int8" else "_t512"
    algorithm = f"{name}_v{vec}_l{lanes}_p2_u2{threads}_ragged_{dtype_of(kind)}"
    with watching() as watch:
        result = gemv(view, x, trans=True, algorithm=algorithm)
    assert watch.findings == []
    assert_product(result, view.T, x, x_type)
