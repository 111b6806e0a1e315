"""Sums over the heads of a group, and over pieces: what is left of gradients of inputs that heads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kgen.dtypes import DType
from kgen.launch import Step
from kgen.operand import Ints, Operand
from kgen.ops.gated.kernels import SUM, SUM_THREADS
from kgen.ops.gated.plan import Problem, Program, Rows, rows_of, scratch_rows

Queued = TypeVar("Queued")


def add_sum(program: Program, source: str, out: Rows, shape: Ints, dtype: DType, heads: int, splits: int = 1) -> None:
    """Queue the sum over splits and over the heads of a group: [splits, batch, heads, time, feature] to `shape`,
    [batch, heads of the result, time, feature]."""
    batch, kept, length, features = shape
    head = length * features
    group = heads // kept
    count = batch * kept * length * features
    longs = (count, head, batch * heads * head, heads * head, group * head, features, *out.strides)
    step = Step(SUM.spec(dtype=dtype), -(-count // SUM_THREADS), 2, (kept, length, features, group, splits), longs)
    program.add(step, (source, out.name))


def add_gradient(
    program: Program, problem: Problem, name: str, result: Operand, layout: str, queue: Callable[..., Queued]
) -> Queued:
    """Queue what gives a gradient, `queue(rows)`; where heads share an input, by way of floats of each head."""
    final = rows_of(name, result, layout)
    if final.heads == problem.heads:
        return queue(final)
    features = result.shape[3]
    whole = scratch_rows(f"{name} of heads", problem, features)
    program.room(whole.name, problem.numbers(features))
    queued = queue(whole, wide=True)
    shape = (problem.batch, final.heads, problem.length, features)
    add_sum(program, whole.name, final, shape, result.dtype, problem.heads)
    return queued
