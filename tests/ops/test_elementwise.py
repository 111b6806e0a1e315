"""Elementwise operators against NumPy: any strides, shapes, types, numbers among the operands, and bad input."""

from __future__ import annotations

import inspect
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.checking import watching
from kgen.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, dtype_of
from kgen.ops.elementwise import activations
from kgen.ops.elementwise.activations import NAMED
from kgen.ops.elementwise.broadcast import collapse
from kgen.ops.elementwise.elementwise import elementwise
from kgen.ops.elementwise.expression import ExpressionError, Function
from kgen.ops.elementwise.operator import Elementwise
from kgen.ops.elementwise.promotion import ANY, castable, promote
from kgen.registry import parse

bfloat16 = np.dtype(ml_dtypes.bfloat16)
add, relu, maximum = NAMED["add"], NAMED["relu"], NAMED["maximum"]


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    with kgen.backend("cpu"):
        yield


# Layouts


def strided(draw, shape, dtype=np.float32, seed=0):
    """An array of this shape somewhere in a larger one: sliced, stepped, turned around, its axes exchanged."""
    order = draw(st.permutations(range(len(shape))))
    outer = [shape[axis] for axis in order]
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1))) for _ in outer]
    starts = [draw(st.integers(0, 3)) for _ in outer]
    full = tuple(start + size * abs(step) + 1 for start, size, step in zip(starts, outer, steps))
    memory = np.random.default_rng(seed).standard_normal(full).astype(dtype)
    places = []
    for start, size, step in zip(starts, outer, steps):
        cut = slice(start, start + size * abs(step), abs(step))
        places.append(cut)
    turned = tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)
    view = memory[(*places, ...)][(*turned, ...)]
    return view.transpose(np.argsort(order))


def broadcastable(draw, shape):
    """A shape that broadcasts to this one."""
    kept = [1 if draw(st.sampled_from((False, False, True))) else size for size in shape]
    return tuple(kept[draw(st.integers(0, len(kept))) :])


@st.composite
def problems(draw):
    shape = (*draw(st.lists(st.integers(1, 9), min_size=0, max_size=3)), draw(st.integers(1, 70)))
    shapes = draw(st.permutations([shape, broadcastable(draw, shape)]))
    arrays = [strided(draw, s, seed=i) for i, s in enumerate(shapes)]
    out = strided(draw, shape, seed=2) if draw(st.booleans()) else None
    return arrays, out, draw(st.sampled_from(("add_v4_f32", "add_v4_i2_f32", None)))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_any_layout_gives_what_numpy_gives(problem):
    (x, y), out, algorithm = problem
    expected = x + y
    if out is not None:
        out[...] = np.nan
    got = add(x, y, out=out, algorithm=algorithm)
    assert out is None or got is out
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 64, 1001, 4097, 8192 + 5])
def test_every_size_and_alignment_of_each_operand_writes_all_and_nothing_else(size, dtype):
    kind = dtype_of(dtype)
    vec = 16 // kind.itemsize
    random = np.random.default_rng(size)
    apart = [(at, vec - at, 1) for at in range(vec)]
    for starts in [(0, 0, 0), (1, 1, 1), (1, 0, 0), (0, 0, 3), (2, 5, 7), (vec - 1, vec, 1), *apart]:
        memory = [random.standard_normal(size + 64).astype(kind.numpy) for _ in range(3)]
        bases = [(-m.__array_interface__["data"][0] // kind.itemsize) % vec for m in memory]
        x, y, out = (m[base + at :][:size] for m, base, at in zip(memory, bases, starts))
        before = memory[2].copy()
        expected = (x.astype("f") + y.astype("f")).astype(kind.numpy)
        for items in ("", "_i2"):
            out[...] = np.nan
            add(x, y, out=out, algorithm=f"add_v{vec}{items}_{kind}")
            np.testing.assert_array_equal(out, expected)
        out[...] = before[bases[2] + starts[2] :][:size]
        np.testing.assert_array_equal(memory[2].view("u1"), before.view("u1"))


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("int8", "float16"), ("float16", "float64")])
def test_types_of_two_sizes_that_start_anywhere(types):
    random = np.random.default_rng(0)
    one, other = (random.integers(-99, 99, 8016).astype(dtype_of(t).numpy) for t in types)
    for start in range(9):
        x, y = one[start:][:8000], other[(5 * start) % 9 :][:8000]
        np.testing.assert_array_equal(add(x, y), x.astype(other.dtype) + y)


