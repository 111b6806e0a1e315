"""Rotary position embedding against float64, for both kinds of pairs and layouts, on both devices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kgen.ops.moving.rope import rope

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDING = {"float32": 2.0**-22, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def on(xp, host):
    if xp is not np and host.dtype.kind == "V":
        return xp.asarray(host.view(np.uint16)).view(host.dtype)
    return xp.asarray(host)


def exact(x):
    return np.asarray(x).astype(np.float64)


def turned(x, positions, *, base=10000.0, rotary_dim=None, interleaved=False, inverse=False):
    """The rotation of x [B, H, T, D] at positions [B, T] in float64."""
    x = exact(x).copy()
    width = rotary_dim or x.shape[3]
    frequency = base ** (-2.0 * np.arange(width // 2) / width)
    angle = positions[:, None, :, None].astype(np.float64) * frequency * (-1 if inverse else 1)
    pairs = (
        (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, width // 2), slice(width // 2, width))
    )
    p, q = (x[..., pair].copy() for pair in pairs)
    x[..., pairs[0]] = p * np.cos(angle) - q * np.sin(angle)
    x[..., pairs[1]] = q * np.cos(angle) + p * np.sin(angle)
    return x


def assert_turned(result, expected, dtype):
    assert np.abs(exact(result) - expected).max() <= 4 * ROUNDING[dtype] * max(1, np.abs(expected).max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["bhtd", "bthd"])
def test_both_kinds_of_pairs_in_both_layouts(xp, asnumpy, shared_cache, dtype, interleaved, layout):
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 32)).astype(TYPES[dtype])
    given = x if layout == "bhtd" else np.ascontiguousarray(x.swapaxes(1, 2))
    result = asnumpy(rope(on(xp, given), interleaved=interleaved, layout=layout))
    expected = turned(x, np.tile(np.arange(9), (2, 1)), interleaved=interleaved)
    assert_turned(result if layout == "bhtd" else result.swapaxes(1, 2), expected, dtype)


@pytest.mark.parametrize("width", [2, 6, 20, 64])
@pytest.mark.parametrize("rotary_dim", [None, 2, 0])
def test_a_part_of_any_width_is_turned_and_the_rest_copied(xp, asnumpy, shared_cache, width, rotary_dim):
    x = np.random.default_rng(2).standard_normal((1, 7, 5, width)).astype("f")
    result = asnumpy(rope(xp.asarray(x), rotary_dim=rotary_dim))
    expected = x if rotary_dim == 0 else turned(x, np.arange(5)[None], rotary_dim=rotary_dim)
    assert_turned(result, expected, "float32")


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_far_positions_keep_their_digits(xp, asnumpy, shared_cache, index):
    rng = np.random.default_rng(3)
    x, positions = rng.standard_normal((2, 2, 6, 16)).astype("f"), rng.integers(0, 10**6, (2, 6)).astype(index)
    result = asnumpy(rope(xp.asarray(x), xp.asarray(positions), base=5e5))
    assert_turned(result, turned(x, positions, base=5e5), "float32")
    result = asnumpy(rope(xp.asarray(x), xp.asarray(positions[0])))
    assert_turned(result, turned(x, np.tile(positions[:1], (2, 1))), "float32")


@pytest.mark.parametrize("number", [np.float16, np.float32, np.int32])
def test_a_base_counts_by_its_value_whatever_its_type(xp, asnumpy, shared_cache, number):
    base = {np.float16: 1024, np.float32: 500_000, np.int32: 300_000}[number]  # each type has it exactly
    x, positions = np.random.default_rng(3).standard_normal((1, 1, 2, 64)).astype("f"), np.array([[999, 10**6]])
    result = asnumpy(rope(xp.asarray(x), xp.asarray(positions), base=number(base)))
    assert_turned(result, turned(x, positions, base=float(base)), "float32")


def test_tables_are_indexed_by_position(xp, asnumpy, shared_cache):
    rng = np.random.default_rng(4)
    x, positions = rng.standard_normal((1, 2, 6, 24)).astype("f"), rng.integers(0, 50, (1, 6))
    angle = np.arange(50)[:, None] * 10000.0 ** (-2.0 * np.arange(8) / 16)
    cos, sin = np.cos(angle).astype("f"), np.sin(angle).astype("f")
    result = asnumpy(rope(xp.asarray(x), xp.asarray(positions), cos=xp.asarray(cos), sin=xp.asarray(sin)))
    assert_turned(result, turned(x, positions, rotary_dim=16), "float32")
    result = asnumpy(rope(xp.asarray(x), cos=xp.asarray(cos), sin=xp.asarray(sin)))
    assert_turned(result, turned(x, np.arange(6)[None], rotary_dim=16), "float32")


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_inverse_turns_back(xp, asnumpy, shared_cache, interleaved):
    x = xp.asarray(np.random.default_rng(5).standard_normal((1, 4, 8, 16)).astype("f"))
    back = rope(rope(x, interleaved=interleaved), interleaved=interleaved, inverse=True)
    assert np.allclose(asnumpy(back), asnumpy(x), atol=1e-6)


def test_it_may_be_done_in_place_and_on_views(xp, asnumpy, shared_cache):
    host = np.random.default_rng(6).standard_normal((2, 6, 8, 40)).astype("f")
    x = xp.asarray(host)
    view, expected = x[:, ::2, :, 4:36], turned(host[:, ::2, :, 4:36], np.tile(np.arange(8), (2, 1)))
    assert_turned(asnumpy(rope(view)), expected, "float32")
    assert rope(view, out=view) is view
    assert_turned(asnumpy(view), expected, "float32")
    assert np.array_equal(asnumpy(x)[:, 1::2], host[:, 1::2])


def test_an_empty_sequence(xp, shared_cache):
    assert rope(xp.ones((1, 2, 0, 8), xp.float32)).shape == (1, 2, 0, 8)


@pytest.mark.parametrize(
    ("shape", "options", "error", "match"),
    [
        ((2, 3, 8), {}, ValueError, "four axes"),
        ((1, 2, 3, 7), {}, ValueError, "even number"),
        ((1, 2, 3, 7), {"rotary_dim": 4}, ValueError, r"x has shape \(1, 2, 3, 7\); it takes an even number"),
        ((0, 2, 3, 7), {"rotary_dim": 4}, ValueError, r"x has shape \(0, 2, 3, 7\); it takes an even number"),
        ((1, 2, 3, 8), {"rotary_dim": 10}, ValueError, "10 of the 8 features"),
        ((1, 2, 3, 8), {"rotary_dim": 3}, ValueError, "even number"),
        ((1, 2, 3, 8), {"positions": np.zeros(4, "i4")}, ValueError, r"positions has shape \(4,\)"),
        ((1, 2, 3, 8), {"positions": np.zeros(3, "f")}, TypeError, "positions has dtype float32"),
        ((1, 2, 3, 8), {"cos": np.ones((3, 4), "f")}, ValueError, "cos is given alone"),
        ((1, 2, 3, 8), {"cos": np.ones((2, 4), "f"), "sin": np.ones((2, 4), "f")}, ValueError, "at least as many rows"),
        ((1, 2, 3, 8), {"cos": np.ones((3, 4), "f"), "sin": np.ones((3, 3), "f")}, ValueError, "sin has shape"),
        ((1, 2, 3, 8), {"cos": np.array(1, "f"), "sin": np.array(0, "f")}, ValueError, r"cos has shape \(\)"),
        ((1, 2, 3, 8), {"cos": np.ones((3, 8), "f"), "sin": np.ones((3, 8), "f")}, ValueError, "up to 8 features"),
        ((1, 2, 3, 8), {"base": -1.0}, ValueError, "base is -1.0"),
        ((1, 2, 3, 8), {"layout": "thd"}, ValueError, "layout is 'thd'"),
    ],
)
def test_bad_input_is_refused_by_name(xp, shape, options, error, match):
    options = {name: xp.asarray(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    with pytest.raises(error, match=match):
        rope(xp.ones(shape, xp.float32), **options)
