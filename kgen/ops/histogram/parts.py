"""Sums of weights of more bins than a block has shared memory for: sorted by parts of the bins first, then added.

An addition in global memory takes as long as moving a hundred bytes and more; sorting moves each weight and its place
twice, and all additions are in shared memory then.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgen.device import multiprocessors
from kgen.dtypes import F32, F64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Plan
from kgen.ops.histogram.fixed import FRACTION, SUM_BYTES, THREADS, TOTAL
from kgen.ops.histogram.kernels import ELEMENTS, INDICES, MAPS, map_of
from kgen.ops.histogram.memory import Line
from kgen.registry import register
from kgen.scratch import Sections, fill
from kgen.spec import Axis, Flag, Kernel, Spec

CELLS = 256
"""The most parts."""
WARPS, IN_FLIGHT, PIPED = 16, 4, False
ITEMS = 8
KIB = 224
"""Of shared memory, for the sums of a part."""
ROOM = 1024 * KIB // SUM_BYTES


def _tile(threads: int) -> int:
    return threads * ITEMS


def _illegal(spec: Spec) -> str | None:
    if spec["uniform"] and spec["edges"]:
        return "bins are uniform or not"
    if not (spec["uniform"] or spec["edges"]) and spec.dtype not in INDICES:
        return f"{spec.dtype.numpy_name} elements are no indices"
    return None


def _sorting(spec: Spec) -> dict[str, int]:
    threads = 32 * spec["WARPS"]
    weight = 4 if spec["single"] else 8
    return {
        "THREADS": threads,
        "BLOCKS": 1024 // threads,
        "ITEMS": ITEMS,
        "TILE": _tile(threads),
        "CELLS": CELLS,
        "LOG_CELLS": CELLS.bit_length() - 1,
        "STATIC_SMEM": 4 * (CELLS + 1),
        "DYNAMIC_SMEM": _tile(threads) * (weight + 2),
    }


def _adding(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": 1024,
        "ITEMS": spec["ITEMS"],
        "TILE": _tile(32 * spec["WARPS"]),
        "CELLS": CELLS,
        "FRACTION": FRACTION,
        "STATIC_SMEM": 4 * (CELLS + 2),
        "DYNAMIC_SMEM": 1024 * KIB,
    }


PARTS = register(
    Kernel(
        name="histogram_parts",
        summary="Weights, and in which places of their parts of the bins they belong, sorted by part within each tile.",
        formula="sorted[tile] = weights[tile], by bin(x[n]) % parts; places[tile] = bin(x[n]) / parts",
        axes=(Axis("WARPS", "w", (16, 32), "warps of a block"),),
        flags=(*MAPS, Flag("single", "weights are float32, instead of float64")),
        dtypes=ELEMENTS,
        derive=_sorting,
        check=_illegal,
        grid="(resident blocks)",
        defaults=(),
    )
)
PART_SUMS = register(
    Kernel(
        name="histogram_part_sums",
        summary="Sums, in fixed point, of weights that are sorted by parts of the bins.",
        formula="sums[b] += sum over sorted n of part b % parts with places[n] = b / parts of sorted[n]",
        axes=(
            Axis("WARPS", "w", (16, 32), "warps of the block that sorted a tile"),
            Axis("ITEMS", "i", (4, 2), "weights of a thread in flight"),
        ),
        flags=(Flag("piped", "the next weights are fetched ahead"),),
        dtypes=(F64, F32),
        derive=_adding,
        text=lambda spec: {"single": spec.dtype is F32},
        grid="(about the resident blocks)",
        defaults=(),
    )
)


def parts_for(bins: int) -> int:
    """The fewest parts of bins, a power of two of them, for each of which a block has room."""
    parts = 1
    while parts * ROOM < bins:
        parts *= 2
    return parts


def plan_parts(x: Operand, weights: Operand, line: Line, weight_line: Line, bins: int, uniform: bool | None) -> Plan:
    """Sorted by parts, added, and made doubles of; inputs are x, perhaps a table of edges, and the weights."""
    device, single = x.device, weights.dtype is F32
    parts = parts_for(bins)
    log_parts = parts.bit_length() - 1
    sort = PARTS.spec(WARPS=WARPS, dtype=x.dtype, single=single, **map_of(uniform))
    add = PART_SUMS.spec(WARPS=WARPS, ITEMS=IN_FLIGHT, piped=PIPED, dtype=weights.dtype)
    tile = sort.derived["TILE"]
    tiles = -(-line.length // tile)
    sms = multiprocessors(device)
    # As many blocks as are resident, were it not for shares that are rounded up.
    quantum = -(-line.length // max(1, sms - parts // 2))
    steps = [
        Step(
            sort,
            min(tiles, sms * sort.derived["BLOCKS"]),
            8 + (uniform is not None),
            (bins, log_parts),
            (line.length, line.step, weight_line.step),
        ),
        Step(add, sms + parts, 6, (bins, log_parts), (tiles, quantum)),
        Step(TOTAL.spec(), -(-bins // THREADS), 4, (bins,)),
    ]
    sorting, adding, total = bind(steps, device)
    zeroed = (bins * SUM_BYTES, 4 * bins, 8 * parts, 8)
    moved = (tiles * tile * weights.dtype.itemsize, 2 * tiles * tile, 4 * tiles * parts)
    sections = Sections((*zeroed, *moved), device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        (sums, met, shares, largest, *kept), memory = sections.take(stream)
        for at, nbytes in zip((sums, met, shares, largest), zeroed, strict=True):
            fill(at, 0, nbytes, device, stream)
        at_x, held_x = line.ready(pointers[0], stream)
        at_weights, held_weights = weight_line.ready(pointers[-2], stream)
        sorting((at_x, *pointers[1:-2], at_weights, *kept, shares, met, largest), stream)
        adding((*kept, shares, sums, largest), stream)
        total((sums, met, largest, pointers[-1]), stream)
        del held_x, held_weights, memory

    why = f"{bins} bins in {parts} parts, which elements are sorted by"
    return Plan(launch, tuple(map(str, steps)), why)