@pytest.mark.parametrize("size", [1000, 2000, 4000, 8000])  # on the executor: packs of 2, 4, 8 and 16 bytes
def test_bytes_that_start_anywhere(size):
    differs = elementwise("x != y")
    x, y, out = np.random.default_rng(size).integers(0, 2, (3, size + 16)).astype(bool)
    for start in range(9):
        a, b, c = x[start:][:size], y[3:][:size], out[start // 2 :][:size]
        before = out.copy()
        differs(a, b, out=c)
        np.testing.assert_array_equal(c, a != b)
        c[...] = before[start // 2 :][:size]
        np.testing.assert_array_equal(out, before)


def test_pieces_of_an_array_of_many_axes_start_anywhere():
    memory = np.random.default_rng(0).standard_normal((6, 10, 14, 18, 22)).astype("f")
    x = memory[::2, ::2, ::2, ::2, ::2].transpose(4, 2, 0, 3, 1)
    y = np.random.default_rng(1).standard_normal(x.shape).astype("f")  # pieces of 7 x 3 x 9 x 5 elements
    with watching() as watch:
        np.testing.assert_array_equal(add(x, y), x + y)
    assert watch.findings == []


@given(st.data())
@settings(deadline=None)
def test_collapsed_axes_walk_the_same_elements(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=5)))
    arrays = [strided(data.draw, shape, np.int8) for _ in range(2)]
    found = collapse(shape, tuple(x.strides for x in arrays))
    assert found.size == np.prod(shape, dtype=int)
    for strides, x in zip(found.strides, arrays):
        walked = np.zeros((), int)
        for size, stride in zip(found.sizes, strides):
            walked = np.add.outer(walked, np.arange(size) * stride)
        offsets = np.zeros((), int)
        for size, stride in zip(x.shape, x.strides):
            offsets = np.add.outer(offsets, np.arange(size) * stride)
        assert x.size == 1 or sorted(walked.ravel()) == sorted(offsets.ravel())


def test_more_axes_than_a_kernel_takes_are_taken_one_by_one():
    x = np.arange(2**6 * 3, dtype="f").reshape(2, 2, 2, 2, 2, 2, 3)[..., ::2, :]
    y = x.transpose(5, 4, 3, 2, 1, 0, 6)[:2, :2, :2, :2, :2, :1]
    x = x[:2]
    np.testing.assert_array_equal(add(x, y[:1]), x + y[:1])


def test_the_result_may_be_an_operand():
    x, y = np.random.default_rng(3).standard_normal((2, 1000)).astype("f")
    expected = x + y
    assert add(x, y, out=x) is x
    np.testing.assert_array_equal(x, expected)


def test_a_result_that_overlaps_an_operand_otherwise_is_refused():
    memory = np.zeros(100, "f")
    with pytest.raises(ValueError, match="out shares memory with x1"):
        add(memory[:-1], memory[1:], out=memory[1:])


def test_empty_and_zero_dimensional_arrays():
    assert add(np.empty((0, 3), "f"), np.ones(3, "f")).shape == (0, 3)
    got = add(np.array(2.0, "f"), np.array(3.0, "f"))
    assert got.shape == () and got == 5


def test_the_same_call_gives_the_same_bits():
    x = np.random.default_rng(4).standard_normal(5000).astype("f")
    gelu = NAMED["gelu"]
    assert gelu(x).tobytes() == gelu(x).tobytes()


# Types


@pytest.mark.parametrize("a", ANY, ids=str)
def test_types_are_promoted_as_numpy_does(a):
    for b in ANY:
        if BF16 in (a, b):
            continue
        assert promote(a, b).numpy == np.promote_types(a.numpy, b.numpy)
        assert castable(a, b) == np.can_cast(a.numpy, b.numpy, "same_kind")


EXPRESSIONS = (
    "x + y", "x * y - x", "x / y", "x // y", "x % y", "-x + abs(y)", "x < y", "x <= y != x", "maximum(x, y)",
    "where(x > 1, x, y)", "x + 2", "x * 2.5", "x ** 2", "exp(x)", "x if y else 3", "x & y", "x << 1", "~x",
    "minimum(x, 1)", "2 / x", "x == y", "x ** 0.5", "x ** 3", "fmax(x, y)", "fmin(x, y)", "fmod(x, y)", "rint(x)",
    "sign(x)",
)  # fmt: skip


