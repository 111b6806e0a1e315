"""The operators that count: one launch into zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.dtypes import F64, I64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.histogram.kernels import ELEMENTS, HISTOGRAM, INDICES, blocks_for, cut_for, edge_of, map_of, vector_for
from kgen.ops.histogram.memory import Line
from kgen.scratch import fill

FIRST_GUESS = 768
"""Bins to count before the maximum is known: as many as have 16 counters each in little shared memory."""


def _one_axis(op: str, x: Operand) -> None:
    if len(x.shape) != 1:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes one dimension")


def _bincount_results(op: str, given: Sequence[Operand], length: int | None) -> Results:
    _one_axis(op, given[0])
    return [((FIRST_GUESS if length is None else length,), I64)]


def _greatest_results(op: str, given: Sequence[Operand], length: int) -> Results:
    _one_axis(op, given[0])
    return [((length,), I64), ((), I64)]


def _histogram_results(op: str, given: Sequence[Operand], bins: int, uniform: bool) -> Results:
    return [((bins,), I64), ((bins + 1,), edge_of(given[0].dtype))] if uniform else [((bins,), I64)]


def _plan(x: Operand, results: Sequence[Operand], uniform: bool | None) -> Plan:
    """One launch into zeros; inputs are x and perhaps a table of edges, results the counts, and what else it tells."""
    counts = results[0]
    device, bins = counts.device, counts.shape[0]
    line = Line(x)
    cut = cut_for(bins, device)
    spec = HISTOGRAM.spec(
        SMEM=cut.kib,
        COPIES=cut.copies,
        VEC=vector_for(x.dtype, line.step),
        dtype=x.dtype,
        packed=cut.packed,
        greatest=uniform is None and len(results) > 1,
        **map_of(uniform),
    )
    blocks = blocks_for(spec, cut, line.length, device)
    pointers = 1 + (uniform is not None) + len(results)
    about = (bins, cut.per_pass, cut.passes) if cut.packed else (bins,)
    step = Step(spec, blocks, pointers, about, (line.length, line.step))
    (run,) = bind([step], device)
    summed = results[:1] if uniform else results
    zeroed = [(at - len(results), 8 * math.prod(result.shape)) for at, result in enumerate(summed)]

    def launch(arrays: Sequence[int], stream: int) -> None:
        for at, nbytes in zeroed:
            fill(arrays[at], 0, nbytes, device, stream)
        at_x, held = line.ready(arrays[0], stream)
        run((at_x, *arrays[1:]), stream)
        del held

    why = f"{bins} bins in {cut.passes} passes, {cut.copies} counters each, {cut.kib} KiB of a block"
    return Plan(launch, (str(step),), why)


def _prepare_bincount(op: str, given: Sequence[Operand], results: Sequence[Operand], length: int | None) -> Plan:
    return _plan(given[0], results, None)


def _prepare_histogram(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int, uniform: bool) -> Plan:
    return _plan(given[0], results, uniform)


bincount_and_greatest = Operator("bincount", ("x",), ("length",), _greatest_results, _prepare_bincount, takes=INDICES)
bincount = Operator("bincount", ("x",), ("length",), _bincount_results, _prepare_bincount, takes=INDICES)
histogram = Operator(
    "histogram",
    ("x", "table"),
    ("bins", "uniform"),
    _histogram_results,
    _prepare_histogram,
    takes={"x": ELEMENTS, "table": (F64,)},
    mixed=True,
    rows=False,
)
