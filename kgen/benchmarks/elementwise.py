"""Elementwise operators beside torch, torch.compile and CuPy: whole arrays, odd sizes and starts, broadcasts.

A stage is a function and how its operands lie: "add", "gelu", "add bias" (a row for all rows), "add column", "add +1"
(the first operand starts one element off), "swiglu".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, compiled, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

FLAT = (1000, 1 << 16, 1 << 20, 1 << 24, (1 << 27) - 3, 1 << 28)
MATRICES = ((4096, 4096), (1 << 17, 1001), (1 << 20, 128), (1 << 15, 4096))
STAGES = ("add", "add +1", "relu", "sigmoid", "gelu", "gelu_tanh", "silu", "mish", "swiglu")
BROADCASTS = ("add bias", "add column")
_QUICK = 3
_BARS = {F32: Bars(1e-7), F16: Bars(4e-4), BF16: Bars(3e-3)}


@dataclass(frozen=True)
class _Set:
    operands: tuple[Array, ...]
    out: Array


class Elementwise(Bench):
    """A function of each element."""

    operator = "elementwise"

    def cases(self, *, quick: bool = False) -> list[Case]:
        if quick:
            return [Case((n,), F32, stage) for stage in ("add", "gelu") for n in FLAT[:_QUICK]]
        flat = [Case((n,), dtype, stage) for dtype in FLOATS for stage in STAGES for n in FLAT]
        return flat + [Case(s, dtype, stage) for dtype in FLOATS for stage in BROADCASTS for s in MATRICES]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 1, 2, hint="write N, or ROWSxCOLUMNS, as in 4096x4096")

    def nbytes(self, case: Case) -> int:
        name, _, lies = case.stage.partition(" ")
        shared = {"bias": case.shape[-1], "column": case.shape[0]}.get(lies)
        elements = math.prod(case.shape)
        return case.dtype.itemsize * ((_count(name) + 1) * elements if shared is None else 2 * elements + shared)

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype]

    def ladder(self, case: Case) -> list[str]:
        """From one element a thread to several words of 16 bytes, as the teaching kernels have it."""
        name = case.stage.split()[0]
        if len(case.shape) > 1 or "+" in case.stage:
            return []
        wide = 16 // case.dtype.itemsize
        steps = ["v1", "v2", f"v{wide // 2}", f"v{wide}", f"v{wide}_i2", f"v{wide}_i4", f"v{wide}_i2_t256"]
        return [f"{name}_{step}_{case.dtype}" for step in dict.fromkeys(steps)]

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        from kgen.ops.elementwise.activations import NAMED

        name = case.stage.split()[0]
        function = NAMED[name]
        sets = _operands(case)

        def mine(title: str, algorithm: str | None) -> Contestant:
            def call(n: int) -> None:
                s = sets[n % len(sets)]
                function(*s.operands, out=s.out, algorithm=algorithm)

            return Contestant(title, call, [sets[0].out])

        contestants = [mine("kgen", None), *(mine(algorithm, algorithm) for algorithm in algorithms)]
        if peers:
            contestants += [*_torch(name, sets), *_cupy(name, sets, case)]
        wide = [x.astype("f8") for x in sets[0].operands]
        return Problem(contestants, [_exact(name, *wide)])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.elementwise.activations import NAMED

        x, y, out = (cupy.ones(1000, "f4") for _ in range(3))
        add = NAMED["add"]
        return lambda: add(x, y, out=out)


BENCH = Elementwise()


def _count(name: str) -> int:
    from kgen.ops.elementwise.functions import FUNCTIONS

    return len(FUNCTIONS[name].operands)


def _operands(case: Case) -> list[_Set]:
    """Normal numbers, in so many sets that a rotation outgrows the L2."""
    import cupy

    name, _, lies = case.stage.partition(" ")
    count = rotation(BENCH.nbytes(case))
    random = cupy.random.default_rng(0)
    other = {"bias": case.shape[-1:], "column": (*case.shape[:-1], 1)}.get(lies, case.shape)

    def draw(shape: tuple[int, ...], start: int = 0) -> Array:
        flat = random.standard_normal(math.prod(shape) + start, dtype="f4").astype(case.dtype.numpy)
        return flat[start:].reshape(shape)

    def one() -> _Set:
        first = draw(case.shape, start=1 if lies == "+1" else 0)
        operands = (first, *(draw(other) for _ in range(_count(name) - 1)))
        return _Set(operands, cupy.empty(case.shape, case.dtype.numpy))

    return [one() for _ in range(count)]


def _exact(name: str, x: Array, y: Array | None = None) -> Array:
    """The textbook's formula on float64."""
    import cupy
    from cupyx.scipy.special import erfc, expit  # type: ignore[import-untyped]

    formulas: dict[str, Callable[[], Array]] = {
        "add": lambda: x + y,
        "relu": lambda: cupy.maximum(x, 0),
        "sigmoid": lambda: expit(x),
        "gelu": lambda: x * erfc(-x / math.sqrt(2)) / 2,
        "gelu_tanh": lambda: x * expit(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
        "silu": lambda: x * expit(x),
        "mish": lambda: x * cupy.tanh(cupy.logaddexp(x, 0)),
        "swiglu": lambda: x * expit(x) * y,
    }
    return formulas[name]()


def _torch(name: str, sets: Sequence[_Set]) -> list[Contestant]:
    """torch as its users call it, with its `out` where it has one, and compiled."""
    try:
        import torch
        import torch.nn.functional as nn
    except ImportError:
        return []
    import cupy

    functions: dict[str, Callable[..., Any]] = {
        "add": torch.add,
        "relu": torch.relu,
        "sigmoid": torch.sigmoid,
        "gelu": nn.gelu,
        "gelu_tanh": lambda x: nn.gelu(x, approximate="tanh"),
        "silu": nn.silu,
        "mish": nn.mish,
        "swiglu": lambda gate, up: nn.silu(gate) * up,
    }
    function = functions[name]
    tensors = [[tensor(x) for x in s.operands] for s in sets]

    def numbers(result: Any) -> list[Array]:
        return [cupy.from_dlpack(result.double())]

    def contestant(title: str, called: Callable[..., Any]) -> Contestant:
        return Contestant(title, lambda n: called(*tensors[n % len(tensors)]), outputs=numbers)

    return [contestant("torch", function), contestant("torch.compile", compiled(function))]


def _cupy(name: str, sets: Sequence[_Set], case: Case) -> list[Contestant]:
    """CuPy's ufunc, where it has one."""
    import cupy

    if name != "add" or case.dtype is BF16:
        return []

    def call(n: int) -> Any:
        s = sets[n % len(sets)]
        return cupy.add(*s.operands, out=s.out)

    return [Contestant("cupy", call, [sets[0].out])]
