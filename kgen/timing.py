"""How long a call takes: on the device by CUDA events, on the host by the clock.

One run compares: every contestant is timed in turn, again and again, so that a clock that drifts drifts for all.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

GRAPH_CALLS = 10
"""Calls captured into one CUDA graph: enough to hide its own launch, few enough to capture at once."""

LEAST, ENOUGH_MS = 3, 200.0
"""Samples that a slow contestant gets at the least: its others end where they have lasted so long together."""

Call = Callable[[int], object]
"""A contestant: called with a running number, by which it rotates its input sets."""

Timer = Callable[[Callable[[], object], int], float]
"""Milliseconds that this many calls took, one after the other."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call: the median of all samples, and the quartiles as its spread."""

    ms: float
    low: float
    high: float
    samples: int
    calls: int

    @classmethod
    def of(cls, samples: Sequence[float], calls: int) -> Timing:
        """From milliseconds per call, one number a sample of `calls` calls."""
        quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        return cls(quartiles[1], quartiles[0], quartiles[2], len(samples), calls)

    @property
    def spread(self) -> float:
        """Distance between the quartiles as a part of the median: a difference smaller than this is noise."""
        return (self.high - self.low) / self.ms if self.ms else 0.0


def event_ms(call: Callable[[], object], calls: int) -> float:
    """The device's own time between two events around the calls, on CuPy's current stream.

    One more call goes ahead of them: while the device is busy with it the host queues the next, as in a program that
    calls all the time. Otherwise a call of many launches would show how long the host takes to the first of them.
    """
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    call()
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    stop.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, stop))


def graph_of(call: Callable[[], object]) -> Callable[[], object]:
    """`GRAPH_CALLS` calls as one CUDA graph; returns its replay. The call must have run once before."""
    import cupy

    # The default stream cannot be captured. The graph replays on whichever stream is current then.
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        try:
            for _ in range(GRAPH_CALLS):
                call()
        finally:
            graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()

    def replay() -> None:
        graph.launch(cupy.cuda.get_current_stream())

    return replay


def measure(
    contestants: Mapping[str, Call],
    *,
    reps: int = 20,
    min_ms: float = 3.0,
    warm_ms: float = 20.0,
    graph: Collection[str] = (),
    timer: Timer = event_ms,
    capture: Callable[[Callable[[], object]], Callable[[], object]] = graph_of,
) -> dict[str, Timing]:
    """Time every contestant in turn, A B C A B C, `reps` samples each; milliseconds per call.

    A sample is as many calls back to back as last `min_ms`, so that the events' resolution does not show. Each
    contestant is warmed up for `warm_ms` first: kernels loaded, clocks raised. Those named in
    `graph` are replayed as a CUDA graph: what the device needs when the host cannot keep it busy.
    One whose samples last long gets fewer of them, spread over the run: it varies little, and all would wait for it.
    """
    calls: dict[str, int] = {}
    turns: dict[str, Callable[[], object]] = {}
    weights: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for name, contestant in contestants.items():
        turn = _numbered(contestant)
        each = timer(turn, 1)
        weights[name] = GRAPH_CALLS if name in graph else 1
        turns[name] = capture(turn) if name in graph else turn
        if each < warm_ms:
            each = max(timer(turns[name], 3) / 3, 1e-4)
            timer(turns[name], math.ceil(warm_ms / each))
        calls[name] = math.ceil(min_ms / each)
        wanted[name] = min(reps, max(LEAST, math.ceil(ENOUGH_MS / (calls[name] * each))))

    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for rep in range(reps):
        for name, turn in turns.items():
            if rep * wanted[name] % reps < wanted[name]:
                samples[name].append(timer(turn, calls[name]) / (calls[name] * weights[name]))
    return {name: Timing.of(samples[name], calls[name] * weights[name]) for name in contestants}


def _numbered(contestant: Call) -> Callable[[], object]:
    count = itertools.count()
    return lambda: contestant(next(count))


def host_cost(
    contestants: Mapping[str, Callable[[], object]],
    *,
    reps: int = 30,
    calls: int = 200,
    clock: Callable[[], float] = time.perf_counter,
    synchronize: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """What a call costs the host, in milliseconds: calls back to back by the host's clock, in turn like `measure`.

    The device drains between samples, and `calls` stays below the depth of its queue: a full queue would make the host
    wait, and that wait is not the call's.
    """
    wait = synchronize or _synchronize
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for rep in range(reps + 1):
        for name, call in contestants.items():
            wait()
            start = clock()
            for _ in range(calls):
                call()
            elapsed = clock() - start
            if rep:  # the first round is the warm-up
                samples[name].append(elapsed * 1e3 / calls)
    wait()
    return {name: Timing.of(taken, calls) for name, taken in samples.items()}


def _synchronize() -> None:
    import cupy

    cupy.cuda.Device().synchronize()


def copy_bandwidth(nbytes: int = 1 << 30, timer: Timer = event_ms) -> float:
    """Bytes per second, read and written, of a device-to-device copy: what memory gives in practice, our floor."""
    import cupy

    source, target = cupy.ones(nbytes, cupy.uint8), cupy.empty(nbytes, cupy.uint8)
    copy = measure({"copy": lambda _: target.data.copy_from_device_async(source.data, nbytes)}, reps=10, timer=timer)
    return 2 * nbytes / (copy["copy"].ms * 1e-3)
