"""Linear attention in chunks beside float64: every kind of gate, rows of any width and alignment, segments, states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import gated_reference as reference
from kgen.backend import HOST
from kgen.device import current_device, multiprocessors
from kgen.dtypes import DTYPES
from kgen.ops.calls import OPERATORS as OPERATORS_BY_NAME
from kgen.ops.gated import chunk, chunk_cut, chunk_scan
from kgen.ops.gated.chunk_kernels import CHUNK
from kgen.ops.gated.gla import simple_gla, simple_gla_backward
from kgen.ops.gated.linear_attention import linear_attention, linear_attention_backward
from kgen.ops.gated.linear_chunk import LINEAR
from kgen.ops.gated.linear_team import LARGEST, TEAM
from kgen.ops.gated.plan import Problem
from kgen.ops.questions import explain
from kgen.registry import parse
from tests import plans
from tests.gpu.numerics import GRADIENT_SLACK, rms_bar, rms_error
from tests.ops.test_gated import GATES, Case, _on_a_gpu, make

AsNumpy = Callable[[Any], np.ndarray]

OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear_attention": (linear_attention, linear_attention_backward),
    "simple_gla": (simple_gla, simple_gla_backward),
}
STATE_BAR = 3e-4
"""Of states: with a gate, what is added to them is rounded to 16 bits of a float at most, or 11 of a binary16."""
SLOPE_BAR = 3e-3
"""Of the gradients of gates."""

pytestmark = pytest.mark.usefixtures("shared_cache")


def check(xp: ModuleType, asnumpy: AsNumpy, case: Case, dtype: str) -> None:
    """Both passes in chunks: every result and gradient."""
    common: Any = {"scale": case.scale, "initial": case.initial, "reverse": case.reverse}
    with np.errstate(under="ignore"):
        o, state = reference.gated(*case.arrays.values(), **common)
    out = xp.full(o.shape, np.nan, dtype=case.do.dtype)
    forward, backward = OPERATORS[case.operator]
    on = [xp.asarray(x) for x in case.arrays.values()]
    initial, dstate, do = (xp.asarray(x) for x in (case.initial, case.dstate, case.do))
    options: Any = {"initial_state": initial, "reverse": case.reverse, "scale": case.scale, "mode": "chunk"}
    result, last = forward(*on, return_state=True, out=out, **options)
    assert result is out
    assert rms_error(asnumpy(out).astype(np.float64), o) < rms_bar(dtype, o.size)
    assert rms_error(asnumpy(last), state) < STATE_BAR

    with np.errstate(under="ignore"):
        expected = reference.gated_backward(case.do, *case.arrays.values(), dstate=case.dstate, **common)
    made = backward(do, *on, dstate=dstate, **options)
    for name, x in zip([*case.arrays, "initial"], made, strict=True):
        wanted = expected[name]
        once = name == "q" and case.operator == "linear_attention"  # rounded once, as a result is
        slack = 1 if once else GRADIENT_SLACK
        bar = {"g": SLOPE_BAR, "initial": STATE_BAR}.get(name, slack * rms_bar(dtype, x.size))
        error = rms_error(asnumpy(x).astype(np.float64), wanted)
        assert error < bar, f"d{name}: {error:.2e}, the bar is {bar:.2e}"


SMALL = (1, 2, 300, 60, 40)
"""The last chunk is not full, nor are the tiles of a state."""
LARGE = (1, 2, 250, 128, 104)
"""The same in the tiles that whole warpgroups multiply."""


@pytest.mark.parametrize(("operator", "dtype"), [("linear_attention", "bf16"), ("simple_gla", "f16")])
@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_give_what_float64_gives(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, dtype: str, reverse: bool
) -> None:
    check(xp, asnumpy, make(operator, SMALL, dtype, gate_dtype="f32", reverse=reverse), dtype)


@pytest.mark.parametrize(("dtype", "sizes"), [("f16", SMALL), _on_a_gpu("bf16", SMALL), _on_a_gpu("bf16", LARGE)])
@pytest.mark.parametrize("gates", GATES)
def test_every_kind_of_gate_is_exact(
    xp: ModuleType, asnumpy: AsNumpy, gates: str, dtype: str, sizes: tuple[int, int, int, int, int]
) -> None:
    check(xp, asnumpy, make("simple_gla", sizes, dtype, gates=gates, gate_dtype="f32", seed=3), dtype)


@pytest.mark.parametrize(
    ("operator", "segments", "columns", "reverse"),
    [
        ("linear_attention", 1, 128, False),
        ("linear_attention", 3, 128, True),
        ("linear_attention", 2, 64, False),
        ("simple_gla", 1, 64, True),
        ("simple_gla", 3, 128, False),
    ],
)
def test_warpgroups_give_what_float64_gives(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    segments: int,
    columns: int,
    reverse: bool,
) -> None:
    cut = chunk_cut.Cut(128, columns, 64, segments, segments)
    monkeypatch.setattr(chunk_scan, "cut_of", lambda *about: cut)
    monkeypatch.setattr(chunk_scan, "segments_of", lambda *about: 0)
    forget()
    case = make(operator, LARGE, "bf16", gates="hard resets", reverse=reverse)
    assert "linear_chunk" in explain(OPERATORS[operator][0], *map(xp.asarray, case.arrays.values()), mode="chunk")
    check(xp, asnumpy, case, "bf16")
    forget()


@pytest.mark.parametrize("operator", ["linear_attention", _on_a_gpu("simple_gla")])
@pytest.mark.parametrize(("segments", "reverse"), [(1, True), _on_a_gpu(3, False)])
def test_warpgroups_take_wide_heads(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, operator: str, segments: int, reverse: bool
) -> None:
    usual = chunk_cut.cut_of
    monkeypatch.setattr(chunk_scan, "cut_of", lambda *about: usual(*about)._replace(pieces=segments, segments=segments))
    forget()
    case = make(operator, (1, 2, 450, 256, 136), "bf16", gates="hard resets", reverse=reverse)
    found = explain(OPERATORS[operator][0], *map(xp.asarray, case.arrays.values()), mode="chunk")
    assert "linear_chunk_k256" in found
    check(xp, asnumpy, case, "bf16")
    forget()


@pytest.mark.parametrize(
    ("sizes", "segments", "reverse"),
    [
        ((1, 1, 512, 128, 128), 2, False),
        ((1, 1, 500, 96, 136), 3, True),
        ((2, 1, 70, 128, 104), 2, False),
        _on_a_gpu((2, 3, 2000, 128, 256), 9, False),
    ],
)
def test_teams_give_what_float64_gives(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int, int, int],
    segments: int,
    reverse: bool,
) -> None:
    monkeypatch.setattr(chunk_scan, "segments_of", lambda *about: segments)
    forget()
    case = make("linear_attention", sizes, "bf16", reverse=reverse)
    on = [xp.asarray(x) for x in case.arrays.values()]
    assert "linear_team" in explain(linear_attention, *on, mode="chunk")
    check(xp, asnumpy, case, "bf16")
    alone = linear_attention(*on, scale=case.scale, reverse=reverse, mode="chunk")  # from nothing to nothing
    wanted, _ = reference.gated(*case.arrays.values(), scale=case.scale, reverse=reverse)
    assert rms_error(asnumpy(alone).astype(np.float64), wanted) < rms_bar("bf16", wanted.size)
    again = linear_attention(*on, scale=case.scale, reverse=reverse, mode="chunk")
    assert np.array_equal(asnumpy(alone), asnumpy(again))
    forget()


@pytest.mark.parametrize(
    ("sizes", "segments", "reverse"),
    [
        ((2, 2, 250, 128, 104), 1, False),
        ((1, 2, 250, 96, 128), 2, True),
        _on_a_gpu((1, 2, 700, 128, 128), 6, False),
        _on_a_gpu((1, 2, 450, 256, 136), 2, True),
    ],
)
def test_two_scans_of_a_launch_give_the_bits_of_each_alone(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int, int, int],
    segments: int,
    reverse: bool,
) -> None:
    usual = chunk_cut.cut_of
    monkeypatch.setattr(chunk_scan, "cut_of", lambda *about: usual(*about)._replace(pieces=segments, segments=segments))
    monkeypatch.setattr(chunk_scan, "segments_of", lambda *about: 0)
    case = make("linear_attention", sizes, "bf16", reverse=reverse)
    on = [xp.asarray(x) for x in (case.do, *case.arrays.values())]
    states = {"initial_state": xp.asarray(case.initial), "dstate": xp.asarray(case.dstate)}
    ends = {"cu_seqlens": xp.asarray(np.array([0, 70, 70, sizes[2] - 1], np.int32))} if sizes[0] == 1 else {}
    made = []
    for paired in (True, False):
        if not paired:
            monkeypatch.setattr(chunk, "pair_cut", lambda *about: None)
        forget()
        assert ("_pair" in explain(linear_attention_backward, *on, mode="chunk")) is paired
        options: Any = {"mode": "chunk", "reverse": reverse}
        results = [linear_attention_backward(*on, **states, **options), linear_attention_backward(*on, **options)]
        if ends:
            results.append(linear_attention_backward(*on, **ends, **options))
        do, q, *others = on
        results.append(linear_attention_backward(do, q[:, :1], *others, **options))  # heads share queries
        made.append([asnumpy(x) for result in results for x in result])
    for x, wanted in zip(*made, strict=True):
        past = sizes[2] - 1 if ends and x.shape[2] == sizes[2] else sizes[2]  # nobody writes time steps of no sequence
        assert np.array_equal(x[:, :, :past], wanted[:, :, :past])
    check(xp, asnumpy, case, "bf16")
    forget()


def test_two_scans_fill_a_device_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_cut, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(chunk_cut, "shared_memory", lambda device: 227 * 1024)

    def cut(sequences: int, length: int, scans: int) -> tuple[int, int]:
        p = Problem(sequences, sequences, 16, length, 128, 128, DTYPES["bf16"], 0, False, 1.0, False, 0, 0, HOST)
        found = chunk_cut.cut_of(p, 128, 128, True, scans)
        return found.segments, found.pieces

    assert (cut(4, 8192, 1), cut(4, 8192, 2)) == ((2, 4), (1, 1))
    assert (cut(1, 65536, 1), cut(1, 65536, 2)) == ((8, 8), (4, 8))
    assert (cut(8, 2048, 1), cut(8, 2048, 2)) == ((1, 1), (1, 1))  # in two rounds
    assert cut(1, 1024, 1) == cut(1, 1024, 2)  # as many as the length allows


def test_teams_take_what_they_have_room_for(xp: ModuleType) -> None:
    """A multiprocessor has room for 256 time steps, a team for so many multiprocessors."""
    few = multiprocessors(HOST if xp is np else current_device())
    most = 256 * min(few, LARGEST)
    for heads, length, found in ((1, most, True), (1, most + 1, False), (1, 511, False), (few, 512, False)):
        x = xp.zeros((1, heads, length, 128), DTYPES["bf16"].numpy)
        assert ("linear_team" in explain(linear_attention, x, x, x)) is found, (heads, length)


def test_warps_take_no_more_registers_than_others_hand_over() -> None:
    """Warps that ask for more than a launch gave to all of the block wait for ever."""
    kinds = [(spec, ("LOADER", "STATE")) for spec in LINEAR.specs(lambda name, value: name != "outer" or not value)]
    kinds += [(spec, ("HELPER", "WORKER")) for spec in TEAM.specs()]
    for spec, (few, many) in kinds:
        threads, with_many = spec.derived["THREADS"], 2 * spec["V"]
        each = 65536 // threads // 8 * 8
        taken = (threads - with_many) * spec.derived[f"{few}_REGISTERS"]
        assert taken + with_many * spec.derived[f"{many}_REGISTERS"] <= threads * each, spec


@pytest.mark.parametrize("segments", [1, 2])
def test_what_the_last_step_adds_does_not_drown_the_gradients_of_gates(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    """Where gates leave next to nothing, a state is what its last step added, and that has no part in any dg."""
    monkeypatch.setattr(chunk_scan, "cut_of", lambda *about: chunk_cut.Cut(64, 64, 64, segments, segments))
    forget()
    for seed in range(6):
        case = make("simple_gla", (1, 2, 100, 60, 40), "f16", gates="saturated", gate_dtype="f32", seed=seed)
        check(xp, asnumpy, case, "f16")
    forget()


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


@pytest.mark.parametrize(
    ("operator", "sizes", "segments"),
    [("linear_attention", (1, 2, 250, 128, 128), 1), ("simple_gla", (1, 1, 200, 128, 100), 2)],
)
def test_gpus_with_little_shared_memory_take_shorter_chunks(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    sizes: tuple[int, int, int, int, int],
    segments: int,
) -> None:
    little, usual = 99 * 1024, chunk_cut.cut_of
    monkeypatch.setattr(chunk_scan, "cut_of", lambda *about: usual(*about)._replace(pieces=segments, segments=segments))
    for module in (chunk, chunk_cut):
        monkeypatch.setattr(module, "shared_memory", lambda device: little)
    forget()
    case = make(operator, sizes, "bf16", gate_dtype="f32")
    (forward, backward), arrays = OPERATORS[operator], [xp.asarray(x) for x in case.arrays.values()]
    calls = explain(forward, *arrays, mode="chunk"), explain(backward, xp.asarray(case.do), *arrays, mode="chunk")
    kernels = [parse(line.split()[0]) for call in calls for line in call.splitlines()[:-1]]
    assert {spec["C"] for spec in kernels if spec.kernel is CHUNK} == {32}
    assert max(spec.static_smem + spec.dynamic_smem for spec in kernels) <= little
    check(xp, asnumpy, case, "bf16")
    wide = xp.zeros((1, 1, 64, 129), case.do.dtype)
    with pytest.raises(ValueError, match=r"at most 128 features where a block has 101376 bytes of shared memory"):
        linear_attention(wide, wide, wide, mode="chunk")
    forget()


def test_pieces_and_segments_change_nothing_but_roundings(
    xp: ModuleType, asnumpy: AsNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make("simple_gla", SMALL, "f16", gate_dtype="f32")
    for segments, pieces in ((1, 1), (2, 4), (3, 3), (4, 8)):
        cut = chunk_cut.Cut(64, 64, 64, pieces, segments)
        monkeypatch.setattr(chunk_scan, "cut_of", lambda *about, cut=cut: cut)
        forget()
        check(xp, asnumpy, case, "f16")
    forget()


def forget() -> None:
    """What operators remember of calls, which no cut is part of."""
    plans.forget(OPERATORS_BY_NAME[each.__name__] for both in OPERATORS.values() for each in both)


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

    do = xp.asarray(case.do)
    made = linear_attention_backward(do, q, k, v, mode="chunk")
    turned = [xp.ascontiguousarray(x.swapaxes(1, 2)) for x in (do, q, k, v)]
    for a, b in zip(made, linear_attention_backward(*turned, mode="chunk", layout="bthd"), strict=True):
        assert np.array_equal(asnumpy(a), asnumpy(b).swapaxes(1, 2))


@pytest.mark.parametrize(
    ("operator", "features", "values", "dtype"),
    [
        ("linear_attention", 150, 130, "bf16"),
        _on_a_gpu("linear_attention", 131, 40, "f16"),
        _on_a_gpu("simple_gla", 150, 40, "bf16"),
        _on_a_gpu("simple_gla", 132, 150, "f16"),
    ],
)
def test_rows_of_wide_heads_may_be_loaded_in_small_words(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, features: int, values: int, dtype: str
) -> None:
    """A row of 256 numbers in words of four bytes has more of these than the loaders have threads."""
    check(xp, asnumpy, make(operator, (1, 1, 70, features, values), dtype, gate_dtype="f32"), dtype)


@pytest.mark.parametrize("operator", ["linear_attention", _on_a_gpu("simple_gla")])
def test_heads_may_share_queries_keys_and_values(xp: ModuleType, asnumpy: AsNumpy, operator: str) -> None:
    case = make(operator, SMALL, "f16", gate_dtype="f32")
    q, k, v, *g = case.arrays.values()
    on = [xp.asarray(x) for x in (q, k[:, :1], v[:, 1:], *(x[:, :1] for x in g))]
    whole = (q, k[:, [0, 0]], v[:, [1, 1]], *(x[:, [0, 0]] for x in g))
    forward, backward = OPERATORS[operator]
    expected, _ = reference.gated(*whole, scale=60**-0.5)
    assert rms_error(asnumpy(forward(*on, mode="chunk")).astype(np.float64), expected) < rms_bar("f16", expected.size)
    wanted = reference.gated_backward(case.do, *whole, scale=60**-0.5)
    for name, x in zip(case.arrays, backward(xp.asarray(case.do), *on, mode="chunk"), strict=True):
        both = wanted[name] if name == "q" else wanted[name].sum(1, keepdims=True)
        assert rms_error(asnumpy(x).astype(np.float64), both) < (SLOPE_BAR if name == "g" else 9e-4), name


@pytest.mark.parametrize(("feature_map", "dtype"), [("relu", "bf16"), ("elu", "f16")])
def test_feature_maps_are_those_of_numpy(xp: ModuleType, asnumpy: AsNumpy, feature_map: str, dtype: str) -> None:
    case = make("linear_attention", SMALL, dtype)
    q, k, v = case.arrays.values()
    mapped = {"elu": lambda x: np.where(x > 0, x + 1, np.exp(x)), "relu": lambda x: np.maximum(x, 0)}[feature_map]
    slope = {"elu": lambda x: np.where(x > 0, 1, np.exp(x)), "relu": lambda x: (x > 0) * 1.0}[feature_map]
    wide = [x.astype(np.float64) for x in (q, k)]
    case.arrays = {"q": mapped(wide[0]), "k": mapped(wide[1]), "v": v}
    o, state, grads = case.expected()
    options: Any = {"feature_map": feature_map, "mode": "chunk", "initial_state": xp.asarray(case.initial)}
    on = [xp.asarray(x) for x in (q, k, v)]
    result, last = linear_attention(*on, return_state=True, **options)
    assert rms_error(asnumpy(result).astype(np.float64), o) < rms_bar(dtype, o.size)
    assert rms_error(asnumpy(last), state) < STATE_BAR
    made = linear_attention_backward(xp.asarray(case.do), *on, dstate=xp.asarray(case.dstate), **options)
    expected = (grads["q"] * slope(wide[0]), grads["k"] * slope(wide[1]), grads["v"])
    for x, wanted in zip(made, expected, strict=False):
        assert rms_error(asnumpy(x).astype(np.float64), wanted) < GRADIENT_SLACK * rms_bar(dtype, wanted.size)


@pytest.mark.parametrize(
    ("reverse", "sizes", "team"),
    [(False, (60, 40), 0), (True, (60, 40), 0), (False, (120, 128), 0), (False, (120, 128), 2), (True, (128, 136), 3)],
)
def test_sequences_may_follow_one_another(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    reverse: bool,
    sizes: tuple[int, int],
    team: int,
) -> None:
    monkeypatch.setattr(chunk_scan, "segments_of", lambda *about: team)
    forget()
    case = make("linear_attention", (1, 2, 300, *sizes), "bf16", reverse=reverse)
    ends = np.array([0, 0, 70, 299], np.int32)
    initial = np.random.default_rng(5).standard_normal((3, 2, *sizes)).astype("f")
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
        expected, state = reference.gated(*part, scale=case.scale, initial=initial[i : i + 1], reverse=reverse)
        assert rms_error(asnumpy(last)[i], state[0]) < 1e-6
        if end > begin:
            assert rms_error(o[:, :, begin:end], expected) < rms_bar("bf16", expected.size)
    assert not o[:, :, 299:].any()
    forget()


@pytest.mark.parametrize(
    ("operator", "reverse"), [("linear_attention", False), ("linear_attention", True), _on_a_gpu("simple_gla", True)]
)
def test_gradients_of_sequences_that_follow_one_another_are_those_apart(
    xp: ModuleType, asnumpy: AsNumpy, operator: str, reverse: bool
) -> None:
    case = make(operator, (1, 2, 300, 60, 40), "bf16", gate_dtype="f32", reverse=reverse)
    ends = np.array([0, 0, 70, 300], np.int32)
    states = np.random.default_rng(5).standard_normal((2, 3, 2, 60, 40)).astype("f")
    initial, dstate = (xp.asarray(x) for x in states)
    on = [xp.asarray(x) for x in (case.do, *case.arrays.values())]
    common: Any = {"reverse": reverse, "mode": "chunk"}
    backward = OPERATORS[operator][1]
    made = backward(*on, initial_state=initial, dstate=dstate, cu_seqlens=xp.asarray(ends), **common)
    *gradients, dinitial = map(asnumpy, made)
    assert np.array_equal(dinitial[0], states[1][0])
    for i, (begin, end) in enumerate(pairwise(ends)):
        part = [x[:, :, begin:end] for x in on]
        if end == begin:
            continue
        apart = backward(*part, initial_state=initial[i : i + 1], dstate=dstate[i : i + 1], **common)
        for name, x, wanted in zip(case.arrays, gradients, apart, strict=False):
            assert rms_error(x[:, :, begin:end].astype(np.float64), asnumpy(wanted).astype(np.float64)) < 1e-6, name
        assert rms_error(dinitial[i], asnumpy(apart[-1])[0].astype(np.float64)) < 1e-6


def test_a_call_gives_the_same_bits_again(xp: ModuleType, asnumpy: AsNumpy) -> None:
    case = make("simple_gla", SMALL, "f16", gate_dtype="f32")
    on = [xp.asarray(x) for x in case.arrays.values()]
    do = xp.asarray(case.do)
    first, again = (simple_gla_backward(do, *on, mode="chunk") for _ in range(2))
    assert all(np.array_equal(asnumpy(a), asnumpy(b)) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(
    ("dtype", "sizes", "options", "words"),
    [
        ("f32", (1, 1, 70, 8, 8), {}, "it takes float16 and bfloat16"),
        ("bf16", (1, 1, 70, 257, 8), {}, "at most 256 features"),
        ("bf16", (1, 1, 70, 8, 8), {"normalize": True}, "no normalizer"),
        ("bf16", (1, 1, 70, 8, 8), {"feature_map": "elu"}, "relu, and with float16 elu"),
    ],
)
def test_what_chunks_cannot_do_is_said(
    xp: ModuleType, dtype: str, sizes: tuple[int, int, int, int, int], options: dict[str, Any], words: str
) -> None:
    case = make("linear_attention", sizes, dtype)
    with pytest.raises(ValueError, match=f"linear_attention: mode='chunk' does not take this: .*{words}"):
        linear_attention(*map(xp.asarray, case.arrays.values()), mode="chunk", **options)


def test_gradients_are_not_computed_as_the_article_does(xp: ModuleType) -> None:
    x = xp.zeros((1, 1, 4, 8), "f")
    with pytest.raises(ValueError, match="linear_attention_backward: mode is 'article'"):
        linear_attention_backward(x, x, x, x, mode="article")


def test_long_sequences_are_walked_in_chunks_and_short_ones_step_by_step(xp: ModuleType) -> None:
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
