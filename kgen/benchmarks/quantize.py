"""8-bit codes beside what is written in torch: magnitudes, their largest, a division, a cast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import F32, FLOATS

SHAPES = ((64, 4096), (2048, 4096), (32768, 1000), (32768, 4096), (16384, 16384), (4096, 65536))
ROWS, BLOCKS, COLUMNS, WHOLE = "rows", "blocks", "columns", "whole"
AXES: dict[str, dict[str, int]] = {
    ROWS: {"axis": -1},
    BLOCKS: {"axis": -1, "block": 128},
    COLUMNS: {"axis": 0},
    WHOLE: {},
}
"""What numbers share a scale."""
_BLOCK = 128
_QUICK = 2


class Quantize(Bench):
    """To e4m3; a stage is what numbers share a scale."""

    operator = "quantize"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES, FLOATS)
        return [
            Case(shape, dtype, stage)
            for dtype in dtypes
            for stage in AXES
            for shape in shapes
            if stage != BLOCKS or shape[1] % _BLOCK == 0
        ]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 2, hint="write ROWSxCOLUMNS, as in 32768x4096")

    def nbytes(self, case: Case) -> int:
        scales = {ROWS: case.shape[0], BLOCKS: math.prod(case.shape) // _BLOCK, COLUMNS: case.shape[1], WHOLE: 1}
        return math.prod(case.shape) * (case.dtype.itemsize + 1) + 4 * scales[case.stage]

    def bars(self, case: Case) -> Bars:
        return Bars(0.03)  # three bits of a mantissa; other rules of rounding differ by less than that

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.moving.quantize import dequantize, quantize

        count = rotation(self.nbytes(case))
        inputs = [
            (cupy.random.random(case.shape, dtype="f4") - cupy.float32(0.5)).astype(case.dtype.numpy)
            for _ in range(count)
        ]
        options = AXES[case.stage]

        def numbers(result: tuple[Array, Array]) -> list[Array]:
            q, scale = result
            if case.stage == BLOCKS:
                q, scale = q.reshape(*scale.shape, _BLOCK), scale[..., None]
            return [dequantize(q, scale, code="e4m3").reshape(case.shape)]

        contestants = [Contestant("kgen", lambda n: quantize(inputs[n % count], **options), outputs=numbers)]
        contestants += _torch(inputs, case.stage) if peers else []
        return Problem(contestants, [inputs[0].astype("f8")])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.moving.quantize import quantize

        x = cupy.ones((4, 128), "f4")
        return lambda: quantize(x, axis=-1)


BENCH = Quantize()


def _torch(inputs: Sequence[Array], stage: str) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    import cupy

    tensors = [tensor(x) for x in inputs]
    largest = torch.finfo(torch.float8_e4m3fn).max

    def call(n: int) -> Any:
        x = tensors[n % len(tensors)]
        if stage == BLOCKS:
            x = x.view(x.shape[0], -1, _BLOCK)
        axis = {ROWS: -1, BLOCKS: -1, COLUMNS: 0, WHOLE: None}[stage]
        most = x.abs().amax() if axis is None else x.abs().amax(axis, keepdim=True)
        scale = most.float() / largest
        return (x / scale).clamp(-largest, largest).to(torch.float8_e4m3fn), scale

    def numbers(result: Any) -> list[Array]:
        q, scale = result
        return [cupy.from_dlpack((q.double() * scale.double()).view(inputs[0].shape))]

    return [Contestant("torch", call, outputs=numbers)]
