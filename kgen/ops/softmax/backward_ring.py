"""The gradients of softmax and log_softmax, of rows that clusters take in turn: the kernel, and its launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows import SHARED, VECTOR
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_ring import THREADS
from kgen.ops.softmax import formulas
from kgen.ops.softmax.backward_text import FLAGS, gradient
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

FEW, MOST, WIDEST = 4, 8, 16  # packs of a thread of each row, at most, if that is enough
NARROW = 4 * FEW * THREADS  # packs of a row, up to which few of them for each thread do better
LEFT = 11  # packs of a thread of each row that stay in shared memory; of more, the rest is in registers
PACKS = Axis("PACKS", "n", tuple(range(2, 17)), "packs of a thread in its block's part of a row")
CLUSTER = Axis("CLUSTER", "c", rows_ring.CLUSTER.values[1:], rows_ring.CLUSTER.doc)
WIDE = 2048  # packs of a row that others do better with


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows_ring.derive(spec, found=4, arrays=2)
    if derived["STAGES"] >= rows_ring.STAGES:
        return {**derived, "RING": 0, "KEPT": 0}
    slot = 2 * THREADS * VECTOR
    ring = min((SHARED - derived["STATIC_SMEM"]) // slot, (rows_ring.STAGES - 1) * spec["PACKS"])
    kept = max(0, spec["PACKS"] - LEFT)
    return {**derived, "DYNAMIC_SMEM": ring * slot, "STAGES": rows_ring.STAGES, "RING": ring, "KEPT": kept}


def _text(spec: Spec) -> dict[str, Any]:
    return {
        "by_packs": spec.derived["RING"] > 0,
        **rows_ring.text(spec, "float"),
        "sources": ["dy", "y"],
        "target": "dx",
        "divides": False,
        "carried": spec.dtype is F32,
        "merges": {"Sum": "a + b"},
        "filled": False,
        "gradient": gradient(spec),
    }


def _check(spec: Spec) -> str | None:
    if spec["PACKS"] > LEFT and spec["VEC"] > 4:
        return "of pairs of numbers a thread has registers for no packs besides"
    return rows_ring.check(spec)


RING = register(
    Kernel(
        name="softmax_backward_ring",
        summary="The gradient of a softmax along wide rows, which clusters of blocks take in turn.",
        formula=formulas.backward,
        axes=(PACKS, rows_ring.VEC, CLUSTER),
        flags=(*FLAGS, RAGGED),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many rows: as many clusters as all multiprocessors have room for",
        origin="the chain rule",
        defaults=(
            "softmax_backward_ring_n4_v4_c4_f32",
            "softmax_backward_ring_n4_v8_c4_ragged_bf16",
            "softmax_backward_ring_n8_v4_c4_f32",
            "softmax_backward_ring_n13_v4_c2_ragged_f32",
        ),
    )
)


def plan_ring(
    read: Rows,
    pitches: tuple[int, ...],
    taken: rows_cut.Packs,
    flags: Mapping[str, bool],
    floats: tuple[float, ...],
    dx: Operand,
) -> Plan | None:
    """One launch, or None where another kernel does better."""
    most = (FEW, MOST, WIDEST if taken.vec == 4 else LEFT)
    cuts = (
        rows_ring.cut(read.rows, read.columns, taken, dx.device, wide=WIDE, most=packs, clusters=CLUSTER.values)
        for packs in most[read.columns > NARROW * taken.vec :]
    )
    cut = next(filter(None, cuts), None)
    if cut is None:
        return None
    spec = RING.spec(**cut.values(), **flags, dtype=dx.dtype)
    step = Step(spec, cut.blocks, 4, (read.rows, read.columns), pitches, floats)
    run = rows_ring.taking(bind([step], dx.device)[0], dx.device)
    return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} for {cut}")
