"""The operators that find scales: one of a tensor; those of rows, or of parts of rows, with the codes in one read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kgen.device import multiprocessors
from kgen.dtypes import F32, DType
from kgen.launch import Step, bind
from kgen.operand import Operand, aligned, contiguous_strides, power_of_two
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.elementwise.broadcast import collapse
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.operator import Elementwise
from kgen.ops.elementwise.storage import held_as
from kgen.ops.moving.quantize_kernels import LARGEST, SCALE, THREADS, columns_kernel, down, groups_kernel
from kgen.scratch import fill, scratch
from kgen.streams import on
from kgen.views import device_view

CAST = Elementwise(Function("cast", ("x",), "x"), storage=True)


def _group_results(op: str, given: Sequence[Operand], target: DType, axis: int, block: int | None) -> Results:
    (x,) = given
    ndim = len(x.shape)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim, f"{op}: axis")
    if block and axis % ndim != ndim - 1:
        raise ValueError(f"{op}: block is {block} and axis {axis}; blocks are of the last axis")
    parts = -(-x.shape[axis] // block) if block else 1
    return [
        (x.shape, held_as(target, x)),
        (tuple(parts if i == axis % ndim else n for i, n in enumerate(x.shape)), F32),
    ]


def _prepare_groups(
    op: str, given: Sequence[Operand], results: Sequence[Operand], target: DType, axis: int, block: int | None
) -> Plan:
    (x,), (q, scales) = given, results
    if 0 in x.shape:
        return _ones(scales)
    if math.prod(x.shape[axis % len(x.shape) + 1 :]) > 1:
        return _across_rows(x, q, target, axis % len(x.shape))
    if axis % len(x.shape) < len(x.shape) - 1:  # the axes after it have one element
        x, q, scales = (_without_last(each, len(x.shape) - 1 - axis % len(x.shape)) for each in (x, q, scales))
    columns = x.shape[-1]
    group = min(block or columns, columns)
    parts = scales.shape[-1]
    rows = collapse(x.shape[:-1], (x.strides[:-1], contiguous_strides(x.shape[:-1])))
    pitched = len(rows.sizes) == 1 and (x.strides[-1] == 1 or columns == 1)
    pitch = (rows.strides[0][0] if rows.size > 1 else columns) if pitched else columns
    vec = 16 // x.dtype.itemsize
    while vec > 1 and (columns % vec or group % vec or pitch % vec or not _starts(x, pitched, vec) or q.ptr % vec):
        vec //= 2
    if pitch == columns and columns % group == 0:  # every group begins where the last one ends
        groups, columns, parts = rows.size * parts, group, 1
        pitch = group
    else:
        groups = rows.size * parts
    packs = -(-group // vec)
    # A thread has two packs of a small group, up to 16 of a large one; what no block can hold is read twice.
    lanes = min(32, max(4, power_of_two(-(-packs // 2))))
    if packs > 8 * lanes:
        lanes = 256 if packs <= 16 * 256 else 1024
    items = power_of_two(-(-packs // lanes))
    held = items if items <= 16 and items * lanes <= 8192 else 0
    spec = groups_kernel(target).spec(VEC=vec, LANES=lanes, ITEMS=held, dtype=x.dtype)
    blocks = -(-groups // (spec.threads // lanes * down(spec)))
    step = Step(spec, blocks, 3, (columns, group, parts), (groups, pitch))
    why = f"{groups} groups of {group} neighbours"
    (run,) = bind([step], q.device)
    if pitched:
        return Plan(run, (str(step),), why)
    copy = _packed(x)
    device, nbytes = q.device, rows.size * x.shape[-1] * x.dtype.itemsize

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes, device, stream)
        copy.launch((pointers[0], memory.ptr), stream)
        run((memory.ptr, *pointers[1:]), stream)

    return Plan(launch, (*copy.steps, str(step)), why)


def _ones(scales: Operand) -> Plan:
    """Scales of no elements at all, as if those were 0."""

    def launch(pointers: Sequence[int], stream: int) -> None:
        with on(scales.device, stream):
            device_view(scales, pointers[-1])[...] = 1

    return Plan(launch, (), "there are no elements")


def _across_rows(x: Operand, q: Operand, target: DType, axis: int) -> Plan:
    """The largest magnitude of each column, and then codes: two launches that both read x."""
    matrices, rows, columns = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    packed, device = x.strides == contiguous_strides(x.shape), q.device
    vec = math.gcd(16 // x.dtype.itemsize, columns, q.ptr, x.ptr // x.dtype.itemsize if packed else 0)
    lanes = min(32, power_of_two(-(-columns // vec)))
    tiles = -(-columns // (lanes * vec))
    teams = THREADS // lanes
    splits = max(1, min(-(-8 * multiprocessors(device) // (tiles * matrices)), rows // (4 * teams)))
    split_rows = -(-rows // splits)
    splits = -(-rows // split_rows)
    spec = columns_kernel(target).spec
    ints = (rows, columns, tiles, splits, split_rows)
    steps = [
        Step(spec(VEC=vec, LANES=lanes, codes=codes, dtype=x.dtype), tiles * splits * matrices, 4 if codes else 2, ints)
        for codes in (False, True)
    ]
    find, encode = bind(steps, device)
    copy = None if packed else _packed(x)
    room = 0 if packed else -(-math.prod(x.shape) * x.dtype.itemsize // 256) * 256
    nbytes = 4 * matrices * columns

    def launch(pointers: Sequence[int], stream: int) -> None:
        source, codes, scales = pointers
        memory = scratch(room + nbytes, device, stream)
        if copy is not None:
            copy.launch((source, memory.ptr), stream)
            source = memory.ptr
        largest = memory.ptr + room
        fill(largest, 0, nbytes, device, stream)
        find((source, largest), stream)
        encode((source, largest, codes, scales), stream)

    return Plan(launch, (*(copy.steps if copy else ()), *map(str, steps)), f"{matrices * columns} columns of {rows}")


def _without_last(operand: Operand, count: int) -> Operand:
    """The same array without so many last axes, of one element each."""
    return operand.view(operand.shape[:-count], operand.strides[:-count])


def _starts(x: Operand, pitched: bool, vec: int) -> bool:
    return not pitched or aligned(x, vec * x.dtype.itemsize)


def _packed(x: Operand) -> Plan:
    """The copy of an array to contiguous memory."""
    target = Operand(0, x.shape, contiguous_strides(x.shape), x.dtype, x.device, x.kind, "the copy", None, None)
    return CAST._prepare("quantize", [x], [target], None, None, (None,))


def _scale_results(op: str, given: Sequence[Operand], target: DType) -> Results:
    return [((), F32)]


def _prepare_scale(op: str, given: Sequence[Operand], results: Sequence[Operand], target: DType) -> Plan:
    (x,) = given
    n, device = collapse(x.shape, (x.strides,)), results[0].device
    packed = n.straight(0) or n.size == 0
    vec = 16 // x.dtype.itemsize if x.ptr % 16 == 0 or not packed else 1
    first = SCALE.spec(VEC=vec, dtype=x.dtype)
    most = 4 * multiprocessors(device)
    blocks = max(1, min(most, -(-n.size // (4 * vec * first.threads))))
    steps = [
        Step(first, blocks, 2, (), (n.size,)),
        Step(SCALE.spec(VEC=4, scale=True, dtype=F32), 1, 2, (), (blocks,), (LARGEST[target],)),
    ]
    largest, finish = bind(steps, device)
    copy = None if packed else _packed(x)
    room = 0 if packed else -(-n.size * x.dtype.itemsize // 256) * 256

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(room + 4 * blocks, device, stream)
        source, parts = pointers[0], memory.ptr + room
        if copy is not None:
            copy.launch((source, memory.ptr), stream)
            source = memory.ptr
        largest((source, parts), stream)
        finish((parts, pointers[1]), stream)

    return Plan(launch, (*(copy.steps if copy else ()), *map(str, steps)), f"{blocks} parts of {n.size} elements")


quantize_groups = Operator("quantize", ("x",), ("target", "axis", "block"), _group_results, _prepare_groups, rows=False)
quantize_scale = Operator("quantize", ("x",), ("target",), _scale_results, _prepare_scale, rows=False)
