"""The gradient of the input of a norm where nothing holds a row: its parts are read twice, in two launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.backward_kernels import OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows_text import ALIGNED, WEIGHT_TYPES, centred, text_of_weights
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Flag, Kernel, Spec

TOGETHER = 1024  # threads of a multiprocessor that have registers for what they have in flight
BLOCKS = 16  # for each multiprocessor: so many that it matters little which end last


def _sum_of(spec: Spec) -> tuple[str, int]:
    """The type of the sums of parts, and its bytes: one that adds no error to those of the elements."""
    return ("double", 8) if spec.dtype is F32 else ("float", 4)


def _derive(spec: Spec) -> dict[str, int]:
    lanes, sums = spec["LANES"], 1 if spec["rms"] else 2
    return {"THREADS": lanes, "RESIDENT": TOGETHER // lanes, "STATIC_SMEM": lanes // 32 * sums * _sum_of(spec)[1]}


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if own and not spec["weight"]:
        return "there are no weights"
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    factor = "(weight_offset + weight)" if spec["rms"] else "weight"
    less = "number * slope" if spec["rms"] else "fmaf(number - mean, slope, sum)"
    return {
        **ALIGNED,
        **text_of_weights(spec),
        "channels": False,
        "carried": spec.dtype is F32,
        "sum_type": _sum_of(spec)[0],
        "normal": centred(spec, "number") + " * rstd",
        "upstream": f"dy * {factor}",
        "gradient": f"rstd * fmaf(dy, {factor}, -{less})" if spec["weight"] else f"rstd * (dy - {less})",
    }


SPLIT = register(
    Kernel(
        name="norm_backward_split",
        summary="The gradient of the input of a norm, of rows of any length in two launches, each of which reads them.",
        formula=lambda spec: formulas.backward(spec, weight=bool(spec["weight"]), sums=False),
        axes=(
            Axis("LANES", "t", (128, 256, 512), "threads of a block", default=512),
            Axis("PACKS", "n", (1, 2, 4, 8), "packs of each array that a thread has in flight", default=2),
            rows.VEC,
        ),
        flags=(
            RMS,
            Flag("partial", "only the sums of the parts; without it, what follows from them"),
            Flag("weight", "dy is multiplied by a vector first"),
            *OWN,
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="a block for each part of a row",
        origin="the chain rule",
        defaults=(
            "norm_backward_split_v4_partial_weight_f32",
            "norm_backward_split_v4_weight_f32",
            "norm_backward_split_v8_rms_partial_bf16",
            "norm_backward_split_v8_rms_bf16",
        ),
    )
)


def axes_of(vec: int) -> dict[str, int]:
    """The axes for packs of so many elements: of narrower ones more are in flight."""
    return {"VEC": vec, "PACKS": {1: 8, 2: 4}.get(vec, 2)}


def plan_split(
    places: Sequence[rows_cut.Pitched],
    size: tuple[int, int],
    flags: Mapping[str, bool],
    weight: Operand | None,
    floats: tuple[float, ...],
    taking: Sequence[int],
) -> Plan:
    """Two launches: the sums of the parts of rows, and the gradients of their elements.

    `taking`: which pointers of a call they take; the last of them is that of dx.
    """
    (count, columns), x = size, places[1].operand
    vec = rows_cut.packs(places, columns).vec
    while weight and weight.ptr % min(rows.VECTOR, vec * weight.dtype.itemsize):
        vec //= 2
    values = axes_of(vec)
    partial = SPLIT.spec(**values, **flags, partial=True, dtype=x.dtype)
    apply = SPLIT.spec(**values, **flags, dtype=x.dtype)
    tile = apply["LANES"] * apply["PACKS"] * apply["VEC"]
    # No more than threads of a block, which each add one to the sum.
    most = min(-(-BLOCKS * multiprocessors(x.device) // count), apply["LANES"])
    parts, width = rows_cut.in_parts(columns, tile, most)
    blocks, ints = count * parts, (columns, parts, width)
    sums = 1 if flags["rms"] else 2
    pitches = tuple(place.pitch for place in places)
    steps = (
        Step(partial, blocks, len(taking) - 1 + sums, ints, pitches[:2], floats),
        Step(apply, blocks, len(taking) + sums, ints, pitches, floats),
    )
    find, finish = bind(steps, x.device)
    *read, written = taking
    nbytes = blocks * _sum_of(apply)[1]

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(sums * nbytes, x.device, stream)
        given = [*(pointers[i] for i in read), *(memory.ptr + nth * nbytes for nth in range(sums))]
        find(given, stream)
        finish([*given, pointers[written]], stream)

    return Plan(launch, tuple(map(str, steps)), f"{count} rows of {columns}, in {parts} parts each")
