"""Norms of wide rows that stay in registers, which blocks or clusters of them take in turn; and their launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, check_affine, vectors
from kgen.ops.norm.ring import text_of_turns
from kgen.ops.rows import SHARED, VECTOR
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_text import affine, affine_of_edge, weight_of
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

WIDE = 16 * rows_ring.THREADS * rows_ring.MOST // 2
"""Packs of a row of two arrays, up to which shared memory has room for several."""
LANES = Axis("LANES", "t", (256, 512), "threads of a block", default=rows_ring.THREADS)
PACKS = Axis("PACKS", "n", tuple(range(2, 17)), "packs of a thread in its block's part of a row")
REGISTERS = {256: 208, 512: 96}  # of a thread, by how many a block has, for its packs and their weights


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"]:
        return "weights go along the rows"
    pack = VECTOR + spec["VEC"] * weight_of(spec).itemsize * len(vectors(spec))
    if spec["PACKS"] * pack > 4 * REGISTERS[spec["LANES"]]:
        return "a thread has no registers for so many packs"
    return check_affine(spec) or rows_ring.check(spec)


def _derive(spec: Spec) -> dict[str, int]:
    arrays, found = 1 + spec["residual"], 4 if spec["rms"] else 8
    derived = rows_ring.derive(spec, found, arrays, threads=spec["LANES"])
    slot = arrays * spec["LANES"] * VECTOR
    ring = min((SHARED - derived["STATIC_SMEM"]) // slot, (rows_ring.STAGES - 1) * spec["PACKS"])
    return {**derived, "DYNAMIC_SMEM": ring * slot, "STAGES": rows_ring.STAGES, "RING": ring}


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **text_of_turns(spec, "edge"),
        "by_packs": True,
        "fixed": False,
        "quick": False,
        "posted": False,
        "edge_most": (rows_ring.EDGE + 1) * spec["VEC"] - 1,  # elements of an edge
        "ordered": bool(spec["ragged"] and vectors(spec)),
        "affine": affine(spec, "weight_of(kept_weight[pack], i)", "weight_of(kept_bias[pack], i)"),
        "edge_affine": affine_of_edge(spec),
    }


STREAM = register(
    Kernel(
        name="norm_stream",
        summary="Normalises wide rows, which stay in registers, and which blocks, or clusters of them, take in turn.",
        formula="y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]",
        axes=(LANES, PACKS, rows_ring.VEC, rows_ring.CLUSTER),
        flags=(RMS, RESIDUAL, *AFFINE, RAGGED),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=(
            "norm_stream_n8_v4_c16_rms_residual_weight_f32",
            "norm_stream_n7_v4_c16_rms_residual_weight_ragged_f32",
        ),
    )
)


def plan_stream(
    named: Mapping[str, Operand | None],
    read: Rows,
    pitches: Sequence[int],
    taken: rows_cut.Packs,
    flags: Mapping[str, bool],
    order: Sequence[int],
    nobody: Sequence[int],
    floats: tuple[float, ...],
) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted.

    `order` and `nobody`: which of a call's pointers the kernel takes, and what follows them.
    """
    x, y = named["x"], named["y"]
    assert x is not None and y is not None
    if x.dtype is not F32 or not flags["residual"]:
        return None
    cut = rows_ring.cut(read.rows, read.columns, taken, y.device, wide=WIDE)
    if cut is None:
        return None
    spec = STREAM.spec(LANES=cut.threads, **cut.values(), **flags, dtype=x.dtype)
    step = Step(spec, cut.blocks, len(order) + len(nobody) + 1, (read.rows, read.columns), tuple(pitches), floats)
    run = picked(rows_ring.taking(bind([step], y.device)[0], y.device), order, len(nobody))
    return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} for {cut}")
