"""Calls of softmax: rows that nearly fill the registers, or take several rounds, and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops import rows_cut, rows_ring
from kgen.ops.rows import VECTOR
from kgen.ops.softmax import backward as softmax_backward
from kgen.ops.softmax import backward_split, column_plans, columns, strip_plans, strips
from kgen.ops.softmax import online as softmax_online
from kgen.ops.softmax import softmax as softmaxes
from kgen.samples.along_rows import Settings, in_teams, in_turn, nothing, read, row, taking
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


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


def softmax(spec: Spec, shape: Shape | None = None) -> Case:
    """More rows than a block takes at once."""
    (x,) = read(spec, *numbers(spec, shape or row(spec, 11 if spec["LANES"] <= 32 else 3)))
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


def softmax_of_teams(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows that two blocks share, several for each team; a row that many share."""
    return tuple(_softmax_of_a_team(spec, *about) for about in in_teams(spec, shape))


def _softmax_of_a_team(spec: Spec, shape: Shape, settings: Settings) -> Case:
    (x,) = numbers(spec, shape)
    options = {"axis": -1, "algorithm": "softmax_grid"}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, -1), settings=settings)


def softmax_columns(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """A second strip of columns; columns of nearly as many numbers as there is room for, or of twice as many and more.

    Of parts there are five, the last of fewer numbers, all of one group, and in groups of three and of two; where packs
    are staged, rings come round in each. A column, or its first group of parts, is of nothing but -inf where that is
    not the result.
    """
    usual = _softmax_columns(spec, shape)
    if not spec["partial"]:
        return usual
    return usual, usual._replace(settings=(*usual.settings, (column_plans, "AT_ONCE", 0)))


def _softmax_columns(spec: Spec, shape: Shape | None) -> Case:
    room = spec["DEPTH"] * spec["HELD"]
    parts = spec["partial"] or spec["apply"]
    many = 5 if parts else 1
    height = room * (2 * spec.derived["STAGES"] + 1 if spec["staged"] else 3)
    length = (many * height - 5 if parts or spec["staged"] else 2 * room + 99) if spec["online"] else room - 5
    (x,) = numbers(spec, shape or (length, (spec["LANES"] + 3) * spec["VEC"] + spec["ragged"]))
    # Where staged packs may begin anywhere, neither the first row begins with one, nor the last one ends so.
    begin = 2 * (spec["ragged"] and spec["staged"])
    x = between_poison(x, 256 + begin)
    if parts:
        x[: 3 * len(x) // 5, 0] = -np.inf
    if spec["lse"]:
        x[:, 0] = -np.inf
        with np.errstate(divide="ignore"):
            expected = np.log(np.exp(x.astype(np.float64)).sum(0))
        return Case(softmaxes.logsumexp, (x,), {"axis": 0}, expected, settings=_streamed(spec, many, height))
    settings = (
        (column_plans, "WAVES", {False: 0 if spec["online"] and not parts else 10**6}),
        *_streamed(spec, many, height),
    )
    options = {"axis": 0, "algorithm": "softmax_columns" if spec["online"] else spec.name}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, 0), settings=settings, begin=begin)


def _streamed(spec: Spec, parts: int, height: int) -> Settings:
    """Columns are not held, and are cut like this."""
    if not spec["online"]:
        return ()
    staged = {"staged": bool(spec["staged"])}
    values = {axis.name: spec[axis.name] for axis in columns.COLUMNS.axes}
    cut = "_streamed_anywhere" if spec["ragged"] else "_streamed"
    return (
        (column_plans, "held", lambda *about, **more: None),
        (column_plans, cut, lambda *about: values),
        (column_plans, "_staged", lambda values, *about: values | staged),
        *(((column_plans, "_parts", lambda *about: (parts, height)),) if spec["staged"] else ()),
    )


