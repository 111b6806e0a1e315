"""Rotary position embedding beside what is written in torch: halves swapped and multiplied, or complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

SHAPES = ((1, 32, 1, 128), (1, 32, 2048, 128), (4, 8, 4096, 128), (8, 32, 4096, 64), (4, 32, 4096, 128))
HALVES, NEIGHBOURS = "halves", "neighbours"
_QUICK = 2
_BARS = {F32: 1e-6, F16: 6e-4, BF16: 4e-3}
_BASE = 10000.0


class Rope(Bench):
    """A stage is what a pair of features is; shapes are B x H x T x D."""

    operator = "rope"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES, FLOATS)
        return [Case(shape, dtype, stage) for dtype in dtypes for stage in (HALVES, NEIGHBOURS) for shape in shapes]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 4, hint="write BxHxTxD, as in 4x32x4096x128")

    def nbytes(self, case: Case) -> int:
        return 2 * math.prod(case.shape) * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        # Peers' angles are float32, as their users make them: one of T radians is off by up to T * 2^-24.
        return Bars(_BARS[case.dtype], known=case.shape[2] * 2.0**-24)

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.moving.rope import rope

        count = rotation(self.nbytes(case))
        inputs = [cupy.random.standard_normal(case.shape, dtype="f4").astype(case.dtype.numpy) for _ in range(count)]
        outs = [cupy.empty_like(x) for x in inputs]
        interleaved = case.stage == NEIGHBOURS

        def call(n: int) -> None:
            rope(inputs[n % count], base=_BASE, interleaved=interleaved, out=outs[n % count])

        contestants = [Contestant("kgen", call, [outs[0]])]
        contestants += (_torch_complex if interleaved else _torch)(inputs) if peers else []
        return Problem(contestants, [_exact(inputs[0], interleaved)])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.moving.rope import rope

        x = cupy.ones((1, 1, 4, 32), "f4")
        out = cupy.empty_like(x)
        return lambda: rope(x, out=out)


BENCH = Rope()


def _exact(x: Array, interleaved: bool) -> Array:
    import cupy

    length, width = x.shape[2:]
    angle = cupy.arange(length, dtype="f8")[:, None] * _BASE ** (-2 * cupy.arange(width // 2, dtype="f8") / width)
    pairs = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(width // 2), slice(width // 2, width))
    p, q = (x[..., pair].astype("f8") for pair in pairs)
    exact = cupy.empty(x.shape, "f8")
    exact[..., pairs[0]] = p * cupy.cos(angle) - q * cupy.sin(angle)
    exact[..., pairs[1]] = q * cupy.cos(angle) + p * cupy.sin(angle)
    return exact


def _torch(inputs: Sequence[Array]) -> list[Contestant]:
    """With tables that are made beforehand, in float32, as its users make them."""
    try:
        import torch
    except ImportError:
        return []
    import cupy

    tensors = [tensor(x) for x in inputs]
    angle = _angles(tensors[0])
    cos, sin = (table.repeat(1, 2).to(tensors[0].dtype) for table in (angle.cos(), angle.sin()))

    def call(n: int) -> Any:
        x = tensors[n % len(tensors)]
        p, q = x.chunk(2, -1)
        return x * cos + torch.cat((-q, p), -1) * sin

    return [Contestant("torch", call, outputs=lambda result: [cupy.from_dlpack(result.double())])]


def _torch_complex(inputs: Sequence[Array]) -> list[Contestant]:
    """As Llama's own code turns neighbours."""
    try:
        import torch
    except ImportError:
        return []
    import cupy

    tensors = [tensor(x) for x in inputs]
    angle = _angles(tensors[0])
    turns = torch.polar(torch.ones_like(angle), angle)

    def call(n: int) -> Any:
        x = tensors[n % len(tensors)]
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).to(x.dtype)

    return [Contestant("torch", call, outputs=lambda result: [cupy.from_dlpack(result.double())])]


def _angles(x: Any) -> Any:
    """Of each position and pair, in float32."""
    import torch

    length, width = x.shape[2:]
    frequency = _BASE ** (-torch.arange(0, width, 2, device=x.device).float() / width)
    return torch.arange(length, device=x.device).float()[:, None] * frequency
