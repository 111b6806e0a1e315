"""The softmax of rows that stay in registers, from one reading to one writing."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut, rows_grid
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows_text import text_of_rows
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.masks import Masks
from kgen.registry import register
from kgen.spec import Spec

HELD = 40  # numbers of a row in a thread's registers
MASKED = {lanes: packs for lanes, packs in rows_cut.MOST.items() if lanes < 256} | {256: 4, 384: 4}
"""Packs of a thread, by the lanes of a row of float32 with a mask that begins anywhere: five take longer than four of
more lanes, but for 320."""
ROOM = 7  # packs of a thread of the widest block, where it has elements before and after them, too


def _joined(spec: Spec) -> bool:
    """Whether the blocks of a cluster meet only once: for pairs of the greatest number and the sum below it."""
    plain = not (spec["looped"] or spec["ragged"] or spec["shifted"])
    return spec["CLUSTER"] > 1 and plain  # for the others that was measured not to pay


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows.derive(spec, pairs=_joined(spec))
    edged = spec["ragged"] or spec["shifted"]
    few = spec.dtype is F32 and spec["VEC"] == 4 and spec["PACKS"] <= 4
    if spec["LANES"] == 256 and spec["CLUSTER"] > 1 and spec["PACKS"] * spec["VEC"] <= 32 and not spec["looped"]:
        # 48 or 64 registers; up to 13 % faster than what the compiler takes by itself
        derived["RESIDENT"] = 3 if spec["shifted"] else 4 if edged and spec.dtype is F32 else 5
    if spec["LANES"] == rows.WIDEST and spec["CLUSTER"] == 1 and few and not spec["looped"]:
        derived["RESIDENT"] = 3  # 40 registers; up to 7 % faster than two blocks
    if spec["LANES"] > rows.WIDEST and few and not (spec["shifted"] or spec["mask"]):
        derived["RESIDENT"] = 2  # 32 registers; causal rows are 26 % faster than in one block
    return derived


def _text(spec: Spec) -> dict[str, Any]:
    edged = spec["ragged"] or spec["shifted"]
    in_two = rows.in_two(spec)
    sectors = bool(spec["shifted"]) and not in_two  # others have rows of several places in a block
    last = "min(seen, end)" if edged else "seen"
    kept = {
        "column + i < seen": spec["causal"],
        "column < end": spec["scaled"] and not spec["mask"] and (edged or not spec["causal"]),
        "is_chosen(chosen, i)": spec["mask"],
    }
    conditions = " && ".join(condition for condition, needed in kept.items() if needed)
    number = softmax_flags.scaled(spec, "float_of(taken[pack], i)")
    joined, value = _joined(spec), "value[pack][i]"
    carried = spec.dtype is F32
    if joined and spec["log"]:  # otherwise the inverse of the sum has the warp's share in it
        value = softmax_flags.below(spec, value, "top")
    return {
        **text_of_rows(spec, "Max", "Sum", joined=joined, carried=carried, masked=bool(spec["mask"]), sectors=sectors),
        **softmax_flags.text(spec),
        # Of 16 bits, a row's exponentials take as long as its way; of a causal row not all is read; and where a block
        # has fewer threads, to ask for a row twice takes longer than is gained.
        "early": rows.single(spec) and spec.dtype is F32 and not spec["causal"] and spec["LANES"] >= 256,
        "in_two": in_two,
        # Packs of few lanes lie in two of memory, or have masks beside them: to find all these places anew takes long.
        "settled": spec["LANES"] <= 32 and (spec["PACKS"] > 2 if spec["mask"] else in_two),
        "reach": last if spec["causal"] else "end",
        "needed": f"column + VEC <= columns{' && column - VEC < seen' if spec['causal'] else ''}",
        "number": f"{conditions} ? {number} : -INF" if conditions else number,
        "edge_number": softmax_flags.scaled(spec, f"to_float({'next_edge[i]' if spec['looped'] else 'x[column]'})"),
        "answer": softmax_flags.answer(spec, value),
        "edge_answer": softmax_flags.answer(spec, "edge[i]"),
    }


def _check(spec: Spec) -> str | None:
    if (spec["ragged"] or spec["shifted"]) and spec["wide"]:
        return "what goes with ragged rows would have to be ragged alike"
    if spec["looped"] and (spec["mask"] or spec["wide"] or spec["causal"]):
        return "rows that are taken in turn are taken and written whole"
    return softmax_flags.check(spec) or rows.check(spec, HELD)


SOFTMAX = register(
    rows.RowKernel(
        name="softmax",
        summary="Softmax of rows that stay in registers.",
        formula=formulas.along,
        axes=rows.AXES,
        flags=(*softmax_flags.FLAGS, *rows.FLAGS),
        derive=_derive,
        text=_text,
        check=_check,
        grid="a row per block, per cluster of blocks, or per LANES adjacent threads",
        origin="the textbook: the maximum is subtracted before the exponential",
        defaults=(
            "softmax_t32_n8_v4_f32",
            "softmax_t128_n4_v8_bf16",
            "softmax_t64_n3_v8_ragged_bf16",
            "softmax_t128_n4_v8_mask_ragged_bf16",
            "softmax_t128_n4_v4_ragged_shifted_f32",
        ),
    )
)


def _wider(cut: rows.Cut, taken: rows_cut.Packs, *, causal: bool) -> rows.Cut:
    """Rows that begin anywhere, on twice the lanes: where a lane has more than one of the elements before and after
    the packs, or no registers for them."""
    if cut.cluster > 1 or not taken.ragged or (2 * (cut.vec - 1) <= cut.lanes and cut.lanes < rows.WIDEST):
        return cut
    if cut.lanes == cut.vec == 8 and (cut.packs % 2 or taken.shifted):  # that would leave many idle
        return cut
    if cut.lanes == rows.WIDEST and (cut.looped or cut.packs <= ROOM or taken.shifted or causal):
        return cut  # where results begin elsewhere or queries see less, 1024 threads were measured to lose
    return cut._replace(lanes=2 * cut.lanes, packs=-(-cut.packs // 2))


def pitched(x: Operand, y: Operand, read: Rows, written: Rows) -> list[rows_cut.Pitched]:
    """What is taken in packs, but for the mask; the result is the last."""
    return [rows_cut.Pitched(x, read.pitch, x.dtype.itemsize), rows_cut.Pitched(y, written.pitch, y.dtype.itemsize)]


def plan_rows(
    x: Operand,
    mask: Operand | None,
    y: Operand,
    axes: tuple[int, ...],
    read: Rows,
    written: Rows,
    wanted: Wanted,
    spec: Spec | None,
) -> Plan | None:
    """One launch, or None where rows are too wide for the registers of a cluster, or do better in a team."""
    wide = y.dtype is not x.dtype
    masks = Masks.of(mask, axes)
    taken = rows_cut.packs(pitched(x, y, read, written), read.columns, ragged=not wide, beside=masks.pitched)
    if spec is None:
        # Rows of float32 lose as much to turns as they gain: they have half the arithmetic for each byte.
        whole = x.dtype is not F32 and not (wide or mask or wanted.causal)
        most = MASKED if x.dtype is F32 and mask and taken.ragged else rows_cut.MOST
        found = rows_cut.cut(read.rows, read.columns, taken, HELD, y.device, looped=int(whole), most=most)
        if found is None or (whole and rows_grid.preferred(found, taken)):
            return None
        found = _wider(found, taken, causal=wanted.causal)
        spec = SOFTMAX.spec(**found.values(), **wanted.flags(wide=wide), **taken.flags(), dtype=x.dtype)
    else:
        rows_cut.refuse(wanted.op, spec, read.columns, taken)
    queries = (x.shape[-2],) if wanted.causal else ()
    step = Step(
        spec,
        rows.grid(spec, read.rows, y.device),
        2 + len(masks.pitched),
        (read.rows, read.columns, *queries, *masks.inner),
        (read.pitch, written.pitch, *masks.steps),
        wanted.floats,
    )
    run = bind([step], y.device)[0]
    why = f"{read.rows} rows of {read.columns} fit into the registers of {rows.Cut.of(spec)}"
    return Plan(masks.given(run), (str(step),), why)
