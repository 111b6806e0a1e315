"""The bench harness with no GPU: a clock that the test winds by hand takes the device's place."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgen import bench, bench_table, timing
from kgen.benchmarks import Bars, BenchError, Case, Contestant, bench_of, operators, select
from kgen.benchmarks.causal_dot_product import BENCH, SHAPES
from kgen.benchmarks.gla import Gated
from kgen.benchmarks.histogram import exact_sums
from kgen.dtypes import BF16, F16, F32


class Clock:
    """Time that passes only when a contestant runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def takes(self, name: str, ms: float) -> timing.Call:
        def call(number: int) -> None:
            self.now += ms
            self.log.append(name)

        return call

    def timer(self, call: Callable[[], object], calls: int) -> float:
        start = self.now
        for _ in range(calls):
            call()
        return self.now - start


def test_measure_returns_milliseconds_per_call() -> None:
    clock = Clock()
    times = timing.measure({"a": clock.takes("a", 0.5), "b": clock.takes("b", 2.0)}, timer=clock.timer)
    assert times["a"].ms == pytest.approx(0.5)
    assert times["b"].ms == pytest.approx(2.0)
    assert times["a"].samples == 20


def test_a_sample_lasts_at_least_min_ms() -> None:
    clock = Clock()
    times = timing.measure({"a": clock.takes("a", 0.25), "b": clock.takes("b", 7.0)}, timer=clock.timer, min_ms=3)
    assert times["a"].calls == 12
    assert times["b"].calls == 1


def test_contestants_take_turns() -> None:
    clock = Clock()
    names = ("a", "b", "c")
    timing.measure({n: clock.takes(n, 5.0) for n in names}, reps=4, min_ms=1, warm_ms=1, timer=clock.timer)
    assert "".join(clock.log[-12:]) == "abcabcabcabc"


def test_a_slow_contestant_gets_fewer_samples_from_all_over_the_run() -> None:
    clock = Clock()
    contestants = {"slow": clock.takes("s", 150.0), "fast": clock.takes("f", 5.0)}
    times = timing.measure(contestants, reps=20, timer=clock.timer)
    assert (times["slow"].samples, times["fast"].samples) == (3, 20)
    assert times["slow"].ms == pytest.approx(150)
    assert "".join(clock.log).startswith("sfff")  # a call that lasts as long as a warm-up has warmed up
    slow = [at for at, name in enumerate(clock.log[-23:]) if name == "s"]
    assert slow == [0, 8, 16]


def test_every_call_gets_the_next_number_so_that_input_sets_rotate() -> None:
    seen: list[int] = []
    clock = Clock()

    def contestant(number: int) -> None:
        seen.append(number)
        clock.now += 1.0

    timing.measure({"a": contestant}, reps=3, timer=clock.timer)
    assert seen == list(range(len(seen)))


def test_a_drifting_clock_shows_in_the_spread_and_not_in_the_ratio() -> None:
    clock = Clock()
    pace = iter(np.repeat(np.linspace(1, 2, 4000), 2))

    def contestant(number: int) -> None:
        clock.now += next(pace)

    times = timing.measure({"a": contestant, "b": contestant}, reps=50, min_ms=1, warm_ms=1, timer=clock.timer)
    assert times["a"].ms / times["b"].ms == pytest.approx(1, abs=0.02)


def test_a_graph_replay_counts_as_its_calls() -> None:
    clock = Clock()

    def capture(call: Callable[[], object]) -> Callable[[], object]:
        def replay() -> None:
            clock.now += 0.1 * timing.GRAPH_CALLS

        return replay

    call = clock.takes("a", 5.0)
    times = timing.measure({"a": call, "b": call}, graph=["a"], timer=clock.timer, capture=capture)
    assert times["a"].ms == pytest.approx(0.1)
    assert times["b"].ms == pytest.approx(5.0)
    assert times["a"].calls % timing.GRAPH_CALLS == 0


