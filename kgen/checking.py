"""Operators under watch: inside `watching()` every launch runs on this machine's CPU and is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kgen.backend import backend
from kgen.cpu.check.watch import Watch, watched_by
from kgen.notice import noticing


@contextmanager
def watching(*, order: str = "forward", seed: int = 0, timeout: float = 60.0) -> Iterator[Watch]:
    """Compute NumPy arrays by the CPU executor and check every launch; what is wrong is gathered in the Watch.

    An input that is not writeable (`x.flags.writeable = False`) must not be written to. Memory that an operator
    allocates holds NaNs until it is written.

    order    "forward", "reverse" or "random" (by `seed`) order of blocks and warps
    timeout  seconds of work that a launch may take, rounded up

    >>> import numpy as np, kgen
    >>> x = np.ones((1, 1, 20, 32), np.float32)
    >>> with watching() as watch:
    ...     o = kgen.causal_dot_product(x, x, x, algorithm="lmha_e64_t1_f32")
    >>> watch.findings
    []
    """
    with backend("cpu"), noticing() as noticed, watched_by(Watch(noticed, order, seed, timeout)) as watch:
        yield watch
