"""Sums and extremes beside torch and CuPy: whole arrays, rows and columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, F64, FLOATS

ALL, ROWS, COLUMNS = "all", "rows", "columns"
AXES = {ALL: None, ROWS: 1, COLUMNS: 0}
OPS = ("sum", "max", "argmax")
WHOLE = (1000, 100_000, 1 << 20, 1 << 24, 1 << 26, 1 << 29)
MATRICES = (
    (128, 1024),
    (1024, 1024),
    (4096, 4096),
    (600, 100_000),
    (1 << 20, 128),
    (1 << 18, 513),
    (1 << 17, 1001),
    (1 << 15, 4096),
    (1 << 11, 65_536),
    (1 << 9, 262_144),
)
_QUICK = 2
_BARS = {F64: Bars(1e-13), F32: Bars(1e-6), F16: Bars(6e-4), BF16: Bars(4e-3)}


class Reduce(Bench):
    """A stage is an operation and what it runs over: "sum all", "max rows", "argmax columns"."""

    operator = "reduce"

    def cases(self, *, quick: bool = False) -> list[Case]:
        dtypes = (F32,) if quick else FLOATS
        found = []
        for dtype in dtypes:
            for op in OPS:
                found += [Case((n,), dtype, f"{op} {ALL}") for n in (WHOLE[:_QUICK] if quick else WHOLE)]
                for over in (ROWS, COLUMNS):
                    found += [Case(s, dtype, f"{op} {over}") for s in (MATRICES[:_QUICK] if quick else MATRICES)]
        return found

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 1, 2, hint="write N, or ROWSxCOLUMNS, as in 4096x4096")

    def nbytes(self, case: Case) -> int:
        axis = AXES[case.stage.split()[1]]
        results = 1 if axis is None else case.shape[1 - axis] if len(case.shape) == 2 else 1
        width = 8 if case.stage.startswith("arg") else case.dtype.itemsize
        return math.prod(case.shape) * case.dtype.itemsize + results * width

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype] if case.stage.startswith("sum") else Bars(1e-300)

    def ladder(self, case: Case) -> list[str]:
        return [] if case.stage.startswith("arg") else ["naive", f"vec{16 // case.dtype.itemsize}"]

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.reduce import reduce

        op, over = case.stage.split()
        axis = AXES[over] if len(case.shape) == 2 else None
        sets = _operands(case)
        out = cupy.empty(_result_shape(case.shape, axis), "i8" if op.startswith("arg") else case.dtype.numpy)
        function: Any = getattr(reduce, op)

        def mine(name: str, **options: Any) -> Contestant:
            return Contestant(
                name, lambda n: function(sets[n % len(sets)], axis, out=out, **options), [out], poison=0x7F
            )

        contestants = [mine("kgen"), *(mine(name, algorithm=name) for name in algorithms)]
        if peers:
            contestants += [*_torch(op, axis, sets), *_cupy(op, axis, sets, case)]
        exact = getattr(cupy, op)(sets[0].astype("f8"), axis=axis)
        return Problem(contestants, [cupy.asarray(exact)])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.reduce import reduce

        x, out = cupy.ones(1000, "f4"), cupy.empty((), "f4")
        return lambda: reduce.sum(x, out=out)


BENCH = Reduce()


def _result_shape(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return () if axis is None else tuple(size for at, size in enumerate(shape) if at != axis)


def _operands(case: Case) -> list[Array]:
    """Uniform on [0, 1), so that a sum is far from zero, in so many sets that a rotation outgrows the L2."""
    import cupy

    nbytes = math.prod(case.shape) * case.dtype.itemsize
    count = rotation(nbytes)
    rng = cupy.random.default_rng(0)
    return [rng.random(case.shape, dtype="f4").astype(case.dtype.numpy) for _ in range(count)]


def _torch(op: str, axis: int | None, sets: Sequence[Array]) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    import cupy

    tensors = [tensor(x) for x in sets]
    function = torch.amax if op == "max" and axis is not None else getattr(torch, op)
    arguments = () if axis is None else (axis,)

    def numbers(result: Any) -> list[Array]:
        return [cupy.from_dlpack(result.double())]

    return [Contestant("torch", lambda n: function(tensors[n % len(tensors)], *arguments), outputs=numbers)]


def _cupy(op: str, axis: int | None, sets: Sequence[Array], case: Case) -> list[Contestant]:
    import cupy

    if case.dtype is BF16:
        return []
    function = getattr(cupy, op)
    return [Contestant("cupy", lambda n: function(sets[n % len(sets)], axis=axis), outputs=lambda result: [result])]