class _Queue:
    """A device behind a host: a call takes the host `host` ms to queue, and the device `device` ms from then on."""

    def __init__(self, host: float, device: float) -> None:
        self.host, self.device = host, device
        self.now = self.free = 0.0
        queue = self

        class Event:
            def record(self) -> None:
                self.at = max(queue.now, queue.free)

            def synchronize(self) -> None:
                queue.now = max(queue.now, self.at)

        self.cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda start, stop: stop.at - start.at)

    def call(self) -> None:
        self.now += self.host
        self.free = max(self.now, self.free) + self.device


def test_one_long_call_does_not_show_how_the_host_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, device, seen in ((0.4, 2.0, 2.0), (0.4, 0.1, 0.4)):
        queue = _Queue(host, device)
        monkeypatch.setitem(sys.modules, "cupy", queue)
        for calls in (1, 5):
            assert timing.event_ms(queue.call, calls) == pytest.approx(seen * calls)


def test_timing_keeps_median_and_quartiles() -> None:
    taken = timing.Timing.of([1.0, 2.0, 3.0, 4.0, 100.0], calls=1)
    assert (taken.ms, taken.low, taken.high) == (3.0, 2.0, 4.0)
    assert taken.spread == pytest.approx(2 / 3)
    assert timing.Timing.of([2.0], calls=1).spread == 0


def test_host_cost_leaves_waiting_for_the_device_out() -> None:
    clock = Clock()

    def drain() -> None:
        clock.now += 1000.0

    cost = timing.host_cost(
        {"a": lambda: clock.takes("a", 0.005)(0), "b": lambda: clock.takes("b", 0.01)(0)},
        clock=lambda: clock.now,
        synchronize=drain,
    )
    assert cost["a"].ms == pytest.approx(5.0)  # the clock counts seconds
    assert cost["b"].ms == pytest.approx(10.0)


def test_copy_bandwidth_counts_bytes_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"copy": timing.Timing.of([0.5], 1)}
    monkeypatch.setattr(timing, "measure", lambda *a, **k: taken)
    monkeypatch.setitem(__import__("sys").modules, "cupy", _FakeCupy())
    assert timing.copy_bandwidth(1 << 30) == pytest.approx(2 * (1 << 30) / 0.5e-3)


class _FakeCupy:
    uint8 = np.uint8
    ones = staticmethod(lambda n, dtype: None)
    empty = staticmethod(lambda n, dtype: None)


def test_every_operator_declares_a_bench_of_its_own_name() -> None:
    assert "causal_dot_product" in operators()
    for operator in operators():
        assert bench_of(operator).operator == operator


def test_unknown_operator_names_those_that_exist() -> None:
    with pytest.raises(BenchError, match="causal_dot_product"):
        bench_of("fast_fourier")


def test_causal_dot_product_declares_every_shape_dtype_and_pass() -> None:
    cases = BENCH.cases()
    assert len(cases) == len(set(cases)) == len(SHAPES) * 3 * 2
    quick = BENCH.cases(quick=True)
    assert set(quick) < set(cases)
    assert {case.dtype for case in quick} == {F32}


@pytest.mark.parametrize("shape", SHAPES)
def test_labels_parse_back_to_their_shapes(shape: tuple[int, ...]) -> None:
    assert BENCH.shape_of(BENCH.label(shape)) == shape


@pytest.mark.parametrize("text", ["", "8x16", "8x16x0x64", "8x16x2048x64x32x1", "8,16,2048,64", "8xhx2048x64"])
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(BenchError, match="is no shape"):
        BENCH.shape_of(text)


@pytest.mark.parametrize(
    ("shape", "dtype", "stage", "nbytes"),
    [
        ((1, 8, 2048, 64), F32, "forward", 8 * 2048 * (2 * 64 + 2 * 64) * 4),
        ((1, 8, 2048, 64), F16, "forward", 8 * 2048 * (2 * 64 + 2 * 64) * 2),
        ((2, 3, 10, 32, 16), BF16, "backward", 60 * (4 * 32 + 3 * 16) * 2),
    ],
)
def test_floor_counts_each_operand_once(shape: tuple[int, ...], dtype: object, stage: str, nbytes: int) -> None:
    assert BENCH.nbytes(Case(shape, dtype, stage)) == nbytes  # type: ignore[arg-type]


