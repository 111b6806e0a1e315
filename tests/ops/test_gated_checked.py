"""`kgen.checked()`: numbers in device memory that linear attention excludes are told, and only on request."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.dtypes import DTYPES
from kgen.errors import CaptureError

AsNumpy = Callable[[Any], np.ndarray]

pytestmark = pytest.mark.usefixtures("shared_cache")


def arrays(xp: ModuleType, length: int = 9, dtype: str = "f32") -> list[Any]:
    """q, k, v and gates."""
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((1, 2, length, 8)) for _ in range(3)] + [-rng.random((1, 2, length, 8))]
    return [xp.asarray(x.astype(DTYPES[dtype].numpy)) for x in made]


def integers(xp: ModuleType, *numbers: int, dtype: Any = np.int32) -> Any:
    return xp.asarray(np.array(numbers, dtype))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_gate_above_zero_is_told_of_every_operator_that_has_one(xp: ModuleType, dtype: str) -> None:
    q, k, v, g = arrays(xp, dtype=dtype)
    bonus, states = q[0, :, 0], xp.zeros((1, 2, 8, 8), "f")
    calls: list[tuple[str, Callable[[Any], object]]] = [
        ("gla: g", lambda g: kgen.gla(q, k, v, g)),
        ("gla_backward: g", lambda g: kgen.gla_backward(v, q, k, v, g)),
        ("gla_step: g", lambda g: kgen.gla_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], g[:, :, 5], states)),
        ("simple_gla: g", lambda g: kgen.simple_gla(q, k, v, g[..., 3])),
        ("rwkv6: w", lambda g: kgen.rwkv6(q, k, v, g, bonus)),
    ]
    above = g.copy()
    above[0, 1, 5, 3] = 0.25
    for name, call in calls:
        with kgen.checked():
            call(g)
            with pytest.raises(ValueError, match=f"{name} reaches 0.25; it takes gates of at most 0"):
                call(above)
        call(above)


def test_a_nan_passes_and_hides_no_gate_above_zero(xp: ModuleType) -> None:
    q, k, v, g = arrays(xp)
    g[0, 0, 2, 2] = float("nan")
    with kgen.checked():
        kgen.gla(q, k, v, g)
        g[0, 1, 5, 3] = 0.25
        with pytest.raises(ValueError, match=r"gla: g reaches 0\.25"):
            kgen.gla(q, k, v, g)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ((1, 4, 9), "cu_seqlens leads from 1 to 9; it takes 0 to 9"),
        ((0, 4, 8), "cu_seqlens leads from 0 to 8; it takes 0 to 9"),
        ((0, 5, 3, 9), "cu_seqlens falls from 5 at 1 to 3; it takes ascending"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_do_not_lead_through_the_sequence_are_told(
    xp: ModuleType, offsets: tuple[int, ...], words: str, dtype: Any
) -> None:
    q, k, v, _ = arrays(xp)
    given = integers(xp, *offsets, dtype=dtype)
    with kgen.checked():
        with pytest.raises(ValueError, match=f"linear_attention: {words}"):
            kgen.linear_attention(q, k, v, cu_seqlens=given)
        turned = [x.swapaxes(1, 2) for x in (v, q, k, v)]
        with pytest.raises(ValueError, match=f"linear_attention_backward: {words}"):
            kgen.linear_attention_backward(*turned, cu_seqlens=given, layout="bthd")
        kgen.linear_attention(q, k, v, cu_seqlens=integers(xp, 0, 4, 4, 9, dtype=dtype))
    kgen.linear_attention(q, k, v, cu_seqlens=given)


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ((0, 5, 1), "indices has 5 at 1; the pool has 4 states"),
        ((2, 0, 2), "indices has 2 at 0 and at 2; each state is one token's"),
    ],
)
def test_slots_that_are_not_there_or_twice_are_told(xp: ModuleType, indices: tuple[int, ...], words: str) -> None:
    q, k, v = (x[0].swapaxes(0, 1)[:3] for x in arrays(xp)[:3])
    states = xp.zeros((4, 2, 8, 8), "f")
    with kgen.checked():
        with pytest.raises(ValueError, match=f"linear_attention_step: {words}"):
            kgen.linear_attention_step(q, k, v, states, indices=integers(xp, *indices))
        kgen.linear_attention_step(q, k, v, states, indices=integers(xp, -1, 3, -1))


def test_a_checked_call_gives_the_bits_of_a_plain_one(xp: ModuleType, asnumpy: AsNumpy) -> None:
    on = arrays(xp)
    with kgen.checked():
        made = asnumpy(kgen.gla(*on))
    assert np.array_equal(asnumpy(kgen.gla(*on)), made)


def test_empty_gates_pass(xp: ModuleType) -> None:
    with kgen.checked():
        assert kgen.gla(*arrays(xp, length=0)).shape == (1, 2, 0, 8)


@pytest.mark.gpu
def test_a_capture_is_refused_since_nothing_can_be_read_then() -> None:
    cupy = pytest.importorskip("cupy")
    on = arrays(cupy)
    out = kgen.gla(*on)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with kgen.checked(), pytest.raises(CaptureError, match=r"gla: kgen\.checked"):
            kgen.gla(*on, out=out)
        stream.end_capture()
