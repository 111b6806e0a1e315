"""The least and the greatest element of an array, for the host, which waits for them: one launch, and no copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kgen.arrays import adopt
from kgen.device import multiprocessors
from kgen.dtypes import BF16, BOOL, F16, F32, F64, FLOATS, I32, DType
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.histogram.kernels import ELEMENTS, LOAD_BYTES
from kgen.ops.histogram.memory import Line
from kgen.ops.kinds import remember
from kgen.ops.told import Told
from kgen.registry import register
from kgen.scratch import idle, listing
from kgen.spec import Axis, Kernel, Spec
from kgen.streams import on, stream_for

THREADS = 512
ITEMS = 2
Extremes = tuple[Any, Any]


def number_of(dtype: DType) -> DType:
    """What holds every element of a dtype, and is passed between lanes: at least 32 bits."""
    if dtype in (F16, BF16):
        return F32
    return I32 if dtype.itemsize < 4 else dtype


def _illegal(spec: Spec) -> str | None:
    if spec["VEC"] > 1 and spec["VEC"] * spec.dtype.itemsize != LOAD_BYTES:
        return f"loads are of one element or of {LOAD_BYTES} bytes"
    return None


EXTREMES = register(
    Kernel(
        name="histogram_extremes",
        summary="The least and the greatest of the elements that each block meets.",
        formula="found[b], found[blocks + b] = min, max over the n of block b of x[n]",
        axes=(Axis("VEC", "v", (1, 2, 4, 8, 16), "elements of a load"),),
        dtypes=ELEMENTS,
        derive=lambda spec: {
            "THREADS": THREADS,
            "ITEMS": ITEMS,
            "STATIC_SMEM": THREADS // 32 * 2 * number_of(spec.dtype).itemsize,
        },
        text=lambda spec: {"number": number_of(spec.dtype), "floating": spec.dtype in (*FLOATS, F64)},
        check=_illegal,
        grid="(resident blocks)",
        origin="the first pass of a reduction",
        defaults=("histogram_extremes_v4_f32",),
    )
)


class _Plan(NamedTuple):
    """How the extremes of arrays of a kind are found."""

    step: Step
    find: Callable[[int, int], Extremes]


class _Finder:
    """Extremes of all elements, of which there are some, as scalars of x's type (float32 for bfloat16).

    Where there is a NaN, both are NaN.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def __call__(self, x: Operand, stream: int) -> Extremes:
        """The least and the greatest, once all that is queued on the stream has run."""
        return self._plan(x, stream).find(x.ptr, stream)

    def explain(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> str:
        """The launch, and why it."""
        x = adopt(inputs[0], "histogram", "x", ELEMENTS)
        with listing():  # what is not to run need not be compiled
            plan = self._plan(x, stream_for(x.kind, [x]))
        return f"{plan.step}\nbecause {math.prod(x.shape)} elements have extremes"

    def workspace(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> int:
        """The bytes of a copy, where x has no even spacing."""
        return Line(adopt(inputs[0], "histogram", "x", ELEMENTS)).nbytes

    def _plan(self, x: Operand, stream: int) -> _Plan:
        key = (x.shape, x.strides, x.dtype.name, x.ptr % LOAD_BYTES, x.device)
        plan = self._plans.get(key)
        if plan is None:
            with on(x.device, stream):
                plan = _prepared(x)
            if not idle():
                remember(self._plans, key, plan)
        return plan


extremes = _Finder()


def _prepared(x: Operand) -> _Plan:
    line = Line(x)
    pack = LOAD_BYTES // x.dtype.itemsize
    neighbours = line.step == 1 and (line.copy is not None or (x.ptr + line.start) % LOAD_BYTES == 0)
    spec = EXTREMES.spec(VEC=pack if neighbours else 1, dtype=x.dtype)
    loads = -(-line.length // spec["VEC"])
    blocks = max(1, min(2 * multiprocessors(x.device), -(-loads // (THREADS * ITEMS))))
    step = Step(spec, blocks, 2, (), (line.length, line.step))
    (run,) = bind([step], x.device)
    device, number = x.device, number_of(x.dtype).numpy
    nbytes = 2 * blocks * number.itemsize
    scalar = np.float32 if x.dtype is BF16 else np.uint8 if x.dtype is BOOL else x.dtype.numpy.type

    def find(pointer: int, stream: int) -> Extremes:
        at_x, held = line.ready(pointer, stream)
        told = Told.of("histogram", nbytes, device, stream)
        run((at_x, told.ptr), stream)
        found = np.frombuffer(told.wait(), number)
        del held
        return scalar(found[:blocks].min()), scalar(found[blocks:].max())

    return _Plan(step, find)
