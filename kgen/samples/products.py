"""Calls of products with a vector: ends that count for more, sums in several pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import BF16, F16, F32
from kgen.ops.gemv import flat as gemv_flats
from kgen.ops.gemv import span
from kgen.ops.gemv.gemv import gemv as kgen_gemv
from kgen.ops.gemv.types import QUANTIZED
from kgen.ops.reduce import flat
from kgen.samples.accuracy import rms_bar
from kgen.samples.case import Case, Shape, between_poison, numbers
from kgen.samples.sums import amid_a_pack, of_flat
from kgen.spec import Spec


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
    """As `reduce_flat`; where scales are those of results, of a matrix that is transposed itself."""
    cases = []
    trans = spec.dtype not in QUANTIZED or bool(spec["inner"])
    for one, parts in [(shape, 2)] if shape else of_flat(spec):
        case = _product(spec, *one[::-1], algorithm=None, trans=trans)
        a, *others = case.inputs
        a = amid_a_pack(spec, a) if trans else amid_a_pack(spec, a.T).T
        cut = gemv_flats.Cut(spec, flat.period_of(one[1], spec.dtype), parts)
        settings = ((gemv_flats, "cut", lambda product, sms, cut=cut: cut),)
        cases.append(case._replace(inputs=(a, *others), settings=settings))
    return tuple(cases)


def gemv_sum(spec: Spec, shape: Shape | None = None) -> Case:
    """Sums in a few pieces."""
    rows, depth = shape or (13, 7 * 32 * 4 + 12)
    return _product(spec, rows, depth, algorithm=f"gemv_v4_l32_r1_u1_{spec.dtype}")


def _product(spec: Spec, rows: int, depth: int, *, algorithm: str | None, trans: bool = False) -> Case:
    shape = (depth, rows) if trans else (rows, depth)
    options: dict[str, Any] = {"alpha": 1.5, "beta": -0.5, "trans": trans, "algorithm": algorithm}
    quantized = spec.dtype in QUANTIZED
    of_flags = {"half": F16, "brain": BF16}
    values = next((dtype for flag, dtype in of_flags.items() if flag in spec.flags), F32 if quantized else spec.dtype)
    x, y = numbers(spec, (depth,), (rows,), dtype=values.numpy)
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
    return Case(kgen_gemv, (a, x, y), options, expected, rms_bar(values.name, rows), values.numpy)


CASES = {
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
