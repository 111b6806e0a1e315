"""Sums of weights of more bins than a block has shared memory for: sorted by parts of the bins first, then added.

An addition in global memory takes as long as moving a hundred bytes, and longer where many weights fall into one bin.
Sorting moves each weight and its place twice, and then all additions are in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32, F64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Plan
from kgen.ops.histogram.fixed import FRACTION, SUM_BYTES, THREADS, TOTAL
from kgen.ops.histogram.kernels import ELEMENTS, MAPS, illegal_map, map_of
from kgen.ops.histogram.memory import Line
from kgen.registry import register
from kgen.scratch import Sections, fill
from kgen.spec import Flag, Kernel, Spec

CELLS = 256
"""The most parts."""
COUNTERS = 4 * CELLS + 16
"""Bytes for a counter of each part, and one or two more: what follows begins with a multiple of 16."""
SORTERS = 1024
"""Threads of a block that sorts tiles."""
ITEMS = 8
TILE = SORTERS * ITEMS
IN_FLIGHT = 2
"""Weights of a thread that adds, while it fetches as many."""
KIB = 224
"""Of shared memory, for the sums of a part."""
ROOM = 1024 * KIB // SUM_BYTES
LEAST, PER_BIN = 1 << 20, 4
"""Elements, and elements for each bin, from which on sorting pays. On an H200 2^20 float64 weights take 26 us in 20000
uniform bins, and 28 added in global memory, but 315, and not 795, where all of them fall into one bin; 2^22 of them 63
and 83, 345 and 3134."""
SUM_COST = 500
"""What it costs to add a sum to that in global memory, in elements that are sorted by one part more."""
MOST_PARTS = 128
"""Parts up to which there are more of them than need be: about as many as there are blocks."""


def _sorting(spec: Spec) -> dict[str, int]:
    weight = 4 if spec["single"] else 8
    return {
        "THREADS": SORTERS,
        "ITEMS": ITEMS,
        "TILE": TILE,
        "LOG_CELLS": CELLS.bit_length() - 1,
        "STATIC_SMEM": COUNTERS,
        "DYNAMIC_SMEM": TILE * (weight + 2),
    }


def _adding(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": 1024,
        "ITEMS": IN_FLIGHT,
        "TILE": TILE,
        "CELLS": CELLS,
        "FRACTION": FRACTION,
        "STATIC_SMEM": COUNTERS,
        "DYNAMIC_SMEM": 1024 * KIB,
    }


PARTS = register(
    Kernel(
        name="histogram_parts",
        summary="Weights, and in which places of their parts of the bins they belong, sorted by part within each tile.",
        formula="sorted[tile] = weights[tile], by bin(x[n]) % parts; places[tile] = bin(x[n]) / parts",
        axes=(),
        flags=(*MAPS, Flag("single", "weights are float32, instead of float64")),
        dtypes=ELEMENTS,
        derive=_sorting,
        check=illegal_map,
        grid="(resident blocks)",
        defaults=("histogram_parts_i32",),
    )
)
PART_SUMS = register(
    Kernel(
        name="histogram_part_sums",
        summary="Sums, in fixed point, of weights that are sorted by parts of the bins.",
        formula="sums[b] += sum over sorted n of part b % parts with places[n] = b / parts of sorted[n]",
        axes=(),
        dtypes=(F64, F32),
        derive=_adding,
        text=lambda spec: {"single": spec.dtype is F32},
        grid="(about the resident blocks)",
        defaults=("histogram_part_sums_f64",),
    )
)


def sorting_pays(length: int, bins: int, device: int) -> bool:
    """Whether so many elements, of more bins than a block has room for, are sorted by parts of these."""
    enough = length >= max(LEAST, PER_BIN * bins)
    return enough and bins <= CELLS * ROOM and shared_memory(device) >= 1024 * KIB


def parts_for(bins: int, length: int, sms: int) -> int:
    """The parts of bins, a power of two of them: as few as leave each room in a block, or more, where elements are few.

    Of twice as many, each block adds half as many sums to those in global memory; but elements take longer to sort.
    """
    parts = 1
    while parts * ROOM < bins or (parts < MOST_PARTS and parts * parts * length < SUM_COST * sms * bins):
        parts *= 2
    return parts


def plan_parts(x: Operand, weights: Operand, line: Line, weight_line: Line, bins: int, uniform: bool | None) -> Plan:
    """Sorted by parts, added, and made doubles of; inputs are x, perhaps a table of edges, and the weights."""
    device, single = x.device, weights.dtype is F32
    sms = multiprocessors(device)
    parts = parts_for(bins, line.length, sms)
    log_parts = parts.bit_length() - 1
    tiles = -(-line.length // TILE)
    # As many blocks as are resident, were it not for shares that are rounded up.
    quantum = -(-line.length // max(1, sms - parts // 2))
    steps = [
        Step(
            PARTS.spec(dtype=x.dtype, single=single, **map_of(uniform)),
            min(tiles, sms),
            8 + (uniform is not None),
            (bins, log_parts),
            (line.length, line.step, weight_line.step),
        ),
        Step(PART_SUMS.spec(dtype=weights.dtype), sms + parts, 6, (bins, log_parts), (tiles, quantum)),
        Step(TOTAL.spec(), -(-bins // THREADS), 4, (bins,)),
    ]
    sort, add, total = bind(steps, device)
    # What begins as zeros: the sums, what is not finite, how many elements each part has, and the largest weight.
    met = bins * SUM_BYTES
    shares = met + -(-4 * bins // 8) * 8
    largest = shares + 8 * parts
    zeros = largest + 8
    sections = Sections((zeros, tiles * TILE * weights.dtype.itemsize, 2 * tiles * TILE, 4 * tiles * parts), device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        (sums, *moved), memory = sections.take(stream)
        fill(sums, 0, zeros, device, stream)
        at_x, held_x = line.ready(pointers[0], stream)
        at_weights, held_weights = weight_line.ready(pointers[-2], stream)
        sort((at_x, *pointers[1:-2], at_weights, *moved, sums + shares, sums + met, sums + largest), stream)
        add((*moved, sums + shares, sums, sums + largest), stream)
        total((sums, sums + met, sums + largest, pointers[-1]), stream)
        del held_x, held_weights, memory

    why = f"{bins} bins in {parts} parts, by which elements are sorted"
    return Plan(launch, tuple(map(str, steps)), why)
