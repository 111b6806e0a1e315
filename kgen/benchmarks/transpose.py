"""Permutations of axes beside torch: turned matrices, and the orders of axes that networks exchange."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kgen.benchmarks import Array, Bars, Bench, BenchError, Case, Contestant, Problem, rotation
from kgen.dtypes import F16, F32, U8

MATRICES = (
    (256, 256),
    (1000, 1000),
    (1024, 1024),
    (2000, 3000),
    (4095, 4097),
    (4096, 4096),
    (16383, 16381),
    (16384, 16384),
    (1 << 26, 2),
)
MISALIGNED = "misaligned"
"""A matrix whose rows begin one element behind a multiple of 16 bytes."""
ORDERS = {
    "turned": (1, 0),
    MISALIGNED: (1, 0),
    "heads": (0, 2, 1, 3),
    "last two": (0, 1, 3, 2),
    "channels last": (0, 2, 3, 1),
}
STACKS = ((8, 4096, 32, 128), (64, 64, 256, 256), (64, 3, 1024, 1024))
_QUICK = 2


class Transpose(Bench):
    """A stage is an order of axes."""

    operator = "transpose"

    def cases(self, *, quick: bool = False) -> list[Case]:
        if quick:
            return [Case(shape, F32, "turned") for shape in MATRICES[:_QUICK]]
        found = []
        for dtype in (F32, F16):
            for stage in ORDERS:
                shapes = MATRICES if stage == "turned" else MATRICES[-2:-1] if stage == MISALIGNED else STACKS
                found += [Case(shape, dtype, stage) for shape in shapes]
        return [*found, *(Case(shape, U8, "turned") for shape in MATRICES[:-1])]

    def shape_of(self, text: str) -> tuple[int, ...]:
        words = text.lower().split("x")
        if len(words) not in (2, 4) or not all(word.isdigit() and int(word) for word in words):
            raise BenchError(f"{text!r} is no shape", hint="write two sizes or four, as in 4096x4096")
        return tuple(map(int, words))

    def nbytes(self, case: Case) -> int:
        return 2 * math.prod(case.shape) * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        return Bars(1e-30)  # moved, not computed

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.moving.transpose import transpose

        axes = ORDERS[case.stage]
        if len(axes) != len(case.shape):
            raise BenchError(f"{case.stage} is no order of {len(case.shape)} axes", hint="another order takes it")
        count = rotation(self.nbytes(case))
        inputs = [_input(case) for _ in range(count)]
        outs = [cupy.empty(tuple(case.shape[axis] for axis in axes), case.dtype.numpy) for _ in range(count)]

        def call(n: int) -> None:
            transpose(inputs[n % count], axes, out=outs[n % count])

        contestants = [Contestant("kgen", call, [outs[0]])]
        contestants += _torch(inputs, outs, axes) if peers else []
        return Problem(contestants, [inputs[0].transpose(axes)])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.moving.transpose import transpose

        x, out = cupy.ones((32, 32), "f4"), cupy.empty((32, 32), "f4")
        return lambda: transpose(x, out=out)


BENCH = Transpose()


def _input(case: Case) -> Array:
    import cupy

    skipped = int(case.stage == MISALIGNED)
    shape = (*case.shape[:-1], case.shape[-1] + 16 * skipped)
    if case.dtype is U8:
        x = cupy.random.randint(0, 200, size=shape, dtype="u1")
    else:
        x = cupy.random.random(shape, dtype="f4").astype(case.dtype.numpy)
    return x[..., skipped : skipped + case.shape[-1]]


def _torch(inputs: Sequence[Array], outs: Sequence[Array], axes: tuple[int, ...]) -> list[Contestant]:
    try:
        from torch.utils.dlpack import from_dlpack
    except ImportError:
        return []
    views = [from_dlpack(x).permute(axes) for x in inputs]
    targets = [from_dlpack(out) for out in outs]

    def call(n: int) -> None:
        targets[n % len(targets)].copy_(views[n % len(views)])

    return [Contestant("torch", call, [outs[0]])]
