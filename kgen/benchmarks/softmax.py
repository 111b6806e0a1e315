"""Softmax along rows beside torch, torch.compile, Liger and CuPy."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, BenchError, Case, Contestant, Problem, compiled, rotation, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

SHAPES = (
    (64, 1000),
    (8, 131_072),
    (4096, 128),
    (65_536, 128),
    (32_768, 1024),
    (16_384, 4096),
    (8192, 16_384),
    (4096, 65_536),
    (1 << 19, 129),
    (1 << 16, 1001),
    (1 << 14, 4097),
    (1 << 8, 262_144),
    (1 << 6, 1 << 20),
)
"""Rows x columns."""

_QUICK = 3
_BARS = {F32: Bars(2e-7), F16: Bars(6e-4), BF16: Bars(4e-3)}


class Softmax(Bench):
    """Forward: softmax(x, -1). Backward: its gradient, from y and that of y."""

    operator = "softmax"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES, FLOATS)
        return [Case(shape, dtype, stage) for dtype in dtypes for stage in ("forward", "backward") for shape in shapes]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return rows_of(text)

    def nbytes(self, case: Case) -> int:
        return (2 if case.stage == "forward" else 3) * math.prod(case.shape) * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype]

    def ladder(self, case: Case) -> list[str]:
        if case.stage == "backward":
            return []
        columns = case.shape[1]
        named = ["softmax_online"]
        if columns % 32 == 0 and columns <= 1024:  # a warp a row: from one element at a time to the widest
            named += [f"softmax_t32_n{columns // 32 // vec}_v{vec}_{case.dtype}" for vec in (1, 4)]
        return named

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.softmax.backward import softmax_backward
        from kgen.ops.softmax.softmax import softmax

        sets = [softmax_of(x) if case.stage == "backward" else x for x in normal(case, 1)]
        out = cupy.empty(case.shape, case.dtype.numpy)
        if case.stage == "backward":
            given = normal(case, 2)[: len(sets)]

            def gradient(n: int) -> Any:
                return softmax_backward(given[n % len(given)], sets[n % len(sets)], -1, out=out)

            contestants = [Contestant("kgen", gradient, [out])]
            y, dy = sets[0].astype("f8"), given[0].astype("f8")
            exact = y * (dy - (y * dy).sum(-1, keepdims=True))
            return Problem([*contestants, *(_torch_backward(given, sets) if peers else [])], [exact])

        def mine(name: str, algorithm: str | None) -> Contestant:
            return Contestant(name, lambda n: softmax(sets[n % len(sets)], -1, algorithm=algorithm, out=out), [out])

        contestants = [mine("kgen", None), *(mine(name, name) for name in algorithms)]
        if peers:
            contestants += [*_torch(sets), *_liger(sets), *_cupyx(sets)]
        return Problem(contestants, [softmax_of(sets[0].astype("f8"))])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.softmax.softmax import softmax

        x, out = cupy.ones((4, 256), "f4"), cupy.empty((4, 256), "f4")
        return lambda: softmax(x, -1, out=out)


BENCH = Softmax()


def rows_of(text: str) -> tuple[int, ...]:
    """The shape that a `--row` word stands for."""
    words = text.lower().split("x")
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        raise BenchError(f"{text!r} is no shape", hint="write ROWSxCOLUMNS, as in 16384x4096")
    return tuple(map(int, words))


def normal(case: Case, seed: int) -> list[Array]:
    """Normal numbers, in so many sets that a rotation outgrows the L2."""
    import cupy

    nbytes = math.prod(case.shape) * case.dtype.itemsize
    count = rotation(nbytes)
    rng = cupy.random.default_rng(seed)
    return [rng.standard_normal(case.shape, dtype="f4").astype(case.dtype.numpy) for _ in range(count)]


def softmax_of(x: Array) -> Array:
    """In the precision of x."""
    import cupy

    power = cupy.exp(x - x.max(-1, keepdims=True))
    return (power / power.sum(-1, keepdims=True)).astype(x.dtype)


def optional(module: str) -> Any:
    """A module that a peer is in, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def doubles(result: Any) -> list[Array]:
    """What torch gave, for the check."""
    import cupy

    results = result if isinstance(result, tuple) else (result,)
    return [cupy.from_dlpack(x.detach().double()) for x in results]


def peer(name: str, call: Callable[[Any], Any], tensors: Sequence[Any]) -> Contestant:
    """A torch function of one tensor of the rotation."""
    return Contestant(name, lambda n: call(tensors[n % len(tensors)]), outputs=doubles)


def _torch(sets: Sequence[Array]) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    tensors = [tensor(x) for x in sets]

    def softmax(x: Any) -> Any:
        return torch.softmax(x, -1)

    return [peer("torch", softmax, tensors), peer("torch.compile", compiled(softmax), tensors)]


def _torch_backward(given: Sequence[Array], sets: Sequence[Array]) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    pairs = [(tensor(dy), tensor(y)) for dy, y in zip(given, sets, strict=True)]
    call = torch.ops.aten._softmax_backward_data
    return [peer("torch", lambda pair: call(*pair, -1, pair[0].dtype), pairs)]


def _liger(sets: Sequence[Array]) -> list[Contestant]:
    liger = optional("liger_kernel.ops.softmax.softmax")
    return [peer("liger", liger.LigerSoftmaxFunction.apply, [tensor(x) for x in sets])] if liger else []


def _cupyx(sets: Sequence[Array]) -> list[Contestant]:
    special = optional("cupyx.scipy.special")
    if special is None or sets[0].dtype == BF16.numpy:
        return []
    return [Contestant("cupyx", lambda n: special.softmax(sets[n % len(sets)], -1), outputs=lambda result: [result])]
