"""Calls of softmax and normalisation: rows that nearly fill the registers, or take several rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops import rows, rows_cut, rows_grid, rows_ring
from kgen.ops.norm import backward as norm_backward
from kgen.ops.norm import backward_ring, norm
from kgen.ops.norm import plans as norm_plans
from kgen.ops.rows import VECTOR
from kgen.ops.softmax import backward as softmax_backward
from kgen.ops.softmax import columns, strip_plans, strips
from kgen.ops.softmax import online as softmax_online
from kgen.ops.softmax import softmax as softmaxes
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec

Settings = tuple[tuple[Any, str, Any], ...]
"""Of a case."""


def _softmax(x: Array, axis: int, keep: Array | bool = True) -> Array:
    x = np.where(keep, x.astype(np.float64), -np.inf)
    x = np.exp(x - x.max(axis, keepdims=True))
    result: Array = x / x.sum(axis, keepdims=True)
    return result


def _left_out(spec: Spec, x: Array) -> tuple[dict[str, Any], Array | bool]:
    """What a specialization that leaves elements out is called with, and which it keeps: some of each row."""
    queries, keys = x.shape[-2:]
    options: dict[str, Any] = {}
    keep: Array | bool = True
    if spec["causal"]:
        options["causal"] = True
        keep = np.tri(queries, keys, keys - queries, dtype=bool)
    if spec["mask"]:
        chosen: Array = np.asarray(np.random.default_rng(queries).random((queries, keys)) < 0.7)
        options["mask"] = between_poison(chosen, 257 if spec["ragged"] else 256)
        keep = keep & chosen
    return options, keep


def _row(spec: Spec, count: int) -> tuple[int, int]:
    """So many rows, each with all but a few of the packs for which a specialization has room; ragged, an odd width."""
    count = 20 if spec["looped"] else count  # some for each block
    return count, (spec["LANES"] * spec["PACKS"] * spec["CLUSTER"] - 3) * spec["VEC"] + spec["ragged"]


def _read(spec: Spec, *arrays: Array) -> tuple[Array, ...]:
    """The arrays at places where a specialization reads them."""
    return tuple(between_poison(x, 257) if "shifted" in spec.flags else x for x in arrays)


def _taking(spec: Spec) -> Settings:
    """For operators that choose a specialization by themselves: this one."""
    return ((rows_cut, "cut", lambda *about, **more: rows.Cut.of(spec)),)


def softmax(spec: Spec, shape: Shape | None = None) -> Case:
    """More rows than a block takes at once."""
    (x,) = _read(spec, *numbers(spec, shape or _row(spec, 11 if spec["LANES"] <= 32 else 3)))
    options, keep = _left_out(spec, x)
    return Case(softmaxes.softmax, (x,), {"axis": -1, "algorithm": spec.name, **options}, _softmax(x, -1, keep))


def softmax_of_long_rows(spec: Spec, shape: Shape | None = None) -> Case:
    """Two rounds and a part of one for each block, of which a row has one or two."""
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    whole = not (spec["partial"] or spec["apply"])
    count = softmax_online.PARTS if whole else 1  # so many that none is cut, or one that is
    shape = shape or (count, (2 * tile + 3 * spec["VEC"]) if whole else 3 * tile + 5 * spec["VEC"])
    (x,) = numbers(spec, shape)
    settings = ((softmax_online, "multiprocessors", lambda device: 1),)
    options = {"axis": -1, "algorithm": "softmax_online"}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, -1), settings=settings)


def _teams(spec: Spec, shape: Shape | None) -> tuple[tuple[Shape, Settings], ...]:
    """Some rows for each of a few teams of two blocks, whose parts nearly fill the stages; ragged, an odd width.

    And one row for so many blocks that a warp hears them in two rounds.
    """
    vec, packs = spec["VEC"], spec["LANES"] * spec["PACKS"] - 3
    many = 33
    of_two = _of_teams(spec, 2, vec, shape or (2 * vec + 3, (2 * packs - 5) * vec + spec["ragged"]))
    return (of_two,) if shape else (of_two, _of_teams(spec, many, 1, (1, many * vec + spec["ragged"])))


def _of_teams(spec: Spec, parts: int, teams: int, shape: Shape) -> tuple[Shape, Settings]:
    """The shape, and what makes its rows those of so many teams."""
    wide = -(-(shape[1] // spec["VEC"]) // parts)
    cut = rows_grid.Cut(spec["PACKS"], spec["STAGES"], parts, teams, wide * spec["VEC"])
    return shape, ((rows_grid, "cut", lambda *about, **more: cut), (rows_grid, "preferred", lambda *about: True))


def softmax_of_teams(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that two blocks share, several for each team; a row that many share."""
    return tuple(_softmax_of_a_team(spec, *about) for about in _teams(spec, shape))


