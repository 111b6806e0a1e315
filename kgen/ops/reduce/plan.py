"""Which kernels reduce an array of given axes: one pass over it where that can be, further ones over what that left.

A pass reduces one axis. Several that do not merge into one are reduced one after another, the longest first, and what
is left of them is kept in the accumulator's type, so that nothing is rounded in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.device import multiprocessors
from kgen.dtypes import BF16, F16, F32, F64, I64, DType
from kgen.launch import bind, shifted
from kgen.operand import Operand, contiguous_strides
from kgen.ops.calls import Plan
from kgen.ops.reduce.axes import Kept, Layout, Reduced, layout
from kgen.ops.reduce.flat import begins_early
from kgen.ops.reduce.kernels import summed
from kgen.ops.reduce.launches import launches
from kgen.ops.reduce.passes import Pass, length_of
from kgen.ops.reduce.text import FLOATING, rounded_once
from kgen.ops.reduce.workspace import workspace
from kgen.scratch import scratch


def plan_reduction(
    op: str, x: Operand, out: Operand, axes: Sequence[int], divisor: float, algorithm: str | None = None
) -> Plan:
    """All passes from `x` to `out`; `out` has the kept axes only, or all with 1 for the reduced ones."""
    device, sms, early = out.device, multiprocessors(out.device), begins_early(out.device)
    spread = _spread(out.strides, len(x.shape), axes)
    low = x.ptr | out.ptr
    dtype = x.dtype
    passes: list[Pass] = []
    sizes: list[int] = []  # bytes of what each pass but the last leaves

    now = layout(x.shape, x.strides, spread, axes, in_order=op.startswith("arg"))
    if op.startswith("arg") and len(now.reduced) > 1:  # indices count along one axis: a maximum of nothing is a copy
        flat = contiguous_strides(x.shape)
        copied = layout(x.shape, x.strides, flat, (), in_order=False)
        passes.append(Pass("max", dtype, dtype, copied, low, 1, sms, None, early))
        sizes.append(math.prod(x.shape) * dtype.itemsize)
        now, low = layout(x.shape, flat, spread, axes, in_order=True), 0
    while True:
        final = _in_one_pass(op, dtype, out.dtype)
        if len(now.reduced) <= 1 and final:
            passes.append(Pass(op, dtype, out.dtype, now, low, divisor, sms, algorithm, early))
            break
        kind = _accumulator(op, dtype, out.dtype)
        longest = max(now.reduced, default=Reduced(1, 1))
        left = [Kept(*axis, 0) for axis in now.reduced if axis is not longest]
        every = sorted((*now.kept, *left), key=lambda axis: -abs(axis.stride))
        dense = contiguous_strides(tuple(axis.size for axis in every))
        target = tuple(axis._replace(out=stride) for axis, stride in zip(every, dense))
        reduced = (longest,) if now.reduced else ()
        left_over = Layout(_remerged(target), reduced, now.start)
        passes.append(Pass(op, dtype, kind, left_over, low, 1, sms, None, early))
        sizes.append(math.prod(axis.size for axis in every) * kind.itemsize)
        kept = [(axis.size, stride, axis.out) for axis, stride in zip(every, dense) if axis not in left]
        rest = [(axis.size, stride) for axis, stride in zip(every, dense) if axis in left]
        now = Layout(_remerged([Kept(*axis) for axis in kept]), tuple(Reduced(*axis) for axis in rest))
        dtype, low = kind, 0

    work = [list(launches(one)) for one in passes]
    flat_work = [launch for one in work for launch in one]
    bound = iter(bind([launch.step for launch in flat_work], device))
    ready = [[(launch, next(bound)) for launch in one] for one in work]
    room = max((launch.partials for launch in flat_work), default=0)
    groups = max((launch.groups for launch in flat_work), default=0)

    if len(flat_work) == 1 and not room:
        ((one, run),) = ready[0]
        return Plan(shifted(run, (one.source, one.target)), (str(one.step),), _why(passes))

    def launch(pointers: Sequence[int], stream: int) -> None:
        partials, counters, held = workspace(room, groups, device, stream) if room else (0, 0, None)
        source = pointers[0]
        for at, one in enumerate(ready):
            memory = scratch(sizes[at], device, stream) if at < len(sizes) else None
            target = memory.ptr if memory else pointers[1]
            for (_, begin, end, meeting, _), run in one:
                shared = (partials, counters) if meeting else ()
                run((source + begin, target + end, *shared), stream)
            source, held = target, (held, memory)

    return Plan(launch, tuple(str(launch.step) for launch in flat_work), _why(passes))


def _spread(strides: Sequence[int], ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The result's strides, with an entry for every axis of the input."""
    if len(strides) == ndim:
        return tuple(strides)
    rest = iter(strides)
    return tuple(0 if axis in axes else next(rest) for axis in range(ndim))


def _remerged(axes: Sequence[Kept]) -> tuple[Kept, ...]:
    sizes, strides, out = zip(*axes) if axes else ((), (), ())
    return layout(sizes, strides, out, (), in_order=True).kept


def _why(passes: Sequence[Pass]) -> str:
    words = [
        f"{math.prod(axis.size for axis in one.layout.kept)} results of {length_of(one.layout)} elements each"
        for one in passes
    ]
    return "; then ".join(words)


def _accumulator(op: str, dtype: DType, out: DType) -> DType:
    """What parts of a result are kept in: float32 for the narrow floats, 64 bits for sums of anything else.

    Sums of float32 are kept in double, so that they are rounded once.
    """
    if not summed(op):
        return dtype
    if dtype in FLOATING:
        return F64 if F64 in (dtype, out) or rounded_once(op, dtype, out) else F32
    return F64 if out in FLOATING else I64


def _in_one_pass(op: str, dtype: DType, out: DType) -> bool:
    """Whether a kernel gives results of this type; any other takes a pass over results of the accumulator's type."""
    if not summed(op) or out.itemsize == 8:
        return True
    if dtype in FLOATING:
        return not (dtype is BF16 and out is F16)
    return dtype is I64 and out not in FLOATING
