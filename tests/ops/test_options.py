"""Options that are no numbers, or none that make sense: the errors name operator and option, whichever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kgen
from kgen.errors import SpecError

X = np.ones((2, 3, 8), "f")
BOXES = np.ones((5, 4), "f")
HEADS = np.ones((1, 2, 4, 8), "f")
CALLS: dict[str, tuple[Any, ...]] = {
    "reduce": (np.ones(8, "f"),),
    "gemv": (np.ones((5, 8), "f"), np.ones(8, "f")),
    "transpose": (X,),
    "take": (X, np.array([0, 1])),
    "rope": (HEADS,),
    "quantize": (X,),
    "nms": (BOXES, np.ones(5, "f"), 0.5),
    "bincount": (np.array([1, 2]),),
    "histogram": (X,),
    "softmax": (X,),
    "softmax_backward": (X, X),
    "layer_norm": (X,),
    "rms_norm_backward": (X, X, np.ones((2, 3), "f")),
    "group_norm": (X,),
    "cast": (X,),
    "dequantize": (np.ones(3, "i1"), 2.0),
    "sum": (X,),
    "argmax": (X,),
    "add": (X, X),
    "linear_attention": (HEADS, HEADS, HEADS),
    "linear_attention_step": (HEADS[:, :, 0], HEADS[:, :, 0], HEADS[:, :, 0], np.zeros((1, 2, 8, 8), "f")),
    "gla_backward": (HEADS, HEADS, HEADS, HEADS, -HEADS),
    "linear_state": (HEADS, HEADS),
}


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    with kgen.backend("cpu"):
        yield


@pytest.mark.parametrize(
    ("name", "option", "value", "takes"),
    [
        ("softmax", "scale", 10**400, "is an integer too large for a float"),
        ("gemv", "alpha", -(10**400), "is an integer too large for a float"),
        ("take", "axis", True, "is a bool; it takes an integer"),
        ("transpose", "axes", (True, 0, 2), "is a bool; it takes an integer"),
        ("bincount", "minlength", True, "is a bool; it takes an integer"),
        ("reduce", "width", 2.0, "is a float; it takes an integer"),
        ("reduce", "width", 0, "is 0; it takes an integer from 1 on"),
        ("gemv", "alpha", "2", "is a str; it takes a real number"),
        ("gemv", "alpha", None, "is a NoneType; it takes a real number"),
        ("transpose", "axes", 1, "is a int; it takes a sequence of integers, or None"),
        ("transpose", "axes", np.array(1), "is a ndarray; it takes a sequence of integers, or None"),
        ("bincount", "length", 10**30, f"is 1{'0' * 30}; it takes an integer up to"),
        ("bincount", "minlength", 1 << 60, f"is {1 << 60}; it takes an integer up to"),
        ("transpose", "axes", (0, 1.0, 2), "is a float; it takes an integer"),
        ("take", "axis", 1.5, "is a float; it takes an integer"),
        ("take", "axis", (0, 1), "is a tuple; it takes an integer"),
        ("rope", "rotary_dim", "8", "is a str; it takes an integer"),
        ("rope", "base", "10000", "is a str; it takes a real number"),
        ("quantize", "axis", "rows", "is a str; it takes an integer"),
        ("quantize", "block", 1.5, "is a float; it takes an integer"),
        ("nms", "score_threshold", "0.5", "is a str; it takes a real number"),
        ("nms", "max_output", 1.5, "is a float; it takes an integer"),
        ("nms", "max_output", -1, "is -1; it takes an integer from 0 on"),
        ("nms", "offset", None, "is a NoneType; it takes a real number"),
        ("bincount", "minlength", "a", "is a str; it takes an integer"),
        ("bincount", "length", -1, "is -1; it takes an integer from 0 on"),
        ("histogram", "range", 3.0, "is 3.0; it takes a pair of numbers"),
        ("histogram", "range", (0, 1, 2), r"is \(0, 1, 2\); it takes a pair of numbers"),
        ("softmax", "scale", 1j, "is a complex; it takes a real number"),
        ("softmax_backward", "scale", "1", "is a str; it takes a real number"),
        ("layer_norm", "eps", "1", "is a str; it takes a real number"),
        ("rms_norm_backward", "weight_offset", None, "is a NoneType; it takes a real number"),
        ("group_norm", "groups", 2.0, "is a float; it takes an integer"),
        ("cast", "code", "nope", "is 'nope', which is no type of elements"),
        ("cast", "dtype", (), r"is \(\), which is no type of elements"),
        ("dequantize", "code", "f4", "is float32; it takes float8_e4m3fn or float8_e5m2"),
        ("add", "dtype", ("f4", "e4m3"), r"is \('f4', 'e4m3'\), which is no type of elements"),
        ("sum", "axis", True, "is True; it takes an integer, a tuple of integers, or None"),
        ("sum", "axis", (0, False), r"is \(0, False\); it takes an integer"),
        ("argmax", "axis", (0, 1), "is a tuple; it takes an integer"),
        ("argmax", "axis", 1.0, "is a float; it takes an integer"),
        ("sum", "axis", [0, 1], "is a list; it takes plain values and tuples of them"),
        ("sum", "axis", np.array(1), "is a ndarray; it takes plain values and tuples of them"),
        ("sum", "dtype", ["f4"], "is a list; it takes plain values"),
        ("sum", "keepdims", np.ones(2), "is a ndarray; it takes plain values"),
        ("softmax", "algorithm", ["softmax"], "is a list; it takes plain values"),
        ("linear_attention", "scale", "half", "is a str; it takes a real number"),
        ("linear_attention", "scale", 10**400, "is an integer too large for a float"),
        ("linear_attention", "epsilon", "small", "is a str; it takes a real number"),
        ("linear_attention", "epsilon", None, "is a NoneType; it takes a real number"),
        ("linear_attention_step", "scale", 1j, "is a complex; it takes a real number"),
        ("gla_backward", "scale", 10**400, "is an integer too large for a float"),
        ("linear_state", "segment", 0, "is 0; it takes an integer from 1 on"),
        ("linear_state", "segment", 2.0, "is a float; it takes an integer"),
        ("linear_state", "segment", True, "is a bool; it takes an integer"),
    ],
)
def test_what_an_option_does_not_take_is_said(name, option, value, takes):
    with pytest.raises((TypeError, ValueError, OverflowError), match=f"^{name}: (one of )?{option} {takes}"):
        getattr(kgen, name)(*CALLS[name], **({"dtype": "f4"} if name == "cast" else {}) | {option: value})


@pytest.mark.parametrize("algorithm", [1, b"lmha", ""])
def test_an_algorithm_that_does_not_exist_is_refused_whatever_it_is(algorithm):
    with pytest.raises(SpecError, match="causal_dot_product: there is no algorithm"):
        kgen.causal_dot_product(HEADS, HEADS, HEADS, algorithm=algorithm)


def test_numbers_of_numpy_are_numbers():
    q = np.ones((1, 1, 70, 4), "f")
    plain = kgen.linear_attention(q, q, q, scale=0.5, normalize=True, epsilon=0.25, return_state=True, states_every=64)
    numpys = {"scale": np.float32(0.5), "epsilon": np.float16(0.25), "states_every": np.int64(64)}
    again = kgen.linear_attention(q, q, q, normalize=True, return_state=True, **numpys)
    for x, y in zip(again, plain, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(kgen.linear_state(q, q, segment=np.int32(32)), kgen.linear_state(q, q, segment=32))
    step, state = q[:, :, 0], np.zeros((1, 1, 4, 4), "f")
    assert kgen.linear_attention_step(step, step, step, state, scale=np.float32(2)).tolist() == [[[8, 8, 8, 8]]]


def test_a_number_beyond_float32_is_infinite_as_in_numpy():
    x = np.array([1, 2], "f")
    assert np.isnan(kgen.softmax(x, scale=1e300)).all()
    assert kgen.gemv(np.ones((2, 2), "f"), x, alpha=-1e300).tolist() == [-np.inf] * 2
    assert kgen.layer_norm(x, eps=1e300).tolist() == [0, 0]
    assert kgen.rms_norm(x, x, weight_offset=1e300).tolist() == [np.inf] * 2


def test_a_flattened_table_must_be_an_array():
    with pytest.raises(TypeError, match="take: table is a list; it takes an array"):
        kgen.take([1, 2, 3], np.array([0]), axis=None)


@pytest.mark.parametrize("name", ["add", "sum", "softmax", "take", "histogram", "nms"])
def test_what_is_no_stream_on_a_gpu_is_none_for_the_executor(name):
    with pytest.raises(TypeError, match="stream is a str; it takes an int, a CuPy or torch stream"):
        getattr(kgen, name)(*CALLS[name], stream="main")


def test_flags_are_truths():
    x = HEADS * np.arange(8, dtype="f")
    np.testing.assert_array_equal(kgen.rope(x, interleaved=-1), kgen.rope(x, interleaved=True))
    np.testing.assert_array_equal(kgen.rope(x, interleaved="", inverse=2), kgen.rope(x, inverse=True))
