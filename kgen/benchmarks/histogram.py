"""Counting indices beside torch and CuPy: uniform, and all of them equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of
from kgen.dtypes import I32, U8

SHAPES = (
    (1000, 256),
    (1 << 20, 256),
    (1 << 20, 4096),
    (1 << 24, 256),
    (1 << 28, 10),
    (1 << 28, 256),
    (1 << 28, 4096),
    (1 << 28, 65_536),
    (1 << 28, 1 << 20),
)
"""Elements and bins."""
UNIFORM, EQUAL = "uniform", "equal"
_QUICK = 3


class Histogram(Bench):
    """How often each index occurs; a stage is how they are distributed."""

    operator = "histogram"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes = SHAPES[:_QUICK] if quick else SHAPES
        found = [Case(shape, I32, stage) for stage in (UNIFORM, EQUAL) for shape in shapes]
        return found if quick else [*found, Case((1 << 28, 256), U8, UNIFORM)]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 2, hint="write ELEMENTSxBINS, as in 1048576x256")

    def nbytes(self, case: Case) -> int:
        return case.shape[0] * case.dtype.itemsize + 8 * case.shape[1]

    def bars(self, case: Case) -> Bars:
        return Bars(1e-300)

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.histogram.histogram import bincount

        size, bins = case.shape
        count = rotation(self.nbytes(case))
        rng = cupy.random.default_rng(0)
        low = bins // 2 if case.stage == EQUAL else 0
        high = low + 1 if case.stage == EQUAL else bins
        sets = [rng.integers(low, high, size, dtype="i4").astype(case.dtype.numpy) for _ in range(count)]
        out = cupy.empty(bins, "i8")
        contestants = [
            Contestant("kgen", lambda n: bincount(sets[n % count], length=bins, out=out), [out]),
            Contestant(
                "kgen, maximum asked for",
                lambda n: bincount(sets[n % count], minlength=bins),
                outputs=lambda result: [result],
            ),
        ]
        if peers:
            contestants += [
                *_torch(sets, bins),
                Contestant(
                    "cupy", lambda n: cupy.bincount(sets[n % count], minlength=bins), outputs=lambda result: [result]
                ),
            ]
        return Problem(contestants, [cupy.bincount(sets[0], minlength=bins).astype("f8")])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.histogram.histogram import bincount

        x, out = cupy.ones(1000, "i4"), cupy.empty(256, "i8")
        return lambda: bincount(x, length=256, out=out)


BENCH = Histogram()


def _torch(sets: Sequence[Array], bins: int) -> list[Contestant]:
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ImportError:
        return []
    import cupy

    tensors = [from_dlpack(x) for x in sets]

    def numbers(result: Any) -> list[Array]:
        return [cupy.from_dlpack(result)]

    return [
        Contestant("torch", lambda n: torch.bincount(tensors[n % len(tensors)], minlength=bins), outputs=numbers),
    ]