def _softmax_of_a_team(spec: Spec, shape: Shape, settings: Settings) -> Case:
    (x,) = numbers(spec, shape)
    options = {"axis": -1, "algorithm": "softmax_grid"}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, -1), settings=settings)


def softmax_columns(spec: Spec, shape: Shape | None = None) -> Case:
    """A second strip of columns; columns of nearly as many numbers as there is room for, or of twice as many and more.

    In parts there are two of these.
    """
    room = spec["DEPTH"] * spec["HELD"]
    parts = spec["partial"] or spec["apply"]
    length = (4 * room + 99 if parts else 2 * room + 99) if spec["online"] else room - 5
    (x,) = numbers(spec, shape or (length, (spec["LANES"] + 3) * spec["VEC"] + spec["ragged"]))
    if spec["lse"]:
        expected = np.log(np.exp(x.astype(np.float64)).sum(0))
        return Case(softmaxes.logsumexp, (x,), {"axis": 0}, expected, settings=_streamed(spec))
    settings = ((columns, "WAVES", 0 if spec["online"] and not parts else 4), *_streamed(spec))
    options = {"axis": 0, "algorithm": "softmax_columns" if spec["online"] else spec.name}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, 0), settings=settings)


def _streamed(spec: Spec) -> Settings:
    """Columns are not held, and are cut like this."""
    if not spec["online"]:
        return ()
    values = {axis.name: spec[axis.name] for axis in columns.COLUMNS.axes}
    return ((columns, "held", _none), (columns, "_streamed", lambda *about: values))


