"""A matrix times a vector beside cuBLAS, through torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS, I8

SHAPES = (
    (256, 256),
    (1024, 1024),
    (64, 65536),
    (262144, 16),
    (65536, 128),
    (4096, 4096),
    (14336, 4096),
    (16383, 16383),
    (16384, 16384),
)
PLAIN, TRANSPOSED = "plain", "transposed"
_QUICK = 2
_BARS = {F32: Bars(1e-6), F16: Bars(6e-4), BF16: Bars(4e-3), I8: Bars(6e-4)}


class Gemv(Bench):
    """a x and a^T x; the vectors of an int8 matrix are float16."""

    operator = "gemv"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES, (*FLOATS, I8))
        return [Case(shape, dtype, stage) for dtype in dtypes for stage in (PLAIN, TRANSPOSED) for shape in shapes]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 2, hint="write ROWSxCOLUMNS, as in 4096x4096")

    def nbytes(self, case: Case) -> int:
        vector = 2 if case.dtype is I8 else case.dtype.itemsize
        return math.prod(case.shape) * case.dtype.itemsize + sum(case.shape) * vector

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype]

    def ladder(self, case: Case) -> list[str]:
        """The k32 and k128 of CUDA-Learn-Notes, then more loads in flight, and more threads along a row."""
        if case.stage == TRANSPOSED or case.dtype not in FLOATS:
            return []
        vec = 16 // case.dtype.itemsize
        cuts = [f"v1_l{min(32, case.shape[1])}_r1_u1"] if case.shape[1] in (1, 2, 4, 8, 16) else ["v1_l32_r1_u1"]
        if case.shape[1] % vec == 0:
            cuts += [f"v{vec}_l32_r1_u1", f"v{vec}_l32_r1_u4", f"v{vec}_l256_r1_u4", f"v{vec}_l256_r2_u4"]
        return [f"gemv_{cut}_{case.dtype}" for cut in cuts]

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        count = rotation(self.nbytes(case))
        sets = [_operands(case) for _ in range(count)]
        contestants = [_kgen("kgen", case, sets, None), *(_kgen(name, case, sets, name) for name in algorithms)]
        contestants += _torch(case, sets) if peers and case.dtype in FLOATS else []
        a, x, _ = sets[0]
        return Problem(contestants, [_exact(a.T if case.stage == TRANSPOSED else a, x)])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.gemv.gemv import gemv

        a, x, out = cupy.ones((32, 32), "f4"), cupy.ones(32, "f4"), cupy.empty(32, "f4")
        return lambda: gemv(a, x, out=out)


BENCH = Gemv()


def _operands(case: Case) -> tuple[Array, Array, Array]:
    import cupy

    rows, columns = case.shape
    given, made = (rows, columns) if case.stage == TRANSPOSED else (columns, rows)
    vector = F16 if case.dtype is I8 else case.dtype
    # Sums of float16 must stay in its range.
    scale = 1 / math.sqrt(given) if case.dtype is not I8 else 1 / (100 * math.sqrt(given))
    x = ((cupy.random.random(given, dtype="f4") - 0.5) * scale).astype(vector.numpy)
    if case.dtype is I8:
        a = cupy.random.randint(-127, 128, size=case.shape, dtype="i1")
    else:
        a = (cupy.random.random(case.shape, dtype="f4") - 0.5).astype(case.dtype.numpy)
    return a, x, cupy.empty(made, vector.numpy)


def _exact(a: Array, x: Array) -> Array:
    """In float64, some rows at a time."""
    import cupy

    step = max(1, (1 << 26) // max(1, a.shape[1]))
    exact = x.astype("f8")
    parts = [(a[start : start + step].astype("f8") * exact).sum(1) for start in range(0, a.shape[0], step)]
    return cupy.concatenate(parts)


def _kgen(name: str, case: Case, sets: Sequence[tuple[Array, Array, Array]], algorithm: str | None) -> Contestant:
    from kgen.ops.gemv.gemv import gemv

    trans = case.stage == TRANSPOSED

    def call(n: int) -> None:
        a, x, out = sets[n % len(sets)]
        gemv(a, x, trans=trans, out=out, algorithm=algorithm)

    return Contestant(name, call, [sets[0][2]])


def _torch(case: Case, sets: Sequence[tuple[Array, Array, Array]]) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []

    tensors = [tuple(map(tensor, arrays)) for arrays in sets]
    if case.stage == TRANSPOSED:
        tensors = [(a.t(), x, out) for a, x, out in tensors]

    def call(n: int) -> None:
        a, x, out = tensors[n % len(tensors)]
        torch.mv(a, x, out=out)

    return [Contestant("torch", call, [sets[0][2]])]
