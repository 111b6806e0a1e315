"""Launches of operators under watch: each is checked, in a process of its own, and what is wrong is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from kgen.cpu.check.checked import run_checked
from kgen.cpu.check.report import Finding, Report
from kgen.cpu.library import Library
from kgen.cpu.run.buffers import Fresh, buffers_of, remember
from kgen.cpu.run.frame import LaunchStruct, number_of_order
from kgen.cpu.translate.program import Program
from kgen.notice import Noticed

_current: ContextVar[Watch | None] = ContextVar("kgen_watch", default=None)


class Watch(Report):
    """The findings of the launches so far; `order` and `seed` say in which order blocks and warps run."""

    def __init__(self, noticed: Noticed, order: str = "forward", seed: int = 0, timeout: float = 60.0) -> None:
        self.findings: list[Finding] = []
        self.kernels: list[str] = []  # the names of what was launched
        self._met: dict[int, Fresh] = {}  # by the array's identity
        self._noticed = noticed
        self._order, self._seed, self._timeout = number_of_order(order), seed, timeout

    def run(self, launch: LaunchStruct, library: Library, program: Program) -> None:
        """Run one launch under watch."""
        launch.order, launch.seed = self._order, self._seed + len(self.kernels)
        fresh = [self._met.get(id(array)) or Fresh(array) for array in self._noticed.fresh]
        buffers = buffers_of(self._noticed.arrays, fresh)
        outcome = run_checked(launch, library, program, buffers, timeout=self._timeout)
        remember(buffers, fresh)
        self._met = {id(one.array): one for one in fresh if not one.written.all()}
        self._noticed.fresh[:] = [one.array for one in self._met.values()]
        self.findings += [*outcome.findings, *self._left(library.title)]
        self.kernels.append(library.title)

    def _left(self, title: str) -> list[Finding]:
        """Counters that a launch did not leave zero, once each."""
        left = [counters for counters in self._noticed.counters if counters.any()]
        self._noticed.counters[:] = [counters for counters in self._noticed.counters if not counters.any()]
        said = f"{title}: counters that are to be zero behind a launch are not, the first in place"
        return [Finding("counters", 0, f"{said} {np.flatnonzero(counters)[0]}") for counters in left]


@contextmanager
def watched_by(watch: Watch) -> Iterator[Watch]:
    """Inside the block launches on the host are checked ones, run by `watch`."""
    token = _current.set(watch)
    try:
        yield watch
    finally:
        _current.reset(token)


def current() -> Watch | None:
    """The watch that is on, if any."""
    return _current.get()