def softmax_strips(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """Columns of nearly as many numbers as there is room for, of so many strips that rings come round, the last a part
    of one; ragged, of an odd number of them.

    On the grid two blocks share a strip, and, in another case, so many that a warp hears them in two rounds.
    """
    turns = 2 * spec.derived["STAGES"] // spec.derived["CHUNKS"] + 1
    columns = (turns * (spec["LANES"] - 2 * spec["ragged"]) - 1) * spec["VEC"] + spec["ragged"]
    parts = 2 if spec["grid"] else 1
    usual = _softmax_of_strips(spec, shape or (parts * strips.rows_of(spec) - 5, columns), parts)
    if shape or not spec["grid"]:
        return usual
    many = 33
    width = 8 * VECTOR // spec.dtype.itemsize + spec["ragged"]
    return usual, _softmax_of_strips(spec, ((many - 1) * strips.rows_of(spec) + 1, width), many)


def _softmax_of_strips(spec: Spec, shape: Shape, blocks: int) -> Case:
    (x,) = numbers(spec, shape)
    settings = ((strip_plans, "clusters", lambda *about: 1), (strip_plans, "blocks", lambda device: blocks))
    return Case(softmaxes.softmax, (x,), {"axis": 0, "algorithm": spec.name}, _softmax(x, 0), settings=settings)


def backward_of_softmax(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the registers."""
    return _backward_of_softmax(spec, shape or _row(spec, 3), _taking(spec))


def backward_of_softmax_in_turn(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn, of which one that begins anywhere leaves packs to its edge."""
    return tuple(_backward_of_softmax(spec, *about) for about in _in_turn(spec, shape))


def _backward_of_softmax(spec: Spec, shape: Shape, settings: Settings) -> Case:
    dy, x = _read(spec, *numbers(spec, shape, shape))
    y = between_poison(_softmax(x, -1).astype(x.dtype))
    wide_dy, wide_y = wide(dy, y)
    expected = wide_y * (wide_dy - (wide_dy * wide_y).sum(-1, keepdims=True))
    return Case(softmax_backward.softmax_backward, (dy, y), {"axis": -1}, expected, settings=settings)


def normalisation(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """Rows that nearly fill the registers, of a mean that is not zero; and some that do not vary, where eps is 0."""
    if spec["channels"] or spec["grouped"]:
        usual = _groups(spec, shape or _row(spec, 3), _taking(spec))
        return usual if shape else (usual, *_statistics_of_groups(usual))
    usual = _normalisation(spec, shape or _row(spec, 3), _taking(spec))
    return usual if shape or spec["rms"] or not spec["weight"] else (usual, _without_variance(usual))


def _without_variance(usual: Case) -> Case:
    """Rows of ones, where eps is 0."""
    x, weight, bias = (between_poison(np.ones_like(x)) for x in usual.inputs)
    means = np.ones(x.shape[:1])
    expected = (np.full(x.shape, np.nan), means, np.inf * means)
    return usual._replace(inputs=(x, weight, bias), options={"eps": 0, "return_stats": True}, expected=expected)


def normalisation_of_teams(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that two blocks share, several for each team; a row that many share."""
    return tuple(_normalisation(spec, *about) for about in _teams(spec, shape))


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


def _statistics_of_groups(usual: Case) -> tuple[Case, Case]:
    """The same, with mean and 1 / sqrt(variance + eps) of the groups; and groups of ones, where eps is 0."""
    x, groups, *affine = usual.inputs
    rows = x.astype(np.float64).reshape(len(x), int(groups), -1)
    mean, variance = rows.mean(-1), rows.var(-1)
    expected = (usual.expected, mean, 1 / np.sqrt(variance + 1e-5))
    same = (np.full(x.shape, np.nan), np.ones_like(mean), np.full_like(mean, np.inf))
    ones = (between_poison(np.ones_like(x)), groups, *affine)
    return (
        usual._replace(options={"return_stats": True}, expected=expected),  # type: ignore[arg-type]
        usual._replace(inputs=ones, options={"eps": 0, "return_stats": True}, expected=same),
    )


def _normalisation(spec: Spec, shape: Shape, settings: Settings) -> Case:
    if spec["channels"]:
        return _groups(spec, shape, settings)
    x, residual, weight, bias = numbers(spec, shape, shape, shape[-1:], shape[-1:])
    x += np.asarray(3, x.dtype)
    if "shifted" in spec.flags:
        x, residual = _read(spec, x, residual)
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


def _in_turn(spec: Spec, shape: Shape | None) -> tuple[tuple[Shape, Settings], ...]:
    """Rows that nearly fill a cluster, for each of two so many that its ring comes round; and one, for one of them,
    which leaves packs to its edge where it begins anywhere."""
    further = 2 * rows_ring.EDGE + 2 * ("mask" in spec.flags) if spec["ragged"] else 0
    room = spec["CLUSTER"] * rows_ring.THREADS * spec["PACKS"] * spec["VEC"]
    cut = rows_ring.Cut(spec["PACKS"], spec["VEC"], spec["CLUSTER"], 2, bool(spec["ragged"]))
    settings = ((rows_ring, "cut", lambda *about, **more: cut),)
    columns = room - 5 * spec["VEC"] + spec["ragged"]
    rounds = 4 if spec["ragged"] else 2  # so that clusters have rows of their own before they claim any
    own = ((rounds * spec.derived["STAGES"] + 3, columns), (1, columns + further * spec["VEC"]))
    shapes = (shape,) if shape else own
    return tuple((each, settings) for each in shapes)


def softmax_of_clusters(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn, of which one that begins anywhere leaves packs to its edge."""
    return tuple(_softmax_in_turn(spec, *about) for about in _in_turn(spec, shape))


def _softmax_in_turn(spec: Spec, shape: Shape, settings: Settings) -> Case:
    twice = (spec["causal"] or spec["mask"]) and shape[0] > 1  # of two such matrices the same is left out
    (x,) = _read(spec, *numbers(spec, (2, *shape) if twice else shape))
    options, keep = _left_out(spec, x)
    return Case(softmaxes.softmax, (x,), {"axis": -1, **options}, _softmax(x, -1, keep), settings=settings)


def normalisation_of_clusters(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn; and of some that do not vary, where eps is 0."""
    cases = tuple(_normalisation(spec, *about) for about in _in_turn(spec, shape))
    if shape or spec["rms"]:
        return cases
    return (*cases, *(_statistics_of_groups(cases[0])[1:] if spec["channels"] else [_without_variance(cases[0])]))


def _none(*about: Any, **more: Any) -> None:
    return None


_NO_CUT = ((rows_cut, "cut", _none), (rows_grid, "cut", _none))  # rows are too wide for either


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
    settings = (*_NO_CUT, (norm_plans, "multiprocessors", lambda device: 1))
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


def backward_of_normalisation(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the registers, or so many that their sums are in several parts."""
    by_rows = spec.kernel.name == "norm_backward"
    shape = shape or (_row(spec, 3) if by_rows else (523, 132))
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    dy, x = _read(spec, dy, x) if by_rows else (dy, x)
    weights = (weight,) if not by_rows or spec["weight"] else ()
    statistics, expected = _gradients_of_normal(dy, x, weight if weights else None, rms=False)
    summing = rows.Cut.of(spec) if by_rows and spec["sums"] else None
    settings = ((rows_cut, "summing", lambda *about, **how: summing), *(_taking(spec) if by_rows else ()))
    settings = () if spec.kernel.name == "norm_total" else settings
    given = (dy, x, *statistics, *weights)
    return Case(norm_backward.layer_norm_backward, given, {}, expected if weights else expected[0], settings=settings)


def backward_in_turn(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the threads that share one, so many that their ring comes round; ragged, an odd width."""
    lanes, packs, vec, cluster = spec.values
    side_by_side = spec.threads // lanes
    teams = max(2, vec // side_by_side) if spec["ragged"] and side_by_side > 1 else 2
    room = cluster * lanes * packs
    height = side_by_side * teams * (spec.derived["RING"] // packs + 1) + 1
    if spec["ragged"] and side_by_side == 1:  # as many that begin at each place, and more at some
        height = vec * (spec.derived["RING"] // packs + 2) + 3
    shape = shape or (height, (room - 5) * vec + spec["ragged"])
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    statistics, expected = _gradients_of_normal(dy, x, weight, rms=bool(spec["rms"]))
    cut = backward_ring.Cut(lanes, packs, vec, cluster, teams)
    settings = ((backward_ring, "cut", lambda *about, **more: cut),)
    operator = norm_backward.rms_norm_backward if spec["rms"] else norm_backward.layer_norm_backward
    expected = expected[:2] if spec["rms"] else expected
    return Case(operator, (dy, x, *statistics, weight), {}, expected, settings=settings)


CASES = {
    "softmax": softmax,
    "softmax_ring": softmax_of_clusters,
    "softmax_grid": softmax_of_teams,
    "softmax_online": softmax_of_long_rows,
    "softmax_columns": softmax_columns,
    "softmax_strips": softmax_strips,
    "softmax_backward": backward_of_softmax,
    "softmax_backward_ring": backward_of_softmax_in_turn,
    "norm": normalisation,
    "norm_ring": normalisation_of_clusters,
    "norm_grid": normalisation_of_teams,
    "norm_split": normalisation_in_parts,
    "norm_backward": backward_of_normalisation,
    "norm_backward_ring": backward_in_turn,
    "norm_weights": backward_of_normalisation,
    "norm_total": backward_of_normalisation,
}
