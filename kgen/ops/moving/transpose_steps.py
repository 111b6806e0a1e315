"""Which kernel permutes axes, once those that move together are joined: rows that stay whole, or tiles turned over."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import U8
from kgen.launch import Step
from kgen.operand import INT_MAX, Operand, power_of_two
from kgen.ops.moving.flat_kernels import ROWS_FLAT, is_short, launch_of, suits
from kgen.ops.moving.transpose_kernels import PACK, RAGGED, ROWS, SECTOR, THREADS, TRANSPOSE
from kgen.ops.moving.transpose_short import LARGE, LINE, OF_SIZE, TILED, ShortRows

_TILE = {1: (128, 256), 2: (64, 128), 4: (64, 64), 8: (32, 32)}
"""Rows and columns of a tile, by the size of elements."""
_PAIRED = 2
"""Bytes of an element of which large tiles have twice as many rows, where pairs of lines of the result are whole."""
_SCALAR_TILE = {1: (64, 64), 2: (64, 64), 4: (64, 64), 8: (32, 32)}
"""The same where they move one by one."""
_NARROW_TILE = 16 << 10
"""Bytes of a tile with fewer rows or columns than these."""
_RAGGED_TILE = {1: (128, 384, 512), 2: (64, 192, 256), 4: (64, 96, 256), 8: (64, 48, 256)}
"""Rows and columns of a tile where rows start anywhere, and the threads of a block."""
_TALL, _TALL_BYTES, _TALLER = 1 << 15, 128 << 20, (2, 4)
"""Rows from which on, in matrices of so many bytes, such tiles have twice as many, of elements of these sizes."""
_STRIP = 20 << 20
"""Bytes of all tiles below each other from which on the L2 cache has lost the lines at their sides when those beside
them read the rest."""
_LINED = (2, 4)
"""Bytes of elements of which tiles that begin with lines are worth it in large matrices."""


class Axis(NamedTuple):
    """One axis of the result: its size, and the strides over it of the input and of the result, in elements."""

    size: int
    source: int
    target: int


def move_rows(last: Axis, outer: Sequence[Axis], by_host: Sequence[Axis], x: Operand, out: Operand) -> Step:
    itemsize = word = x.dtype.itemsize
    if last.source == 1 or last.size == 1:
        strides = [stride * itemsize for axis in (*outer, *by_host) for stride in (axis.source, axis.target)]
        word = math.gcd(PACK, x.ptr, out.ptr, last.size * itemsize, *strides)
    per_word = word // itemsize
    width = last.size // per_word
    if width > INT_MAX:
        raise ValueError(f"transpose: x has shape {x.shape}; a row of {width} words is more than a kernel counts")
    walked = outer or [Axis(1, 0, 0)]
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


def turn_tiles(
    read: Axis, last: Axis, outer: Sequence[Axis], by_host: Sequence[Axis], x: Operand, out: Operand
) -> Step:
    itemsize = x.dtype.itemsize
    widest = PACK // itemsize
    others = (*outer, *by_host)
    load = math.gcd(widest, read.size, last.source, x.ptr // itemsize, *(axis.source for axis in others))
    load = load if read.source == 1 else 1
    targets = (read.target, *(axis.target for axis in others))
    store = math.gcd(widest, last.size, out.ptr // itemsize, *targets)
    apart = abs(last.source) >= read.size  # rows do not overlap
    nbytes = math.prod((last.size, read.size, *(axis.size for axis in outer))) * itemsize
    if read.source == 1:
        short = []
        further = (tuple(axis.size for axis in outer), _strides(outer), itemsize)
        if last.source == read.size:
            side_by_side = (x.ptr // itemsize, *(axis.source for axis in others))
            begins = math.gcd(SECTOR * widest, last.size, *targets) if store == widest else store
            short.append((ShortRows(read.size, last.size, read.target, True, *further), side_by_side, begins))
        if read.target == last.size:
            side_by_side = (out.ptr // itemsize, *(axis.target for axis in others))
            short.append((ShortRows(last.size, read.size, last.source, False, *further), side_by_side, load))
        whole, many = min(load, store) == widest, multiprocessors(out.device)
        for rows, side_by_side, begins in short:
            if math.gcd(widest, *side_by_side) == widest:
                step = rows.narrow() if begins % widest == 0 else None
                if step := step or (rows.in_words(many, begins * itemsize, whole=whole) if apart else None):
                    return step
        cut = _of_whole_rows(read.size, itemsize, whole=whole) if nbytes >= LARGE else None
        if cut and apart:
            return _ragged_tiles(read, last, outer, itemsize, cut)
        found = [rows.anywhere(many, whole=whole) for rows, *_ in short if apart]
        if ways := [way for way in found if way]:
            return min(ways, key=operator.itemgetter(0))[1]
        # What two tiles read or write parts of costs a large matrix as much as narrower packs do: sectors of the result
        # and, unless many columns of the wider tiles would be idle, lines of both sides.
        lined = itemsize in _LINED and 2 * read.size > 3 * _RAGGED_TILE[itemsize][1]
        begins = math.gcd(*targets, *((last.source,) if lined else ())) * itemsize
        at_once = min(load, store) * itemsize
        amid = begins % (LINE if lined else SECTOR * PACK) > 0
        ragged = at_once < PACK or amid if nbytes >= LARGE else at_once < PACK // 2
        if ragged and apart and min(last.size, read.size) >= TILED:
            return _ragged_tiles(read, last, outer, itemsize)
    begins = math.gcd(2 * LINE, *(target * itemsize for target in targets))
    paired = itemsize == _PAIRED and begins == 2 * LINE and nbytes >= LARGE
    return _whole_tiles(read, last, outer, itemsize, load, store, paired=paired)


def _of_whole_rows(width: int, itemsize: int, *, whole: bool) -> tuple[int, int, int] | None:
    """The tile that has the whole of rows of so many elements, where it is the fastest for them."""
    if whole and width * itemsize % LINE == 0:
        return None
    if itemsize == 2 and (width % 4 == 0 and 128 < width <= 192 and not whole):
        return 64, 192, 256
    if itemsize == 2 and (256 < width <= 448 or (width % 4 == 0 and 192 < width <= 256 and not whole)):
        return 64, 448, 512
    return (64, 224, 512) if itemsize == 4 and 192 < width <= 224 else None


def _strides(outer: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(stride for axis in outer for stride in (axis.source, axis.target))


def _across(last: Axis, read: Axis, columns: int, itemsize: int) -> bool:
    """Whether tiles of so many columns follow each other along the rows of the input.

    What is written lies together in the other order, the faster one unless many a line is read from memory twice.
    """
    begins_amid = last.source * itemsize % LINE > 0
    return begins_amid and read.size > columns and last.size * columns * itemsize > _STRIP


def _ragged_tiles(
    read: Axis, last: Axis, outer: Sequence[Axis], itemsize: int, cut: tuple[int, int, int] | None = None
) -> Step:
    """Tiles whose edges follow the memory's, for rows that start anywhere."""
    sizes = tuple(axis.size for axis in outer)
    # Sectors begin up to all but one element early, so that the last rows may need a tile more.
    needed = last.size + SECTOR * PACK // itemsize - 1
    rows, columns, threads = cut or _RAGGED_TILE[itemsize]
    nbytes = math.prod((last.size, read.size, *sizes)) * itemsize
    if not cut and itemsize in _TALLER and last.size >= _TALL and read.size > columns and nbytes >= _TALL_BYTES:
        rows, threads = 2 * rows, 2 * threads
    spec = RAGGED.spec(
        ROWS=rows,
        COLUMNS=columns,
        THREADS=threads,
        BATCH=len(outer),
        across=_across(last, read, columns, itemsize),
        dtype=OF_SIZE[itemsize],
    )
    ints = (last.size, read.size, -(-needed // rows), -(-read.size // columns), *sizes)
    return Step(spec, math.prod(ints[2:]), 2, ints, (last.source, *_strides(outer), read.target))


def _whole_tiles(
    read: Axis, last: Axis, outer: Sequence[Axis], itemsize: int, load: int, store: int, *, paired: bool
) -> Step:
    """Tiles of which as many neighbours are loaded and stored at once as always may be."""
    rows, columns = (_TILE if store == PACK // itemsize else _SCALAR_TILE)[itemsize]
    area = min(rows * columns, _NARROW_TILE // itemsize)
    if paired and min(load, store) == PACK // itemsize and last.size > rows and read.size > columns // 2:
        rows *= 2
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
        ROWS=rows,
        COLUMNS=columns,
        LOAD=load,
        STORE=store,
        BATCH=len(outer),
        across=read.source == 1 and _across(last, read, columns, itemsize),
        dtype=OF_SIZE[itemsize],
    )
    ints = (last.size, read.size, -(-last.size // rows), -(-read.size // columns), *(axis.size for axis in outer))
    strides = (last.source, *([read.source] if load == 1 else []), *_strides(outer))
    return Step(spec, math.prod(ints[2:]), 2, ints, (*strides, read.target))
