"""Calls of logsumexp along rows: of one tile, of several, of parts that meet, and of a few loads."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.ops.reduce import narrow, passes, waves
from kgen.ops.reduce.kernels import LOAD_BYTES
from kgen.ops.rows import BLOCK
from kgen.ops.softmax import logsumexp as kernel
from kgen.ops.softmax import softmax as softmaxes
from kgen.samples.case import Case, Shape, between_poison, numbers
from kgen.spec import Spec


def logsumexp(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """More rows than a block has, of less than a tile, and of two and a part of one; or two in three parts, of which
    the last is short. Some rows are of nothing but -inf, or have an infinity."""
    lanes, packs, vec = spec["LANES"], spec["PACKS"], spec["VEC"]
    tile = lanes * packs
    count = 2 if spec["split"] else 3 if lanes > 32 else BLOCK // lanes + 3
    widths = (2 * tile + lanes // 2 + 1,) if spec["split"] else (max(1, tile - 2), 2 * tile + lanes // 2 + 1)
    least = 8 * 16 // vec // spec.dtype.itemsize + 1 if spec["ragged"] else 1  # packs from which on they begin anywhere
    odd = vec * spec.dtype.itemsize < 16  # then no wider packs would do
    shapes = [shape] if shape else [(count, (max(n, least) | odd) * vec + spec["ragged"]) for n in widths]
    return tuple(_logsumexp(spec, one) for one in shapes)


def _logsumexp(spec: Spec, shape: Shape) -> Case:
    return _case(
        spec,
        shape,
        (kernel, "cut", lambda *about: (spec["LANES"], spec["PACKS"])),
        (kernel, "multiprocessors", lambda device: 1),
        (waves, "parts", lambda *about, **_: 3 if spec["split"] else 1),
        (waves, "parts_of_columns", lambda *about: 3 if spec["split"] else 1),
    )


def logsumexp_narrow(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of an odd number of elements, each thread one or three of them, for two blocks and a part of one.

    Of a number that is the kernel's own, as many as a thread has.
    """
    room = spec["ITEMS"] * LOAD_BYTES // spec.dtype.itemsize
    columns = (spec["LENGTH"],) if spec["LENGTH"] else (room - 1, (room // 3 - 1) | 1)
    cases = []
    for one in [shape] if shape else [(2 * spec.threads * (room // n) + 5, n) for n in columns]:
        cut = (room // one[1], spec["ITEMS"])
        settings = (
            (passes, "BUSY", 0),
            (kernel, "cut", lambda *about: (2, 1)),
            (narrow, "rows_of_a_thread", lambda nbytes, cut=cut: cut),
        )
        case = _case(spec, one, *settings)
        cases.append(case._replace(inputs=(between_poison(case.inputs[0], 256),)))
    return tuple(cases)


def _case(spec: Spec, shape: Shape, *settings: tuple[Any, str, Any]) -> Case:
    (x,) = numbers(spec, shape)
    x[0], x[2::3, 0] = -np.inf, np.inf
    with np.errstate(divide="ignore"):
        expected = np.log(np.exp(x.astype(np.float64)).sum(-1))
    dtype = np.dtype("f4") if spec["wide"] else None
    options = {"axis": -1, "dtype": "float32"} if spec["wide"] else {"axis": -1}
    return Case(softmaxes.logsumexp, (x,), options, expected, dtype=dtype, settings=settings)


CASES = {"logsumexp": logsumexp, "logsumexp_narrow": logsumexp_narrow}
