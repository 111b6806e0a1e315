"""The softmax of rows that clusters take in turn: the kernel, and its launch."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows_grid import RAGGED
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax.along_rows import pitched
from kgen.ops.softmax.flags import Wanted
from kgen.registry import register
from kgen.spec import Kernel, Spec

TURNS = 16
"""Rows of a cluster from which on it pays: on an H200 528 rows of 65536 floats took as long as without it."""

EDGE = 4
"""Packs of a row that begins anywhere, at most, whose elements are taken one by one: the first begins with a sector."""

FLAGS = tuple(flag for flag in softmax_flags.FLAGS if flag.name in ("log", "scaled"))


def _text(spec: Spec) -> dict[str, Any]:
    scale = "scale * " if spec["scaled"] else ""
    number, edge = f"{scale}float_of(taken, i)", f"{scale}to_float(edge)"
    ring = rows_ring.text(spec, "float2", sectors=True)
    return {
        **ring,
        "joined": True,
        "filled": True,
        "carried": spec.dtype is F32,
        "raised": spec.dtype is not F32 and not spec["log"],
        "merges": {"Max": "fmaxf(a, b)", "Sum": "a + b"},
        **softmax_flags.text(spec),
        "number": f"{ring['there']} ? {number} : -INF" if spec["scaled"] else number,
        "answer": softmax_flags.answer(spec, softmax_flags.below(spec, number, "top")),
        "number_of": number,
        "edge_number": edge,
        "edge_answer": softmax_flags.answer(spec, softmax_flags.below(spec, edge, "top")),
    }


RING = register(
    Kernel(
        name="softmax_ring",
        summary="Softmax of wide rows, which clusters of blocks take in turn.",
        formula="y[i] = exp(x[i] - m) / d, where m = max(x) and d = sum over j of exp(x[j] - m)",
        axes=rows_ring.AXES,
        flags=(*FLAGS, RAGGED),
        derive=lambda spec: rows_ring.derive(spec, found=8),
        text=_text,
        check=rows_ring.check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many rows: as many clusters as all multiprocessors have room for",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=("softmax_ring_n8_v4_c4_f32", "softmax_ring_n8_v8_c2_bf16", "softmax_ring_n7_v4_c4_ragged_f32"),
    )
)


def plan_ring(x: Operand, y: Operand, read: Rows, written: Rows, wanted: Wanted) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    if wanted.causal or wanted.mask or y.dtype is not x.dtype or wanted.op == "logsumexp":
        return None
    taken = rows_cut.packs(pitched(x, None, y, read, written, wanted, (1, 0, 0)), read.columns, ragged=True)
    cut = rows_ring.cut(read.rows, read.columns, taken, y.device, turns=TURNS, edge=EDGE)
    if cut is None:
        return None
    flags = {flag.name: wanted.flags(wide=False)[flag.name] for flag in FLAGS}
    spec = RING.spec(**cut.values(), **flags, dtype=x.dtype)
    step = Step(spec, cut.blocks, 3, (read.rows, read.columns), (read.pitch, written.pitch), wanted.floats)
    run = rows_ring.taking(bind([step], y.device)[0], y.device)
    why = f"{read.rows} rows of {read.columns} for {cut}"
    return Plan(picked(run, (0, -1)), (str(step),), why)  # no mask
