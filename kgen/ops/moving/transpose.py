"""Permutations of axes as contiguous copies: axes that move together are joined, then tiles turn over or rows move."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from kgen.dtypes import DTYPES, U8, U16, U32, U64
from kgen.launch import Step, bind
from kgen.operand import INT_MAX, Operand, contiguous_strides, joined, power_of_two
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.moving.flat_kernels import ROWS_FLAT, is_short, launch_of, suits
from kgen.ops.moving.transpose_kernels import (
    MOST_AXES,
    MOST_NARROW,
    MOST_SHORT,
    NARROW,
    PACK,
    RAGGED,
    ROOM,
    ROWS,
    SHORT,
    THREADS,
    TRANSPOSE,
)

_OF_SIZE = {1: U8, 2: U16, 4: U32, 8: U64}
_TILE = {1: (128, 128), 2: (64, 128), 4: (64, 64), 8: (32, 32)}
"""Rows and columns of a tile, by the size of elements."""
_SCALAR_TILE = {1: (64, 64), 2: (64, 64), 4: (64, 64), 8: (32, 32)}
"""The same where they move one by one."""
_RAGGED_TILE = {1: (128, 128, 256), 2: (128, 128, 256), 4: (128, 64, 256), 8: (64, 32, 256)}
"""The same where rows start anywhere, and the threads of a block."""
_LARGE_RAGGED_TILE = {1: (128, 256, 512), 2: (128, 256, 512), 4: (128, 128, 512), 8: (64, 32, 256)}
LARGE = 128 << 20
"""Bytes of an array from which on these are faster: there are tiles for many waves of blocks."""


def transpose(x: Any, axes: Sequence[int] | None = None, *, out: Any = None, stream: Any = None) -> Any:
    """A contiguous copy of `x` with its axes permuted: what `numpy.ascontiguousarray(x.transpose(axes))` gives.

    Parameters
    ----------
    x : array
        Of any number of axes, any strides, and any element type that kgen knows.
    axes : sequence of int, optional
        For each axis of the result, that of x which it is; negative ones count from the end. By default the axes in
        reverse order.
    out : array, optional
        Where to write the result: contiguous, apart from x.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the array's library.

    Returns
    -------
    array of the input's kind and dtype, contiguous.

    Raises
    ------
    ValueError
        For axes that are no permutation, and an `out` that does not fit.
    numpy.exceptions.AxisError
        A ValueError: for an axis that x does not have.
    TypeError
        For what is no array, or of another element type.

    Examples
    --------
    >>> import cupy, kgen                                                          # doctest: +SKIP
    >>> kgen.transpose(cupy.ones((2, 3, 5)), (0, 2, 1)).shape                      # doctest: +SKIP
    (2, 5, 3)
    """
    if axes is not None and type(axes) is not tuple:
        axes = tuple(axes)
    result: Any = _transpose.call((x,), (out,), (axes,), stream)[0]
    return result


class _Axis(NamedTuple):
    """One axis of the result: its size, and the strides over it of the input and of the result, in elements."""

    size: int
    source: int
    target: int


def _order(op: str, x: Operand, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    ndim = len(x.shape)
    if axes is None:
        return tuple(reversed(range(ndim)))
    if len(axes) != ndim:
        raise ValueError(f"{op}: axes is {axes}; x has shape {x.shape}, so it takes a permutation of its {ndim} axes")
    order = []
    for axis in axes:
        at = operator.index(axis)
        if not -ndim <= at < ndim:
            raise np.exceptions.AxisError(at, ndim, f"{op}: axes")
        order.append(at % ndim)
    if len(set(order)) < ndim:
        raise ValueError(f"{op}: axes is {axes}, which names an axis twice; it takes a permutation")
    return tuple(order)


def _results(op: str, given: Sequence[Operand], axes: tuple[int, ...] | None) -> Results:
    (x,) = given
    return [(tuple(x.shape[axis] for axis in _order(op, x, axes)), x.dtype)]


def contiguous_copy(x: Operand) -> tuple[Operand, Plan]:
    """The operand of a contiguous copy in memory yet to be had, and the plan that makes it."""
    copy = Operand(0, x.shape, contiguous_strides(x.shape), x.dtype, x.device, x.kind, x.argument, None, None)
    return copy, _prepare("transpose", (x,), (copy,), tuple(range(len(x.shape))))


def _prepare(op: str, given: Sequence[Operand], results: Sequence[Operand], axes: tuple[int, ...] | None) -> Plan:
    (x,), (out,) = given, results
    if any(size > 1 and s != c for size, s, c in zip(out.shape, out.strides, contiguous_strides(out.shape))):
        raise ValueError(f"{op}: out has strides {out.strides}; it takes a contiguous array, as the result is one")
    joined = _joined(x, out, _order(op, x, axes))
    *outer, last = joined
    # The axis along which the input is read: one that moves to the last place, or the last one where it stays.
    read = min(joined, key=lambda axis: (abs(axis.source) or INT_MAX, axis is not last))
    if read is last:
        walked, step_of = _split(outer), _move_rows
    else:
        outer.remove(read)
        walked, step_of = _split(outer), lambda *about: _turn_tiles(read, *about)
    by_host, by_kernel = walked
    step = step_of(last, by_kernel, by_host, x, out)
    (run,) = bind([step], out.device)
    offsets = [
        (
            sum(i * axis.source for i, axis in zip(at, by_host)) * x.dtype.itemsize,
            sum(i * axis.target for i, axis in zip(at, by_host)) * x.dtype.itemsize,
        )
        for at in itertools.product(*(range(axis.size) for axis in by_host))
    ]

    def walk(pointers: Sequence[int], stream: int) -> None:
        source, target = pointers
        for over_source, over_target in offsets:
            run((source + over_source, target + over_target), stream)

    launch = walk if by_host else run
    why = "rows stay whole" if read is last else f"{last.size} x {read.size} elements turn over"
    return Plan(launch, (str(step),) * len(offsets), f"{why}, {math.prod(a.size for a in outer)} times")


def _joined(x: Operand, out: Operand, order: Sequence[int]) -> list[_Axis]:
    """The axes of the result, those joined that follow each other evenly in the input too."""
    sizes, sources = ([x[at] for at in order] for x in (x.shape, x.strides))
    axes = zip(*joined(sizes, sources, out.strides), strict=True)
    return list(starmap(_Axis, axes)) or [_Axis(1, 1, 1)]


def _split(outer: Sequence[_Axis]) -> tuple[list[_Axis], list[_Axis]]:
    """The axes that the host walks, a launch for each position, and those that a kernel walks."""
    cut = max(0, len(outer) - MOST_AXES)
    while math.prod(axis.size for axis in outer[cut:]) > INT_MAX:
        cut += 1
    return list(outer[:cut]), list(outer[cut:])


def _move_rows(last: _Axis, outer: Sequence[_Axis], by_host: Sequence[_Axis], x: Operand, out: Operand) -> Step:
    itemsize = word = x.dtype.itemsize
    if last.source == 1 or last.size == 1:
        strides = [stride * itemsize for axis in (*outer, *by_host) for stride in (axis.source, axis.target)]
        word = math.gcd(PACK, x.ptr, out.ptr, last.size * itemsize, *strides)
    per_word = word // itemsize
    width = last.size // per_word
    if width > INT_MAX:
        raise ValueError(f"transpose: x has shape {x.shape}; a row of {width} words is more than a kernel counts")
    walked = outer or [_Axis(1, 0, 0)]
    rows = math.prod(axis.size for axis in walked)
    sizes = tuple(axis.size for axis in walked[1:])
    strides_in = tuple(axis.source // per_word for axis in walked)
    if last.source == 1 and suits(word, width, math.gcd(out.ptr, *(axis.target * itemsize for axis in by_host))):
        flat = ROWS_FLAT.spec(BYTES=word, BATCH=len(walked), short=is_short(word, width), dtype=U8)
        axes = ((axis.size, stride) for axis, stride in zip(walked, strides_in))
        return launch_of(flat, 2, rows, width, sizes, strides_in, axes)
    across = 4 if width > THREADS else 1
    lanes = min(power_of_two(-(-width // across)), THREADS)
    spec = ROWS.spec(BYTES=word, LANES=lanes, ACROSS=across, BATCH=len(walked), dtype=U8)
    column_tiles = -(-width // (lanes * across))
    row_tiles = -(-rows // (THREADS // lanes * (4 // across)))
    step = last.source if per_word == 1 else 1
    return Step(spec, row_tiles * column_tiles, 2, (rows, width, column_tiles, *sizes), (*strides_in, step))


def _turn_tiles(
    read: _Axis, last: _Axis, outer: Sequence[_Axis], by_host: Sequence[_Axis], x: Operand, out: Operand
) -> Step:
    itemsize = x.dtype.itemsize
    widest = PACK // itemsize
    others = (*outer, *by_host)
    load = math.gcd(widest, read.size, last.source, x.ptr // itemsize, *(axis.source for axis in others))
    load = load if read.source == 1 else 1
    store = math.gcd(widest, last.size, read.target, out.ptr // itemsize, *(axis.target for axis in others))
    sizes = tuple(axis.size for axis in outer)
    outer_strides = tuple(stride for axis in outer for stride in (axis.source, axis.target))
    merged = 1 < last.size <= MOST_SHORT and read.target == last.size and load == widest
    split = 1 < read.size <= MOST_SHORT and last.source == read.size and store == widest
    starts = (x.ptr // itemsize, out.ptr // itemsize, *(n for axis in others for n in (axis.source, axis.target)))
    packed = math.gcd(widest, *starts) == widest
    if packed and read.source == 1 and (merged or split):
        width, long, row = (read.size, last.size, read.target) if split else (last.size, read.size, last.source)
        if width <= MOST_NARROW:
            narrow = NARROW.spec(WIDTH=width, BATCH=len(outer), split=split, dtype=_OF_SIZE[itemsize])
            tiles_of_row = -(-long // widest // THREADS)
            ints = (long // widest, tiles_of_row, *sizes)
            return Step(narrow, tiles_of_row * math.prod(sizes), 2, ints, (*outer_strides, row))
        if width * itemsize % PACK:
            short = SHORT.spec(BATCH=len(outer), split=split, dtype=_OF_SIZE[itemsize])
            own = ROOM // PACK // width // 8 * 8  # packs of each long row: whole lines
            tiles_of_row = -(-long // widest // own)
            ints = (long // widest, width, own, tiles_of_row, *sizes)
            return Step(short, tiles_of_row * math.prod(sizes), 2, ints, (*outer_strides, row))
    if read.source == 1 and min(last.size, read.size) >= 64 and min(load, store) * itemsize < 8:
        nbytes = last.size * read.size * math.prod(sizes) * itemsize
        rows, columns, threads = (_RAGGED_TILE if nbytes < LARGE else _LARGE_RAGGED_TILE)[itemsize]
        ragged = RAGGED.spec(ROWS=rows, COLUMNS=columns, THREADS=threads, BATCH=len(outer), dtype=_OF_SIZE[itemsize])
        # Packs begin up to all but one element early, so that the last rows may need a tile more.
        tiles = (-(-(last.size + widest - 1) // rows), -(-read.size // columns))
        strides = (last.source, *outer_strides, read.target)
        return Step(ragged, math.prod((*tiles, *sizes)), 2, (last.size, read.size, *tiles, *sizes), strides)
    rows, columns = (_TILE if store == widest else _SCALAR_TILE)[itemsize]
    area = rows * columns
    if last.size <= rows // 2:
        rows = max(4, power_of_two(last.size))
        columns = min(512, area // rows)
    elif read.size <= columns // 2:
        columns = max(4, power_of_two(read.size))
        rows = min(512, area // columns)
    while rows * columns % (THREADS * load) or columns % load:
        load //= 2
    while rows * columns % (THREADS * store) or rows % store:
        store //= 2
    spec = TRANSPOSE.spec(
        ROWS=rows, COLUMNS=columns, LOAD=load, STORE=store, BATCH=len(outer), dtype=_OF_SIZE[itemsize]
    )
    row_tiles, column_tiles = -(-last.size // rows), -(-read.size // columns)
    blocks = row_tiles * column_tiles * math.prod(sizes)
    strides = (last.source, *([read.source] if load == 1 else []), *outer_strides)
    return Step(spec, blocks, 2, (last.size, read.size, row_tiles, column_tiles, *sizes), (*strides, read.target))


_transpose = Operator("transpose", ("x",), ("axes",), _results, _prepare, takes=tuple(DTYPES.values()), rows=False)
