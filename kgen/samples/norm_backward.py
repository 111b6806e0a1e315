"""Calls of gradients of norms: rows that nearly fill registers, come round in rings, or are shared by all blocks."""

from __future__ import annotations

import numpy as np

from kgen.backend import HOST
from kgen.ops import rows, rows_cut
from kgen.ops.norm import backward as norm_backward
from kgen.ops.norm import (
    backward_ahead,
    backward_grid,
    backward_plans,
    backward_ring,
    backward_span,
    backward_split,
)
from kgen.ops.norm.backward_ring_kernel import LINE, SECTOR, THREADS
from kgen.ops.rows_text import weight_of
from kgen.samples.along_rows import NO_CUT, Settings, read, row, taking
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def _gradients_of_normal(
    dy: Array, x: Array, weight: Array | None, *, rms: bool
) -> tuple[list[Array], tuple[Array, ...]]:
    """The statistics of rows, and the gradients of x, weight and bias."""
    wide_dy, wide_x = wide(dy, x)
    mean = np.zeros(len(x)) if rms else wide_x.mean(-1)
    rstd = 1 / np.sqrt(((wide_x**2).mean(-1) if rms else wide_x.var(-1)) + 1e-5)
    mean, rstd = (between_poison(statistic.astype(np.float32)) for statistic in (mean, rstd))
    normal = (wide_x - mean[:, None]) * rstd[:, None].astype(np.float64)
    weighed = wide_dy if weight is None else wide_dy * weight.astype(np.float64)
    less = 0 if rms else weighed.mean(-1, keepdims=True)
    dx = weighed - less - normal * (weighed * normal).mean(-1, keepdims=True)
    statistics = [rstd] if rms else [mean, rstd]
    return statistics, (dx * rstd[:, None], (wide_dy * normal).sum(0), wide_dy.sum(0))


TWO_WAVES: Settings = ((backward_plans, "waves_of", lambda *about, **how: 2),)
NOT_AHEAD: Settings = ((backward_ahead, "cut", lambda *about, **more: None),)