def numpy_says(text, x, y):
    names = {"abs": np.abs} | {
        name: getattr(np, name)
        for name in ("maximum", "minimum", "where", "exp", "fmax", "fmin", "fmod", "rint", "sign")
    }
    if text == "x if y else 3":
        return np.where(y != 0, x, np.full((), 3).astype(x.dtype))
    if text == "x <= y != x":
        return (x <= y) & (y != x)
    return eval(text, names, {"x": x, "y": y})


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_have_the_types_and_errors_that_numpy_gives_them(text):
    from kgen.ops.elementwise.signature import Signature, program

    for a in ANY:
        for b in ANY:
            if BF16 in (a, b) or (a is BOOL and text == "x if y else 3"):
                continue
            x, y = np.ones(1, a.numpy), np.ones(1, b.numpy)
            try:
                with np.errstate(all="ignore"):
                    expected = numpy_says(text, x, y).dtype
            except TypeError:
                expected = None
            prepared = elementwise(text)
            types = {"x": a, "y": b}
            names = prepared.function.parameters
            signature = Signature(tuple(types[n] for n in names), (True,) * len(names))
            if expected is None:
                with pytest.raises(TypeError, match="elementwise"):
                    program(prepared.function, signature)
            else:
                assert program(prepared.function, signature).result.numpy == expected, (a, b)


@pytest.mark.parametrize("types", ["i1 i1", "u1 i2", "i4 i4", "i8 u4", "f4 f4", "f2 f2", "f8 i4", "? ?"])
def test_arithmetic_is_numpys_to_the_last_bit(types):
    random = np.random.default_rng(11)
    arrays = []
    for kind in types.split():
        dtype = np.dtype(kind)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            values = random.integers(info.min, info.max, 300, dtype, endpoint=True)
            values[:6] = [info.min, info.max, 0, 1, 2, 3]
            values[6:40] %= 5
        else:
            values = (random.standard_normal(300) * 4).astype(dtype)
        arrays.append(random.permutation(values))
    x, y = arrays
    for text in (
        "x + y", "x - y", "x * y", "x // y", "x % y", "x < y", "maximum(x, y)", "x << y", "x >> y", "abs(x)",
        "fmod(x, y)", "fmax(x, y)",
    ):  # fmt: skip
        try:
            with np.errstate(all="ignore"):
                names = {"abs": np.abs, "maximum": np.maximum, "fmod": np.fmod, "fmax": np.fmax}
                expected = eval(text, names, {"x": x, "y": y})
        except TypeError:
            continue
        got = elementwise(text)(*((x,) if text == "abs(x)" else (x, y)))
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected, err_msg=text)


