"""The softmax along an axis before others: columns side by side, so that no element needs to be moved first."""

from __future__ import annotations

from typing import Any

from kgen.device import multiprocessors
from kgen.errors import SpecError
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Planes
from kgen.ops.calls import Plan
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax.flags import FLAGS, Wanted, answer, below, text
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

LINE = 128  # bytes that a group of lanes reads at once
THREADS = 512  # at most, in a block
HELD = 32  # floats of values in a thread's registers

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    if spec["VEC"] * spec["HELD"] > HELD:
        return f"a thread has no registers for more than {HELD} numbers"
    if spec["LANES"] * spec["DEPTH"] > THREADS:
        return f"a block has at most {THREADS} threads"
    return softmax_flags.check(spec)


def _text(spec: Spec) -> dict[str, Any]:
    number = "value[held][i]"
    if spec["online"]:  # which reads again; elsewhere the registers hold what follows
        number = below(spec, number, "top[i]")
    return {**ALIGNED, **text(spec), "answer": answer(spec, number, "[i]")}


COLUMNS = register(
    Kernel(
        name="softmax_columns",
        summary="Softmax along columns, whose neighbours in memory lie in other columns.",
        formula="y[i, c] = exp(x[i, c] - m[c]) / sum over j of exp(x[j, c] - m[c]), where m[c] = max over i of x[i, c]",
        axes=(
            Axis("LANES", "t", (4, 8, 16, 32, 64), "threads side by side"),
            Axis("DEPTH", "d", DEPTHS, "threads that share a column"),
            Axis("HELD", "n", (1, 2, 4, 8, 16, 32), "numbers of a column in a thread's registers"),
            rows.VEC,
        ),
        flags=(
            *(flag for flag in FLAGS if flag.name in ("log", "lse", "scaled", "wide")),
            Flag("online", "columns are longer than the threads can hold, and are read twice"),
        ),
        derive=lambda spec: {
            "THREADS": spec["LANES"] * spec["DEPTH"],
            "STATIC_SMEM": 8 * spec["DEPTH"] * spec["LANES"] * spec["VEC"],
        },
        text=_text,
        check=_check,
        grid="(ceil(columns / (LANES * VEC)) * planes): a block for each strip of columns",
        origin="the textbook, and Milakov and Gimelshein, arXiv:1805.02867, where columns are read twice",
        defaults=("softmax_columns_t8_d32_n8_v4_f32", "softmax_columns_t8_d64_n4_v8_online_bf16"),
    )
)


def plan_columns(x: Operand, y: Operand, read: Planes, written: Planes, wanted: Wanted, spec: Spec | None) -> Plan:
    """One launch, with a strip of columns for each block."""
    whole = wanted.op == "logsumexp"
    both = ((x, read),) if whole else ((x, read), (y, written))
    apart = [
        rows_cut.Pitched(o, pitch, o.dtype.itemsize) for o, planes in both for pitch in (planes.step, planes.plane)
    ]
    vec = rows_cut.packs(apart, read.columns).vec
    flags = {name: on for name, on in wanted.flags(wide=y.dtype is not x.dtype).items() if on}
    if spec is None:
        lanes = 64 if vec == 1 else max(8, LINE // (vec * x.dtype.itemsize))
        if 2 * read.planes * -(-read.columns // (lanes * vec)) < multiprocessors(y.device):
            lanes //= 2  # half a line, since multiprocessors without work cost more
        held = HELD // vec
        depths = [depth for depth in DEPTHS if 128 <= depth * lanes <= THREADS]
        depth = next((depth for depth in depths if depth * held >= read.length), depths[-1])
        while held > 1 and depth * held // 2 >= read.length:
            held //= 2
        online = {"online": True} if depth * held < read.length else {}
        spec = COLUMNS.spec(LANES=lanes, DEPTH=depth, HELD=held, VEC=vec, **flags, **online, dtype=x.dtype)
    if spec["VEC"] > vec or (not spec["online"] and spec["DEPTH"] * spec["HELD"] < read.length):
        raise SpecError(
            f"{wanted.op}: {spec.name} does not take columns of {read.length} in packs of {vec} at most neighbours"
        )
    blocks = -(-read.columns // (spec["LANES"] * spec["VEC"])) * read.planes
    steps = (read.plane, read.step, written.plane, *(() if whole else (written.step,)))
    step = Step(spec, blocks, 2, (read.length, read.columns), steps, wanted.floats)
    run = bind([step], y.device)[0]
    why = f"{read.planes} x {read.columns} columns of {read.length} for {multiprocessors(y.device)} multiprocessors"
    return Plan(picked(run, (0, -1)), (str(step),), why)  # no mask
