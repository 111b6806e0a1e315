"""Calls of normalisation: rows that nearly fill the registers, or take several rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops import rows_ring
from kgen.ops.norm import norm, sectors, span, words
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
        return _of_sum(x, residual, weight, settings)
    if spec["rms"]:
        return Case(norm.rms_norm, (x, weight), {}, _normal(x, weight, None, rms=True), settings=settings)
    return Case(norm.layer_norm, (x, weight, bias), {}, _normal(x, weight, bias), settings=settings)


def _of_sum(x: Array, residual: Array, weight: Array, settings: Settings) -> Case:
    total = (x.astype(np.float32) + residual.astype(np.float32)).astype(x.dtype)
    expected = _normal(total, weight, None, rms=True)
    options = {"residual": residual}
    return Case(norm.rms_norm, (x, weight), options, (expected, *wide(total)), settings=settings)


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


def normalisation_of_sums(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of sums of rows that clusters take in turn; and of such that are zero, where eps is 0."""
    alone = (norm_plans, "plan_ring", lambda *about: None)
    cases = []
    for (height, width), settings in in_turn(spec, shape):
        each = height + 4 * (height > 1 and shape is None), width  # some rows are left for claims
        x, residual, weight = numbers(spec, each, each, (width,))
        cases.append(_of_sum(x, residual, between_poison(weight), (*settings, alone)))
    return tuple(cases) if shape else (*cases, *map(_without_variance, cases if spec["ragged"] else cases[:1]))


def normalisation_of_spans(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of an odd width, from the midst of a chunk: several spans for each block, of which the last one has a few;
    and a row that does not vary, where eps is 0."""
    lanes, packs, vec = spec.values
    ahead = 256 + 3
    shape = shape or (5 * spec.derived["HEIGHT"] + 3, (lanes * packs - lanes // 2) * vec - 1)
    cut = span.Cut(lanes, packs, vec)
    settings = ((span, "cut", lambda *about, **named: cut), (span, "multiprocessors", lambda device: 1))
    usual = _normalisation(spec, shape, settings)
    if spec["residual"]:  # two results begin where they are put
        return usual, _without_variance(usual)
    begin = 0 if spec["apart"] else 3
    begun = usual._replace(inputs=(between_poison(usual.inputs[0], ahead), *usual.inputs[1:]), begin=begin)
    return begun, _without_variance(usual, ahead - begin)


def normalisation_by_sectors(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of an odd width that begin anywhere: some threads have all of theirs, some fewer, and some none; one that
    leaves as much as it may to its edge; and a row that does not vary, where eps is 0."""
    lanes, packs, vec, _ = spec.values
    cut = sectors.Cut(*spec.values)
    settings = ((sectors, "cut", lambda *about, **named: cut),)
    room = lanes * packs * vec
    height = spec.derived["APART"] + 3
    shapes = (shape,) if shape else ((height, room - lanes // 2 * vec + 1), (1, room + 3 * vec - 1))
    behind = 1 if spec["shifted"] else 3  # results begin three elements behind a vector
    usual = [_normalisation(spec, each, settings) for each in shapes]
    cases = [
        case._replace(inputs=(between_poison(case.inputs[0], 256 + behind), *case.inputs[1:]), begin=3)
        for case in usual
    ]
    return tuple(cases) if shape else (*cases, _without_variance(usual[0], 256 + behind % 3))


def normalisation_by_words(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that begin elsewhere in packs than results, for each of two clusters so many that its ring comes round: of
    an odd width, and of whole sectors; one which leaves as much as it may to its edge; and one that does not vary,
    where eps is 0."""
    vec = spec["VEC"]
    room = spec["CLUSTER"] * spec["LANES"] * spec["PACKS"] * vec
    cut = rows_ring.Cut(spec["PACKS"], vec, spec["CLUSTER"], 2, threads=spec["LANES"])
    settings = ((words, "cut", lambda *about: cut), (norm_plans, "plan_ring", lambda *about: None))
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


CASES = {
    "norm": normalisation,
    "norm_ring": normalisation_of_clusters,
    "norm_span": normalisation_of_spans,
    "norm_sectors": normalisation_by_sectors,
    "norm_sums": normalisation_of_sums,
    "norm_words": normalisation_by_words,
    "norm_grid": normalisation_of_teams,
    "norm_split": normalisation_in_parts,
}
