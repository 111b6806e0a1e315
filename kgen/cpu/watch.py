"""Operators under watch: inside `watching()` every launch on the host is checked, and what is wrong is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kgen.backend import Noticed, backend, noticing
from kgen.cpu.check import buffers_of, run_checked
from kgen.cpu.frame import ORDERS, LaunchStruct
from kgen.cpu.library import Library
from kgen.cpu.report import Finding
from kgen.cpu.translate import Program

_current: ContextVar[Watch | None] = ContextVar("kgen_watch", default=None)


class Watch:
    """The findings of the launches so far; `order` and `seed` say in which order blocks and warps run."""

    def __init__(self, noticed: Noticed, order: str, seed: int, timeout: float) -> None:
        self.findings: list[Finding] = []
        self.launches = 0
        self._noticed = noticed
        self._order, self._seed, self._timeout = ORDERS.index(order), seed, timeout

    def run(self, launch: LaunchStruct, library: Library, program: Program) -> None:
        """Run one launch under watch."""
        launch.order, launch.seed = self._order, self._seed + self.launches
        buffers = buffers_of(self._noticed.arrays, self._noticed.fresh)
        outcome = run_checked(launch, library, program, buffers, timeout=self._timeout)
        self.findings += outcome.findings
        self.launches += 1
        self._noticed.fresh.clear()  # what this launch left unwritten shows as NaN; the next one may read the rest

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing to report"


@contextmanager
def watching(*, order: str = "forward", seed: int = 0, timeout: float = 60.0) -> Iterator[Watch]:
    """Compute NumPy arrays by the CPU executor and check every launch.

    An input that is not writeable (`x.flags.writeable = False`) must not be written to. Memory that an operator
    allocates holds NaNs.

    >>> with watching() as watch:                                                           # doctest: +SKIP
    ...     kgen.causal_dot_product(q, k, v)
    >>> assert not watch.findings, watch                                                    # doctest: +SKIP
    """
    with backend("cpu"), noticing() as noticed:
        watch = Watch(noticed, order, seed, timeout)
        token = _current.set(watch)
        try:
            yield watch
        finally:
            _current.reset(token)


def current() -> Watch | None:
    """The watch that is on, if any."""
    return _current.get()
