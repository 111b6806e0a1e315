"""Linear attention in chunks beside float64: every kind of gate, rows of any width and alignment, segments, states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import gated_reference as reference
from kgen.dtypes import DTYPES
from kgen.ops.gated import chunk
from kgen.ops.gated.gla import simple_gla
from kgen.ops.gated.linear_attention import linear_attention
from tests.gpu.numerics import rms_bar, rms_error
from tests.ops.test_gated import GATES, Case, make

AsNumpy = Callable[[Any], np.ndarray]

OPERATORS: dict[str, Callable[..., Any]] = {"linear_attention": linear_attention, "simple_gla": simple_gla}
STATE_BAR = 3e-4
"""Of states: with a gate, what is added to them is rounded to 16 bits of a float at most, or 11 of a binary16."""

pytestmark = pytest.mark.usefixtures("shared_cache")


def check(xp: ModuleType, asnumpy: AsNumpy, case: Case, dtype: str, **options: Any) -> None:
    """The result and the last state, in chunks."""
    common: Any = {"scale": case.scale, "initial": case.initial, "reverse": case.reverse}
    o, state = reference.gated(*case.arrays.values(), **common)
    out = xp.full(o.shape, np.nan, dtype=case.do.dtype)
    result, last = OPERATORS[case.operator](
        *map(xp.asarray, case.arrays.values()),
        initial_state=xp.asarray(case.initial),
        return_state=True,
        reverse=case.reverse,
        scale=case.scale,
        mode="chunk",
        out=out,
        **options,
    )
    assert result is out
    assert rms_error(asnumpy(out).astype(np.float64), o) < rms_bar(dtype, o.size)
    assert rms_error(asnumpy(last), state) < STATE_BAR


SMALL = (1, 2, 300, 60, 40)
"""The last chunk is not full, nor are the tiles of a state."""


@pytest.mark.parametrize(("operator", "dtype"), [("linear_attention", "bf16"), ("simple_gla", "f16")])
@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_give_what_float64_gives(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str, reverse: bool
) -> None:
    check(xp, asnumpy, make(operator, SMALL, dtype, gate_dtype="f32", reverse=reverse), dtype)


@pytest.mark.parametrize("gates", GATES)
def test_every_kind_of_gate_is_exact(xp: ModuleType, asnumpy: AsNumpy, gates: str) -> None:
    check(xp, asnumpy, make("simple_gla", SMALL, "f16", gates=gates, gate_dtype="f32", seed=3), "f16")


@pytest.mark.parametrize("length", [0, 1, 16, 63, 64, 65])
def test_a_chunk_may_be_of_any_length(xp: ModuleType, asnumpy: AsNumpy, length: int) -> None:
    case = make("linear_attention", (1, 2, length, 60, 40), "bf16")
    if length:
        check(xp, asnumpy, case, "bf16")
        return
    o, last = linear_attention(
        *map(xp.asarray, case.arrays.values()),
        initial_state=xp.asarray(case.initial),
        return_state=True,
        mode="chunk",
    )
    assert o.shape == (1, 2, 0, 40) and np.array_equal(asnumpy(last), case.initial)


def test_pieces_and_segments_change_nothing_but_roundings(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make("simple_gla", SMALL, "f16", gate_dtype="f32")
    for segments, pieces in ((1, 1), (2, 4), (3, 3), (4, 8)):
        cut = chunk.Cut(64, 64, 64, pieces, segments)
        monkeypatch.setattr(chunk, "cut_of", lambda *about, cut=cut: cut)
        simple_gla_plans().clear()
        check(xp, asnumpy, case, "f16")
    simple_gla_plans().clear()


def simple_gla_plans() -> dict[Any, Any]:
    """What the operator remembers of calls, which no cut is part of."""
    from kgen.ops.gated.gla import _simple

    _simple._met.clear()
    return _simple._plans


def test_rows_may_lie_anywhere(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("linear_attention", SMALL, "bf16")
    q, k, v = map(xp.asarray, case.arrays.values())
    o = asnumpy(linear_attention(q, k, v, mode="chunk")).astype(np.float64)
    wide = xp.full((1, 2, 300, 123), np.nan, dtype=q.dtype)[..., 1:-2:2]
    wide[...] = q
    strange = xp.full((1, 2, 300, 83), np.nan, dtype=q.dtype)[..., 1:-2:2]
    seq_first = xp.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2)
    again = linear_attention(wide, seq_first, v[:, ::-1, ::-1][:, ::-1, ::-1], mode="chunk", out=strange)
    assert again is strange and rms_error(asnumpy(strange).astype(np.float64), o) < 1e-3


def test_heads_may_share_queries_keys_and_values(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("linear_attention", SMALL, "bf16")
    q, k, v = case.arrays.values()
    o = asnumpy(linear_attention(xp.asarray(q), xp.asarray(k[:, :1]), xp.asarray(v[:, 1:]), mode="chunk"))
    expected, _ = reference.gated(q, k[:, [0, 0]], v[:, [1, 1]], scale=60**-0.5)
    assert rms_error(o.astype(np.float64), expected) < rms_bar("bf16", o.size)


@pytest.mark.parametrize("reverse", [False, True])
def test_sequences_may_follow_one_another(xp: ModuleType, asnumpy: AsNumpy, reverse: bool) -> None:
    case = make("linear_attention", (1, 2, 300, 60, 40), "bf16", reverse=reverse)
    ends = np.array([0, 0, 70, 299], np.int32)
    initial = np.random.default_rng(5).standard_normal((3, 2, 60, 40)).astype("f")
    q, k, v = case.arrays.values()
    out = xp.zeros(v.shape, v.dtype)
    _, last = linear_attention(
        *map(xp.asarray, (q, k, v)),
        initial_state=xp.asarray(initial),
        cu_seqlens=xp.asarray(ends),
        return_state=True,
        reverse=reverse,
        mode="chunk",
        out=out,
    )
    o = asnumpy(out).astype(np.float64)
    for i, (begin, end) in enumerate(pairwise(ends)):
        part = [x[:, :, begin:end] for x in (q, k, v)]
        expected, state = reference.gated(*part, scale=60**-0.5, initial=initial[i : i + 1], reverse=reverse)
        assert rms_error(asnumpy(last)[i], state[0]) < 1e-6
        if end > begin:
            assert rms_error(o[:, :, begin:end], expected) < rms_bar("bf16", expected.size)
    assert not o[:, :, 299:].any()


def test_a_call_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("simple_gla", SMALL, "f16", gate_dtype="f32")
    on = [xp.asarray(x) for x in case.arrays.values()]
    first, again = (asnumpy(simple_gla(*on, mode="chunk")) for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    ("dtype", "sizes", "options", "words"),
    [
        ("f32", (1, 1, 70, 8, 8), {}, "it takes float16 and bfloat16"),
        ("bf16", (1, 1, 70, 257, 8), {}, "at most 256 features"),
        ("bf16", (1, 1, 70, 8, 8), {"normalize": True}, "no normalizer"),
        ("bf16", (1, 1, 70, 8, 8), {"feature_map": "elu"}, "no feature map"),
    ],
)
def test_what_chunks_cannot_do_is_said(
    xp: ModuleType, dtype: str, sizes: tuple[int, int, int, int, int], options: dict[str, Any], words: str
) -> None:
    case = make("linear_attention", sizes, dtype)
    with pytest.raises(ValueError, match=f"linear_attention: mode='chunk' does not take this: .*{words}"):
        linear_attention(*map(xp.asarray, case.arrays.values()), mode="chunk", **options)


def test_long_sequences_are_walked_in_chunks_and_short_ones_step_by_step(xp: ModuleType) -> None:
    from kgen.ops.calls import explain

    for length, found in ((chunk.SHORTEST, True), (chunk.SHORTEST - 1, False)):
        x = xp.zeros((1, 1, length, 16), DTYPES["f16"].numpy)
        assert ("gated_chunk" in explain(linear_attention, x, x, x)) is found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "sizes", "dtype"),
    [
        ("linear_attention", (2, 66, 65, 128, 128), "bf16"),
        ("simple_gla", (1, 16, 1000, 128, 128), "f16"),
        ("simple_gla", (1, 3, 400, 256, 256), "bf16"),
        ("linear_attention", (1, 2, 333, 100, 153), "f16"),
        ("simple_gla", (1, 2, 500, 16, 200), "bf16"),
        ("linear_attention", (1, 1, 200, 1, 1), "bf16"),
    ],
    ids=str,
)
def test_large_and_small_heads(operator: str, sizes: tuple[int, int, int, int, int], dtype: str) -> None:
    import cupy

    check(cupy, cupy.asnumpy, make(operator, sizes, dtype), dtype)
