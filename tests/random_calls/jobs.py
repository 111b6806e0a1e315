"""Calls by several processes at once, and what is said of them: failures as they come, a tally at the end."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from tests.random_calls.run import Begun, Done, Settings, work

PROGRESS = 10.0
"""Seconds between two lines that say how far it is."""

PATIENCE = 180.0
"""Seconds after the deadline until a call that does not return is given up; one may compile several kernels."""

Say = Callable[[str], None]
Running = dict[Any, tuple[SpawnProcess, Begun | None]]
"""The processes by the pipes that they talk through, and the calls that they are making."""


@dataclass
class Tally:
    """How many calls of each operator were made, and how many failed."""

    settings: Settings
    say: Say
    made: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    def take(self, message: Begun | Done) -> None:
        """Count a call, and say how it failed, if it did."""
        if isinstance(message, Done):
            self.made[message.operator] += 1
            if message.failure:
                self.fail(message.number, message.operator, message.told, message.failure)
        self.progress()

    def fail(self, number: int, operator: str, told: str, failure: str) -> None:
        """Count a failure; say what was called, what was wrong, and the command that makes the call again."""
        self.failed[operator] += 1
        self.say(f"FAILED {told or operator}\n  {failure}\n  again: {self.settings.alone(number)}")

    def progress(self) -> None:
        """Say how far it is, now and then."""
        now = time.monotonic()
        if now - self.told >= PROGRESS:
            self.told = now
            self.say(f"{now - self.began:.0f} s: {self.made.total()} calls, {self.failed.total()} failed")

    def summary(self) -> str:
        """How many calls of each operator were made, and how many of which failed."""
        each = [f"{name} {count}" for name, count in sorted(self.made.items())]
        failed = [f"{name} {count}" for name, count in sorted(self.failed.items())]
        lines = [*_wrapped(each), f"{self.made.total()} calls of {len(self.made)} operators, seed {self.settings.seed}"]
        return "\n".join([*lines, f"FAILED: {', '.join(failed)}" if failed else "none failed"])


def in_this_process(settings: Settings, numbers: Iterable[int], seconds: float, tally: Tally) -> None:
    """Make the calls of these numbers one after another."""
    work(settings, numbers, time.monotonic() + seconds, tally.take)


def in_processes(settings: Settings, jobs: int, seconds: float, tally: Tally) -> None:
    """Job j makes the calls j, j + jobs, and so on; a process that dies is a failure of the call that it made."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the references: the processes share the processor's cores
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    running: Running = {}
    for job in range(jobs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_job, args=(settings, job, jobs, seconds, theirs), daemon=True)
        process.start()
        theirs.close()  # or we would not hear that the other end is gone
        running[ours] = (process, None)
    given_up = time.monotonic() + seconds + PATIENCE
    while running and time.monotonic() < given_up:
        for pipe in wait(list(running), timeout=1):
            _hear(pipe, running, tally)
        tally.progress()
    for process, last in running.values():
        process.kill()
        _lost(tally, last, f"no answer {PATIENCE:.0f} s after the end")


def _hear(pipe: Any, running: Running, tally: Tally) -> None:
    """One message of a process, or its end."""
    process, last = running[pipe]
    try:
        message = pipe.recv()
    except EOFError:
        del running[pipe]
        process.join()
        if process.exitcode:
            _lost(tally, last, f"the process ended with {process.exitcode}")
        return
    running[pipe] = (process, message if isinstance(message, Begun) else None)
    tally.take(message)


def _job(settings: Settings, job: int, jobs: int, seconds: float, pipe: Any) -> None:
    work(settings, count(job, jobs), time.monotonic() + seconds, pipe.send)


def _lost(tally: Tally, last: Begun | None, why: str) -> None:
    if last is None:
        tally.failed["(no call)"] += 1
        tally.say(f"FAILED between calls: {why}")
    else:
        tally.fail(last.number, last.operator, "", why)


def _wrapped(words: list[str], width: int = 118) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 2 <= width:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return lines
