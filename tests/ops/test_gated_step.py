"""One token at a time beside the whole sequence: states in place, in a pool, of any strides."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.gated.steps import gla_step, linear_attention_step, rwkv6_step, simple_gla_step
from tests.gpu.numerics import rms_bar, rms_error

pytestmark = pytest.mark.usefixtures("shared_cache")

AsNumpy = Callable[[Any], np.ndarray]
STEPS: dict[str, Callable[..., Any]] = {
    "linear_attention": linear_attention_step,
    "simple_gla": simple_gla_step,
    "gla": gla_step,
    "rwkv6": rwkv6_step,
}


def token(operator: str, b: int, h: int, k: int, v: int, dtype: str = "f32", seed: int = 0) -> list[np.ndarray]:
    """q, k, v and what else the operator takes; the gates hard now and then."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype].numpy
    made = [rng.standard_normal(shape).astype(kind) for shape in ((b, h, k), (b, h, k), (b, h, v))]
    if operator != "linear_attention":
        shape = (b, h) if operator == "simple_gla" else (b, h, k)
        gates = -np.exp(rng.standard_normal(shape))
        made.append(np.where(rng.random(shape) < 0.1, -np.inf, gates).astype(kind))
    if operator == "rwkv6":
        made.append(rng.standard_normal((h, k)).astype(kind))
    return made


def expected(arrays: list[np.ndarray], state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    b, h = state.shape[:2]
    along_time = [x if x.shape == (h, state.shape[2]) and n == 4 else x[:, :, None] for n, x in enumerate(arrays)]
    o, last = reference.gated(*along_time, scale=state.shape[2] ** -0.5, initial=state)
    assert o.shape[:2] == (b, h)
    return o[:, :, 0], last


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [("linear_attention", "f32"), ("simple_gla", "bf16"), ("gla", "f32"), ("gla", "bf16"), ("rwkv6", "f16")],
)
def test_a_step_is_that_of_float64(xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str) -> None:
    arrays = token(operator, 3, 2, 20, 36, dtype)
    state = np.random.default_rng(1).standard_normal((3, 2, 20, 36)).astype("f")
    o, last = expected(arrays, state)
    held = xp.asarray(state.copy())
    out = xp.full(o.shape, np.nan, dtype=arrays[0].dtype)
    assert STEPS[operator](*map(xp.asarray, arrays), held, out=out) is out
    assert rms_error(asnumpy(out).astype(np.float64), o) < rms_bar(dtype, o.size)
    assert rms_error(asnumpy(held), last) < rms_bar("f32", last.size)


def test_states_of_a_pool_are_found_by_index_and_others_left_alone(xp: ModuleType, asnumpy: AsNumpy) -> None:
    arrays = token("gla", 4, 2, 20, 36)
    pool = np.random.default_rng(1).standard_normal((6, 2, 20, 36)).astype("f")
    held = xp.asarray(pool.copy())
    o = asnumpy(gla_step(*map(xp.asarray, arrays), held, indices=xp.asarray(np.array([5, -1, 2, 6], "i4"))))
    after = asnumpy(held)
    for at, slot in ((0, 5), (2, 2)):
        one = [x[at : at + 1] for x in arrays]
        wanted, last = expected(one, pool[slot : slot + 1])
        assert rms_error(o[at], wanted[0]) < rms_bar("f32", 1)
        assert rms_error(after[slot], last[0]) < rms_bar("f32", 1)
    assert (o[1] == 0).all() and np.isnan(o[3]).all()
    assert np.array_equal(after[[0, 1, 3, 4]], pool[[0, 1, 3, 4]])


@pytest.mark.parametrize("sizes", [(2, 4, 100, 33), (1, 1, 1, 1), (40, 4, 64, 128)])
def test_odd_sizes_strides_and_shared_heads(xp: ModuleType, asnumpy: AsNumpy, sizes: tuple[int, int, int, int]) -> None:
    b, h, k, v = sizes
    arrays = token("gla", *sizes)
    shared = [x[:, : max(1, h // 2)] for x in arrays[:2]]
    whole = [*(np.repeat(x, h // x.shape[1], 1) for x in shared), *arrays[2:]]
    state = np.random.default_rng(1).standard_normal((b, h, k, v)).astype("f")
    o, last = expected(whole, state)
    held = xp.asarray(state.swapaxes(2, 3).copy()).swapaxes(2, 3) if v < 100 else xp.asarray(state.copy())
    on = [xp.asarray(np.repeat(x, 2, -1))[..., ::2] for x in (*shared, *arrays[2:])]
    result = gla_step(*on, held)
    assert rms_error(asnumpy(result), o) < rms_bar("f32", o.size)
    assert rms_error(asnumpy(held), last) < rms_bar("f32", last.size)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"state": np.zeros((2, 2, 8, 8))}, TypeError, "state is float64"),
        ({"state": [1.0]}, TypeError, "state is list"),
        ({"state": np.zeros((3, 2, 8, 8), "f")}, ValueError, "state has shape .* without indices it takes 2 states"),
        ({"state": np.zeros((2, 3, 8, 8), "f")}, ValueError, "q has shape"),
        ({"k": np.zeros((2, 2, 9), "f")}, ValueError, "k has shape"),
        ({"g": np.zeros((2, 2), "f")}, ValueError, "g has shape"),
        ({"indices": np.zeros(3, "i4")}, ValueError, "indices has shape"),
        ({"indices": np.zeros(2, "i8")}, TypeError, "indices has dtype int64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(
    xp: ModuleType, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    f = np.zeros((2, 2, 8), "f")
    given: dict[str, Any] = {"q": f, "k": f, "v": f, "g": f, "state": np.zeros((2, 2, 8, 8), "f")} | change
    with pytest.raises(error, match=f"gla_step: {words}"):
        gla_step(**{name: xp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in given.items()})


def test_a_read_only_state_is_refused() -> None:
    import kgen

    f, state = np.zeros((2, 2, 8), "f"), np.zeros((2, 2, 8, 8), "f")
    state.flags.writeable = False
    with kgen.backend("cpu"), pytest.raises(ValueError, match="gla_step: state is read-only"):
        gla_step(f, f, f, f, state)


def test_what_shares_memory_is_called_by_its_name() -> None:
    import kgen

    f, state = np.zeros((2, 2, 8), "f"), np.zeros((2, 2, 8, 8), "f")
    with kgen.backend("cpu"):
        with pytest.raises(ValueError, match="gla_step: state shares memory with q"):
            gla_step(state[:, :, 0], f, f, f, state)
        with pytest.raises(ValueError, match="linear_attention_step: normalizer shares memory with state"):
            linear_attention_step(f, f, f, state, normalizer=state[..., 0])
