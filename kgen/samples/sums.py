"""Calls of reductions, products and counts: several blocks, ends that fill no load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kgen.dtypes import dtype_of
from kgen.ops.gemv import flat as gemv_flats
from kgen.ops.gemv import span
from kgen.ops.gemv.gemv import gemv as kgen_gemv
from kgen.ops.gemv.kernels import QUANTIZED
from kgen.ops.histogram.histogram import bincount
from kgen.ops.histogram.histogram import histogram as kgen_histogram
from kgen.ops.reduce import flat, launches, reduce, waves
from kgen.ops.reduce.dot import dot as kgen_dot
from kgen.samples.accuracy import rms_bar
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def reduce_rows(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A row for several blocks, or rows for fewer threads than a warp has; loads that do not fill the last round.

    And a row for two blocks, of which the second one has no full round, or rows that have none.
    """
    round_ = spec["GROUP"] * spec["VEC"] * spec["ITEMS"]
    several = (3, 5 * round_ + 11), (2, round_ + round_ // 2 - 3)
    shapes = several if spec["split"] else ((303, round_ + 11), (303, round_ // 2 + 3))
    settings = ((waves, "in_flight", lambda share: spec["ITEMS"]),)
    return tuple(_reduction(spec, one, -1)._replace(settings=settings) for one in ((shape,) if shape else shapes))


def reduce_short(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows of seven, each thread several of them, for two blocks and a part of one."""
    per_block = spec.threads * (spec.derived["SHORT"] // (7 * spec.dtype.itemsize))
    case = _reduction(spec, shape or (2 * per_block + 5, 7), -1)
    return case._replace(settings=((launches, "SHORT_FROM", 0),))


def reduce_columns(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A second tile of columns, and rows for several blocks, the last of which may have no full round."""
    columns = spec["LANES"] * spec["VEC"] + (3 if spec["ragged"] else spec["VEC"])
    round_ = spec.threads // spec["LANES"] * spec["ITEMS"]
    every = (36 * round_ + 5, 3 * round_ - 9) if spec["split"] else (36 * round_ + 5,)
    settings: tuple[Any, ...] = (
        (launches, "RAGGED_FROM", 0 if spec["ragged"] else 1 << 30),
        (launches, "ragged_lanes", lambda columns, vec: spec["LANES"]),
    )
    if not spec["split"]:
        settings += ((waves, "parts_of_columns", lambda groups, tiles, wave: 1),)
    shapes = (shape,) if shape else tuple((rows, columns) for rows in every)
    return tuple(_reduction(spec, one, 0)._replace(settings=settings) for one in shapes)


def sum_flat(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of odd widths, from the midst of a pack, in parts of two cohorts, and in two that have a second round."""
    cases = []
    for one, parts in [(shape, 2)] if shape else _of_flat(spec):
        case = _reduction(spec, one, 0)
        cut = flat.Cut(spec.threads, flat.period_of(one[1], spec.dtype), parts)
        settings = ((flat, "cut", lambda *about, cut=cut, **further: cut),)
        cases.append(case._replace(inputs=(_amid_a_pack(spec, case),), settings=settings))
    return tuple(cases)


def _of_flat(spec: Spec) -> Iterator[tuple[Shape, int]]:
    """Rows and columns, few or more than a block has threads, and parts: rounds that are nearly full."""
    for columns, parts, rounds in ((21, flat.COHORT + 2, 1), (spec.threads + 2, 2, 2)):
        period = flat.period_of(columns, spec.dtype)
        together = spec.threads // period * period * spec.derived["VEC"]  # elements that a block reads at once
        yield ((rounds * parts * spec.derived["ITEMS"] - 1) * together // columns - 3, columns), parts


def _amid_a_pack(spec: Spec, case: Case) -> Array:
    """The first input, from the last element of a pack on."""
    return between_poison(case.inputs[0], 256 + spec.derived["VEC"] - 1)


def _reduction(spec: Spec, shape: Shape, axis: int) -> Case:
    name = spec.kernel.name.partition("_")[0]
    (x,) = numbers(spec, shape)
    if name == "prod":  # of numbers near 1, so that it stays a number
        x = (1 + x / 256).astype(x.dtype)
    if name[-3:] in ("max", "min"):
        x = _with_extremes(x, axis) * (1 if name[-3:] == "max" else -1)
    x = between_poison(x, 257 if "ragged" in spec.flags else 256)
    expected = getattr(np, name)(x.astype(np.float64), axis=axis)
    return Case(getattr(reduce, name), (x,), {"axis": axis}, expected, 0 if name[-3:] in ("max", "min") else None)


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


def histogram(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Several blocks, the last with part of a round; elements that fill no load, or fall into no bin; two elements.

    16-bit counters are asked for more bins than a pass has.
    """
    (many,) = shape or (3 * spec.threads * spec["VEC"] * 8 + 11,)
    made = []
    for count, margin in ((many, 256), (2, 257)):
        if spec["uniform"]:
            x = between_poison(_about_edges(numbers(spec, (count,))[0]), margin)
            options: dict[str, Any] = {"bins": 701, "range": (-2.5, 2.5)}
            made.append(Case(kgen_histogram, (x,), options, np.histogram(x, **options)))
        else:
            bins = 120001 if spec["packed"] else 701
            x = np.random.default_rng(1).integers(-99, bins + 99, count).astype(spec.dtype.numpy)
            counted = np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
            made.append(Case(bincount, (between_poison(x, margin),), {"length": bins}, counted))
    return tuple(made)


def _about_edges(x: Array) -> Array:
    """The same with the edges of bins, and what is just below them, in front."""
    edges = np.linspace(-2.5, 2.5, 702, dtype=x.dtype)
    special = np.concatenate([edges, np.nextafter(edges, x.dtype.type(-9))])
    x[: len(special)] = special[: len(x)]
    return x


def histogram_extremes(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Several blocks, the last with part of a round, and elements that fill no load, or only those.

    The extremes stand at the front, at the end, and in between, in turn.
    """
    (many,) = shape or (3 * spec.threads * spec["VEC"] * spec.derived["ITEMS"] + 7 * spec["VEC"] + 3,)
    made = []
    for count, places in ((many, (0, -1)), (many, (-1, 0)), (many, (many // 2, -many // 3)), (3, (0, 1))):
        (x,) = numbers(spec, (count,))
        x[list(places)] = -99, 99
        every = between_poison(x.repeat(2))[::2] if spec["VEC"] == 1 else between_poison(x)
        made.append(Case(kgen_histogram, (every,), {"bins": 7}, np.histogram(x, 7)))
    return tuple(made)


def weighted_histogram(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Several blocks; more bins than a block has threads; weights of all sizes, whole numbers, and an infinite one."""
    (count,) = shape or (3 * 2048 + 11,)
    (x,), (weights,) = numbers(spec, (count,), dtype=np.float32), numbers(spec, (count,), dtype=np.float64)
    x = between_poison(_about_edges(x))
    options: dict[str, Any] = {"bins": 701, "range": (-2.5, 2.5)}
    if spec.kernel.name == "histogram_density":
        options |= {"bins": 2501, "density": True}
        return (Case(kgen_histogram, (x,), options, np.histogram(x, **options), 1e-12),)
    uneven = np.rint(weights * 8)
    uneven[[count // 3, count // 4, count // 5]] = 2.0**40, np.inf, 1e-290
    every = ({**options, "weights": between_poison(one)} for one in (weights, uneven))
    return tuple(Case(kgen_histogram, (x,), each, np.histogram(x, **each), 1e-12) for each in every)


def gemv(spec: Spec, shape: Shape | None = None) -> Case:
    """Two rounds and a part of one for each row, in as many rows as keep the sums in one piece.

    A shape of a matrix by a vector is the rows of the result, and how many products make one.
    """
    rows = 4096 // spec["LANES"] * spec["ROWS"] + 3
    depth = (2 * spec["LANES"] * spec["UNROLL"] + 5) * spec["VEC"] + (3 if spec["ragged"] or spec["VEC"] == 1 else 0)
    return _product(spec, *(shape or (rows, depth)), algorithm=spec.name)


def gemv_columns(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A second tile of columns, in a round and nearly another one; or part of a tile, in sums of five pieces.

    Where rows begin anywhere, whole rounds as well: then the last one holds the last row.
    """
    axes = {axis.name: spec[axis.name] for axis in spec.kernel.axes}
    flags = dict.fromkeys(spec.flags - {"partial"}, True)
    whole = spec.kernel.spec(**axes, **flags, dtype=spec.dtype)
    groups = spec.threads // spec["LANES"]
    round_ = groups * spec["UNROLL"]
    depth = 5 * round_ + 3 if spec["partial"] else 2 * round_ - groups - 1
    packs = spec["PACKS"] * spec["LANES"] + (-1 if spec["partial"] else 1)
    rows = packs * spec["VEC"] - (spec["VEC"] // 2 + 1 if spec["ragged"] else 0)
    if shape or not spec["ragged"]:
        return _product(spec, *(shape or (rows, depth)), algorithm=whole.name, trans=True)
    return tuple(_product(spec, rows, n, algorithm=whole.name, trans=True) for n in (depth, 4 * round_))


def gemv_span(spec: Spec, shape: Shape | None = None) -> Case:
    """All spans of a block and three of another, the last of fewer rows; of odd rows from the midst of a chunk on."""
    rows = (2 * span.TURNS[spec.dtype.itemsize] * spec.threads // 32 + 5) * spec.derived["HEIGHT"] // 2
    case = _product(spec, *(shape or (rows, spec["COLUMNS"])), algorithm=None)
    a = between_poison(case.inputs[0], 256 + spec["COLUMNS"] % 2)
    return case._replace(inputs=(a, *case.inputs[1:]), settings=((span, "cut", lambda product: spec),))


def gemv_flat(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """As `sum_flat`."""
    cases = []
    for one, parts in [(shape, 2)] if shape else _of_flat(spec):
        case = _product(spec, *one[::-1], algorithm=None, trans=True)
        cut = gemv_flats.Cut(spec, flat.period_of(one[1], spec.dtype), parts)
        settings = ((gemv_flats, "cut", lambda product, sms, cut=cut: cut),)
        cases.append(case._replace(inputs=(_amid_a_pack(spec, case), *case.inputs[1:]), settings=settings))
    return tuple(cases)


def gemv_sum(spec: Spec, shape: Shape | None = None) -> Case:
    """Sums in a few pieces."""
    rows, depth = shape or (13, 7 * 32 * 4 + 12)
    return _product(spec, rows, depth, algorithm=f"gemv_v4_l32_r1_u1_{spec.dtype}")


def _product(spec: Spec, rows: int, depth: int, *, algorithm: str | None, trans: bool = False) -> Case:
    shape = (depth, rows) if trans else (rows, depth)
    options: dict[str, Any] = {"alpha": 1.5, "beta": -0.5, "trans": trans, "algorithm": algorithm}
    quantized = spec.dtype in QUANTIZED
    values = np.dtype(np.float16 if "half" in spec.flags else np.float32 if quantized else spec.dtype.numpy)
    x, y = numbers(spec, (depth,), (rows,), dtype=values)
    if quantized:
        a = between_poison(np.random.default_rng(1).integers(-99, 99, shape).astype(spec.dtype.numpy))
        (scale,) = numbers(spec, shape[:1], dtype=np.float32)
        options["scale"] = scale / 1024
        weights = a.astype(np.float64) * options["scale"].astype(np.float64)[:, None]
    else:
        (a,) = numbers(spec, shape)
        a[..., :9] *= 8  # what stands at the ends counts for more
        a[..., -9:] *= 8
        if "ragged" in spec.flags:
            a = between_poison(a, 259)  # so that packs of the first row stick out, and of the last one
        weights = a.astype(np.float64)
    expected = 1.5 * (weights.T if trans else weights) @ x.astype(np.float64) - 0.5 * y.astype(np.float64)
    return Case(kgen_gemv, (a, x, y), options, expected, rms_bar(dtype_of(values).name, rows), values)


CASES = {
    "reduce_rows": reduce_rows,
    "reduce_columns": reduce_columns,
    "reduce_short": reduce_short,
    "sum_flat": sum_flat,
    "dot": dot,
    "histogram": histogram,
    "histogram_extremes": histogram_extremes,
    "histogram_weights": weighted_histogram,
    "histogram_largest": weighted_histogram,
    "histogram_total": weighted_histogram,
    "histogram_density": weighted_histogram,
    "gemv": gemv,
    "gemv_quantized": gemv,
    "gemv_columns": gemv_columns,
    "gemv_columns_quantized": gemv_columns,
    "gemv_sum": gemv_sum,
    "gemv_span": gemv_span,
    "gemv_span_quantized": gemv_span,
    "gemv_flat": gemv_flat,
    "gemv_flat_quantized": gemv_flat,
}