@pytest.mark.parametrize("kind", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_arithmetic_with_numbers_in_the_text_is_numpys_to_the_last_bit(kind):
    dtype = np.dtype(kind)
    low, high = (0, 1) if kind == "?" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.array([low, high, high - 1, high // 2 + 1, 0, 1], object).astype(dtype)
    for text in ("x + 1", "3 - x", "x * 3", "x << 1", "x >> 2", "maximum(x, 2)", "minimum(3, x)", "x // 3", "x % 3"):
        with np.errstate(all="ignore"):
            expected = eval(text, {"maximum": np.maximum, "minimum": np.minimum, "x": x})
        got = elementwise(text, x=x)
        assert got.dtype == expected.dtype, text
        np.testing.assert_array_equal(got, expected, err_msg=text)
    if kind != "?":
        np.testing.assert_array_equal(NAMED["negative"](x), np.negative(x))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_negated_twice_a_number_is_itself(kind):
    x = np.array([1.5, -0.0, 0.0, -2, np.inf], kind)
    for text in ("--x", "-(-x)", "---(-x)", "-(-(x if x > 0 else x))", "0 - -x"):
        got = elementwise(text, x=x)
        np.testing.assert_array_equal(got, x, err_msg=text)
    assert np.signbit(elementwise("--x", x=x)).tolist() == np.signbit(x).tolist()


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_division_that_rounds_down_is_numpys_also_by_infinity(kind):
    some = [1, -1, 0.0, -0.0, 2.5, -3.75, 7, np.inf, -np.inf, np.nan]
    x, y = (a.ravel() for a in np.meshgrid(np.array(some, kind), np.array(some, kind)))
    for text in ("x // y", "x % y"):
        with np.errstate(all="ignore"):
            expected = eval(text)
        got = elementwise(text, x=x, y=y)
        np.testing.assert_array_equal(got, expected, err_msg=text)
        assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all(), text


@pytest.mark.parametrize(
    ("text", "x", "y"),
    [
        ("(~y % (y >> x)) * 0.5 // 1", "i1", "u4"),
        ("(x < y) // (x > 0) / 2", "f4", "i2"),
        ("y % x > 2", "i2", "u4"),
        ("(x // y) / (y // (x > 1))", "?", "i8"),
        ("copysign(x ** 3 // (x <= y), y)", "?", "f8"),
        ("fmod(where(x > 1, x, 1), y)", "i1", "i1"),
        ("where(x > 1, 3, x) % y", "u2", "i1"),
        ("~3 & x | y", "i4", "i4"),
        ("where(x, 2, 5) + (x < y)", "?", "?"),
        ("(2 | 5) + (x < y)", "u1", "u1"),
        ("(1 << 3) - x % (6 ^ 3) + (y > 2)", "i4", "i4"),
        ("where(x > y, 0.5, 3) ** 2", "u2", "u2"),
        ("copysign(x, y)", "u2", "i2"),
        ("hypot(x, y)", "u1", "i1"),
        ("atan2(x, 3)", "?", "i1"),
    ],
)
def test_steps_within_an_expression_have_types_of_their_own(text, x, y):
    x, y = np.array([0, 1, 5, 100]).astype(x), np.array([1, 3, 2, 7]).astype(y)
    names = {name: getattr(np, name) for name in ("copysign", "fmod", "hypot", "where")} | {"atan2": np.arctan2}
    with np.errstate(all="ignore"):
        expected = eval(text, names, {"x": x, "y": y})
    prepared = elementwise(text)
    got = prepared(**{name: a for name, a in (("x", x), ("y", y)) if name in prepared.function.parameters})
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("text", ["x + y ** 2", "x * y ** 3", "x & ~y", "x - ~~y", "x + y ** 1"])
def test_a_number_that_is_an_operand_is_a_whole_one_in_powers_and_bits_too(text):
    for x in (np.array([1, 100], "i4"), np.array([1, 100], "i8")):
        expected = eval(text, {"x": x, "y": 3})
        got = elementwise(text, x=x, y=3)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("text", ["x / -1", "x / 1000", "hypot(x, 1000)", "copysign(x, -300)", "x / least"])
def test_an_integer_need_not_fit_where_integers_become_floats(text):
    x = np.array([1, 200], "u1")
    numbers = {"least": -1} if "least" in text else {}
    expected = eval(text, {"hypot": np.hypot, "copysign": np.copysign}, {"x": x, **numbers})
    got = elementwise(text, x=x, **numbers)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_of_integers_are_exact_where_no_type_holds_both(sign):
    x = np.array([[-(1 << 63)], [-1], [0], [1], [1 << 53], [(1 << 53) + 1], [(1 << 63) - 1]])
    y = np.array([0, 1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1], "u8")
    u = np.array([0, 1, 127, 128, 255], "u1")
    for text in (
        f"x {sign} y",
        f"y {sign} x",
        f"(x >> 1) {sign} y",
        f"y {sign} (x >> 1)",
        f"(x {sign} y) ^ (y {sign} x)",
    ):
        np.testing.assert_array_equal(elementwise(text, x=x, y=y), eval(text), err_msg=text)
    for z, text in [(u, f"u {sign} 300"), (u, f"-1 {sign} u"), (u, f"u {sign} 255"), (u.view("i1"), f"u {sign} 200")]:
        np.testing.assert_array_equal(elementwise(text, u=z), eval(text, {"u": z}), err_msg=text)


def test_bfloat16_meets_others_as_in_jax():
    assert promote(BF16, F16) is F32
    assert promote(BF16, F32) is F32 and promote(F64, BF16) is F64
    assert all(promote(BF16, t) is BF16 for t in ANY if t not in (F16, F32, F64))
    x = np.ones(3, bfloat16)
    assert add(x, 2.5).dtype == bfloat16 and add(x, np.ones(3, "i4")).dtype == bfloat16


def test_numbers_have_no_type_of_their_own_but_numpys_have():
    x = np.arange(5, dtype="i4")
    for number in (2, 2.0, True, np.float32(2), np.int8(2), np.int64(2)):
        expected = x + number
        got = add(x, number)
        assert got.dtype == expected.dtype, number
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(add(number, x), expected)
    assert np.signbit(maximum(np.full(1, -0.0, "f"), -0.0))[0]
    assert np.isnan(add(np.ones(2, "f"), np.nan)).all()


@pytest.mark.parametrize("text", ["x + n", "x * n", "maximum(x, n)", "n if x else x", "m = n * 3; x + m", "x * n + y"])
def test_a_python_float_keeps_all_of_its_digits_beside_bools(text):
    x, y = np.array([True, False]), np.array([1, 2], "f")
    n = 0.1
    names = {"maximum": np.maximum, "x": x, "n": n, "y": y}
    source = text.replace("n if x else x", "np.where(x, n, x)").replace("m = n * 3; x + m", "x + n * 3")
    expected = eval(source, names | {"np": np})
    got = elementwise(text, x=x, n=n, **({"y": y} if "y" in text else {}))
    assert got.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(got, expected)


def test_an_integer_that_does_not_fit_is_numpys_error():
    x = np.ones(3, "i1")
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        add(x, 300)
    with pytest.raises(OverflowError, match="300 out of bounds"):
        elementwise("x + 300", x=x)
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        elementwise("maximum(x, 300)", x=x)
    with pytest.raises(OverflowError, match="-5 out of bounds for uint8"):
        elementwise("clip(x, -5, 9)", x=x.view("u1"))


def test_an_integer_that_does_not_fit_is_an_error_where_it_meets_integers_and_nowhere_else():
    x, y = np.arange(3, dtype="u1"), np.ones(3, "f")
    for text in ("x + n + y", "m = n; x + m + y", "x + (n + 1) + y", "clip(x, 0, n) + y", "(n if x else x) + y"):
        with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
            elementwise(text, x=x, y=y, n=300)
    np.testing.assert_array_equal(elementwise("x + y + n", x=x, y=y, n=300), x + y + np.float32(300))


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "u2", "i4", "i8", "u8"])
def test_comparisons_with_a_number_that_is_an_operand_are_those_of_its_value(sign, dtype):
    x = np.array([0, 1, 200, (1 << 63) - 1]).astype(dtype)
    for n in (-1, 1, 300, (1 << 63) - 1):
        for text in (f"x {sign} n", f"n {sign} x"):
            np.testing.assert_array_equal(elementwise(text, x=x, n=n), eval(text), err_msg=f"{text}, {n}")
    if dtype == "u8":
        x, n = x.view("u8") + np.uint64(1), 1 << 63
        np.testing.assert_array_equal(elementwise(f"x {sign} n", x=x, n=n), eval(f"x {sign} n"))


def test_a_choice_of_plain_numbers_has_the_type_that_numpy_gives_them():
    x = np.array([-1, 0, 2], "f")
    for text in ("1 if x > 0 else 0", "where(x > 0, 0.1, 1)", "n if x > 0 else 3"):
        names = {"where": np.where, "x": x, "n": 7}
        expected = (
            np.where(x > 0, 7, 3)
            if "n" in text
            else eval(text.replace("1 if x > 0 else 0", "where(x > 0, 1, 0)"), names)
        )
        got = elementwise(text, **{name: names[name] for name in elementwise(text).function.parameters})
        assert got.dtype == expected.dtype, text
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("text", ["x * sqrt(2)", "x + maximum(n, 1)", "x * silu(n) - abs(-3)", "fmin(n, 2.5) + x"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i4", "?"])
def test_a_function_of_plain_numbers_gives_a_plain_number(text, kind):
    x = np.array([1, 0, 1], kind)
    names = {"n": 1.5} if "n" in elementwise(text).function.parameters else {}
    assert elementwise(text, x=x, **names).dtype == (x + 0.5).dtype


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 2**70, 10**300], ids=float)
def test_floats_meet_integers_of_any_size(number):
    for dtype in ("f8", "f4", "f2"):
        x = np.array([0, 1, -2], dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(add(x, number), np.add(x, number))
            np.testing.assert_array_equal(maximum(number, x), np.maximum(number, x))
    np.testing.assert_array_equal(add(np.zeros(3, "u8"), 2**64 - 1), np.full(3, 2**64 - 1, "u8"))


def test_an_integer_that_no_float_comes_near_is_an_error():
    with pytest.raises(OverflowError, match="add: Python integer of 1329 bits is too large for a float"):
        add(np.ones(3, "f4"), 10**400)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "f2", "?", int, float, ">i2"])
