"""Calls of reductions: several blocks, ends that fill no load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kgen.ops.reduce import column_launches, flat, narrow, passes, reduce, waves
from kgen.ops.reduce.dot import dot as kgen_dot
from kgen.ops.reduce.kernels import LOAD_BYTES, summed
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def reduce_rows(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A row for several blocks, or rows for fewer threads than a warp has; loads that do not fill the last round.

    And a row for two blocks, of which the second one has no full round, or rows that have none.
    """
    round_ = spec["GROUP"] * spec["VEC"] * spec["ITEMS"]
    several = (3, 5 * round_ + 11), (2, round_ + round_ // 2 - 3)
    shapes = several if spec["split"] else ((303, round_ + 11), (303, round_ // 2 + 3))
    settings = (
        (waves, "in_flight", lambda share: spec["ITEMS"]),
        (waves, "tile_of_row", lambda *about: (spec["GROUP"], spec["ITEMS"])),
    )
    return tuple(_reduction(spec, one, -1)._replace(settings=settings) for one in ((shape,) if shape else shapes))


def reduce_short(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows of as many elements as the kernel knows, or nine; each thread several, for two blocks and a part of one."""
    length = spec["LENGTH"] or 9
    per_block = spec.threads * (spec.derived["SHORT"] // (length * spec.dtype.itemsize))
    case = _reduction(spec, shape or (2 * per_block + 5, length), -1)
    return case._replace(settings=((passes, "BUSY", 0),))


def reduce_packs(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows for two blocks and a part of one, whose last thread has fewer than the others."""
    case = _reduction(spec, shape or (2 * spec.threads * spec.derived["VEC"] + 5, spec["LENGTH"]), -1)
    return case._replace(settings=((passes, "BUSY", 0),))


def reduce_narrow(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of an odd number of elements, each LANES threads one or three of them, for two blocks and a part of one."""
    room = spec["ITEMS"] * LOAD_BYTES // spec.dtype.itemsize * spec["LANES"]
    own = spec.threads // spec["LANES"]
    cases = []
    for one in [shape] if shape else [(2 * own + 5, room - 1), (6 * own + 5, (room // 3 - 1) | 1)]:
        cut = (room // one[1], spec["ITEMS"])
        settings = (
            (passes, "BUSY", 0),
            (narrow, "rows_of_a_thread", lambda nbytes, cut=cut: cut),
            (narrow, "lanes_of", lambda nbytes: spec["LANES"]),
            (narrow, "TOGETHER", dict.fromkeys((2, 4), one[1])),
            (narrow, "crowded", lambda *about: False),
        )
        cases.append(_reduction(spec, one, -1)._replace(settings=settings))
    return tuple(cases)


def reduce_columns(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A second tile of columns, and rows for several blocks, the last of which may have no full round."""
    columns = spec["LANES"] * spec["VEC"] + (3 if spec["ragged"] else spec["VEC"])
    round_ = spec.threads // spec["LANES"] * spec["ITEMS"]
    every = (36 * round_ + 5, 3 * round_ - 9) if spec["split"] else (36 * round_ + 5,)
    settings: tuple[Any, ...] = (
        (column_launches, "RAGGED_FROM", 0 if spec["ragged"] else 1 << 30),
        (column_launches, "ragged_lanes", lambda columns, vec: spec["LANES"]),
        (column_launches, "LANES", (spec["LANES"],)),
        (waves, "filled_lanes", lambda packs: spec["LANES"]),
    )
    if not spec["split"]:
        settings += tuple((waves, name, lambda *about: 1) for name in ("parts_of_columns", "parts_of_ragged"))
    shapes = (shape,) if shape else tuple((rows, columns) for rows in every)
    return tuple(_reduction(spec, one, 0)._replace(settings=settings) for one in shapes)


def reduce_flat(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of odd widths, from the midst of a pack, in more parts than finishers, and in two of two rounds."""
    cases = []
    for one, parts in [(shape, 2)] if shape else of_flat(spec):
        case = _reduction(spec, one, 0)
        cut = flat.Cut(spec, flat.period_of(one[1], spec.dtype), parts)
        settings = ((flat, "cut", lambda *about, cut=cut, **further: cut),)
        cases.append(case._replace(inputs=(amid_a_pack(spec, case.inputs[0]),), settings=settings))
    return tuple(cases)


def of_flat(spec: Spec) -> Iterator[tuple[Shape, int]]:
    """Rows and columns, few or more than a block has threads, and parts: rounds that are nearly full."""
    for columns, parts, rounds in ((21, flat.MEETING["FINISHERS"] + 2, 1), (spec.threads + 2, 2, 2)):
        period = flat.period_of(columns, spec.dtype)
        together = spec.threads // period * period * spec.derived["VEC"]  # elements that a block reads at once
        yield ((rounds * parts * spec.derived["ITEMS"] - parts // 2) * together // columns - 3, columns), parts


def amid_a_pack(spec: Spec, x: Array) -> Array:
    """The same array, from the last element of a pack on."""
    return between_poison(x, 256 + spec.derived["VEC"] - 1)


def _reduction(spec: Spec, shape: Shape, axis: int) -> Case:
    name = spec.kernel.name.partition("_")[0]
    (x,) = numbers(spec, shape)
    if name == "prod":  # of numbers near 1, so that it stays a number
        x = (1 + x / 256).astype(x.dtype)
    if name[-3:] in ("max", "min"):
        x = _with_extremes(x, axis) * (1 if name[-3:] == "max" else -1)
    x = between_poison(x, 257 if "ragged" in spec.flags else 256)
    expected = getattr(np, name)(x.astype(np.float64), axis=axis)
    widened = summed(name) and spec["OUT"] > 8 * spec.dtype.itemsize
    options = {"axis": axis} | ({"dtype": f"f{spec['OUT'] // 8}"} if widened else {})
    bar = 0 if name[-3:] in ("max", "min") else None
    return Case(getattr(reduce, name), (x,), options, expected, bar, options.get("dtype"))


def _with_extremes(x: Array, axis: int) -> Array:
    """Numbers below zero, many of them equal, with a maximum in turn at several places, at the end, and before it."""
    x = (-1 - np.rint(abs(x) * 4)).astype(x.dtype)
    lines = np.moveaxis(x, axis, -1)
    lines[0::3, 5::37] = lines[1::3, -1] = lines[2::3, -min(8, lines.shape[-1])] = -0.5
    return x


def dot(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Several blocks, the last of them with part of a round, and elements that fill no load; two elements only."""
    (many,) = shape or (5 * 512 * spec["VEC"] * spec["ITEMS"] + 11,)
    made = []
    for count, margin in ((many, 256), (2, 257)):
        a, b = (between_poison(abs(x), margin) for x in numbers(spec, (count,), (count,)))
        a[-11:] *= 99  # what stands at the end counts for more
        made.append(Case(kgen_dot, (a, b), {}, np.dot(*wide(a, b)).reshape(())))
    return tuple(made)


CASES = {
    "reduce_rows": reduce_rows,
    "reduce_columns": reduce_columns,
    "reduce_short": reduce_short,
    "reduce_packs": reduce_packs,
    "reduce_narrow": reduce_narrow,
    "reduce_flat": reduce_flat,
    "dot": dot,
}
