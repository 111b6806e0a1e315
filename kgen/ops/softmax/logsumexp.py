"""The logarithm of the sum of exponentials along rows, which are read once, as sums of them are."""

from __future__ import annotations

import os
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
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows_text import ALIGNED
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = int(os.environ.get("LSE_THREADS", "128"))
LANES = Axis("LANES", "t", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "threads of a block that share a row")
PACKS = Axis("PACKS", "n", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), "packs of a thread, all in flight at once")
RESIDENT = int(os.environ.get("LSE_RESIDENT", "1024"))


def _derive(spec: Spec) -> dict[str, int]:
    threads = max(spec["LANES"], THREADS) if spec["LANES"] <= 32 else spec["LANES"]
    return {
        "THREADS": threads,
        "BLOCKS": RESIDENT // threads,
        "EDGES": -(-2 * (spec["VEC"] - 1) // spec["LANES"]),
        "STATIC_SMEM": (spec["LANES"] // 32 * (12 if spec.dtype is F32 else 8) + 4 * spec["split"]) if spec["LANES"] > 32 else 0,
    }


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    if spec["ragged"] and spec["VEC"] == 1:
        return "an element is at a multiple of itself"
    if spec["split"] and spec["LANES"] <= 32:
        return "only whole blocks share a row"
    if spec["wide"] and spec.dtype is F32:
        return "float32 is wide"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    halves = spec.dtype.itemsize == 2 and spec["VEC"] > 1
    return {
        **ALIGNED,
        "ragged": bool(spec["ragged"]),
        "filled": True,
        "lse": True,
        "split": bool(spec["split"]),
        "divides": False,
        "APPROX": int(os.environ.get("LSE_APPROX", "0")),
        "halves": halves,
        "pairs": {F16: "__half2", BF16: "__nv_bfloat162"}.get(spec.dtype),
    }


LOGSUMEXP = register(
    Kernel(
        name="logsumexp",
        summary="The logarithm of the sum of the exponentials of every row.",
        formula="y = log(sum over j of exp(x[j]))",
        axes=(LANES, PACKS, rows.VEC),
        flags=(
            Flag("ragged", "rows begin anywhere, or end so, not at multiples of a pack"),
            Flag("wide", "the result is in float32"),
            Flag("split", "several blocks share a row, and the last to finish puts their parts together in their order"),
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="a row for each block, or for LANES neighbouring threads",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=("logsumexp_t4_n4_v8_ragged_bf16",),
    )
)


PART = 8
"""Bytes of what is known of a part."""


def cut(columns: int, vec: int) -> tuple[int, int]:
    """Threads of a row, and packs of each at once."""
    packs = columns // vec
    if packs <= 4:
        return 1, max(packs, 1)
    lanes = next((n for n in (2, 4, 8, 16) if packs <= 8 * n), 32)
    if packs > 32 * 16:
        lanes = 256
    return lanes, min(4 if lanes >= 32 else 8, -(-packs // lanes))


def plan_logsumexp(x: Operand, y: Operand, read: Rows, written: Rows) -> Plan:
    """One launch; few rows are in parts, which meet."""
    device = y.device
    taken = rows_cut.packs([rows_cut.Pitched(x, read.pitch, x.dtype.itemsize)], read.columns, ragged=True)
    lanes, packs = cut(read.columns, taken.vec)
    packs = next(n for n in PACKS.values if n >= packs)
    tiles = -(-read.columns // (taken.vec * lanes * packs))
    parts = 1 if lanes <= 32 else waves.parts(read.rows, tiles, multiprocessors(device) * RESIDENT // lanes)
    flags = {"wide": y.dtype is not x.dtype, "split": parts > 1}
    spec = LOGSUMEXP.spec(LANES=lanes, PACKS=packs, VEC=taken.vec, ragged=taken.ragged, **flags, dtype=x.dtype)
    blocks = read.rows * parts if parts > 1 else -(-read.rows // max(1, spec.threads // lanes))
    ints = (parts if parts > 1 else read.rows, read.columns)
    step = Step(spec, blocks, 4 if parts > 1 else 2, ints, (read.pitch, written.pitch))
    (run,) = bind([step], device)
    why = f"{read.rows} rows of {read.columns}"
    if parts == 1:
        return Plan(run, (str(step),), why)

    def launch(pointers: Sequence[int], stream: int) -> None:
        partials, counters, held = workspace(blocks * PART, read.rows, device, stream)
        run((*pointers, partials, counters), stream)
        del held

    return Plan(launch, (str(step),), f"{why} in {parts} parts")
