"""Independent launches side by side: on streams of our own, which leave the caller's stream and come back to it.

The blocks of one launch then fill the multiprocessors that the last blocks of another leave idle. To the caller nothing
shows: what was queued before is waited for, and what is queued after waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kgen.backend import HOST
from kgen.streams import gpu

_own = threading.local()  # an event that two threads recorded would let one wait for the other's work


def side_by_side(launches: Sequence[Callable[[int], None]], device: int, stream: int) -> None:
    """Queue each launch, which takes a stream, after what is on `stream` now, and let `stream` wait for all of them."""
    if device == HOST:
        for launch in launches:
            launch(stream)
        return
    runtime = gpu().cuda.runtime
    left, branches = _branches(device, len(launches) - 1)
    runtime.eventRecord(left.ptr, stream)
    launches[0](stream)
    for launch, (branch, _) in zip(launches[1:], branches):
        runtime.streamWaitEvent(branch.ptr, left.ptr)
        launch(branch.ptr)
    for branch, back in branches:
        runtime.eventRecord(back.ptr, branch.ptr)
        runtime.streamWaitEvent(stream, back.ptr)


def _branches(device: int, count: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """This thread's event of departure, and a stream and an event of return for each branch; `device` is current."""
    made: dict[tuple[int, int], Any] = _own.__dict__.setdefault("made", {})
    if (device, count) not in made:
        cuda = gpu().cuda
        # Non-blocking, or work on the legacy default stream would keep them from running beside each other.
        branches = [(cuda.Stream(non_blocking=True), cuda.Event(disable_timing=True)) for _ in range(count)]
        made[device, count] = (cuda.Event(disable_timing=True), branches)
    found: tuple[Any, list[tuple[Any, Any]]] = made[device, count]
    return found