def test_a_dtype_is_read_as_numpy_reads_it(dtype):
    assert kgen.cast(np.array([0, 1], "u1"), dtype).dtype == np.dtype(dtype).newbyteorder("=")


def test_dtype_is_what_the_operands_become_first():
    x = np.array([100, 100], "i1")
    assert add(x, x, dtype="i4").tolist() == [200, 200]
    assert add(x, x, dtype=np.float16).dtype == np.float16
    assert add(x.astype("f"), x, dtype="float64").dtype == np.float64
    with pytest.raises(TypeError, match="x1 is float32, which does not become dtype=int32"):
        add(np.ones(2, "f"), np.ones(2, "i4"), dtype="i4")
    with pytest.raises(TypeError, match="x2 is float32, which does not become dtype=int32"):
        maximum(x, np.float32(1.5), dtype="i4")
    with pytest.raises(TypeError, match="no type of elements"):
        add(x, x, dtype="nonsense")


@pytest.mark.parametrize("text", ["x / y", "exp(x)", "sqrt(abs(y))", "silu(x)", "x + 0.5", "maximum(x, 2.5)"])
@pytest.mark.parametrize("dtype", ["i4", "u1", "?"])
def test_integers_are_not_made_of_a_result_in_floats(text, dtype):
    x = {"x": np.array([3, 0], "u1"), "y": np.array([1, 0], "u1")}
    prepared = elementwise(text)
    used = [x[name].astype(dtype) for name in prepared.function.parameters]
    with pytest.raises(TypeError, match=r"elementwise: the result is float\d+, which does not become dtype="):
        prepared(*used, dtype=dtype)
    assert prepared(*used, dtype="f4").dtype == np.float32


