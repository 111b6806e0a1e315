"""Columns of rows that lie one behind the other and begin anywhere, all of them read as one; and the launch."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.arch import HOPPER
from kgen.device import device_arch, shared_memory
from kgen.dtypes import FLOATS, DType
from kgen.operand import power_of_two
from kgen.ops import rows
from kgen.ops.reduce.kernels import (
    BITS,
    FORMULAS,
    LOAD_BYTES,
    MOST_ROWS,
    OF_SUMS,
    WORDS,
    illegal_widening,
    operation,
    result_axes,
    summed,
    text_of,
    value_bytes,
)
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

WARP = 32
WIDEST = 1024
THREADS = Axis(
    "THREADS", "t", tuple(range(256, WIDEST + 1, 32)), "of a block: a multiple of a period, and few to spare"
)
EARLY = Flag("early", "it begins where blocks of the kernel before end, of which each leaves no room beside it")
LEAST_ITEMS, ITEMS = 4, 8
"""Loads of a thread that are in flight together: at least, and of extremes, unless a block is wide."""
MOST_ITEMS = 7
"""And of sums at most, where a thread has 96 registers: a block has more than 512."""
MEETING = {"AT_ONCE": 16, "FINISHERS": 32, "PATIENCE": 4096}
"""Findings of a column that a thread takes at once, where they meet; blocks that put all parts together, and how often
they look for the others: on no GPU need all blocks be resident at once."""
COUNTERS = 2
"""Counters with which all blocks meet."""
STATIC_LIMIT = 48 << 10
"""Bytes of shared memory that a block has without asking for more."""
LIKED = range(512, 769)
"""Threads of a block, where a period is so narrow: enough to keep the memory busy, and few to wait for at the end."""
FILLED = 0.98
"""The share of threads with work, as a part of the best, from which on fewer threads do better."""
NARROWEST = 17
"""Columns from which on this pays,"""
LEAST = 32 << 20
"""and bytes."""
DEFAULTS = (
    "sum_flat_t512_o32_f32",
    "sum_flat_t800_o16_brain_bf16",
    "max_flat_t512_early_f32",
    "argmax_flat_t512_f32",
    "argmax_flat_t544_early_bf16",
)
EVEN = 256
"""Columns up to which this pays where rows are whole packs and nothing is added up;"""
IDLE = 1.2
"""lanes of tiles, as a multiple of those with columns, from which on it does for sums;"""
LINE, EVEN_APART = 128, 1024
"""bytes of a line: up to so many columns it does for both, where rows begin amid lines, which tiles would share."""
MOST_PACKS = 1 << 16
"""Packs of a thread whose numbers are of 16 bits, where the place of an extreme is looked for."""


def shared_bytes(threads: int, dtype: DType, size: int) -> tuple[int, int]:
    """What the threads find, with a place in 128 bytes left empty; and what those that share a column do, with a word
    that says who comes last."""
    found = threads * (LOAD_BYTES // dtype.itemsize) * size
    return found + found // 128 * size, threads * size + min(size, 8)


def _derive(spec: Spec) -> dict[str, int]:
    threads, size = spec["THREADS"], spec.dtype.itemsize
    return {
        "THREADS": threads,
        "VEC": LOAD_BYTES // size,
        "ITEMS": items_of(threads) if operation(spec) == "sum" or threads not in LIKED else ITEMS,
        **MEETING,
        "BLOCKS": 1,
        **memory_of(threads, spec.dtype, value_bytes(spec), 1, early=bool(spec["early"])),
    }


def memory_of(threads: int, dtype: DType, size: int, blocks: int, *, early: bool) -> dict[str, int]:
    """The shared memory of such a block: what threads find is asked for at launch if there is much of it, or if the
    block is to leave a multiprocessor, which has `blocks` of them, no room for another."""
    found, others = shared_bytes(threads, dtype, size)
    if not early and found + others <= STATIC_LIMIT:
        return {"STATIC_SMEM": found + others, "DYNAMIC_SMEM": 0}
    others = -(-others // 16) * 16  # behind them begins what is asked for
    alone = rows.shared_for(blocks + 1) + 128
    return {"STATIC_SMEM": others, "DYNAMIC_SMEM": max(found, alone - others if early else 0)}


def begins_early(device: int) -> bool:
    """Whether a device lets kernels overlap, and gives a block so much shared memory that it can be alone."""
    return device_arch(device) >= HOPPER and shared_memory(device) >= rows.SHARED


def items_of(threads: int) -> int:
    """Loads of a thread that are in flight together, where a multiprocessor has so many threads: few have more."""
    items = max(LEAST_ITEMS, round(LEAST_ITEMS * WIDEST / threads))
    return min(items, MOST_ITEMS) if threads > WIDEST // 2 else items


def _kernel(op: str) -> Kernel:
    return Kernel(
        name=f"{op}_flat",
        summary=f"The {WORDS[op]} of every column, where rows are narrow, one behind the other, and begin anywhere.",
        formula=FORMULAS[op],
        axes=(THREADS, BITS._replace(values=(32, 16))) if summed(op) else (THREADS,),
        flags=(EARLY, *OF_SUMS) if summed(op) else (EARLY,),
        dtypes=FLOATS,
        derive=_derive,
        text=lambda spec: text_of(spec) | {"whole": False},
        check=illegal_widening,
        grid="(parts): of all elements",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_flat_")),
        stem="reduce_flat",
    )


FLAT = {op: register(_kernel(op)) for op in FORMULAS}


class Cut(NamedTuple):
    """A specialization, packs after which columns begin again, and parts."""

    spec: Spec
    period: int
    parts: int


def period_of(columns: int, dtype: DType) -> int:
    """Packs after which they begin in the same column again."""
    nbytes = columns * dtype.itemsize
    return nbytes // math.gcd(nbytes, LOAD_BYTES)


def cut(op: str, columns: int, elements: int, dtype: DType, sms: int, *, even: bool, early: bool = False) -> Cut | None:
    """Blocks of which few threads have nothing to do; None where no block is so wide, or others do better.

    `even`: all rows begin with a load. `early`: kernels may begin early.
    """
    vec, period = LOAD_BYTES // dtype.itemsize, period_of(columns, dtype)
    if columns < NARROWEST or elements * dtype.itemsize < LEAST:
        return None
    narrow = columns <= (WARP * vec if op == "sum" else EVEN)
    if even and not narrow and not (columns <= EVEN_APART and columns * dtype.itemsize % LINE):
        return None
    if even and narrow and op == "sum" and power_of_two(columns) < IDLE * columns:
        return None
    axes = result_axes(op, dtype, dtype)
    wide = [threads for threads in THREADS.values if period <= threads]
    if not wide:
        return None
    # Every block has some of each column: the fewer there are, the sooner sums are put together.
    filled = {threads: threads // period * period / threads for threads in wide}
    fitting = {threads: filled[threads] for threads in wide if threads in LIKED} or filled
    threads = min(threads for threads in fitting if fitting[threads] >= FILLED * max(fitting.values()))
    spec = FLAT[op].spec(THREADS=threads, early=early, dtype=dtype, **axes)
    items = spec.derived["ITEMS"]
    tile = items * (threads // period * period) * vec
    parts = min(sms, max(1, elements // tile))
    packs = (elements // (parts * tile) + 2) * items  # of a thread
    if op.startswith("arg") and (packs > MOST_PACKS or elements // columns > MOST_ROWS):
        return None
    return Cut(spec, period, parts)


def reads_of(elements: int, spec: Spec, period: int, parts: int) -> tuple[int, int]:
    """How often each block reads what it reads at once, and how many of them once more.

    Of all elements: those before the first pack, which are read apart, may leave the last read empty.
    """
    together = spec.threads // period * period * spec.derived["VEC"]
    return divmod(-(-elements // together), parts)
