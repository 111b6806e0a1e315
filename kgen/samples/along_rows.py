"""What calls of kernels along rows share: how a specialization is picked, and rows that suit it."""

from __future__ import annotations

from typing import Any

from kgen.ops import rows, rows_cut, rows_grid, rows_ring
from kgen.samples.case import Array, Shape, between_poison
from kgen.spec import Spec

Settings = tuple[tuple[Any, str, Any], ...]
"""Of a case."""


def row(spec: Spec, count: int) -> tuple[int, int]:
    """So many rows, each with all but a few of the packs for which a specialization has room; ragged, an odd width."""
    count = 20 if spec["looped"] else count  # some for each block
    return count, max(1, spec["LANES"] * spec["PACKS"] * spec["CLUSTER"] - 3) * spec["VEC"] + spec["ragged"]


def read(spec: Spec, *arrays: Array) -> tuple[Array, ...]:
    """The arrays at places where a specialization reads them."""
    return tuple(between_poison(x, 257) if "shifted" in spec.flags else x for x in arrays)


def taking(spec: Spec) -> Settings:
    """For operators that choose a specialization by themselves: this one."""
    return ((rows_cut, "cut", lambda *about, **more: rows.Cut.of(spec)),)


def in_teams(spec: Spec, shape: Shape | None) -> tuple[tuple[Shape, Settings], ...]:
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


def in_turn(spec: Spec, shape: Shape | None, edge: int = rows_ring.EDGE) -> tuple[tuple[Shape, Settings], ...]:
    """Rows that nearly fill a cluster, or their part of a block, for each of two so many that its ring comes round; and
    one, for one of them, which leaves as much as it may to its edge where it begins anywhere: so many packs at most."""
    vec, at_once = spec["VEC"], spec.derived.get("ROWS", 1)
    lanes = spec.threads // at_once
    room = spec["CLUSTER"] * lanes * spec["PACKS"] * vec
    cut = rows_ring.Cut(spec["PACKS"], vec, spec["CLUSTER"], 2, bool(spec["ragged"]), lanes)
    settings = ((rows_ring, "cut", lambda *about, **more: cut),)
    columns = room - 5 * vec + spec["ragged"]
    most = room + (rows_ring.edge(lanes, vec, edge) + 1) * vec - 1 if spec["ragged"] else columns
    rounds = 4 if spec["ragged"] else 2  # so that clusters have rows of their own before they claim any
    own = ((rounds * at_once * spec.derived["STAGES"] + 4, columns), (1, most))  # that begin at all places of a sector
    shapes = (shape,) if shape else own
    return tuple((each, settings) for each in shapes)


def nothing(*about: Any, **more: Any) -> None:
    return None


NO_CUT = ((rows_cut, "cut", nothing), (rows_grid, "cut", nothing))  # rows are too wide for either