def softmax_strips(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """Columns of nearly as many numbers as there is room for, of so many strips that rings come round, the last a part
    of one, which two take in turn; ragged, of an odd number of them, and not from a pack on.

    On the grid two blocks share a strip, and, in another case, so many that a warp hears them in two rounds.
    """
    turns = 2 * spec.derived["STAGES"] // spec.derived["CHUNKS"] + 1 + (0 if spec["grid"] else spec.derived["AHEAD"])
    columns = (turns * (spec["LANES"] - 2 * spec["ragged"]) - 1) * spec["VEC"] + spec["ragged"]
    parts = 2 if spec["grid"] else 1
    usual = _softmax_of_strips(spec, shape or (parts * strips.rows_of(spec) - 5, columns), parts)
    if shape or not spec["grid"]:
        return usual
    many = 33
    width = 8 * VECTOR // spec.dtype.itemsize + spec["ragged"]
    return usual, _softmax_of_strips(spec, ((many - 1) * strips.rows_of(spec) + 1, width), many)


def _softmax_of_strips(spec: Spec, shape: Shape, blocks: int) -> Case:
    begin = 2 * spec["ragged"]  # where the last row does not end with a pack
    (x,) = numbers(spec, shape)
    x = between_poison(x, 256 + begin)
    settings = ((strip_plans, "clusters", lambda *about: 2), (strip_plans, "blocks", lambda device: blocks))
    options = {"axis": 0, "algorithm": spec.name}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, 0), settings=settings, begin=begin)


def backward_of_softmax(spec: Spec, shape: Shape | None = None) -> Case:
    """Rows that nearly fill the registers."""
    return _backward_of_softmax(spec, shape or row(spec, 3), taking(spec))


def backward_of_long_rows(spec: Spec, shape: Shape | None = None) -> Case:
    """Two rounds and a part of one for each block, of which a row has two."""
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    settings = (
        (rows_ring, "cut", nothing),
        (rows_cut, "cut", nothing),
        (backward_split, "multiprocessors", lambda device: 1),
    )
    return _backward_of_softmax(spec, shape or (2, 5 * tile + 3 * spec["VEC"]), settings)


def backward_of_softmax_in_turn(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn, of which one that begins anywhere leaves packs to its edge."""
    return tuple(_backward_of_softmax(spec, *about) for about in in_turn(spec, shape))


def _backward_of_softmax(spec: Spec, shape: Shape, settings: Settings) -> Case:
    dy, x = read(spec, *numbers(spec, shape, shape))
    y = between_poison(_softmax(x, -1).astype(x.dtype))
    wide_dy, wide_y = wide(dy, y)
    expected = wide_y * (wide_dy - (wide_dy * wide_y).sum(-1, keepdims=True))
    return Case(softmax_backward.softmax_backward, (dy, y), {"axis": -1}, expected, settings=settings)


def softmax_of_clusters(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Of rows that clusters take in turn, of which one that begins anywhere leaves packs to its edge."""
    turns = in_turn(spec, shape, rows_ring.EDGE_OF_LINES)
    return tuple(_softmax_in_turn(spec, *about) for about in turns)


def _softmax_in_turn(spec: Spec, shape: Shape, settings: Settings) -> Case:
    twice = (spec["causal"] or spec["mask"]) and shape[0] > 1  # of two such matrices the same is left out
    (x,) = read(spec, *numbers(spec, (2, *shape) if twice else shape))
    options, keep = _left_out(spec, x)
    return Case(softmaxes.softmax, (x,), {"axis": -1, **options}, _softmax(x, -1, keep), settings=settings)


CASES = {
    "softmax": softmax,
    "softmax_ring": softmax_of_clusters,
    "softmax_grid": softmax_of_teams,
    "softmax_online": softmax_of_long_rows,
    "softmax_columns": softmax_columns,
    "softmax_strips": softmax_strips,
    "softmax_backward": backward_of_softmax,
    "softmax_backward_ring": backward_of_softmax_in_turn,
    "softmax_backward_split": backward_of_long_rows,
}