def test_halves_are_computed_in_float_and_rounded_once():
    x = np.array([2048, 60000], "f2")
    got = elementwise("x + 1 - x + (x * 2 - x)", x=x)
    np.testing.assert_array_equal(got, (x.astype("f") + 1).astype("f2"))


# Expressions


@pytest.mark.parametrize("text", ["softplus(x) + softplus(y)", "gelu(x) * gelu(y)", "hardswish(x) - hardswish(y)"])
def test_a_function_of_types_that_are_computed_in_one_is_written_once(text):
    x, y = np.array([1, -2], "f2"), np.array([0.5, 3], "f4")
    got, same = elementwise(text, x=x, y=y), elementwise(text, x=x.astype("f4"), y=y)
    np.testing.assert_array_equal(got, same)
    assert elementwise(text, x=x, y=0.5).dtype == np.float16


def test_a_power_of_a_half_is_a_root_of_plain_numbers_too():
    x = np.array([4.0, 9.0])
    np.testing.assert_array_equal(elementwise("x * n ** 0.5", x=x, n=4.0), 2 * x)


def test_steps_give_names_to_values():
    x = np.linspace(-3, 3, 50, dtype="f")
    got = elementwise("e = exp(-abs(x)); (1 if x >= 0 else e) / (1 + e)", x=x)
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-x.astype("d"))), rtol=3e-7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = x + 1; x * x", lambda x: (x + 1) ** 2),
        ("y = x; x = x + 1; x = x * 2; x - y", lambda x: (x + 1) * 2 - x),
        ("y = x + 1; z = y; y = y * 3; y - z", lambda x: (x + 1) * 2),
        ("int_ = x + 1; int = x + 2; int__ = x + 4; int * int_ * int__", lambda x: (x + 2) * (x + 1) * (x + 4)),
    ],
)
def test_a_step_may_give_another_value_to_a_name(text, expected):
    x = np.arange(5, dtype="f")
    np.testing.assert_array_equal(elementwise(text)(x), expected(x))


def test_a_prepared_expression_takes_operands_in_order_or_by_name():
    f = elementwise("a * x + y")
    assert isinstance(f, Elementwise) and f is elementwise("a * x + y")
    x, y = np.arange(6, dtype="f").reshape(2, 3), np.ones((2, 1), "f")
    np.testing.assert_array_equal(f(2, x, y), 2 * x + y)
    np.testing.assert_array_equal(f(y=y, x=x, a=2), 2 * x + y)


def test_names_of_cpp_and_of_the_template_may_be_operands():
    x = np.arange(9, dtype="f")
    np.testing.assert_array_equal(elementwise("int + whole * vector - item", int=x, whole=x, vector=x, item=x), x * x)
    np.testing.assert_array_equal(elementwise("relu * relu(abs(sigmoid))", relu=x, sigmoid=-x), x * x)


@pytest.mark.parametrize("text", ["int + int_", "n_ + n", "x_of_ + x_of", "relu_ + relu(relu) + relu__"])
def test_operands_whose_names_differ_by_an_underscore_stay_apart(text):
    f = elementwise(text)
    x = [np.full(3, 10.0**i, "f") for i in range(len(f.function.parameters))]
    np.testing.assert_array_equal(f(*x), np.sum(x, 0))