def test_floor_of_a_known_row_at_a_known_bandwidth() -> None:
    assert BENCH.nbytes(Case((8, 16, 2048, 128), F32, "forward")) / 4.3e12 * 1e3 == pytest.approx(0.125, rel=0.01)


def test_ladder_offers_every_cut_of_the_bucket_that_holds_the_width() -> None:
    names = BENCH.ladder(Case((4, 4, 1024, 100), F16, "forward"))
    assert {f"lmha_low_occupancy_e128_w{warps}_c4_f16" for warps in (4, 8, 16)} < set(names)
    assert all(name.endswith("_f16") and "_e128_" in name for name in names[3:])
    assert BENCH.ladder(Case((1, 1, 64, 300), F32, "forward")) == ["lmha", "lmha_low_occupancy", "lmha_chunk"]


def test_gradients_have_a_little_more_room() -> None:
    forward, backward = (BENCH.bars(Case((1, 1, 1, 1), F16, stage)) for stage in ("forward", "backward"))
    assert backward.rms == pytest.approx(1.5 * forward.rms)


class _NumPyAsCuPy:
    """What the benches of gated operators need of CuPy, from NumPy."""

    random = np.random
    float32 = np.float32
    logaddexp = np.logaddexp
    empty = staticmethod(np.empty)
    asarray = staticmethod(np.asarray)
    asnumpy = staticmethod(np.asarray)
    from_dlpack = staticmethod(np.from_dlpack)


def _peer_of(normal: bool) -> Callable[..., Any]:
    """What the peer computes, step by step on [B, T, H, D]; its default would be to normalize."""
    import torch

    def attend(q: Any, k: Any, v: Any, g: Any = None, u: Any = None, *, normalize: bool = normal) -> tuple[Any, None]:
        assert not normalize
        q, k, v, g, u = (x if x is None else x.double() for x in (q, k, v, g, u))
        state, made = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3]).double(), []
        for t in range(q.shape[1]):
            own = k[:, t, :, :, None] * v[:, t, :, None, :]
            decay = 1 if g is None else g[:, t].exp().reshape(*g.shape[:1], *g.shape[2:], *[1] * (5 - g.ndim))
            before, state = state, decay * state + own
            read = state if u is None else before + u[:, :, None] * own
            made.append((q[:, t, :, :, None] * read).sum(2) * q.shape[3] ** -0.5)
        return torch.stack(made, 1), None

    return attend


