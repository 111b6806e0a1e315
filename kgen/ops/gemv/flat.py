"""A transposed matrix of narrow rows that begin anywhere, all of them read as one; and the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32, FLOATS, DType
from kgen.launch import Step, bind
from kgen.ops.calls import Plan
from kgen.ops.gemv.kernels import PACK, QUANTIZED_FLAGS
from kgen.ops.gemv.product import Product, flags_of
from kgen.ops.gemv.types import QUANTIZED, total_of, types_of
from kgen.ops.reduce.flat import (
    COUNTERS,
    EARLY,
    MEETING,
    STATIC_LIMIT,
    begins_early,
    items_of,
    memory_of,
    period_of,
    reads_of,
    shared_bytes,
)
from kgen.ops.reduce.workspace import workspace
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = Axis("THREADS", "t", tuple(range(256, 1025, 32)), "of a block: a multiple of a period, and few to spare")
MOST = {1: 768, 2: 1024, 4: 1152}
"""Threads among which the registers of a multiprocessor are divided, by the bytes of a number: those have columns of
their own each."""
ITEMS = 4
"""Packs of a thread that are in flight together, at least."""
LARGE = 128 << 20
PAYS = {
    1: {range(17, 64): 16 << 20, range(65, 128, 2): 16 << 20, range(66, 128, 4): 16 << 20},
    2: {range(7, 64): 32 << 20, range(64, 1025): LARGE},
    4: {range(3, 321): LARGE},
}
"""For which columns this pays, from so many bytes of a matrix on, by the bytes of a number.
Of fewer a pack would have more than two rows."""
EVEN = range(33, 83)
"""Packs of rows that are whole packs, for which it does too, where their lines are others'."""
LINE = 128
"""Bytes of a line of memory."""


def _derive(spec: Spec) -> dict[str, int]:
    threads, vec = spec["THREADS"], PACK // spec.dtype.itemsize
    blocks = MOST[spec.dtype.itemsize] // threads
    return {
        **{name: int(name in spec.flags) for name in ("half", "brain", "inner")},
        "THREADS": threads,
        "VEC": vec,
        "ITEMS": ITEMS if spec.dtype in QUANTIZED else items_of(blocks * threads),
        **MEETING,
        "BLOCKS": blocks,
        **memory_of(threads, spec.dtype, total_of(spec).itemsize, blocks, early="early" in spec.flags),
    }


def most_threads(dtype: DType) -> int:
    """Threads of a block, at most: what each finds of all columns of a pack is in shared memory at last."""
    total = 8 if dtype is F32 else 4
    fitting = (threads for threads in THREADS.values if sum(shared_bytes(threads, dtype, total)) <= STATIC_LIMIT)
    return min(MOST[dtype.itemsize], max(fitting))


def _check(spec: Spec) -> str | None:
    if spec["THREADS"] > most_threads(spec.dtype):
        return "a thread has no registers for columns of its own"
    if {"half", "brain"} <= spec.flags:
        return "the vectors are of one type"
    return None


def _text(spec: Spec) -> dict[str, object]:
    return types_of(spec, PACK // spec.dtype.itemsize) | {"spans": False}


_SUMMARY = "A matrix times a vector, for columns of narrow rows one behind the other: sums across rows."
_GRID = "(parts): of the numbers"
_ORIGIN = "fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction"

FLAT = register(
    Kernel(
        name="gemv_flat",
        summary=_SUMMARY,
        formula="y[n] = alpha (sum over k of a[k][n] x[k]) + beta y[n]",
        axes=(THREADS,),
        flags=(EARLY,),
        dtypes=FLOATS,
        derive=_derive,
        text=_text,
        check=_check,
        grid=_GRID,
        origin=_ORIGIN,
        defaults=("gemv_flat_t416_f32", "gemv_flat_t928_early_bf16"),
    )
)
FLAT_QUANTIZED = register(
    Kernel(
        name="gemv_flat_quantized",
        stem="gemv_flat",
        summary=_SUMMARY,
        formula="y[n] = alpha (sum over k of s[k] a[k][n] x[k]) + beta y[n]",
        axes=(THREADS,),
        flags=(EARLY, *QUANTIZED_FLAGS),
        dtypes=QUANTIZED,
        derive=_derive,
        text=_text,
        check=_check,
        grid=_GRID,
        origin=_ORIGIN,
        defaults=("gemv_flat_quantized_t256_inner_i8",),
    )
)


class Cut(NamedTuple):
    """A specialization, packs after which columns begin again, and parts."""

    spec: Spec
    period: int
    parts: int


def cut(product: Product, sms: int) -> Cut | None:
    """Blocks of which the fewest threads have nothing to do; None where others do better, or this one cannot do it."""
    a, columns = product.a, product.rows
    over_results, over_products, _ = product.a_strides
    vec = PACK // a.dtype.itemsize
    kernel, flags = FLAT_QUANTIZED if a.dtype in QUANTIZED else FLAT, flags_of(product)
    dense = over_results == 1 and over_products == columns and product.batches == 1
    if a.dtype not in kernel.dtypes or flags.pop("blocks", False) or not dense:
        return None
    whole = columns % vec == 0 and a.ptr % PACK == 0
    even = whole and not (a.dtype in FLOATS and columns // vec in EVEN and columns * a.dtype.itemsize % LINE)
    least = next((least for those, least in PAYS[a.dtype.itemsize].items() if columns in those), None)
    if even or least is None or columns * product.depth * a.dtype.itemsize < max(least, LARGE * whole):
        return None
    period = period_of(columns, a.dtype)
    most = MOST[a.dtype.itemsize]
    # As many of a multiprocessor's threads as may have work; of blocks that have, the fewest, without idle threads.
    fitting = [threads for threads in THREADS.values if period <= threads <= most_threads(a.dtype)]

    def used(threads: int) -> tuple[int, int, int]:
        blocks = most // threads
        return blocks * (threads // period * period), -blocks, -threads

    threads = max(fitting, key=used)
    spec = kernel.spec(THREADS=threads, early=begins_early(product.out.device), **flags, dtype=a.dtype)
    tile = spec.derived["ITEMS"] * (threads // period * period) * vec
    return Cut(spec, period, min(sms * spec.derived["BLOCKS"], max(1, columns * product.depth // tile)))


def plan_flat(product: Product, why: str) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do it."""
    device = product.out.device
    found = cut(product, multiprocessors(device))
    if found is None:
        return None
    step = _step(product, found)
    (run,) = bind([step], device)
    nbytes = found.parts * product.rows * total_of(found.spec).itemsize
    quantized = product.a.dtype in QUANTIZED

    def launch(at: Sequence[int], stream: int) -> None:
        a, x, y, scale, out = at
        partials, counters, held = workspace(nbytes, COUNTERS, device, stream)
        run((*((a, x, scale) if quantized else (a, x)), y or out, out, partials, counters), stream)
        del held

    return Plan(launch, (str(step),), f"{why} are cut into {found.parts} parts")


def _step(product: Product, cut: Cut) -> Step:
    quantized = product.a.dtype in QUANTIZED
    scale = (product.scale.row if product.scale else 0,) if quantized else ()
    return Step(
        cut.spec,
        cut.parts,
        7 if quantized else 6,
        (product.rows, cut.period, *reads_of(product.rows * product.depth, *cut)),
        (product.rows * product.depth, product.x_strides[0], *scale, product.y_strides[0], product.out_strides[0]),
        floats=(product.alpha, product.beta),
    )
