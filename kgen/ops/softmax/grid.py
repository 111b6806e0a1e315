"""The softmax of rows that a team of blocks shares: the kernel, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_grid
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.along_rows import pitched
from kgen.ops.softmax.flags import Wanted
from kgen.registry import register
from kgen.spec import Kernel, Spec

FLAGS = tuple(flag for flag in softmax_flags.FLAGS if flag.name in ("log", "scaled"))


def _text(spec: Spec) -> dict[str, Any]:
    number, edge = (softmax_flags.below(spec, each, "below") for each in ("number", "edges[DEFER]"))
    return {
        **rows_grid.TEXT,
        **softmax_flags.text(spec),
        "carried": spec.dtype is F32,
        "residual": False,
        "taken_number": softmax_flags.scaled(spec, "float_of(taken, i)"),
        "edge_number": softmax_flags.scaled(spec, "to_float(next_edge)"),
        "value_number": softmax_flags.scaled(spec, "float_of(value[pack], i)"),
        "answer": softmax_flags.answer(spec, number),
        "edge_answer": softmax_flags.answer(spec, edge),
    }


GRID = register(
    Kernel(
        name="softmax_grid",
        summary="Softmax of rows that teams of blocks share, and take in turn.",
        formula=formulas.along,
        axes=rows_grid.AXES,
        flags=(*FLAGS, rows_grid.RAGGED),
        derive=rows_grid.derive,
        text=_text,
        check=rows_grid.check,
        min_arch=rows_cut.COPIES,
        grid="a block for each part of a row, for as many rows as all multiprocessors have room for; all run at once",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=("softmax_grid_n2_v4_s6_f32", "softmax_grid_n2_v8_s6_bf16"),
    )
)


def plan_grid(x: Operand, y: Operand, axes: tuple[int, ...], read: Rows, written: Rows, wanted: Wanted) -> Plan | None:
    """One launch, or None where the device has no room for a row, or the kernel cannot do what is wanted."""
    if wanted.causal or wanted.mask or y.dtype is not x.dtype or wanted.scale == 0:
        return None  # what is scaled by 0 is never -inf, as what lies outside of rows must be
    device = y.device
    taken = rows_cut.packs(pitched(x, y, read, written), read.columns, ragged=True)
    cut = rows_grid.cut(read.rows, read.columns, taken, device)
    if cut is None:
        return None
    flags = {flag.name: wanted.flags(wide=False)[flag.name] for flag in FLAGS}
    spec = GRID.spec(**cut.values(taken.vec), **flags, ragged=taken.ragged, dtype=x.dtype)
    ints = (read.rows, read.columns, cut.parts, cut.width)
    step = Step(spec, cut.blocks, 4, ints, (read.pitch, written.pitch), wanted.floats, cooperative=True)
    run = bind([step], device)[0]

    def launch(pointers: Sequence[int], stream: int) -> None:
        messages, left, held = rows_grid.meeting(cut, device, stream)
        run((pointers[0], pointers[-1], messages, left), stream)
        del held  # once the launch is queued

    return Plan(launch, (str(step),), f"{read.rows} rows of {read.columns} for {cut}")
