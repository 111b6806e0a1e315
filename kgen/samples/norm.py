"""Calls of normalisation: rows that nearly fill the registers, or take several rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops import rows, rows_cut, rows_ring
from kgen.ops.norm import backward as norm_backward
from kgen.ops.norm import backward_grid, backward_plans, backward_ring, norm, span, words
from kgen.ops.norm import plans as norm_plans
from kgen.ops.rows_text import weight_of
from kgen.samples.along_rows import NO_CUT, Settings, in_teams, in_turn, read, row, taking
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def normalisation(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """Rows that nearly fill the registers, of a mean that is not zero; and some that do not vary, where eps is 0."""
    usual = _normalisation(spec, shape or row(spec, 3), taking(spec))
    if shape:
        return usual
    if usual.operator is norm.group_norm:
        return (usual, _statistics_of_groups(usual), _groups_without_variance(usual))
    return (usual, _without_variance(usual)) if spec["weight"] else usual


def _without_variance(usual: Case, margin: int = 256) -> Case:
    """A row of ones, for an RMS norm of zeros, where eps is 0: a mean of a few numbers more or less is another."""
    rms = usual.operator is norm.rms_norm
    x = between_poison(np.full_like(usual.inputs[0][:1], 0 if rms else 1), margin)
    nothing, one = np.full(x.shape, np.nan), np.ones(1)
    options: dict[str, Any] = {"eps": 0, "return_rstd" if rms else "return_stats": True}
    expected: tuple[Array, ...] = (nothing, np.inf * one) if rms else (nothing, one, np.inf * one)
    if "residual" in usual.options:
        options["residual"] = x
        expected = (nothing, *wide(x), np.inf * one)
    return usual._replace(inputs=(x, *usual.inputs[1:]), options=options, expected=expected)


def normalisation_of_teams(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that two blocks share, several for each team; a row that many share."""
    return tuple(_normalisation(spec, *about) for about in in_teams(spec, shape))


