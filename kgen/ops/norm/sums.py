"""RMS norms of sums of two wide rows of float32, which clusters of blocks take in turn; and their launch."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.calls import Plan
from kgen.ops.norm.kernels import AFFINE
from kgen.ops.norm.problem import Problem
from kgen.ops.rows import SHARED, VECTOR
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_text import WEIGHT_TYPES, text_of_weights
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

VEC = Axis("VEC", "v", (4,), rows_ring.VEC.doc)
CLUSTER = Axis("CLUSTER", "c", rows_ring.CLUSTER.values[1:], rows_ring.CLUSTER.doc)
TYPES = tuple(flag for flag in AFFINE if flag.name in WEIGHT_TYPES.values())
WIDE = rows_ring.CLUSTER.values[-1] * rows_ring.THREADS * rows_ring.MOST // 2
"""Packs of a row, up to which shared memory has room for several rows of both arrays, with which others do better."""


def _check(spec: Spec) -> str | None:
    types = [flag.name for flag in TYPES if spec[flag.name]]
    if len(types) > 1 or (types and not spec["weight"]) or spec["wfloat"]:
        return "weights have one type, which is named where it is not that of x"
    return rows_ring.check(spec)


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows_ring.derive(spec, found=4, arrays=2)
    slot = 2 * rows_ring.THREADS * VECTOR
    ring = min((SHARED - derived["STATIC_SMEM"]) // slot, (rows_ring.STAGES - 1) * spec["PACKS"])
    memory = max(ring * slot, rows_ring.filling(derived["STATIC_SMEM"]))
    return {**derived, "DYNAMIC_SMEM": memory, "STAGES": rows_ring.STAGES, "RING": ring}


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **rows_ring.text(spec, "float"),
        **text_of_weights(spec),
        "by_packs": True,
        "channels": False,
        "ordered": bool(spec["ragged"] and spec["weight"]),
        "carried": True,
        "merges": {"Sum": "a + b"},
        "sources": ["x", "residual"],
    }


SUMS = register(
    Kernel(
        name="norm_sums",
        summary="RMS norms of sums of two wide rows, which stay in registers; clusters of blocks take them in turn.",
        formula=lambda spec: (
            "total[i] = x[i] + residual[i]\ny[i] = total[i] / sqrt(mean of total[i]^2 + eps)"
            + (" * (weight[i] + weight_offset)" if spec["weight"] else "")
        ),
        axes=(rows_ring.PACKS, VEC, CLUSTER),
        flags=(AFFINE[0], *TYPES, RAGGED),
        dtypes=(F32,),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many rows: as many clusters as all multiprocessors have room for",
        origin="Zhang and Sennrich, Root mean square layer normalization, 2019",
        defaults=(
            "norm_sums_n5_v4_c2_weight_f32",
            "norm_sums_n3_v4_c2_weight_ragged_f32",
        ),
    )
)


def plan_sums(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    read = problem.read
    if problem.x.dtype is not F32 or not problem.flags["residual"]:
        return None
    own = {flag.name: problem.flags.get(flag.name, False) for flag in SUMS.flags if flag is not RAGGED}
    cut = rows_ring.cut(read.rows, read.columns, taken, problem.device, wide=WIDE, clusters=CLUSTER.values)
    if cut is None:
        return None
    return problem.launch(SUMS.spec(**cut.values(), **own, dtype=F32), cut.blocks, f"for {cut}", claiming=True)
