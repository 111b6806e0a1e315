"""The gradients of a norm and its weights where no cluster holds a row: all blocks share it, each has its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.dtypes import BF16, F16, F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_grid
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.backward_kernels import BIAS, OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows import LINE, RESERVED, SHARED, VECTOR
from kgen.ops.rows_text import WEIGHT_TYPES, centred, text_of_weights, weight_of
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

LANES = 512  # threads of a block that go through rows
HEARERS = 3  # warps besides, which hear what is told of rows; one more tells it
EXCHANGES = 16  # of what is told of rows, in turn; more than DEFER
DEFER = 13  # rows between what is found of one and its gradient, at most: messages take a few microseconds
AHEAD = {True: 2, False: 3}
"""Rows of which the parts lie there beside these, by whether they are wide: of one that is gone through, and of one or
two on their way."""
WIDE = 7  # of such rows there is room for so many at most
HEARD = 5  # blocks that a lane hears
LEAST = 1 << 19  # bytes of a row, from which on it pays: what a row costs besides is shorter than to read it again
PACKS = Axis("PACKS", "n", (1, 2, 3, 4), "packs of a thread in its block's part of a row")
STAGES = Axis("STAGES", "s", tuple(range(3, 17)), "rows of which a block has its part in shared memory")


def _derive(spec: Spec) -> dict[str, int]:
    exchange = LANES // 32 * 8 + (8 if spec["rms"] else 16) + 2 * 8
    held = spec["PACKS"] <= 2  # weights, in registers
    kept = 0 if held else LANES * spec["PACKS"] * spec["VEC"] * weight_of(spec).itemsize
    static = -(-(EXCHANGES * exchange + 4) // LINE) * LINE
    staged = (SHARED - RESERVED - static - kept) // LINE * LINE
    return {
        "THREADS": LANES + 32 * (1 + HEARERS),
        "HEARERS": HEARERS,
        "LANES": LANES,
        "DEFER": min(DEFER, spec["STAGES"] - AHEAD[spec["STAGES"] <= WIDE]),
        "HEARD": HEARD,
        "EXCHANGES": EXCHANGES,
        "HELD": held,
        "STAGED": staged,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": staged + kept,
    }


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if spec["VEC"] * spec.dtype.itemsize != VECTOR:
        return f"what is fetched for later is of {VECTOR} bytes"
    least = 2 * VECTOR * (LANES * (spec["PACKS"] - 1) + 1)  # bytes of a part of a row
    if spec["STAGES"] * least > spec.derived["STAGED"]:
        return "there is no shared memory for so many rows"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    factor = "(weight_offset + weight)" if spec["rms"] else "weight"
    less = "number * slope" if spec["rms"] else "fmaf(number - mean, slope, sum)"
    to_weight = {F16: "__float2half", BF16: "__float2bfloat16"}.get(weight_of(spec), "")
    return {
        **rows_grid.TEXT,
        **text_of_weights(spec),
        "filled": False,
        "ragged": False,
        "channels": False,
        "normal": centred(spec, "number") + " * rstd",
        "upstream": f"dy * {factor}",
        "gradient": f"rstd * fmaf(dy, {factor}, -{less})",
        "to_weight": to_weight,
        "carried": spec.dtype is F32,
        "held": spec.derived["HELD"],
        "gathered": True,
    }


GRID = register(
    Kernel(
        name="norm_backward_grid",
        summary="The gradients of the input of a norm, and of its weights, of rows that all blocks share.",
        formula=formulas.backward,
        axes=(PACKS, rows_grid.VEC, STAGES),
        flags=(RMS, *OWN, BIAS),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.COPIES,
        grid="a block for each part of a row, all of which run at once",
        origin="the chain rule",
        defaults=("norm_backward_grid_n2_v4_s7_bias_f32", "norm_backward_grid_n1_v8_s14_rms_bf16"),
    )
)


def blocks(device: int) -> int:
    """How many run at once."""
    return min(multiprocessors(device), 32 * HEARD)


def plan_grid(
    weight: Operand,
    taken: rows_cut.Packs,
    size: tuple[int, int],
    pitches: tuple[int, ...],
    flags: Mapping[str, bool],
    floats: tuple[float, ...],
    taking: Sequence[int],
    inputs: int,
    x: Operand,
    *,
    bias: bool,
) -> Plan | None:
    """One launch, or None where the device has no room for rows so wide, or these begin anywhere."""
    count, columns = size
    device = x.device
    whole = taken.full and not (taken.ragged or taken.shifted)
    if not whole or columns * x.dtype.itemsize < LEAST or device_arch(device) < rows_cut.COPIES:
        return None
    line = LINE // x.dtype.itemsize
    width = -(-columns // (blocks(device) * line)) * line
    packs = -(-width // (LANES * taken.vec))
    parts = -(-columns // width)
    own = frozenset(n for n, on in {**flags, "weight": False, "bias": bias}.items() if on)
    if packs > PACKS.values[-1] or shared_memory(device) < SHARED - RESERVED:
        return None
    few = Spec(GRID, (packs, taken.vec, STAGES.values[0]), own, x.dtype)
    stages = min(STAGES.values[-1], few.derived["STAGED"] // (2 * width * x.dtype.itemsize))
    if stages < STAGES.values[0]:
        return None
    spec = Spec(GRID, (packs, taken.vec, stages), own, x.dtype)
    pointers = len(taking) + 1 + bias + 2
    step = Step(spec, parts, pointers, (count, columns, width), pitches, floats, cooperative=True)
    run = bind([step], device)[0]
    words = rows_grid.MESSAGE // 4 * EXCHANGES * (parts + 1)

    def launch(pointers: Sequence[int], stream: int) -> None:
        _, zeros, held = workspace(0, words + 1, device, stream)
        run([*(pointers[i] for i in taking), *pointers[inputs + 1 :], zeros, zeros + 4 * words], stream)
        del held  # once the launch is queued

    return Plan(launch, (str(step),), f"{count} rows of {columns} for {parts} blocks")
