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
from kgen.ops.rows_grid import RAGGED
from kgen.ops.softmax.backward_text import FLAGS, FORMULA, gradient
from kgen.registry import register
from kgen.spec import Kernel, Spec

MOST = 4  # packs of a thread of each row, of which three rows fit into shared memory
WIDE = 2048  # packs of a row that others do better with


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **rows_ring.text(spec, "float"),
        "sources": ["dy", "y"],
        "target": "dx",
        "divides": False,
        "carried": spec.dtype is F32,
        "merges": {"Sum": "a + b"},
        "filled": False,
        "gradient": gradient(spec),
    }


RING = register(
    Kernel(
        name="softmax_backward_ring",
        summary="The gradient of a softmax along wide rows, which clusters of blocks take in turn.",
        formula=FORMULA,
        axes=rows_ring.AXES,
        flags=(*FLAGS, RAGGED),
        derive=lambda spec: rows_ring.derive(spec, found=4, arrays=2),
        text=_text,
        check=rows_ring.check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many rows: as many clusters as all multiprocessors have room for",
        origin="the chain rule",
        defaults=("softmax_backward_ring_n4_v4_c4_f32", "softmax_backward_ring_n4_v8_c4_ragged_bf16"),
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
    cut = rows_ring.cut(read.rows, read.columns, taken, dx.device, wide=WIDE, most=MOST)
    if cut is None:
        return None
    spec = RING.spec(**cut.values(), **flags, dtype=dx.dtype)
    step = Step(spec, cut.blocks, 4, (read.rows, read.columns), pitches, floats)
    run = rows_ring.taking(bind([step], dx.device)[0], dx.device)
    return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} for {cut}")
