"""The softmax of rows that no cluster can hold: maximum and sum in one pass, then a second reading.

Where there are few rows, each is cut into parts: a first launch finds the totals of the parts, a second one puts them
together, in the same order in every block, and writes. So is the softmax over a whole array, which is one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.along_rows import pitched
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.masks import Masks
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Flag, Kernel, Spec

PACKS = {1: 16, 2: 8, 4: 4, 8: 4}  # in flight, by how wide they are
TOTAL = 8  # bytes of what is known of a part
PARTS = 4  # for each multiprocessor, where there are few rows


def _check(spec: Spec) -> str | None:
    if spec["partial"] and (spec["apply"] or spec["log"] or spec["wide"]):
        return "a part's total is that, whatever comes of it"
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    return softmax_flags.check(spec)


def _text(spec: Spec) -> dict[str, Any]:
    inside = "column + i < seen" if spec["causal"] else "inside"
    outside = "past what the query sees" if spec["causal"] else "past the end"
    return {
        **ALIGNED,
        **softmax_flags.text(spec),
        "number": softmax_flags.scaled(spec, "float_of(taken, i)"),
        "outside": f"{outside} or is left out" if spec["mask"] else outside,
        "inside": f"{inside} && chosen.of[i]" if spec["mask"] else inside,
        "seen_end": "seen" if spec["causal"] else "end",
        "answer": softmax_flags.answer(spec, softmax_flags.below(spec, "value[pack][i]", "below")),
    }


ONLINE = register(
    Kernel(
        name="softmax_online",
        summary="Softmax of rows of any length, which are read twice.",
        formula=formulas.along,
        axes=(
            Axis("LANES", "t", (128, 256, 512, 1024), "threads of a block", default=512),
            Axis("PACKS", "n", (1, 2, 4, 8, 16), "packs that a thread has in flight", default=4),
            rows.VEC,
        ),
        flags=(
            *softmax_flags.FLAGS,
            Flag("partial", "only the total of a part of a row"),
            Flag("apply", "only the second reading, from the totals of the parts"),
        ),
        derive=lambda spec: {"THREADS": spec["LANES"], "STATIC_SMEM": spec["LANES"] // 32 * 12},
        text=_text,
        check=_check,
        grid="a block for each row, or for each part of one",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=("softmax_online_v4_f32", "softmax_online_v8_partial_bf16", "softmax_online_v8_apply_bf16"),
    )
)


def plan_online(
    x: Operand,
    mask: Operand | None,
    y: Operand,
    axes: tuple[int, ...],
    read: Rows,
    written: Rows,
    wanted: Wanted,
    spec: Spec | None,
) -> Plan:
    """One launch with a block for each row, or two with several."""
    device = y.device
    masks = Masks.of(mask, axes)
    taken = rows_cut.packs(pitched(x, y, read, written), read.columns, beside=masks.pitched)
    flags = wanted.flags(wide=y.dtype is not x.dtype)
    if spec is None:
        spec = ONLINE.spec(VEC=taken.vec, PACKS=PACKS[taken.vec], **flags, dtype=x.dtype)
    else:
        rows_cut.refuse(wanted.op, spec, read.columns, taken)
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    parts, width = rows_cut.in_parts(read.columns, tile, -(-PARTS * multiprocessors(device) // read.rows))
    queries = (x.shape[-2],) if wanted.causal else ()
    inner, outer = masks.inner, masks.steps
    inputs = 1 + len(masks.pitched)
    if parts == 1:
        ints = (read.columns, *queries, *inner)
        step = Step(spec, read.rows, inputs + 1, ints, (read.pitch, written.pitch, *outer), wanted.floats)
        run = bind([step], device)[0]

        def launch(pointers: Sequence[int], stream: int) -> None:
            run((*pointers[:inputs], pointers[-1]), stream)

        return Plan(launch, (str(step),), f"{read.rows} rows of {read.columns}, a block for each")

    values = {axis.name: spec[axis.name] for axis in ONLINE.axes}
    partial = ONLINE.spec(**values, **flags | {"log": False, "wide": False}, partial=True, dtype=x.dtype)
    apply = ONLINE.spec(**values, **flags, apply=True, dtype=x.dtype)
    ints = (read.columns, parts, width, *queries, *inner)
    blocks = read.rows * parts
    second = Step(apply, blocks, inputs + 2, ints, (read.pitch, written.pitch, *outer), wanted.floats)
    steps = (Step(partial, blocks, inputs + 1, ints, (read.pitch, *outer), wanted.floats), second)
    find, finish = bind(steps, device)

    def launch_parts(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(blocks * TOTAL, device, stream)
        taken = pointers[:inputs]
        find((*taken, memory.ptr), stream)
        finish((*taken, memory.ptr, pointers[-1]), stream)

    why = f"{read.rows} rows of {read.columns}, {parts} blocks for each"
    return Plan(launch_parts, tuple(map(str, steps)), why)
