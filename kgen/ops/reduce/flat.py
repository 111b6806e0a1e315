"""Columns of rows that lie one behind the other and begin anywhere, all of them read as one; and the launch."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.dtypes import FLOATS, DType
from kgen.operand import power_of_two
from kgen.ops.reduce.kernels import (
    BITS,
    FORMULAS,
    LOAD_BYTES,
    OF_SUMS,
    WORDS,
    operation,
    result_axes,
    summed,
    text_of,
    value_bytes,
)
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

WARP = 32
THREADS = Axis("THREADS", "t", tuple(range(256, 577, 32)), "of a block: a multiple of a period, and few to spare")
ITEMS = 4
COHORT = 16
"""Blocks whose parts meet first: so many loads of a thread are under way together."""
STATIC_LIMIT = 48 << 10
"""Bytes of shared memory that a block has without asking for more."""
MOST = {2: 1024, 4: 1152}
"""Threads among which the registers of a multiprocessor are divided, by the bytes of an element: those have columns of
their own each."""
NARROWEST = 17
"""Columns from which on this pays,"""
LEAST = 32 << 20
"""and bytes."""
DEFAULTS = (
    "sum_flat_t512_o32_f32",
    "sum_flat_t448_o16_brain_bf16",
    "max_flat_t512_f32",
    "argmax_flat_t512_f32",
    "argmax_flat_t448_bf16",
)
IDLE = 1.2
"""Lanes of tiles, as a multiple of those with columns, from which on it does where rows are whole packs."""


MOST_ROWS = (1 << 32) - 1
"""Rows whose numbers are of 32 bits,"""
MOST_PACKS = 1 << 16
"""and packs of a thread whose numbers are of 16: where the place of an extreme is looked for."""


def bytes_of_part(spec: Spec) -> int:
    """Of what is handed on of a column; the number of a row takes 32 bits."""
    return 8 if operation(spec).startswith("arg") else value_bytes(spec)


def _derive(spec: Spec) -> dict[str, int]:
    threads, vec, size = spec["THREADS"], LOAD_BYTES // spec.dtype.itemsize, bytes_of_part(spec)
    return {
        "THREADS": threads,
        "VEC": vec,
        "ITEMS": ITEMS,
        "COHORT": COHORT,
        "BLOCKS": MOST[spec.dtype.itemsize] // threads,
        "STATIC_SMEM": threads * (vec + 1) * size + min(size, 8),
    }


def _check(spec: Spec) -> str | None:
    if spec["THREADS"] > MOST[spec.dtype.itemsize] // 2:
        return "two blocks have no registers for columns of their own"
    axes = result_axes(operation(spec), spec.dtype, spec.dtype)
    if axes != {axis: spec[axis] for axis in axes}:
        return "a result has the type of the elements"
    return None


def _kernel(op: str) -> Kernel:
    return Kernel(
        name=f"{op}_flat",
        summary=f"The {WORDS[op]} of every column, where rows are narrow, one behind the other, and begin anywhere.",
        formula=FORMULAS[op],
        axes=(THREADS, BITS._replace(values=(32, 16))) if summed(op) else (THREADS,),
        flags=OF_SUMS if summed(op) else (),
        dtypes=FLOATS,
        derive=_derive,
        text=lambda spec: text_of(spec) | {"whole": False},
        check=_check,
        grid="(parts): of all elements",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_flat_")),
        stem="reduce_flat",
    )


FLAT = {op: register(_kernel(op)) for op in FORMULAS}


class Cut(NamedTuple):
    """Threads of a block, packs after which columns begin again, and parts."""

    threads: int
    period: int
    parts: int


def period_of(columns: int, dtype: DType) -> int:
    """Packs after which they begin in the same column again."""
    nbytes = columns * dtype.itemsize
    return nbytes // math.gcd(nbytes, LOAD_BYTES)


def cut(columns: int, elements: int, dtype: DType, sms: int, *, even: bool, places: bool = False) -> Cut | None:
    """Blocks of which the fewest threads have nothing to do; None where no block is so wide, or others do better.

    `even`: all rows begin with a load. `places`: where something stands is counted.
    """
    vec, period = LOAD_BYTES // dtype.itemsize, period_of(columns, dtype)
    fitting = [threads for threads in THREADS.values if period <= threads <= MOST[dtype.itemsize] // 2]
    if not fitting or columns < NARROWEST or elements * dtype.itemsize < LEAST:
        return None
    if even and (columns > WARP * vec or power_of_two(columns) < IDLE * columns):
        return None
    threads = max(fitting, key=lambda threads: (threads // period * period / threads, -threads))
    tile = ITEMS * (threads // period * period) * vec
    parts = min(sms * (MOST[dtype.itemsize] // threads), max(1, elements // tile))
    if places and max(elements // columns / MOST_ROWS, (elements // (parts * tile) + 2) * ITEMS / MOST_PACKS) > 1:
        return None
    return Cut(threads, period, parts)


def counters_of(parts: int) -> int:
    """Counters with which so many blocks meet: one for each cohort, and one for all of these."""
    return 1 + -(-parts // COHORT)
