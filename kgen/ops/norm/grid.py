"""Norms of rows that a team of blocks shares: the kernel, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.launch import Step, bind
from kgen.ops import rows_cut, rows_grid
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.kernels import AFFINE, RMS, affines, check_affine, vectors
from kgen.ops.norm.problem import Problem
from kgen.ops.rows_text import affine_of_edge, affine_of_packs, centred, text_of_weights, weight_of
from kgen.registry import register
from kgen.spec import Flag, Kernel, Spec


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and spec["ragged"]:
        return "the packs of a group lie within its channels"
    return check_affine(spec) or rows_grid.check(spec)


def _derive(spec: Spec) -> dict[str, int]:
    kept = len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize
    derived = rows_grid.derive(spec, 1 + spec["residual"], kept)
    counts = 0 if spec["rms"] else spec["LANES"] // 32 * 4
    return {**derived, "STATIC_SMEM": derived["STATIC_SMEM"] + counts}


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **rows_grid.TEXT,
        **text_of_weights(spec),
        "vectors": vectors(spec),
        "kept": True,
        "at_once": True,
        "apart": "LANES",
        "centred": centred(spec, "float_of(value[pack], i)"),
        "affines": affines(spec),
        "affine": affine_of_packs(spec),
        "edge_centred": centred(spec, "edges[DEFER]"),
        "edge_affine": affine_of_edge(spec),
    }


GRID = register(
    Kernel(
        name="norm_grid",
        summary="Normalises rows that teams of blocks share, and take in turn.",
        formula=formulas.forward,
        axes=rows_grid.AXES,
        flags=(
            RMS,
            Flag("residual", "what is normalised is the sum of two arrays, which is stored"),
            *AFFINE,
            rows_grid.RAGGED,
        ),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.COPIES,
        grid="a block for each part of a row, for as many rows as all multiprocessors have room for; all run at once",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=("norm_grid_n2_v4_s5_weight_bias_f32", "norm_grid_n2_v8_s5_rms_weight_bf16"),
    )
)


def plan_grid(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """One launch, or None where the device has no room for a row."""
    read, flags, device = problem.read, problem.flags, problem.device
    kept = 0 if flags.get("channels") else sum(taken.vec * w.dtype.itemsize for w in problem.vectors)
    arrays = 2 if flags["residual"] else 1
    cut = rows_grid.cut(read.rows, read.columns, taken, device, arrays=arrays, kept=kept)
    if cut is None:
        return None
    spec = GRID.spec(**cut.values(taken.vec), **flags, ragged=taken.ragged, dtype=problem.x.dtype)
    ints = (read.rows, read.columns, cut.parts, cut.width, *problem.groups)
    step = Step(spec, cut.blocks, problem.pointers + 2, ints, problem.pitches, problem.floats, cooperative=True)
    run = bind([step], device)[0]
    order, nobody = problem.order, (0,) * problem.unasked

    def launch(pointers: Sequence[int], stream: int) -> None:
        messages, left, held = rows_grid.meeting(cut, device, stream)
        run([*(pointers[i] for i in order), *nobody, messages, left], stream)
        del held  # once the launch is queued

    return Plan(launch, (str(step),), f"{problem.what} for {cut}")
