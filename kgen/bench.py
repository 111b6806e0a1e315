"""`kgen bench`: first whether each contestant is right, then how fast, all in one run on one device.

A contestant whose result is wrong is reported as wrong and never timed. Ratios are between times of the same run.
"""

from __future__ import annotations

import importlib.metadata
import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kgen.bench_hosts import pairs
from kgen.bench_table import Row, table
from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, bench_of, select
from kgen.timing import Timing, copy_bandwidth, host_cost, measure

__all__ = ["Row", "machine", "run", "table"]

WRONG = 10.0
"""Times its bar by which an error makes a result wrong; between the bar and that it is inexact, and still timed."""

_PACKAGES = ("kgen", "torch", "triton", "flash-linear-attention", "fla-core", "pytorch-fast-transformers")


def run(
    operator: str,
    *,
    rows: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    stages: Sequence[str] = (),
    quick: bool = False,
    ladder: bool = False,
    algorithms: Sequence[str] = (),
    peers: bool = True,
    graph: bool = False,
    on_row: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Check and time an operator's rows on the current device; one dict per row and contestant.

    rows        shapes as the table writes them, declared or not; none: all that are declared
    dtypes      f32, f16, bf16; none: all
    stages      passes, or patterns of them; none: all
    quick       the small rows only, in few samples
    ladder      kgen's own algorithms side by side, on the first row, dtype and pass unless others are named
    algorithms  further algorithms to time, by name
    graph       replay kgen's calls as CUDA graphs: for problems so small that the host sets the pace
    on_row      called with each dict as soon as it stands, those of the host included
    """
    bench = bench_of(operator)
    cases = select(bench, rows=rows, dtypes=dtypes, stages=stages, quick=quick)
    if ladder:
        cases = _first(cases, any_shape=bool(rows), any_dtype=bool(dtypes), any_stage=bool(stages))
    bandwidth = copy_bandwidth()
    facts = machine() | {"copy_gb_s": bandwidth / 1e9}
    effort = {"reps": 7, "min_ms": 1.0} if quick else {}
    found: list[Row] = []
    for case in cases:
        named = [*algorithms, *(bench.ladder(case) if ladder else [])]
        for row in _case_rows(bench, case, named, peers, graph, bandwidth, effort):
            found.append(row | {"operator": operator, "machine": facts})
            on_row(found[-1])
    for row in [] if ladder else _host_rows(bench, peers):
        found.append(row | {"operator": operator, "machine": facts})
        on_row(found[-1])
    return found


def _first(cases: Sequence[Case], *, any_shape: bool, any_dtype: bool, any_stage: bool) -> list[Case]:
    """The cases that are like the first one in everything that was not asked for by name."""
    first = cases[0]
    return [
        case
        for case in cases
        if (any_shape or case.shape == first.shape)
        and (any_dtype or case.dtype == first.dtype)
        and (any_stage or case.stage == first.stage)
    ]


def _case_rows(
    bench: Bench,
    case: Case,
    algorithms: Sequence[str],
    peers: bool,
    graph: bool,
    bandwidth: float,
    effort: dict[str, Any],
) -> list[Row]:
    import cupy

    problem = bench.problem(case, algorithms=algorithms, peers=peers)
    checks = {c.name: check(c, problem.reference, bench.bars(case)) for c in problem.contestants}
    timed = {c.name: c.call for c in problem.contestants if checks[c.name]["status"] in ("ok", "inexact")}
    graphed = [name for name in timed if name.startswith(("kgen", *algorithms))] if graph else []
    times = measure(timed, graph=graphed, **effort)
    floor = bench.nbytes(case) / bandwidth * 1e3
    place = {"shape": bench.label(case.shape), "dtype": str(case.dtype), "pass": case.stage, "floor_ms": floor}
    own = times.get(problem.contestants[0].name)
    rows = [place | {"contestant": name} | checks[name] | timing(times.get(name), floor, own) for name in checks]
    del problem, timed
    cupy.get_default_memory_pool().free_all_blocks()
    return rows


def timing(taken: Timing | None, floor: float | None, own: Timing | None) -> Row:
    """The figures of one contestant; `times_kgen` above 1 is how many times slower than kgen's own choice it is."""
    if taken is None:
        return {"ms": None}
    return {
        "ms": taken.ms,
        "low_ms": taken.low,
        "high_ms": taken.high,
        "spread": taken.spread,
        "samples": taken.samples,
        "calls_per_sample": taken.calls,
        "times_floor": taken.ms / floor if floor else None,
        "times_kgen": taken.ms / own.ms if own else None,
    }


def check(contestant: Contestant, reference: Sequence[Array], bars: Bars) -> Row:
    """Run once into poisoned memory, and compare with the float64 reference."""
    for array in contestant.writes:
        array.data.memset(contestant.poison, array.nbytes)
    try:
        result = contestant.call(0)
        outputs = contestant.outputs(result) if contestant.outputs else contestant.writes
        rms, max_rel = errors(outputs, reference)
    except Exception as error:  # whatever a peer raises: the table goes on without it
        return {
            "status": "failed",
            "note": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        }
    if not math.isfinite(rms):  # JSON has no NaN
        return {"status": "wrong", "note": "the result holds a NaN, an infinity, or elements that nobody wrote"}
    return {"status": verdict(rms, max_rel, bars), "rms": rms, "max_rel": max_rel}


def errors(outputs: Sequence[Array], reference: Sequence[Array]) -> tuple[float, float]:
    """The worst relative RMS of any output, and the worst |a - b| / (|a| + 1e-6) of any element; a NaN stays one."""
    rms, max_rel = [], []
    for output, exact in zip(outputs, reference, strict=True):
        if output.shape != exact.shape:
            raise ValueError(f"an output has shape {output.shape}, not {exact.shape}")
        difference = abs(output.astype("float64") - exact)
        rms.append(math.sqrt(float((difference**2).sum()) / float((exact**2).sum())))
        max_rel.append(float((difference / (abs(exact) + 1e-6)).max()))
    return _worst(rms), _worst(max_rel)


def _worst(values: Sequence[float]) -> float:
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def verdict(rms: float, max_rel: float, bars: Bars) -> str:
    """ok, inexact (beyond its bar), or wrong (so far beyond it, or not a number, that its time would mean nothing)."""
    excess = max(rms / bars.rms, max_rel / bars.max_rel if bars.max_rel else 0.0) if not math.isnan(rms) else math.inf
    return "ok" if excess <= 1 else "inexact" if rms <= max(WRONG * bars.rms, bars.known) else "wrong"


def _host_rows(bench: Bench, peers: bool) -> list[Row]:
    """A hot call of kgen beside CuPy's of a kernel that does nothing; calls on torch tensors beside torch's own."""
    rows = _host_row("host", {"kgen": bench.host_call, "cupy.RawKernel": _raw_kernel_call})
    with suppress(ImportError):
        for name, (own, torchs) in (pairs(bench.operator) if peers else {}).items():
            rows += _host_row(f"host {name}", {"kgen": partial(_itself, own), "torch": partial(_itself, torchs)})
    return rows


def _itself(call: Callable[[], object]) -> Callable[[], object]:
    return call


def _host_row(stage: str, makers: Mapping[str, Callable[[], Callable[[], object]]]) -> list[Row]:
    place = {"shape": "tiny", "dtype": "f32", "pass": stage, "floor_ms": None}
    rows: list[Row] = []
    calls: dict[str, Callable[[], object]] = {}
    for name, make in makers.items():
        try:
            call = make()
            call()
            calls[name] = call
        except Exception as error:
            note = f"{type(error).__name__}: {error}"
            rows.append(place | {"contestant": name, "status": "failed", "note": note, "ms": None})
    times = host_cost(calls)
    return rows + [
        place | {"contestant": n, "status": "ok"} | timing(t, None, times.get("kgen")) for n, t in times.items()
    ]


def _raw_kernel_call() -> Callable[[], object]:
    import cupy

    text = 'extern "C" __global__ void idle(const float* a, const float* b, const float* c, float* d, int m, int n) {}'
    kernel = cupy.RawKernel(text, "idle")
    arrays = [cupy.empty(32, cupy.float32) for _ in range(4)]
    arguments = (*arrays, cupy.int32(16), cupy.int32(32))
    return lambda: kernel((1,), (32,), arguments)


def machine() -> Row:
    """What the figures hold for: the date, the device, and every version that decides them."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    runtime = cupy.cuda.runtime.driverGetVersion()
    versions = {"cupy": cupy.__version__, "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion()))}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": properties["name"].decode(),
        "driver": _driver(),
        "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}",
        "versions": versions,
    }


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    told = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False).stdout.split()
    return told[0] if told else "unknown"
