"""The logarithm of the sum of exponentials along rows, which are read once, as sums of them are; and the launch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import BF16, F16, F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.reduce import waves
from kgen.ops.reduce.workspace import COUNTERS, workspace
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import logsumexp_narrow
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

RESIDENT = 1024
"""Threads among which the registers of a multiprocessor are to be divided."""
LEAST_LANES = 4
WIDE = 256
"""Threads of a row that no block takes at once."""
MANY = 4
"""Packs of a thread that are enough in flight,"""
MOST = {2: 8, 4: 9}
"""and for which it has registers, by the bytes of an element."""
OWN = 64
"""Bytes of a row, up to which a thread has one to itself."""
PART = 8
"""Bytes of what is known of a part."""

LANES = Axis("LANES", "t", (1, 2, 4, 8, 16, 32, 64, 128, 256), "threads of a block that share a row")
PACKS = Axis("PACKS", "n", tuple(range(1, 10)), "packs of a thread, all in flight at once")


def _derive(spec: Spec) -> dict[str, int]:
    lanes, several = spec["LANES"], spec["LANES"] <= 32
    threads = rows.BLOCK if several else lanes
    of_warp = 12 if spec.dtype is F32 else 8
    return {
        "THREADS": threads,
        "BLOCKS": RESIDENT // threads,
        "EDGES": -(-2 * (spec["VEC"] - 1) // lanes),
        "STATIC_SMEM": 0 if several else lanes // 32 * of_warp + 4 * spec["split"],
    }


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    if spec["PACKS"] > MOST[spec.dtype.itemsize]:
        return "a thread has no registers for so many packs"
    if spec["ragged"] and spec["VEC"] * spec.dtype.itemsize < rows.VECTOR:
        return "rows that begin anywhere are taken in whole vectors"
    if spec["split"] and spec["LANES"] < WIDE:
        return "only the widest blocks share a row"
    if spec["wide"] and spec.dtype is F32:
        return "float32 is wide"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **ALIGNED,
        "ragged": bool(spec["ragged"]),
        "filled": True,
        "lse": True,
        "divides": False,
        "result": "float" if spec["wide"] or spec.dtype is F32 else "Element",
        "two": {F16: "__half2", BF16: "__nv_bfloat162"}.get(spec.dtype) if spec["VEC"] > 1 else None,
    }


LOGSUMEXP = register(
    Kernel(
        name="logsumexp",
        summary="The logarithm of the sum of the exponentials of every row.",
        formula="y = log(sum over i of exp(x[i]))",
        axes=(LANES, PACKS, rows.VEC),
        flags=(
            Flag("ragged", "rows begin anywhere, or end so, not at multiples of a pack"),
            Flag("wide", "the result is in float32"),
            Flag("split", "several blocks share a row, and the last one puts their parts together in their order"),
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="a row for each block, or for LANES neighbouring threads; or (rows * parts): parts vary fastest",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=(
            "logsumexp_t8_n4_v4_f32",
            "logsumexp_t4_n4_v8_ragged_bf16",
            "logsumexp_t256_n8_v4_ragged_split_f32",
        ),
    )
)


def cut(packs: int, vec: int, itemsize: int) -> tuple[int, int]:
    """Threads of a row of so many packs, and packs of each at once: those with the fewest past its end.

    All packs are taken at once where a block holds them, by MANY of each thread or more, but for rows of few. Of equals
    those within a warp are best, then, of float32, the fewest threads, which wait the least for each other.
    """
    most = MOST[itemsize]
    if packs > WIDE * most:
        return WIDE, min(range(MANY + 1, most + 1), key=lambda n: (-packs % (WIDE * n), -n))
    if packs <= most and packs * vec * itemsize <= OWN:
        return 1, max(1, packs)
    if packs < LEAST_LANES * MANY:
        lanes = max(lanes for lanes in (1, 2, LEAST_LANES) if lanes <= max(1, packs // 2))
        return lanes, max(1, -(-packs // lanes))
    cuts = [(lanes, n) for lanes, n in itertools.product(LANES.values, range(MANY, most + 1)) if lanes >= LEAST_LANES]
    few = itemsize == 4

    def idle(cut: tuple[int, int]) -> tuple[int, bool, int]:
        lanes, n = cut
        return lanes * n, few and lanes > 32, -n if few and lanes > 32 else n

    return min((cut for cut in cuts if cut[0] * cut[1] >= packs), key=idle)


def plan_logsumexp(x: Operand, y: Operand, read: Rows, written: Rows) -> Plan:
    """One launch; rows that are few have several parts, which meet."""
    device, sms = y.device, multiprocessors(y.device)
    why = f"{read.rows} rows of {read.columns}"
    taken = rows_cut.packs([rows_cut.Pitched(x, read.pitch, x.dtype.itemsize)], read.columns, ragged=True)
    total = read.columns // taken.vec
    lanes, packs = cut(total, taken.vec, x.dtype.itemsize)
    if step := logsumexp_narrow.launch(x, y, read, written, sms, alone=lanes == 1):
        (run,) = bind([step], device)
        return Plan(run, (str(step),), f"{why}, out of shared memory")
    several = rows.BLOCK // lanes if lanes <= 32 else 1
    blocks, parts = -(-read.rows // several), 1
    if blocks < sms and total > LEAST_LANES * MANY:
        lanes, packs, blocks = WIDE, MANY, read.rows
    if lanes == WIDE and blocks <= COUNTERS:
        tiles, wave = -(-total // (WIDE * packs)), sms * RESIDENT // WIDE
        if x.dtype is F32:
            parts = waves.parts(blocks, tiles, wave, least=2)
        else:  # to begin costs a block as much as a tile
            parts = waves.parts_of_columns(blocks, tiles, wave)
    flags = {"ragged": taken.ragged, "wide": y.dtype is not x.dtype, "split": parts > 1}
    spec = LOGSUMEXP.spec(LANES=lanes, PACKS=packs, VEC=taken.vec, **flags, dtype=x.dtype)
    split = parts > 1
    ints = (parts if split else read.rows, read.columns)
    step = Step(spec, blocks * parts, 4 if split else 2, ints, (read.pitch, written.pitch))
    (run,) = bind([step], device)
    if not split:
        return Plan(run, (str(step),), f"{why}, {lanes} threads for each")

    def launch(pointers: Sequence[int], stream: int) -> None:
        partials, counters, held = workspace(blocks * parts * PART, blocks, device, stream)
        run((*pointers, partials, counters), stream)
        del held  # once the launch is queued

    return Plan(launch, (str(step),), f"{why}, {parts} blocks for each")