def _groups(spec: Spec, shape: Shape, settings: Settings) -> Case:
    """At least so many rows, of three groups, if it is not one; in each some channels nearly as wide together, or one
    for each number."""
    height, width = shape
    groups = min(3, height)
    size = 1
    if spec["channels"]:
        count = spec["VEC"] if spec["across"] and not spec["ragged"] else 3
        size = (width // count - 1) | 1 if spec["across"] else width // (count * spec["VEC"]) * spec["VEC"]
        width = count * size
    channels = groups * width // size
    x, weight, bias = numbers(spec, (-(-height // groups), channels, size), (channels,), (channels,))
    x += np.asarray(3, x.dtype)
    expected = _normal(x.reshape(-1, width), None, None).reshape(x.shape)
    if spec["weight"]:
        expected = expected * weight.astype(np.float64)[:, None]
    if spec["bias"]:
        expected = expected + bias.astype(np.float64)[:, None]
    given = (x, groups, weight if spec["weight"] else None, bias if spec["bias"] else None)
    return Case(norm.group_norm, given, {}, expected, settings=settings)  # type: ignore[arg-type]


def _statistics_of_groups(usual: Case) -> Case:
    """The same, with mean and 1 / sqrt(variance + eps) of the groups."""
    x, groups, *_ = usual.inputs
    rows = x.astype(np.float64).reshape(len(x), int(groups), -1)
    expected = (usual.expected, rows.mean(-1), 1 / np.sqrt(rows.var(-1) + 1e-5))
    return usual._replace(options={"return_stats": True}, expected=expected)  # type: ignore[arg-type]


def _groups_without_variance(usual: Case) -> Case:
    """Groups of ones, where eps is 0."""
    x, groups, *affine = usual.inputs
    ones = between_poison(np.ones_like(x[:1]))
    means = np.ones((1, int(groups)))
    options = {"eps": 0, "return_stats": True}
    expected = (np.full(ones.shape, np.nan), means, np.inf * means)
    return usual._replace(inputs=(ones, groups, *affine), options=options, expected=expected)


def _normalisation(spec: Spec, shape: Shape, settings: Settings) -> Case:
    if spec["channels"] or "grouped" in spec.flags:
        return _groups(spec, shape, settings)
    x, residual, weight, bias = numbers(spec, shape, shape, shape[-1:], shape[-1:])
    x += np.asarray(3, x.dtype)
    weight, bias = (between_poison(of_columns.astype(weight_of(spec).numpy)) for of_columns in (weight, bias))
    if "shifted" in spec.flags:
        x, residual = read(spec, x, residual)
    if "residual" in spec.flags:
        total = (x.astype(np.float32) + residual.astype(np.float32)).astype(x.dtype)
        expected = _normal(total, weight, None, rms=True)
        options = {"residual": residual}
        return Case(norm.rms_norm, (x, weight), options, (expected, *wide(total)), settings=settings)
    if spec["rms"]:
        return Case(norm.rms_norm, (x, weight), {}, _normal(x, weight, None, rms=True), settings=settings)
    return Case(norm.layer_norm, (x, weight, bias), {}, _normal(x, weight, bias), settings=settings)


def _normal(x: Array, weight: Array | None, bias: Array | None, *, rms: bool = False) -> Array:
    x = x.astype(np.float64)
    x = x if rms else x - x.mean(-1, keepdims=True)
    y: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + (1e-6 if rms else 1e-5))
    y = y if weight is None else y * weight.astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def normalisation_of_clusters(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn; and of such that do not vary, where eps is 0."""
    cases = tuple(_normalisation(spec, each, settings) for each, settings in in_turn(spec, shape))
    if shape:
        return cases
    some = cases if spec["ragged"] else cases[:1]
    if spec["channels"]:
        return (*cases, *map(_groups_without_variance, some))
    return (*cases, *(_without_variance(case, 257 if spec["shifted"] else 256) for case in some))


def normalisation_of_spans(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of an odd width, from the midst of a chunk: several spans for each block, of which the last one has a few;
    and a row that does not vary, where eps is 0."""
    lanes, packs, vec = spec.values
    shape = shape or (5 * spec.derived["HEIGHT"] + 3, (lanes * packs - lanes // 2) * vec - 1)
    cut = span.Cut(lanes, packs, vec)
    settings = ((span, "cut", lambda *about: cut), (span, "multiprocessors", lambda device: 1))
    usual = _normalisation(spec, shape, settings)
    begun = usual._replace(inputs=(between_poison(usual.inputs[0], 256 + 3), *usual.inputs[1:]), begin=3)
    return begun, _without_variance(usual)


def normalisation_by_words(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that begin elsewhere in packs than results, for each of two clusters so many that its ring comes round: of
    an odd width, and of whole sectors; one which leaves as much as it may to its edge; and one that does not vary,
    where eps is 0."""
    vec = spec["VEC"]
    room = spec["CLUSTER"] * spec["LANES"] * spec["PACKS"] * vec
    cut = rows_ring.Cut(spec["PACKS"], vec, spec["CLUSTER"], 2, threads=spec["LANES"])
    settings = ((words, "cut", lambda *about: cut),)
    height, sector = 2 * spec.derived["STAGES"] + 4, rows_ring.SECTOR // spec.dtype.itemsize
    own = ((height, room - 5 * vec + 1), (height, room // sector * sector - sector), (1, room + 5 * vec - 1))
    shapes = (shape,) if shape else own
    cases = []
    for nth, each in enumerate(shapes):
        usual = _normalisation(spec, each, settings)
        x, *others = usual.inputs
        options = {name: between_poison(array, 256 + 3) for name, array in usual.options.items()}
        inputs = (between_poison(x, 256 + 1 + nth), *others)
        cases.append(usual._replace(inputs=inputs, options=options, begin=0 if nth < 2 else 5))
    return tuple(cases) if shape else (*cases, *(_without_variance(case, 257) for case in cases[:1]))


def normalisation_in_parts(spec: Spec, shape: Shape | None = None) -> Case:
    """Two groups of three channels, each in two parts of two rounds, which have other means.

    A shape is the batch, the channels, and the elements of one.
    """
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    batch, channels, length = shape or (1, 6, (tile + 5 * spec["VEC"]) // spec["VEC"] * spec["VEC"])
    x, weight, bias = numbers(spec, (batch, channels, length), (channels,), (channels,))
    x += np.linspace(0, 6, x.size).astype(x.dtype).reshape(x.shape)
    expected = _normal(x.reshape(batch, 2, -1), None, None).reshape(x.shape)
    expected = expected * weight.astype(np.float64)[:, None] + bias.astype(np.float64)[:, None]
    settings = (*NO_CUT, (norm_plans, "multiprocessors", lambda device: 1))
    return Case(norm.group_norm, (x, 2, weight, bias), {}, expected, settings=settings)  # type: ignore[arg-type]


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


def backward_of_normalisation(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the registers, in two waves of blocks, or so many that their sums are in several parts."""
    by_rows = spec.kernel.name == "norm_backward"
    summing = rows.Cut.of(spec) if by_rows and spec["sums"] else None
    teams = spec["VEC"] if by_rows and spec["ragged"] else 2  # in each of two waves, if they sum
    columns = row(spec, 3)[1] if by_rows else 132
    shape = shape or (4 * (teams * summing.rows + 1) if summing else row(spec, 3)[0] if by_rows else 523, columns)
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    dy, x = read(spec, dy, x) if by_rows else (dy, x)
    weights = (weight,) if not by_rows or spec["weight"] else ()
    statistics, expected = _gradients_of_normal(dy, x, weight if weights else None, rms=False)
    settings = ((rows_cut, "summing", lambda *about, **how: summing), *(taking(spec) if by_rows else ()))
    if summing:
        settings += ((rows, "grid", lambda *about, **how: teams * summing.cluster), *TWO_WAVES)
    if spec.kernel.name == "norm_total":
        settings = ((backward_plans, "lanes_of", lambda sums: spec["LANES"]), (rows, "grid", lambda *about, **how: 37))
    given = (dy, x, *statistics, *weights)
    return Case(norm_backward.layer_norm_backward, given, {}, expected if weights else expected[0], settings=settings)


def backward_in_turn(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that nearly fill the threads that share one, so many that their ring comes round; ragged, an odd width.

    And a single one.
    """
    lanes, packs, vec, cluster = spec.values
    side_by_side = spec.threads // lanes
    teams = max(2, backward_ring.SECTOR * vec // side_by_side) if spec["ragged"] and not spec.derived["SORTED"] else 2
    room = cluster * lanes * packs
    ring = spec.derived["RING"]
    height = side_by_side * teams * (ring // packs + (3 if ring % packs else 1)) + 1  # parts of rows come round later
    if spec.derived["SORTED"]:  # as many that begin at each place, and more at some; and some that all share
        teams = 3
        height = backward_ring.SECTOR * vec * -(-ring // packs) + 3
    columns = (room - 5) * vec + spec["ragged"]
    cut = backward_ring.Cut(lanes, packs, vec, cluster, teams)
    settings = ((backward_ring, "cut", lambda *about, **more: cut),)
    shapes = [shape] if shape else [(height, columns), (1, columns)]
    if spec.derived["SORTED"] and not shape:  # each team's rows all begin elsewhere than the others'
        shapes.append((backward_ring.SECTOR * vec, columns))
    return tuple(_backward_in_turn(spec, each, settings) for each in shapes)


def backward_of_shared_rows(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that nearly fill the threads of three blocks, so many that rings and messages come round; and one row."""
    settings = (
        *NO_CUT,
        (backward_plans, "_summed", lambda *about, **how: None),
        (backward_grid, "blocks", lambda device: 3),
        (backward_grid, "LEAST", 0),
    )
    columns = (3 * (spec.threads * spec["PACKS"] - 5) - 1) * spec["VEC"]
    shapes = (shape,) if shape else ((2 * spec.derived["STAGES"] + 3, columns), (1, columns))
    return tuple(_backward_in_turn(spec, each, settings) for each in shapes)


def _backward_in_turn(spec: Spec, shape: Shape, settings: Settings) -> Case:
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    statistics, expected = _gradients_of_normal(dy, x, weight, rms=bool(spec["rms"]))
    operator = norm_backward.rms_norm_backward if spec["rms"] else norm_backward.layer_norm_backward
    expected = expected[:2] if spec["rms"] else expected
    return Case(operator, (dy, x, *statistics, weight), {}, expected, settings=settings)


CASES = {
    "norm": normalisation,
    "norm_ring": normalisation_of_clusters,
    "norm_span": normalisation_of_spans,
    "norm_words": normalisation_by_words,
    "norm_grid": normalisation_of_teams,
    "norm_split": normalisation_in_parts,
    "norm_backward": backward_of_normalisation,
    "norm_backward_ring": backward_in_turn,
    "norm_backward_grid": backward_of_shared_rows,
    "norm_weights": backward_of_normalisation,
    "norm_total": backward_of_normalisation,
}
