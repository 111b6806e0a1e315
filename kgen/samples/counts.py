"""Calls of counts: several blocks, elements on the edges of bins and in none."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import F32
from kgen.ops.histogram import parts
from kgen.ops.histogram.histogram import bincount
from kgen.ops.histogram.histogram import histogram as kgen_histogram
from kgen.samples.case import Array, Case, Shape, between_poison, numbers
from kgen.spec import Spec


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


def sorted_by_parts(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Three tiles, the last of them short, for two blocks that sort; two parts of the bins, one of which is short too.

    Bins are equally frequent, or nearly all elements are of one; some weights are not finite, or in no bin.
    """
    (count,) = shape or (2 * parts.TILE + 1003,)
    bins = parts.ROOM + 77
    rng = np.random.default_rng(2)
    uniform = rng.integers(-9, bins + 9, count)
    single = spec.dtype is F32 or (spec.kernel is parts.PARTS and spec["single"])
    weights = (rng.standard_normal(count) * 10.0 ** rng.integers(-9, 9, count)).astype("f4" if single else "f8")
    weights[[count // 3, count // 4]] = np.inf, np.nan
    settings = ((parts, "LEAST", 1), (parts, "PER_BIN", 0), (parts, "multiprocessors", lambda device: 2))
    made = []
    for x in (uniform, np.where(uniform % 9, bins // 2, uniform)):
        inside = (x >= 0) & (x < bins)
        summed = np.bincount(x[inside], weights[inside], minlength=bins)
        index = x.astype(np.int32)
        made.append(Case(bincount, (between_poison(index), between_poison(weights)), {"length": bins}, summed, 1e-12))
    return tuple(case._replace(dtype=np.float64, settings=settings) for case in made)


CASES = {
    "histogram": histogram,
    "histogram_extremes": histogram_extremes,
    "histogram_weights": weighted_histogram,
    "histogram_parts": sorted_by_parts,
    "histogram_part_sums": sorted_by_parts,
    "histogram_largest": weighted_histogram,
    "histogram_total": weighted_histogram,
    "histogram_density": weighted_histogram,
}