@pytest.mark.parametrize("name", ["i", "vector", "together", "shift", "VEC", "THREADS", "words_before", "past", "NULL"])
def test_names_within_a_kernel_may_be_operands_of_any_layout(name):
    f = elementwise(f"{name} * 2 + {name}_0 - {name}_of + out_0")
    memory = np.arange(4 * 9 * 11, dtype="f").reshape(4, 9, 11)
    straight, indexed, unaligned = memory[:, :8, :8].copy(), memory[:, 1:, 3:], memory.ravel()[1:257].reshape(4, 8, 8)
    for x in (straight, indexed, unaligned):
        np.testing.assert_array_equal(f(x, straight, x, indexed), x * 2 + straight - x + indexed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x +",
        "x; y",
        "a = b = x; a",
        "import os",
        "x.real",
        "x[0]",
        "lambda: x",
        "f(x)",
        "exp(x, x)",
        "'a'",
        "exp(v=x)",
        "x @ x",
        "1 + 2",
    ],
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises((ExpressionError, ValueError), match="elementwise"):
        elementwise(text, x=np.ones(2, "f"))


@pytest.mark.parametrize(
    "text", ["x" + " + x" * 300, "x" + " + x" * 5000, "-" * 300 + "x", "(" * 500 + "x" + ")" * 500]
)
def test_an_expression_that_is_nested_too_deeply_is_refused(text):
    with pytest.raises(ExpressionError, match=r"nested too deeply|too many nested parentheses"):
        elementwise(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x + 9 ** 9 ** 9", "it is too large for a float"),
        ("x + 2 ** 2000", "it is too large for a float"),
        ("x + (10 ** 300) * (10 ** 300)", "it is too large for a float"),
        ("x + (-8) ** 0.5", "it is a complex number"),
        ("x + (1 << 10 ** 9)", "it is too large for a float"),
        ("x + (1 << -1)", "negative shift count"),
        ("x + 1 / 0", "division by zero"),
        ("x + 1 // 0", "by zero"),
    ],
)
def test_plain_numbers_that_give_no_number_are_refused_at_once(text, why):
    with pytest.raises(ExpressionError, match=f"elementwise: .* cannot be computed: .*{why}"):
        elementwise(text, x=np.ones(2, "f"))


@pytest.mark.parametrize("text", ["lambda: x", "f(x)", "x @ y", "x[0]", "x, y", "x + 1j", "exp(x, y)", "x.y"])
def test_an_expression_is_refused_before_it_is_called(text):
    with pytest.raises(ExpressionError):
        elementwise(text)


def test_what_only_some_types_have_may_be_prepared():
    x = np.array([6, 3], "i4")
    assert elementwise("~x | x << 1")(x).tolist() == (~x | x << 1).tolist()


def test_text_that_cannot_be_encoded_is_told_from_what_is_no_text():
    with pytest.raises(ExpressionError, match="cannot be read: 'utf-8' codec can't encode"):
        elementwise("\ud800 + x")


@pytest.mark.parametrize("text", [None, 3])
def test_an_expression_is_text(text):
    with pytest.raises(ValueError, match="takes text"):
        elementwise(text)


def test_a_name_of_a_specialization_reads_back_also_of_an_expression():
    f = elementwise("x * 3 + y")
    told = f.explain(np.ones(5, "f"), np.ones(5, "f"))
    name = told.split()[0]
    assert name.startswith("elementwise_")
    assert parse(name).name == name
    assert "out = x * 3 + y" in kgen.render(parse(name)).text


def test_an_expression_is_part_of_what_identifies_a_kernel():
    from kgen.recipe import recipe

    specs = [parse(elementwise(t).explain(np.ones(5, "f")).split()[0]) for t in ("x * 3.0", "x * 4.0")]
    assert recipe(specs[0]).identity != recipe(specs[1]).identity


# Bad input


def test_shapes_that_do_not_fit_are_numpys_error():
    with pytest.raises(ValueError, match=r"x1 \(3,\), x2 \(4,\) cannot be broadcast"):
        add(np.ones(3, "f"), np.ones(4, "f"))
    with pytest.raises(ValueError, match="out has shape"):
        add(np.ones(3, "f"), np.ones(3, "f"), out=np.ones((1, 3), "f"))


@pytest.mark.parametrize(
    ("arguments", "named", "match"),
    [
        ((1.0, 2.0), {}, "no operand is an array"),
        ((np.ones(2, "f"), None), {}, "x2 is missing|x2 is a NoneType"),
        ((np.ones(2, "f"),), {}, "x2 is missing"),
        ((np.ones(2, "f"),) * 3, {}, "3 operands came"),
        ((np.ones(2, "f"),), {"x3": 1}, "x3 is no operand"),
        ((np.ones(2, "f"), "a"), {}, "x2 is a str"),
        ((np.ones(2, "c8"), 1), {}, "x1 has dtype complex64"),
        ((np.ones(2, "f"), 1j), {}, "x2 is a complex"),
        ((np.ones(2, "f"), 1), {"out": np.ones(2, "d")}, "out has dtype float64"),
    ],
)
def test_what_is_no_operand_is_a_type_error(arguments, named, match):
    with pytest.raises(TypeError, match=match):
        add(*arguments, **named)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "scalar",
    [np.complex64(1), np.longdouble(1), np.datetime64("2020"), np.timedelta64(1), np.str_("a"), np.bytes_(b"a")],
    ids=lambda scalar: type(scalar).__name__,
)
def test_numpys_scalars_of_other_types_are_a_type_error_that_names_them(scalar):
    with pytest.raises(TypeError, match="add: x2 "):
        add(np.ones(2, "f"), scalar)
    with pytest.raises(TypeError, match=r"elu: alpha is a .*; it takes a number"):
        NAMED["elu"](np.ones(2, "f"), scalar)


