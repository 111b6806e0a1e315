"""The inner product beside torch, which is cuBLAS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kgen.benchmarks import Array, Bars, Bench, BenchError, Case, Contestant, Problem, rotation, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

LENGTHS = (1000, 1 << 20, 1 << 24, 1 << 27, 1 << 29)
_QUICK = 2
_BARS = {F32: Bars(1e-6), F16: Bars(6e-4), BF16: Bars(4e-3)}


class Dot(Bench):
    """sum over n of a[n] b[n]."""

    operator = "dot"

    def cases(self, *, quick: bool = False) -> list[Case]:
        lengths, dtypes = (LENGTHS[:_QUICK], (F32,)) if quick else (LENGTHS, FLOATS)
        return [Case((n,), dtype, "forward") for dtype in dtypes for n in lengths]

    def shape_of(self, text: str) -> tuple[int, ...]:
        if not text.isdigit() or not int(text):
            raise BenchError(f"{text!r} is no length", hint="write a number of elements")
        return (int(text),)

    def nbytes(self, case: Case) -> int:
        return 2 * case.shape[0] * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype]

    def ladder(self, case: Case) -> list[str]:
        return ["naive", f"vec{16 // case.dtype.itemsize}"]

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.reduce.dot import dot

        count = rotation(self.nbytes(case))
        # Products below 2^-10, so that no sum leaves float16's range.
        scale = min(1.0, 32 / math.sqrt(case.shape[0]))
        sets = [
            [(cupy.random.random(case.shape, dtype="f4") * scale).astype(case.dtype.numpy) for _ in "ab"]
            for _ in range(count)
        ]
        out = cupy.empty((), case.dtype.numpy)

        def mine(name: str, algorithm: str | None) -> Contestant:
            def call(n: int) -> None:
                a, b = sets[n % count]
                dot(a, b, out, algorithm=algorithm)

            return Contestant(name, call, [out])

        contestants = [mine("kgen", None), *(mine(name, name) for name in algorithms)]
        contestants += _torch(sets) if peers else []
        exact = cupy.asarray((sets[0][0].astype("f8") * sets[0][1].astype("f8")).sum())
        return Problem(contestants, [exact])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.reduce.dot import dot

        x, out = cupy.ones(1000, "f4"), cupy.empty((), "f4")
        return lambda: dot(x, x, out=out)


BENCH = Dot()


def _torch(sets: Sequence[Sequence[Array]]) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    import cupy

    tensors = [[tensor(x) for x in pair] for pair in sets]
    return [
        Contestant(
            "torch",
            lambda n: torch.dot(*tensors[n % len(tensors)]),
            outputs=lambda result: [cupy.from_dlpack(result.double())],
        )
    ]
