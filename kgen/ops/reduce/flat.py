"""Columns of rows that lie one behind the other and begin anywhere, all of them read as one; and the launch."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.dtypes import FLOATS, DType
from kgen.operand import power_of_two
from kgen.ops.reduce.kernels import BITS, FORMULAS, LOAD_BYTES, OF_SUMS, result_axes, text_of, value_bytes
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
IDLE = 1.2
"""Lanes of tiles, as a multiple of those with columns, from which on it does where rows are whole packs."""


def _derive(spec: Spec) -> dict[str, int]:
    threads, vec, size = spec["THREADS"], LOAD_BYTES // spec.dtype.itemsize, value_bytes(spec)
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
    if result_axes("sum", spec.dtype, spec.dtype) != {axis: spec[axis] for axis in ("OUT", "fractional", "brain")}:
        return "a result has the type of the elements"
    return None


FLAT = register(
    Kernel(
        name="sum_flat",
        summary="The sum of every column, where rows are narrow, one behind the other, and begin anywhere.",
        formula=FORMULAS["sum"],
        axes=(THREADS, BITS._replace(values=(32, 16))),
        flags=OF_SUMS,
        dtypes=FLOATS,
        derive=_derive,
        text=lambda spec: text_of(spec) | {"whole": False},
        check=_check,
        grid="(parts): of all elements",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=("sum_flat_t512_o32_f32", "sum_flat_t448_o16_brain_bf16"),
    )
)


class Cut(NamedTuple):
    """Threads of a block, packs after which columns begin again, and parts."""

    threads: int
    period: int
    parts: int


def period_of(columns: int, dtype: DType) -> int:
    """Packs after which they begin in the same column again."""
    nbytes = columns * dtype.itemsize
    return nbytes // math.gcd(nbytes, LOAD_BYTES)


def cut(columns: int, elements: int, dtype: DType, sms: int, *, even: bool) -> Cut | None:
    """Blocks of which the fewest threads have nothing to do; None where no block is so wide, or others do better.

    `even`: all rows begin with a load.
    """
    vec, period = LOAD_BYTES // dtype.itemsize, period_of(columns, dtype)
    fitting = [threads for threads in THREADS.values if period <= threads <= MOST[dtype.itemsize] // 2]
    if not fitting or columns < NARROWEST or elements * dtype.itemsize < LEAST:
        return None
    if even and (columns > WARP * vec or power_of_two(columns) < IDLE * columns):
        return None
    threads = max(fitting, key=lambda threads: (threads // period * period / threads, -threads))
    tile = ITEMS * (threads // period * period) * vec
    return Cut(threads, period, min(sms * (MOST[dtype.itemsize] // threads), max(1, elements // tile)))


def counters_of(parts: int) -> int:
    """Counters with which so many blocks meet: one for each cohort, and one for all of these."""
    return 1 + -(-parts // COHORT)
