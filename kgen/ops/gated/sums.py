"""Sums in float, rounded once: over the heads of a group, over pieces, over parts of a head's features or values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from kgen.dtypes import DType
from kgen.launch import Step
from kgen.operand import Ints, Operand, contiguous_strides
from kgen.ops.gated.kernels import SUM, SUM_ROUNDS, SUM_THREADS
from kgen.ops.gated.plan import Problem, Program, Rows, rows_of, scratch_rows

Queued = TypeVar("Queued")


def add_sum(program: Program, source: str, out: Rows, shape: Ints, dtype: DType, heads: int, splits: int = 1) -> None:
    """Queue the sum over splits and over the heads of a group: [splits, batch, heads, time, feature] to `shape`,
    [batch, heads of the result, time, feature]."""
    batch, kept, length, features = shape
    head = length * features
    group = heads // kept
    strides = (head, batch * heads * head, heads * head, group * head, features)
    _add(program, source, out, shape, dtype, (group, splits), strides)


def add_sum_of_parts(
    program: Program, problem: Problem, parts: Rows, out: Rows, features: int, count: int, dtype: DType
) -> None:
    """Queue the sum of so many parts with rows as of `partial_rows`; time steps of no sequence stay as they are."""
    p = problem
    batch, head, step, _ = parts.strides
    shape = (p.batch, p.heads, p.length, features)
    _add(program, parts.name, out, shape, dtype, (1, count), (0, p.batch * batch, batch, head, step), p)


def _add(
    program: Program,
    source: str,
    out: Rows,
    shape: Ints,
    dtype: DType,
    counts: Ints,
    strides: Ints,
    sequences: Problem | None = None,
) -> None:
    """Queue a sum of `counts` groups and splits, given the strides of the parts, and sequences that it keeps to."""
    batch, heads, length, features = shape
    offsets = sequences.offsets if sequences else 0
    spec = SUM.spec(VEC=4 if out.wide and features % 4 == 0 else 1, OFFSETS=offsets, dtype=dtype)
    rows = SUM_THREADS // min(math.ceil(features / spec["VEC"]), SUM_THREADS)
    ints = (heads, length, features, *counts, rows)
    pointers: tuple[str, ...] = (source, out.name)
    if sequences and offsets:
        ints, pointers = (*ints, sequences.sequences), (*pointers, "cu_seqlens")
    blocks = batch * heads * math.ceil(length / (SUM_ROUNDS * rows))
    program.add(Step(spec, blocks, len(pointers), ints, (*strides, *out.strides)), pointers)


def partial_rows(program: Program, problem: Problem, name: str, features: int, count: int) -> tuple[Rows, int]:
    """Room for so many parts of a result as floats, each [batch, heads, time, features] with rows of whole eights;
    and the stride from one part to the next."""
    p = problem
    width = -(-features // 8) * 8
    strides = contiguous_strides((p.batch, p.heads, p.length, width))
    room = program.room(f"{name} of parts", count * p.numbers(width))
    return Rows(room, strides, p.heads, True, 16), p.numbers(width)


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
