"""Small calls that run one specialization, for `kgen check` and the tests: a module for each operator's kernels.

A module declares `SAMPLES`: for each kernel's name a function of the specialization, a shape (or None: one that is
small, odd, and goes round every pipeline twice) and a random generator, which gives a Sample.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgen.errors import SpecError
from kgen.spec import Spec

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """A call on NumPy arrays, the same in float64, and how far results may be from that, relative to the largest."""

    call: Callable[[], Any]
    expected: Sequence[Any]
    tolerance: float

    def error(self, results: Any) -> float:
        """The largest difference to the expected results, relative to the largest of these; NaN counts as infinite."""
        given = results if isinstance(results, tuple | list) else (results,)
        worst = 0.0
        for result, expected in zip(given, self.expected, strict=True):
            scale = float(np.abs(expected).max(initial=0.0)) or 1.0
            difference = np.abs(np.asarray(result).astype(np.float64) - expected)
            worst = max(worst, float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / scale)
        return worst


Maker = Callable[[Spec, Shape | None, np.random.Generator], Sample]


@functools.cache
def samples() -> dict[str, Maker]:
    """What makes the sample of each kernel, by the kernel's name."""
    made: dict[str, Maker] = {}
    for module in pkgutil.iter_modules(__path__):
        made |= importlib.import_module(f"{__name__}.{module.name}").SAMPLES
    return made


def sample(spec: Spec, shape: Shape | None = None, seed: int = 0) -> Sample:
    """A small call that runs a specialization; raises SpecError for a kernel that has none."""
    known = samples()
    if spec.kernel.name not in known:
        raise SpecError(f"there is no sample call for {spec.kernel.name}", hint=f"there are for {', '.join(known)}")
    return known[spec.kernel.name](spec, shape, np.random.default_rng(seed))
