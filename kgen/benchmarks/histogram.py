"""Counting and adding weights by bin beside torch and CuPy: uniform indices, all of them equal, and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of
from kgen.dtypes import F32, I32, U8

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
WEIGHTED = ((1 << 20, 256), (1 << 27, 256), (1 << 27, 4096), (1 << 27, 20_000), (1 << 27, 65_536), (1 << 27, 1 << 20))
NUMBERED = ((1 << 20, 100), (1 << 28, 100), (1 << 28, 10_000))
UNIFORM, EQUAL, NUMBERS = "uniform", "equal", "numbers"
SINGLE, DOUBLE = "float32 weights", "float64 weights"
_WEIGHTS = {SINGLE: "f4", DOUBLE: "f8"}
_QUICK = 3


class Histogram(Bench):
    """How often each index occurs, or its weights' sum; a stage is how they are distributed, or what is added."""

    operator = "histogram"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes = SHAPES[:_QUICK] if quick else SHAPES
        found = [Case(shape, I32, stage) for stage in (UNIFORM, EQUAL) for shape in shapes]
        if quick:
            return found
        found += [Case((1 << 28, 256), U8, UNIFORM)]
        found += [Case(shape, I32, stage) for stage in _WEIGHTS for shape in WEIGHTED]
        return found + [Case(shape, F32, NUMBERS) for shape in NUMBERED]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 2, hint="write ELEMENTSxBINS, as in 1048576x256")

    def nbytes(self, case: Case) -> int:
        weight = {SINGLE: 4, DOUBLE: 8}.get(case.stage, 0)
        return case.shape[0] * (case.dtype.itemsize + weight) + 8 * case.shape[1]

    def bars(self, case: Case) -> Bars:
        # Where peers differ: torch adds float32 weights in float32, and finds bins by other roundings.
        return Bars({SINGLE: 1e-5, DOUBLE: 1e-12, NUMBERS: 1e-5}.get(case.stage, 1e-300))

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        if case.stage == NUMBERS:
            return _of_numbers(case, rotation(self.nbytes(case)), peers)
        import cupy

        from kgen.ops.histogram.histogram import bincount

        size, bins = case.shape
        count = rotation(self.nbytes(case))
        low = bins // 2 if case.stage == EQUAL else 0
        high = low + 1 if case.stage == EQUAL else bins
        sets = [cupy.random.randint(low, high, size=size, dtype="i4").astype(case.dtype.numpy) for _ in range(count)]
        kind = _WEIGHTS.get(case.stage)
        weights = [cupy.random.random(size, dtype=kind) if kind else None for _ in range(count)]
        out = cupy.empty(bins, "f8" if kind else "i8")
        contestants = [
            Contestant("kgen", lambda n: bincount(sets[n % count], weights[n % count], length=bins, out=out), [out]),
            Contestant(
                "kgen, maximum asked for",
                lambda n: bincount(sets[n % count], weights[n % count], minlength=bins),
                outputs=lambda result: [result],
            ),
        ]
        if peers:
            contestants += [
                *_torch(sets, weights, bins),
                Contestant(
                    "cupy",
                    lambda n: cupy.bincount(sets[n % count], weights[n % count], minlength=bins),
                    outputs=lambda result: [result],
                ),
            ]
        if kind:
            return Problem(contestants, [cupy.asarray(exact_sums(cupy, sets[0], weights[0], bins))])
        return Problem(contestants, [cupy.bincount(sets[0], minlength=bins).astype("f8")])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.histogram.histogram import bincount

        x, out = cupy.ones(1000, "i4"), cupy.empty(256, "i8")
        return lambda: bincount(x, length=256, out=out)


BENCH = Histogram()


def exact_sums(xp: Any, x: Array, weights: Array, bins: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sums of weights from 0 to 1, each rounded once; `xp` is the module whose arrays x and the weights are.

    A sum of doubles, in whatever order, is off by more than some contestants are. But integers up to 2^53 are exact in
    doubles: weights are cut into pieces of so few bits that no sum of them exceeds that, and each is added by itself.
    """
    piece = 53 - (x.size - 1).bit_length()
    pieces = []
    unit, rest = 1.0, weights.astype("f8")
    while bool(rest.any()):
        unit /= 1 << piece
        whole = xp.floor(rest / unit)
        pieces.append((xp.bincount(x, whole, minlength=bins) * unit).tolist())
        rest -= whole * unit
    return np.array([math.fsum(parts) for parts in zip(*pieces)] or [0.0] * bins)


def _torch(sets: Sequence[Array], weights: Sequence[Array | None], bins: int) -> list[Contestant]:
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ImportError:
        return []
    import cupy

    tensors = [(from_dlpack(x), None if w is None else from_dlpack(w)) for x, w in zip(sets, weights, strict=True)]

    def numbers(result: Any) -> list[Array]:
        return [cupy.from_dlpack(result)]

    return [
        Contestant("torch", lambda n: torch.bincount(*tensors[n % len(tensors)], minlength=bins), outputs=numbers),
    ]


def _of_numbers(case: Case, count: int, peers: bool) -> Problem:
    """Bins of one width from 0 to 1."""
    import cupy

    from kgen.ops.histogram.histogram import histogram

    size, bins = case.shape
    sets = [cupy.random.random(size, dtype="f4") for _ in range(count)]

    def counts(result: tuple[Array, Array]) -> list[Array]:
        return [result[0]]

    contestants = [Contestant("kgen", lambda n: histogram(sets[n % count], bins, (0.0, 1.0)), outputs=counts)]
    if peers:
        contestants += [
            *_torch_histc(sets, bins),
            Contestant("cupy", lambda n: cupy.histogram(sets[n % count], bins, (0.0, 1.0)), outputs=counts),
        ]
    return Problem(contestants, [cupy.histogram(sets[0], bins, (0.0, 1.0))[0].astype("f8")])


def _torch_histc(sets: Sequence[Array], bins: int) -> list[Contestant]:
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ImportError:
        return []
    import cupy

    tensors = [from_dlpack(x) for x in sets]

    def numbers(result: Any) -> list[Array]:
        return [cupy.from_dlpack(result)]

    return [Contestant("torch", lambda n: torch.histc(tensors[n % len(tensors)], bins, 0.0, 1.0), outputs=numbers)]
