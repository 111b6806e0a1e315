"""The kernels that move rows which begin anywhere, of any length: the result is written in packs, as it lies."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kgen.dtypes import I32, I64, U8
from kgen.launch import Step
from kgen.operand import Ints
from kgen.ops.moving.take_kernels import MODES, one_rule, told_bytes
from kgen.ops.moving.transpose_kernels import MOST_AXES, PACK
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 128
WORD = 4
"""Bytes of an element from which on it is moved by itself; of smaller ones packs are."""
_AT_ONCE = {1: PACK, 2: PACK, WORD: WORD, 8: 8}
_ITEMS = {1: 4, 2: 4, WORD: 8, 8: 4}
"""What a thread moves at once, in bytes, and how often, by the bytes of an element."""
LINE = 128
"""Bytes at whose multiples groups of rows begin."""
MOST_WIDTH = 1 << 23
"""Elements of a row."""
_PIECES = 8
"""Of a group of rows, about: where rows are short, most of its last one is not empty."""
SHORT_BYTES = 96
"""Of a row, up to which nearly every other pack has the end of one: it is made of packs then, not of elements."""
_SHORT = Flag("short", "rows of a few packs")
_BYTES = Axis("BYTES", "n", tuple(_ITEMS), "bytes of an element, of which rows are made")
_GRID = "(ceil(rows / group_rows) * pieces): one block per piece of a group of rows"


def _piece(nbytes: int) -> int:
    """Elements that a block writes."""
    return _ITEMS[nbytes] * THREADS * _AT_ONCE[nbytes] // nbytes


def least_width(nbytes: int) -> int:
    """Elements of a row, so that no pack has elements of three rows; of words, too few to be worth it."""
    return PACK // nbytes + 1


def _geometry(spec: Spec) -> dict[str, int]:
    least = least_width(spec["BYTES"])
    most_rows = _piece(spec["BYTES"]) // least + 2
    shared = 8 * most_rows + told_bytes(spec)
    return {"THREADS": THREADS, "ITEMS": _ITEMS[spec["BYTES"]], "LEAST_WIDTH": least, "STATIC_SMEM": shared}


ROWS_FLAT = register(
    Kernel(
        name="transpose_flat",
        summary="A permutation of axes that leaves the last one in its place, for rows that begin anywhere.",
        formula="out[..., j, ..., i, ..., :] = x[..., i, ..., j, ..., :]",
        axes=(_BYTES, Axis("BATCH", "b", tuple(range(1, MOST_AXES + 1)), "axes besides the last", default=1)),
        flags=(_SHORT,),
        dtypes=(U8,),
        derive=_geometry,
        text=lambda spec: {"holes": False, "short": spec["short"]},
        grid=_GRID,
        origin="a strided copy",
        defaults=("transpose_flat_n2_b2_u8",),
    )
)
TAKE_FLAT = register(
    Kernel(
        name="take_flat",
        summary="Rows of a table, by their indices, for rows that begin anywhere.",
        formula="out[i, :] = table[indices[i], :]",
        axes=(_BYTES,),
        flags=(*MODES, _SHORT),
        dtypes=(I32, I64),
        derive=_geometry,
        text=lambda spec: {"holes": not (spec["clip"] or spec["wrap"]), "short": spec["short"]},
        check=one_rule,
        grid=_GRID,
        origin="a gathering copy",
        defaults=("take_flat_n2_checked_i64",),
    )
)


def suits(nbytes: int, width: int, out: int) -> bool:
    """Whether rows of so many elements of that size are moved so, into memory at `out`."""
    return nbytes in _ITEMS and least_width(nbytes) <= width <= MOST_WIDTH and out % _AT_ONCE[nbytes] == 0


def is_short(nbytes: int, width: int) -> bool:
    """Whether rows of so many elements of that size are taken as short ones."""
    return nbytes < WORD and nbytes * width <= SHORT_BYTES


def launch_of(
    spec: Spec, pointers: int, rows: int, width: int, ints: Ints, longs: Ints, axes: Iterable[tuple[int, int]]
) -> Step:
    """The launch that moves so many rows of an input that has these axes, each a size and a stride, besides rows' own.

    Groups of rows begin at a line of the result, and are cut into pieces.
    """
    nbytes = spec["BYTES"]
    alike = LINE // math.gcd(LINE, width * nbytes)
    group = min(rows, max(1, _PIECES * _piece(nbytes) // width // alike) * alike)
    pieces = -(-group * width // _piece(nbytes))
    if nbytes < WORD:  # packs may stick out of rows, but not out of the input
        far = [(size - 1) * stride for size, stride in axes]
        longs = (*longs, sum(min(n, 0) for n in far), sum(max(n, 0) for n in far) + width)
    return Step(spec, -(-rows // group) * pieces, pointers, (rows, width, group, pieces, *ints), longs)