def test_subtracting_bools_is_numpys_error():
    x = np.ones(2, bool)
    with pytest.raises(TypeError, match="bool"):
        NAMED["subtract"](x, x)


def test_an_algorithm_of_another_function_or_type_is_refused():
    with pytest.raises(kgen.KgenError, match="does not compute this call"):
        add(np.ones(4, "f"), np.ones(4, "f"), algorithm="relu_v4_f32")
    with pytest.raises(kgen.KgenError, match="no kernel is called"):
        relu(np.ones(4, "f"), algorithm="nonsense")


def test_a_call_is_explained_as_that_of_any_operator():
    x = np.ones((4, 5), "f")
    told = kgen.explain(add, x, x[0], out=np.empty_like(x))
    assert told.startswith("add_v1_r2_x2_f32 on 1 block") and "4 x 5 elements" in told


def test_functions_tell_what_they_take():
    assert str(inspect.signature(NAMED["elu"])).startswith("(x: 'Any', alpha: 'float' = 1.0, *, out: 'Any'")
    assert "clip(x + 3, 0, 6)" in str(NAMED["hardswish"].__doc__)
    assert Function("f", ("x",), "x").steps
    assert set(DTYPES.values()) > set(ANY)


def test_a_named_operator_is_a_plain_function_of_its_operands():
    for name, operator in NAMED.items():
        function = getattr(activations, name)
        assert inspect.isfunction(function)
        assert str(inspect.signature(function)) == str(inspect.signature(operator))
        assert function.__doc__ == operator.__doc__
    assert kgen.swish is kgen.silu
    assert pickle.loads(pickle.dumps(kgen.gelu)) is kgen.gelu
    x = np.linspace(-3, 3, 7, dtype="f")
    np.testing.assert_array_equal(kgen.clip(x, high=2, low=-1), np.clip(x, -1, 2))
    np.testing.assert_array_equal(kgen.elu(x, 2), NAMED["elu"](x, alpha=2))
    assert kgen.explain(kgen.elu, x, 2) == kgen.explain(NAMED["elu"], x, 2)
    assert kgen.workspace(kgen.elu, x, alpha=2) == 0
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x2'"):
        kgen.add(x)
    with pytest.raises(TypeError, match="add: x2 is missing"):
        kgen.add(x, None)


def test_operands_may_be_called_what_the_generated_file_calls_something_else():
    x, y = np.array([5, 7], "i4"), np.array([3, 2], "i4")
    for name in ("modulo", "left_shift", "wrapping_add", "static_cast", "xor", "nullptr", "maximum"):
        got = elementwise(f"({name} % y << 1) + maximum({name}, y)", **{name: x, "y": y})
        np.testing.assert_array_equal(got, (x % y << 1) + np.maximum(x, y), err_msg=name)


def test_a_function_by_its_numpy_name_is_met_with_the_one_that_is_meant():
    x = np.ones(2, "f")
    for text, meant in [
        ("np.exp(x)", "exp"),
        ("arctan2(x, x)", "atan2"),
        ("max(x, 0)", "maximum"),
        ("power(arcsin(x), 2)", "asin"),
    ]:
        with pytest.raises(ValueError, match=f"there is no function '.*'; did you mean '{meant}'"):
            elementwise(text, x=x)
    with pytest.raises(TypeError, match="combines the bits of float32; a power is written"):
        elementwise("x ^ 2", x=x)
    with pytest.raises(TypeError, match="elu: alpha is a ndarray; it takes a number"):
        NAMED["elu"](x, alpha=x)


def test_the_docstring_of_an_operator_says_what_it_takes():
    for name, operator in NAMED.items():
        for parameter in operator.function.parameters:
            assert parameter in operator.__doc__, name
    assert "alpha : float, by default 1.0" in NAMED["elu"].__doc__