def backward_of_normalisation(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the registers, in two waves of blocks, or so many that their sums are in several parts."""
    by_rows = spec.kernel.name == "norm_backward"
    if by_rows and spec["sums"] and spec["looped"]:
        return backward_fetched_ahead(spec, shape)
    summing = rows.Cut.of(spec) if by_rows and spec["sums"] else None
    teams = spec["VEC"] if by_rows and spec["ragged"] else 2  # in each of two waves, if they sum
    columns = row(spec, 3)[1] if by_rows else 132
    shape = shape or (4 * (teams * summing.rows + 1) if summing else row(spec, 3)[0] if by_rows else 523, columns)
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    dy, x = read(spec, dy, x) if by_rows else (dy, x)
    weights = (weight,) if not by_rows or spec["weight"] else ()
    statistics, expected = _gradients_of_normal(dy, x, weight if weights else None, rms=False)
    settings = ((rows_cut, "summing", lambda *about, **how: summing), *NOT_AHEAD, *(taking(spec) if by_rows else ()))
    if summing:
        settings += ((rows, "grid", lambda *about, **how: teams * summing.cluster), *TWO_WAVES)
    if spec.kernel.name == "norm_total":
        settings = ((backward_plans, "lanes_of", lambda sums: spec["LANES"]), (rows, "grid", lambda *about, **how: 37))
    given = (dy, x, *statistics, *weights)
    return Case(norm_backward.layer_norm_backward, given, {}, expected if weights else expected[0], settings=settings)


def backward_fetched_ahead(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill their threads, five for each, so that the room for those on their way comes round."""
    cut = backward_ahead.Cut(*spec.values)
    height = 5 * spec.threads // cut.lanes * rows.grid(spec, 1 << 20, HOST) + 1
    columns = (cut.cluster * cut.lanes * cut.packs - 2) * cut.vec + bool(spec["ragged"])
    return _backward_in_turn(spec, shape or (height, columns), ((backward_ahead, "cut", lambda *about, **more: cut),))


def backward_in_turn(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that nearly fill the threads that share one, so many that their ring comes round; ragged, an odd width.

    And a single one.
    """
    lanes, packs, vec, cluster = spec.values
    side_by_side = spec.threads // lanes
    boundary = LINE if spec["lined"] else SECTOR
    teams = max(2, boundary * vec // side_by_side) if spec["ragged"] and not spec.derived["SORTED"] else 2
    room = cluster * lanes * packs - (100 * cluster if cluster > 1 else 0)  # no block's threads all have a last pack
    ring = spec.derived["RING"]
    height = side_by_side * teams * (ring // packs + (3 if ring % packs else 1)) + 1  # parts of rows come round later
    if spec.derived["SORTED"]:  # as many that begin at each place, and more at some; and some that all share
        teams = 3
        height = SECTOR * vec * -(-ring // packs) + 3
    columns = (room - 5) * vec + 1 if spec["ragged"] else (room - 6) * vec  # of whole sectors
    cut = backward_ring.Cut(lanes, packs, vec, cluster, teams, bool(spec["lined"]))
    settings = (*NOT_AHEAD, (backward_ring, "cut", lambda *about, **more: cut))
    shapes = [shape] if shape else [(height, columns), (1, columns)]
    if spec.derived["SORTED"] and not shape:  # each team's rows all begin elsewhere than the others'
        shapes.append((SECTOR * vec, columns))
    if spec["ragged"] and lanes == THREADS and not shape:  # more elements than packs have room for
        shapes.append((1, cluster * lanes * packs * vec + 37))
    return tuple(_backward_in_turn(spec, each, settings) for each in shapes)


def backward_of_shared_rows(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that nearly fill the threads of three blocks, so many that rings and messages come round; and one row."""
    settings = (
        *NO_CUT,
        (backward_plans, "_summed", lambda *about, **how: None),
        (backward_grid, "blocks", lambda device: 3),
        (backward_grid, "LEAST", 0),
    )
    part = spec.derived["STAGED"] // (2 * rows.VECTOR * spec["STAGES"]) // 8 * 8  # packs, in whole lines
    columns = (3 * min(part, spec.derived["LANES"] * spec["PACKS"]) - 1) * spec["VEC"]
    shapes = (shape,) if shape else ((2 * spec["STAGES"] + 3, columns), (1, columns))
    return tuple(_backward_in_turn(spec, each, settings) for each in shapes)


def backward_in_parts(spec: Spec, shape: Shape | None = None) -> Case:
    """Three rows, each in two parts: one of two tiles, and one that ends within its first."""
    settings = (
        *NO_CUT,
        (backward_plans, "_summed", lambda *about, **how: None),
        (backward_plans, "plan_grid", lambda *about, **how: None),
        (backward_split, "axes_of", lambda vec: dict(zip(("LANES", "PACKS", "VEC"), spec.values))),
        (backward_split, "multiprocessors", lambda device: 1),
        (backward_split, "BLOCKS", 6),
    )
    shape = shape or (3, (2 * spec["LANES"] * spec["PACKS"] + 5) * spec["VEC"])
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    weight = between_poison(weight.astype(weight_of(spec).numpy))
    weights = (weight,) if spec["weight"] else ()
    statistics, expected = _gradients_of_normal(dy, x, weight if weights else None, rms=bool(spec["rms"]))
    operator = norm_backward.rms_norm_backward if spec["rms"] else norm_backward.layer_norm_backward
    results = expected[: 2 if spec["rms"] else 3] if weights else expected[0]
    return Case(operator, (dy, x, *statistics, *weights), {}, results, settings=settings)


def backward_of_spans(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that nearly fill the threads that share one, in spans of which each of two blocks has several; and a few."""
    lanes, packs, vec = spec.values
    settings = (
        *NOT_AHEAD,
        (backward_span, "cut", lambda *about, **more: backward_span.Cut(lanes, packs)),
        (backward_span, "blocks", lambda *about: 2),
    )
    columns = lanes * packs * vec - 1
    height = spec.derived["TURNS"] * spec.threads // lanes
    shapes = (shape,) if shape else ((5 * height + 3, columns), (3, columns))
    return tuple(_backward_in_turn(spec, each, settings) for each in shapes)


def _backward_in_turn(spec: Spec, shape: Shape, settings: Settings) -> Case:
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    offset = 0.75 if "offset" in spec.flags else 0.0
    statistics, expected = _gradients_of_normal(dy, x, weight + weight.dtype.type(offset), rms=bool(spec["rms"]))
    operator = norm_backward.rms_norm_backward if spec["rms"] else norm_backward.layer_norm_backward
    expected = expected[:2] if spec["rms"] else expected
    options = {"weight_offset": offset} if offset else {}
    return Case(operator, (dy, x, *statistics, weight), options, expected, settings=settings)


CASES = {
    "norm_backward": backward_of_normalisation,
    "norm_backward_ring": backward_in_turn,
    "norm_backward_grid": backward_of_shared_rows,
    "norm_backward_span": backward_of_spans,
    "norm_backward_split": backward_in_parts,
    "norm_weights": backward_of_normalisation,
    "norm_total": backward_of_normalisation,
}
