"""The gradient of a softmax along rows that no cluster can hold: parts are added up, then the rows are read again.

So is that of a softmax over a whole array, which is one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgen.device import multiprocessors
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import formulas
from kgen.ops.softmax.backward_text import FLAGS, gradient
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Flag, Kernel, Spec

PACKS = {1: 8, 2: 4, 4: 2, 8: 2}  # in flight of each array, by how wide they are
SUM = 8  # bytes of that of a part
PARTS = 4  # for each multiprocessor, where there are few rows


def _check(spec: Spec) -> str | None:
    if spec["partial"] and spec["scaled"]:
        return "a part's sum is that, whatever the scale"
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    return None


SPLIT = register(
    Kernel(
        name="softmax_backward_split",
        summary="The gradient of a softmax along rows of any length in two launches, each of which reads them.",
        formula=formulas.backward,
        axes=(
            Axis("LANES", "t", (128, 256, 512), "threads of a block", default=512),
            Axis("PACKS", "n", (1, 2, 4, 8), "packs of each array that a thread has in flight", default=2),
            rows.VEC,
        ),
        flags=(*FLAGS, Flag("partial", "only the sums of the parts; without it, what follows from them")),
        derive=lambda spec: {"THREADS": spec["LANES"], "STATIC_SMEM": spec["LANES"] // 32 * SUM},
        text=lambda spec: {**ALIGNED, "filled": True, "divides": False, "gradient": gradient(spec)},
        check=_check,
        grid="a block for each part of a row",
        origin="the chain rule",
        defaults=("softmax_backward_split_v4_partial_f32", "softmax_backward_split_v8_bf16"),
    )
)


def plan_split(
    read: Rows, pitched: Sequence[rows_cut.Pitched], flags: Mapping[str, bool], floats: tuple[float, ...], dx: Operand
) -> Plan:
    """Two launches, for dy, y and dx, which are `pitched`; `flags`: FLAGS."""
    device, vec = dx.device, rows_cut.packs(pitched, read.columns).vec
    size = {"VEC": vec, "PACKS": PACKS[vec]}
    partial = SPLIT.spec(**size, log=flags["log"], partial=True, dtype=dx.dtype)
    apply = SPLIT.spec(**size, **flags, dtype=dx.dtype)
    tile = apply["LANES"] * apply["PACKS"] * vec
    parts, width = rows_cut.in_parts(read.columns, tile, -(-PARTS * multiprocessors(device) // read.rows))
    blocks, ints = read.rows * parts, (read.columns, parts, width)
    pitches = tuple(place.pitch for place in pitched)
    given = 1 if flags["log"] else 2  # arrays of which the sum is made
    steps = (
        Step(partial, blocks, given + 1, ints, pitches[:given]),
        Step(apply, blocks, 4, ints, pitches, floats),
    )
    find, finish = bind(steps, device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(blocks * SUM, device, stream)
        find((*pointers[:given], memory.ptr), stream)
        finish((*pointers[:2], memory.ptr, pointers[2]), stream)

    return Plan(launch, tuple(map(str, steps)), f"{read.rows} rows of {read.columns}, in {parts} parts each")