@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("operator", ["linear_attention", "simple_gla", "gla", "rwkv6"])
def test_the_peer_of_a_gated_operator_computes_the_same_from_the_same_inputs(
    operator: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    found = bench_of(operator)
    assert isinstance(found, Gated)
    module, name = found.peers
    peer = _peer_of(operator == "linear_attention")
    functions = {f"{form}_{name}": peer for form in ("chunk", "fused_recurrent")}
    monkeypatch.setitem(sys.modules, "cupy", _NumPyAsCuPy())
    monkeypatch.setitem(sys.modules, f"fla.ops.{module}", SimpleNamespace(**functions))
    case = Case((2, 3, 7, 5, 4), BF16, stage)
    sets = found._operands(case, 2)
    assert [x.ndim for x in sets[0].inputs] == [
        4,
        4,
        4,
        *([2 + found.gate] if found.gate else []),
        *([2] if found.bonus else []),
    ]
    exact = found._reference(case, sets[0])
    contestants = found._fla(case, sets)
    assert [c.name for c in contestants] == ["fla chunk", "fla recurrent"]
    for contestant in contestants:
        assert contestant.outputs
        rms, _ = bench.errors(contestant.outputs(contestant.call(2)), exact)  # 2 is set 0 again
        assert rms < (1e-7 if stage == "forward" else 4e-3)  # gradients come as bfloat16
    monkeypatch.setitem(sys.modules, f"fla.ops.{module}", None)  # as where it is not installed
    assert found._fla(case, sets) == []


def test_floor_of_gated_operators_counts_their_gates() -> None:
    shape, rows = (2, 3, 10, 32, 16), 60
    for operator, gates in (("linear_attention", 0), ("simple_gla", 1), ("gla", 32), ("rwkv6", 32)):
        nbytes = bench_of(operator).nbytes
        assert nbytes(Case(shape, BF16, "forward")) == rows * (2 * 32 + 2 * 16 + gates) * 2
        assert nbytes(Case(shape, BF16, "backward")) == rows * (4 * 32 + 3 * 16 + 2 * gates) * 2


def test_selection_by_row_dtype_and_pass() -> None:
    all_words: dict[str, list[str]] = {"rows": [], "dtypes": [], "stages": []}
    assert select(BENCH, **all_words, quick=False) == BENCH.cases()
    chosen = select(BENCH, rows=["8x16x2048x64"], dtypes=["f16"], stages=["backward"], quick=False)
    assert chosen == [Case((8, 16, 2048, 64), F16, "backward")]
    own = select(BENCH, rows=["2x3x77x20x40"], dtypes=[], stages=[], quick=True)
    assert {case.shape for case in own} == {(2, 3, 77, 20, 40)}
    assert len(own) == 2 * 3
    with pytest.raises(BenchError, match="no such row"):
        select(BENCH, rows=[], dtypes=["f64"], stages=[], quick=False)


@pytest.mark.parametrize(
    ("operator", "pattern", "found"),
    [
        ("reduce", "sum rows", {"sum rows"}),
        ("reduce", "sum *", {"sum all", "sum rows", "sum columns"}),
        ("reduce", "rows", {"sum rows", "max rows", "argmax rows"}),
        ("gemv", "plain", {"plain"}),
        ("elementwise", "add", {"add"}),
        ("norm", "backward", {"layer backward", "rms backward"}),
        ("histogram", "*weights", {"float32 weights", "float64 weights"}),
    ],
)
def test_a_pass_is_chosen_by_its_name_its_last_word_or_a_pattern(operator: str, pattern: str, found: set[str]) -> None:
    chosen = select(bench_of(operator), rows=[], dtypes=[], stages=[pattern], quick=False)
    assert {case.stage for case in chosen} == found


def test_an_unknown_pass_names_those_that_exist() -> None:
    with pytest.raises(BenchError) as error:
        select(bench_of("gemv"), rows=[], dtypes=[], stages=["forward"], quick=False)
    assert "'plain', 'transposed'" in str(error.value)


def test_a_ladder_takes_the_first_row_in_what_was_not_named() -> None:
    cases = BENCH.cases()
    assert bench._first(cases, any_shape=False, any_dtype=False, any_stage=False) == [Case(SHAPES[0], F32, "forward")]
    both = bench._first(cases, any_shape=False, any_dtype=False, any_stage=True)
    assert [case.stage for case in both] == ["forward", "backward"]


def test_verdict_judges_by_the_worse_of_both_errors() -> None:
    bars = Bars(2e-6, 1e-5)
    assert bench.verdict(1e-7, 9e-6, bars) == "ok"
    assert bench.verdict(1e-7, 2e-5, bars) == "inexact"
    assert bench.verdict(1e-5, 9e-6, bars) == "inexact"
    assert bench.verdict(3e-4, 1e-3, bars) == "wrong"
    assert bench.verdict(math.nan, math.nan, bars) == "wrong"
    assert bench.verdict(math.inf, 0.0, bars) == "wrong"
    assert bench.verdict(1e-7, 1.0, Bars(2e-6)) == "ok"


def test_an_error_that_a_peers_method_is_known_to_make_is_inexact_and_still_timed() -> None:
    assert bench.verdict(3e-5, 0.0, Bars(1e-6)) == "wrong"
    assert bench.verdict(3e-5, 0.0, Bars(1e-6, known=1e-4)) == "inexact"
    assert bench.verdict(2e-4, 0.0, Bars(1e-6, known=1e-4)) == "wrong"


def test_angles_in_float32_are_off_by_no_more_than_rope_knows_of_peers() -> None:
    bars = bench_of("rope").bars
    for shape in ((4, 32, 4096, 128), (8, 32, 4096, 64)):
        length, width = shape[2:]
        exponent = -np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
        angle = np.arange(length, dtype=np.float32)[:, None] * np.float32(1e4) ** exponent
        off = angle - np.arange(length)[:, None] * 1e4 ** (-2 * np.arange(width // 2) / width)
        limits = bars(Case(shape, F32, "halves"))
        assert bench.WRONG * limits.rms < math.sqrt((off**2).mean()) < abs(off).max() < limits.known


def test_calls_of_torch_stand_beside_those_of_kgen_and_one_that_raises_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses() -> None:
        raise RuntimeError("not here")

    found = {"sum": (lambda: None, lambda: None), "prod": (lambda: None, refuses)}
    monkeypatch.setattr(bench, "pairs", lambda operator: found)
    monkeypatch.setattr(bench, "_raw_kernel_call", lambda: lambda: None)
    monkeypatch.setattr(bench, "host_cost", lambda calls: {name: timing.Timing.of([0.01], 1) for name in calls})
    quiet = SimpleNamespace(operator="reduce", host_call=lambda: lambda: None)
    rows = bench._host_rows(quiet, peers=True)  # type: ignore[arg-type]
    assert [(row["pass"], row["contestant"], row["status"]) for row in rows] == [
        ("host", "kgen", "ok"),
        ("host", "cupy.RawKernel", "ok"),
        ("host sum", "kgen", "ok"),
        ("host sum", "torch", "ok"),
        ("host prod", "torch", "failed"),
        ("host prod", "kgen", "ok"),
    ]
    assert rows[4]["note"] == "RuntimeError: not here"
    assert len(bench._host_rows(quiet, peers=False)) == 2  # type: ignore[arg-type]


def test_errors_take_the_worst_output_and_keep_a_nan() -> None:
    exact = np.array([1.0, -2.0, 2.0])
    rms, max_rel = bench.errors([exact, exact * 1.1], [exact, exact])
    assert rms == pytest.approx(0.1)
    assert max_rel == pytest.approx(0.1, rel=1e-5)
    spoiled = np.array([1.0, np.nan, 2.0], np.float32)
    assert all(map(math.isnan, bench.errors([exact, spoiled], [exact, exact])))
    with pytest.raises(ValueError, match="shape"):
        bench.errors([exact[:2]], [exact])


class Memory:
    """A NumPy array that can be poisoned like device memory."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, np.float32)
        self.nbytes = self.values.nbytes
        self.data = self

    def memset(self, byte: int, nbytes: int) -> None:
        self.values.view(np.uint8)[:nbytes] = byte


def _contestant(memory: Memory, call: Callable[[int], object], poison: int = 0xFF) -> Contestant:
    return Contestant("someone", call, [memory], lambda result: [memory.values], poison)


def test_an_element_that_nobody_wrote_makes_the_result_wrong() -> None:
    memory = Memory(4)

    def forgetful(number: int) -> None:
        memory.values[:3] = 1

    row = bench.check(_contestant(memory, forgetful), [np.ones(4)], Bars(1e-6))
    assert row["status"] == "wrong"
    assert "nobody wrote" in row["note"]


def test_one_that_adds_to_its_output_is_checked_on_zeros() -> None:
    memory = Memory(4)

    def adder(number: int) -> None:
        memory.values += 1

    assert bench.check(_contestant(memory, adder, poison=0), [np.ones(4)], Bars(1e-6))["status"] == "ok"


def test_a_contestant_that_raises_is_reported_and_not_fatal() -> None:
    def refuses(number: int) -> None:
        raise RuntimeError("width 7 is not taken\nmore of it")

    row = bench.check(_contestant(Memory(1), refuses), [np.ones(1)], Bars(1e-6))
    assert row == {"status": "failed", "note": "RuntimeError: width 7 is not taken"}


def test_ratios_are_to_the_floor_and_to_kgen() -> None:
    own, peer = timing.Timing.of([0.2], 5), timing.Timing.of([1.0], 1)
    row = bench.timing(peer, 0.05, own)
    assert row["times_floor"] == pytest.approx(20)
    assert row["times_kgen"] == pytest.approx(5)
    assert bench.timing(None, 0.05, own) == {"ms": None}
    assert bench.timing(peer, None, None)["times_kgen"] is None


MACHINE = {
    "date": "2026-01-02 03:04 UTC",
    "device": "NVIDIA H200",
    "driver": "580.1",
    "cuda": "13.0",
    "versions": {"cupy": "14.2.0"},
    "copy_gb_s": 4250.0,
}


def _row(contestant: str, ms: float | None, **more: object) -> bench.Row:
    place = {"operator": "causal_dot_product", "machine": MACHINE, "shape": "1x8x2048x64", "dtype": "f32"}
    return {
        **place,
        "pass": "forward",
        "floor_ms": 0.003947,
        "contestant": contestant,
        "ms": ms,
        "status": "ok",
        **more,
    }


def test_table_is_aligned_dated_and_says_a_shared_place_once() -> None:
    text = bench.table([_row("kgen", 0.0211, times_kgen=1.0), _row("fast_transformers", 0.12203, times_kgen=5.78)])
    lines = text.splitlines()
    assert lines[0] == "causal_dot_product, 2026-01-02 03:04 UTC"
    assert "NVIDIA H200, driver 580.1, CUDA 13.0; cupy 14.2.0" in text
    assert "4250 GB/s" in text
    header, first, second = lines[-3:]
    assert text.count("1x8x2048x64") == 1
    for title in ("contestant", "result"):
        assert {line[header.index(title) - 1] for line in (header, first, second)} == {" "}
    for title in ("  ms", "x kgen"):
        end = header.index(title) + len(title)
        assert all(line[end - 1].isdigit() and line[end] == " " for line in (first, second))
    assert not any(line != line.rstrip() for line in lines)


def test_table_shows_a_failure_without_figures() -> None:
    text = bench.table([_row("fla chunk", None, status="failed", note="RuntimeError: no kernel image")])
    assert text.endswith("failed  RuntimeError: no kernel image")


def test_table_of_nothing() -> None:
    assert bench.table([]) == "nothing was timed"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0039113, "0.003911"), (0.122, "0.1220"), (54.0123, "54.01"), (12345.6, "12346"), (0.0, "0.0")],
)
def test_times_show_four_figures(value: float, text: str) -> None:
    assert bench_table._figures(value) == text


def test_bench_modules_do_not_import_cupy() -> None:
    import subprocess
    import sys

    names = "kgen.bench, kgen.timing, kgen.benchmarks.causal_dot_product"
    code = f"import sys, {names}; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_reference_of_weighted_counts_is_exact_where_a_sum_of_doubles_is_not(dtype: str) -> None:
    rng = np.random.default_rng(7)
    x, weights = rng.integers(0, 3, 20_000), (rng.random(20_000) ** 9).astype(dtype)
    weights[:3] = 0, 1, 2.0**-149
    sums = [Fraction(0)] * 5
    for bin_, weight in zip(x.tolist(), weights.tolist()):
        sums[bin_] += Fraction(weight)
    exact = exact_sums(np, x, weights, 5)
    assert exact.tolist() == [float(total) for total in sums]
    assert exact.tolist() != np.bincount(x, weights, minlength=5).tolist()
    assert exact_sums(np, x, 0 * weights, 5).tolist() == [0.0] * 5
