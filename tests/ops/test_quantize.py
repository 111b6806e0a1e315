"""Casts and 8-bit codes against ml_dtypes, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import kgen
from kgen.ops.moving.quantize import cast, dequantize, quantize

E4M3, E5M2, BF16 = (np.dtype(getattr(ml_dtypes, n)) for n in ("float8_e4m3fn", "float8_e5m2", "bfloat16"))
CODES = {"e4m3": (E4M3, 448.0), "e5m2": (E5M2, 57344.0), "int8": (np.dtype("i1"), 127.0)}


def numbers(shape, kind="f", seed=0):
    x = (np.random.default_rng(seed).standard_normal(shape) * 3).astype(kind)
    x.reshape(-1)[:4] = 0
    return x


def scale_of(most, largest):
    return np.where(most > 0, most / np.float32(largest), 1).astype("f")


def codes(x, scale, name):
    kind, largest = CODES[name]
    y = np.clip(x.astype("f") / scale, -largest, largest)
    return (np.rint(y) if name == "int8" else y).astype(kind)


def same_bits(a, b):
    np.testing.assert_array_equal(np.asarray(a).view("u1"), np.asarray(b).view("u1"))


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("kind", ["f", BF16], ids=["f32", "bf16"])
def test_one_scale_for_all(xp, asnumpy, name, kind):
    x = numbers((7, 333), kind)
    q, scale = quantize(xp.asarray(x), name)
    expected = scale_of(abs(x.astype("f")).max(), CODES[name][1])
    assert scale.shape == () and asnumpy(scale) == expected
    same_bits(asnumpy(q), codes(x, expected, name))


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("columns", [1, 7, 256, 1001, 4096])
def test_a_scale_for_each_row(xp, asnumpy, name, columns):
    x = numbers((2, 3, columns))
    x[1, 1] = 0
    q, scale = quantize(xp.asarray(x), name, axis=-1)
    expected = scale_of(abs(x).max(-1, keepdims=True), CODES[name][1])
    np.testing.assert_array_equal(asnumpy(scale), expected)
    same_bits(asnumpy(q), codes(x, expected, name))


@pytest.mark.parametrize(("columns", "block"), [(512, 128), (300, 128), (100, 7), (64, 1000), (33, 1)])
def test_a_scale_for_each_block_of_a_row(xp, asnumpy, columns, block):
    x = numbers((5, columns), "f2")
    q, scale = quantize(xp.asarray(x), axis=-1, block=block)
    starts = range(0, columns, block)
    most = np.stack([abs(x[:, s : s + block]).max(-1) for s in starts], -1).astype("f")
    expected = scale_of(most, 448)
    np.testing.assert_array_equal(asnumpy(scale), expected)
    same_bits(asnumpy(q), codes(x, np.repeat(expected, block, -1)[:, :columns], "e4m3"))


@pytest.mark.parametrize("kind", ["f", "f2", BF16], ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(70, 24), (2, 5, 3), (3, 300, 1), (130, 257), (1, 9, 2, 8)])
def test_a_scale_for_each_line_along_any_axis(xp, asnumpy, shape, kind):
    x = numbers(shape, kind)
    for axis in range(-len(shape), len(shape)):
        q, scale = quantize(xp.asarray(x), axis=axis)
        expected = scale_of(abs(x.astype("f")).max(axis, keepdims=True), 448)
        np.testing.assert_array_equal(asnumpy(scale), expected)
        same_bits(asnumpy(q), codes(x, expected, "e4m3"))


@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e-18, 1e17, 1e30])
def test_scales_of_any_size_divide_as_a_division_does(xp, asnumpy, size):
    x = numbers((40, 256)) * np.float32(size)
    for axis in (-1, 0):
        q, _ = quantize(xp.asarray(x), axis=axis)
        same_bits(asnumpy(q), codes(x, scale_of(abs(x).max(axis, keepdims=True), 448), "e4m3"))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("options", [{}, {"axis": -1}, {"axis": 0}, {"axis": -1, "block": 16}], ids=str)
def test_a_zero_keeps_its_sign(xp, asnumpy, name, options):
    x = numbers((4, 64))
    x[:, 1::3] = -0.0
    q, _ = quantize(xp.asarray(x), name, **options)
    signs = asnumpy(q).view("u1") >> 7
    np.testing.assert_array_equal(signs, np.signbit(x))


@pytest.mark.parametrize("columns", [2049, 4096, 8192, 16392, 40000])
def test_wide_rows_in_registers_and_beyond(xp, asnumpy, columns):
    x = numbers((3, columns), "f2")
    q, scale = quantize(xp.asarray(x), axis=-1)
    expected = scale_of(abs(x.astype("f")).max(-1, keepdims=True), 448)
    np.testing.assert_array_equal(asnumpy(scale), expected)
    same_bits(asnumpy(q), codes(x, expected, "e4m3"))


@pytest.mark.filterwarnings("ignore:kgen finds no GPU")
def test_numpy_arrays_of_8_bit_floats_come_and_go_on_whatever_computes_them():
    x = numbers((6, 40))
    q, scale = quantize(x, "e4m3", axis=-1)
    assert q.dtype == E4M3
    same_bits(q, codes(x, scale, "e4m3"))
    np.testing.assert_array_equal(cast(q, "float32"), q.astype("f"))
    np.testing.assert_array_equal(cast(q[:, ::2].T, "float32"), q[:, ::2].T.astype("f"))
    out = np.empty(x.shape, E5M2)
    assert cast(x, "e5m2", out=out) is out
    same_bits(out, x.astype(E5M2))
    product = kgen.gemv(q, np.ones(40, "f"), scale=scale)
    np.testing.assert_allclose(product, (q.astype("f") * scale).sum(1), rtol=1e-5)


@pytest.mark.parametrize("axis", [None, -1, 0, 1])
def test_any_strides(xp, asnumpy, axis):
    memory = numbers((60, 50, 3))
    for cut in (np.s_[::2, ::-1, 1], np.s_[:, :, ::2], np.s_[1:, 3:40], np.s_[:]):
        x = memory[cut].T
        q, scale = quantize(xp.asarray(memory)[cut].T, axis=axis)
        expected = scale_of(abs(x).max(axis, keepdims=axis is not None), 448)
        np.testing.assert_array_equal(asnumpy(scale), expected)
        same_bits(asnumpy(q), codes(x, expected, "e4m3"))


def test_given_scales_saturate_and_broadcast(xp, asnumpy):
    x = numbers((4, 100)) * 1000
    scale = np.array([[0.5], [1], [2], [100]], "f")
    q, returned = quantize(xp.asarray(x), "e4m3", xp.asarray(scale))
    assert returned.shape == (4, 1)
    same_bits(asnumpy(q), codes(x, scale, "e4m3"))
    q, _ = quantize(xp.asarray(x), "int8", 0.25)
    same_bits(asnumpy(q), codes(x, np.float32(0.25), "int8"))


def test_an_infinity_makes_its_scale_infinite_and_a_nan_does_not_count(xp, asnumpy):
    x = np.array([[1, 2, np.nan, 4], [1, np.inf, 3, 4]], "f")
    q, scale = quantize(xp.asarray(x), axis=-1)
    assert asnumpy(scale).tolist() == [[np.float32(4) / np.float32(448)], [np.inf]]
    assert np.isnan(asnumpy(q).view(E4M3).astype("f")).tolist() == [
        [False, False, True, False],
        [False, True, False, False],
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dequantizing_multiplies_in_float_and_rounds_once(xp, asnumpy, dtype):
    x = numbers((6, 80))
    for name in CODES:
        q, scale = quantize(xp.asarray(x), name, axis=-1)
        got = asnumpy(dequantize(q, scale, code=None if name == "int8" else name, dtype=dtype))
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        assert got.dtype == kind
        codes_ = asnumpy(q).view(CODES[name][0]).astype("f")
        np.testing.assert_array_equal(got, (codes_ * asnumpy(scale)).astype(kind))


def on(xp, x):
    """An array of the library, of bytes where it has no 8-bit floats, and what they are."""
    if xp is not np and x.dtype in (E4M3, E5M2):
        return xp.asarray(x.view("u1")), {E4M3: "e4m3", E5M2: "e5m2"}[x.dtype]
    return xp.asarray(x), None


@pytest.mark.parametrize("source", ["f4", "f2", "f8", "i4", "u1", "?", BF16, E4M3, E5M2], ids=str)
def test_casts_are_those_of_ml_dtypes(xp, asnumpy, source):
    x = (np.arange(-40, 90) % 100).astype("f").astype(source)
    for target in ("f4", "f2", "f8", "i4", "u1", "?", BF16, E4M3, E5M2):
        target = np.dtype(target)
        array, code = on(xp, x)
        got = asnumpy(cast(array, target, code=code))
        got = got.view(target) if target in (E4M3, E5M2) else got
        assert got.dtype == target
        np.testing.assert_array_equal(got.astype("f"), x.astype("f").astype(target).astype("f"))


def test_floats_beyond_the_largest_code_saturate(xp, asnumpy):
    x = np.array([1e9, -1e9, np.nan, 449, 0.001], "f")
    codes = asnumpy(cast(xp.asarray(x), "e4m3")).view(E4M3)  # CuPy holds their bytes
    np.testing.assert_array_equal(codes.astype("f"), [448, -448, np.nan, 448, 0.001953125])


def test_a_library_without_8_bit_floats_gets_their_bytes(monkeypatch):
    from kgen.dtypes import FP8, U8
    from kgen.ops.elementwise import operator
    from kgen.ops.moving import quantize_scales as module

    def bytes_for_all(dtype, like):
        return U8 if dtype in FP8 else dtype

    x = numbers((4, 64))
    with kgen.backend("cpu"):
        plain = {axis: quantize(x, "e4m3", axis=axis) for axis in (None, -1)}
        monkeypatch.setattr(operator, "held_as", bytes_for_all)
        monkeypatch.setattr(module, "held_as", bytes_for_all)
        for axis, (codes_, scale_) in plain.items():
            q, scale = quantize(x + 0, "e4m3", axis=axis)
            assert q.dtype == np.uint8
            same_bits(q, codes_)
            np.testing.assert_array_equal(dequantize(q, scale, code="e4m3"), dequantize(codes_, scale_))
        np.testing.assert_array_equal(cast(cast(x, "e5m2"), "f4", code="e5m2"), x.astype(E5M2).astype("f"))


def test_empty_arrays(xp):
    q, scale = quantize(xp.zeros((0, 5), "f"), axis=-1)
    assert q.shape == (0, 5) and scale.shape == (0, 1)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize(
    ("shape", "axis", "scales"),
    [((0,), None, ()), ((3, 0), None, ()), ((0,), 0, (1,)), ((3, 0), -1, (3, 1)), ((0, 5), 0, (1, 5))],
)
def test_a_scale_of_no_elements_is_one(xp, asnumpy, name, shape, axis, scales):
    q, scale = quantize(xp.zeros(shape, "f"), name, axis=axis)
    assert q.shape == shape
    np.testing.assert_array_equal(asnumpy(scale), np.ones(scales, "f"))


@pytest.mark.parametrize(
    ("named", "error", "match"),
    [
        ({"dtype": "float16"}, TypeError, "dtype is float16; it takes float8_e4m3fn"),
        ({"axis": 2}, np.exceptions.AxisError, "axis 2 is out of bounds"),
        ({"axis": 0, "block": 2}, ValueError, "blocks are of the last axis"),
        ({"block": 4}, ValueError, "with axis=-1"),
        ({"axis": -1, "block": 0}, ValueError, "block is 0"),
        ({"axis": -1, "block": "a"}, TypeError, "integer"),
        ({"axis": -1, "block": 4, "scale": 1.0}, ValueError, "there is no block"),
    ],
)
def test_what_quantize_does_not_take_is_refused(named, error, match):
    with kgen.backend("cpu"), pytest.raises(error, match=match):
        quantize(np.ones((4, 4), "f"), **named)


def test_what_is_asked_about_is_what_a_call_does():
    x, codes_ = np.ones((4, 4), "f"), np.ones((4, 4), "i1")
    with kgen.backend("cpu"):
        assert kgen.explain(cast, x, "e4m3").startswith("cast_")
        assert kgen.explain(cast, codes_.view("u1"), "f4", code="e4m3").startswith("cast_")
        assert kgen.explain(dequantize, codes_, 0.5, dtype="float16").startswith("dequantize_")
        assert kgen.workspace(cast, x, "e4m3") == kgen.workspace(dequantize, codes_, 0.5) == 0
        for options in ({"block": 4}, {"axis": -1, "block": 0}, {"axis": -1, "block": 4, "scale": 1.0}):
            with pytest.raises(ValueError, match="block"):
                kgen.explain(quantize, x, **options)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_integers_are_not_quantized(axis):
    with kgen.backend("cpu"), pytest.raises(TypeError, match=r"^quantize: x has dtype int32"):
        quantize(np.ones((4, 4), "i4"), axis=axis)


@pytest.mark.parametrize("scale", [2, 300, True, np.int8(2), np.uint64(7), 2**70])
def test_a_whole_number_is_a_scale_as_any_other(scale):
    codes_ = np.array([100, -100, 3, 0], "i1")
    with kgen.backend("cpu"):
        same_bits(dequantize(codes_, scale), dequantize(codes_, float(scale)))
        for q in (quantize(codes_.astype("f"), "int8", scale)[0], quantize(codes_.astype("f"), "e4m3", scale)[0]):
            same_bits(q, quantize(codes_.astype("f"), q.dtype, float(scale))[0])


def test_scales_of_integers_are_refused():
    with kgen.backend("cpu"), pytest.raises(TypeError, match="dequantize: scale has dtype int8; it takes float32"):
        dequantize(np.ones(3, "i1"), np.ones(3, "i1"))
