"""Non-maximum suppression beside torchvision: boxes that lie far apart, a crowd of them, and a heap."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from kgen.benchmarks import Array, Bars, Bench, BenchError, Case, Contestant, Problem
from kgen.dtypes import F32

COUNTS = (100, 1000, 10_000, 50_000)
SIDES = {"spread": 1000.0, "crowd": 100.0, "heap": 10.0}
"""The side of the square in which boxes of up to 100 x 100 begin."""
THRESHOLD = 0.5
_QUICK = 2


class Nms(Bench):
    """A stage is how the boxes lie."""

    operator = "nms"

    def cases(self, *, quick: bool = False) -> list[Case]:
        return [Case((n,), F32, stage) for stage in SIDES for n in (COUNTS[:_QUICK] if quick else COUNTS)]

    def shape_of(self, text: str) -> tuple[int, ...]:
        if not text.isdigit() or not int(text):
            raise BenchError(f"{text!r} is no count", hint="write a number of boxes")
        return (int(text),)

    def nbytes(self, case: Case) -> int:
        (count,) = case.shape
        return count * (5 * case.dtype.itemsize + 8)

    def bars(self, case: Case) -> Bars:
        return Bars(1e-30)  # the same boxes in the same order

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.nms.nms import nms

        (count,) = case.shape
        random = cupy.random.RandomState(20).random_sample
        corner = random((count, 2), "f4") * cupy.float32(SIDES[case.stage])
        boxes = cupy.concatenate([corner, corner + cupy.float32(100) * random((count, 2), "f4")], 1)
        scores = random(count, "f4")

        def indices(result: tuple[Array, Array]) -> list[Array]:
            kept, found = result
            return [kept[: int(found)] + 1]  # so that no relative error is taken of zero

        contestants = [
            Contestant("kgen", lambda n: nms(boxes, scores, THRESHOLD, padded=True), outputs=indices),
            Contestant("kgen, its length read", lambda n: nms(boxes, scores, THRESHOLD), outputs=lambda r: [r + 1]),
        ]
        contestants += _torchvision(boxes, scores) if peers else []
        return Problem(contestants, [_greedy(boxes, scores) + 1])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.nms.nms import nms

        boxes, scores = cupy.ones((10, 4), "f4"), cupy.ones(10, "f4")
        return lambda: nms(boxes, scores, THRESHOLD, padded=True)


BENCH = Nms()


def _greedy(boxes: Array, scores: Array) -> Array:
    """The definition, box by box, in NumPy."""
    import cupy
    import numpy as np

    host = boxes.get()
    area = (host[:, 2] - host[:, 0]) * (host[:, 3] - host[:, 1])
    order = np.argsort(-scores.get(), kind="stable")
    stays = []
    while order.size:
        first, order = order[0], order[1:]
        stays.append(first)
        low, high = np.maximum(host[first, :2], host[order, :2]), np.minimum(host[first, 2:], host[order, 2:])
        both = np.maximum(high - low, np.float32(0)).prod(1)
        order = order[~(both / (area[first] + area[order] - both) > np.float32(THRESHOLD))]
    return cupy.asarray(np.array(stays, np.float64))


def _torchvision(boxes: Array, scores: Array) -> list[Contestant]:
    try:
        from torch.utils.dlpack import from_dlpack

        nms = importlib.import_module("torchvision.ops").nms
    except (ImportError, RuntimeError):  # RuntimeError: built for another torch
        return []
    import cupy

    given = from_dlpack(boxes), from_dlpack(scores)
    return [Contestant("torchvision", lambda n: nms(*given, THRESHOLD), outputs=lambda r: [cupy.from_dlpack(r) + 1])]
