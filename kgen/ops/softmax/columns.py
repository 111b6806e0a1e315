"""The softmax along an axis before others: columns side by side, so that no element needs to be moved first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import F32, DType
from kgen.errors import SpecError
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows
from kgen.ops.axes import Planes
from kgen.ops.calls import Plan
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax.flags import FLAGS, Wanted, answer, below, scaled, text
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

WIDE = 256  # bytes of a row in a strip: the memory does less well with shorter ones
THREADS = 256  # of a block, at most: others compute while one waits
WORDS = 32  # registers of a thread for packs
WAVES = {False: 32, True: 8}
"""Blocks of a multiprocessor, at most, for parts of columns that are read twice, or once for their sums alone."""
TOTAL = 8  # bytes of what a part finds of a column

RAGGED = Flag("ragged", "rows begin anywhere, those of x and of y at the same places in a pack")
LANES = Axis("LANES", "t", (8, 16, 32, 64, 128), "threads side by side, each on a pack of columns")
DEPTH = Axis("DEPTH", "d", (1, 2, 4, 8, 16, 32), "threads that share a column")
HELD = Axis("HELD", "n", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32), "packs in a thread's registers")


def _words(spec: Spec) -> int:
    """Registers that a pack takes."""
    return max(1, spec["VEC"] * spec.dtype.itemsize // 4)


def _resident(spec: Spec) -> int:
    """Threads of a multiprocessor, which has registers for so many."""
    if spec.dtype is F32:
        threads = 1024 if spec["lse"] or spec["partial"] or not spec["online"] else 768
    else:
        threads = 768 if spec["online"] else 640
    return threads - 128 if spec["scaled"] else threads


def _derive(spec: Spec) -> dict[str, int]:
    threads = spec["LANES"] * spec["DEPTH"]
    slots = threads // max(32, spec["LANES"])
    whole = not (spec["lse"] or spec["partial"] or spec["apply"])
    total = known_bytes(spec) if whole else 0
    found = (8 * slots + total) * width(spec) if spec["DEPTH"] > 1 and not spec["apply"] else 0
    return {
        "THREADS": threads,
        "STATIC_SMEM": -(-found // 8) * 8 + 8 * spec["partial"],  # and whether this block was the last to come
        "SLOTS": slots,
        "SLICES": min(slots, threads // width(spec)),
        "RESIDENT": max(1, _resident(spec) // threads),
    }


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    if _words(spec) * spec["HELD"] > WORDS:
        return f"a thread has no registers for more than {WORDS} words"
    threads = spec["LANES"] * spec["DEPTH"]
    if not 32 <= threads <= THREADS:
        return f"a block has 32 to {THREADS} threads"
    if spec.derived["STATIC_SMEM"] > 48 * 1024:
        return "what threads find takes too much shared memory"
    if spec["partial"] and (spec["apply"] or (spec["wide"] and not spec["lse"])):
        return "what is known of a column is that, whatever comes of it"
    if spec["partial"] and (spec["DEPTH"] == 1 or width(spec) > threads):
        return "a block has a thread for each of its columns, and some for each"
    if spec["partial"] and not spec["online"]:
        return "a part is as long as it may be"
    if spec["apply"] and (spec["lse"] or not spec["online"]):
        return "parts are of columns that are read twice"
    if spec["ragged"] and not (spec["lse"] or spec["partial"] or spec["apply"]):
        return "results are written in packs that begin at multiples of one"
    apart = spec["VEC"] * max(1, 32 // spec["LANES"])
    if spec["ragged"] and (spec["VEC"] * spec.dtype.itemsize != rows.VECTOR or spec["DEPTH"] % apart):
        return "the rows of a warp begin at the same place in a pack of 16 bytes"
    return softmax_flags.check(spec)


def text_of_columns(spec: Spec) -> dict[str, Any]:
    """For the kernels that put together what threads have found of columns."""
    return {
        **ALIGNED,
        "CLUSTER": spec.derived.get("CLUSTER", 1),  # not that of ALIGNED
        "filled": True,
        "side_by_side": True,
        "total": "double" if spec.dtype is F32 else "float",
        **text(spec),
    }


def _text(spec: Spec) -> dict[str, Any]:
    number = scaled(spec, "float_of(taken[held], i)")
    exact = spec.dtype is F32 and not spec["lse"]
    return {
        **text_of_columns(spec),
        "divides": exact and not spec["log"],
        "subtracts": exact and bool(spec["log"]),
        # What is not there must not change its sign.
        "known": _known(spec),
        "number": f"(there[held] ? {number} : -INF)" if spec["scaled"] else number,
        "ragged": bool(spec["ragged"]),
        "answer": answer(spec, below(spec, number, "top[i]"), "[i]"),
    }


def _known(spec: Spec) -> str:
    """Where it stands what a column's numbers need."""
    if spec["apply"]:
        place = "max(column + i, 0)" if spec["ragged"] else "column + i"
        return f"known[plane * columns + min({place}, columns - 1)]"
    return "of_column[lane * VEC + i]" if spec["DEPTH"] > 1 else "total_of(top[i], sum[i])"


COLUMNS = register(
    Kernel(
        name="softmax_columns",
        summary="Softmax along columns, whose neighbours in memory lie in other columns.",
        formula="y[i, c] = exp(x[i, c] - m[c]) / sum over j of exp(x[j, c] - m[c]), where m[c] = max over i of x[i, c]",
        axes=(LANES, DEPTH, HELD, rows.VEC),
        flags=(
            *(flag for flag in FLAGS if flag.name in ("log", "lse", "scaled", "wide")),
            Flag("online", "columns are longer than the threads can hold, and are read twice"),
            Flag("partial", "only what is known of a column, of which a block has a part"),
            Flag("apply", "only the second reading, from what is known"),
            RAGGED,
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="(ceil(columns / (LANES * VEC)) * planes): a block for each strip of columns, or for each part of one",
        origin="the textbook, and Milakov and Gimelshein, arXiv:1805.02867, where columns are read twice",
        defaults=(
            "softmax_columns_t8_d32_n8_v4_f32",
            "softmax_columns_t32_d8_n7_v8_online_apply_ragged_bf16",
            "softmax_columns_t32_d8_n7_v8_online_partial_ragged_bf16",
            "softmax_columns_t128_d1_n8_v8_bf16",
            "softmax_columns_t16_d16_n8_v8_online_bf16",
            "softmax_columns_t16_d16_n6_v4_online_partial_f32",
            "softmax_columns_t16_d16_n8_v4_online_apply_f32",
            "softmax_columns_t16_d16_n8_v8_lse_ragged_bf16",
        ),
    )
)


_AXES = tuple(axis.name for axis in COLUMNS.axes)


def _lanes(vec: int, dtype: DType) -> int:
    """Threads side by side that take a strip of WIDE bytes, or what 64 of them take."""
    return min(WIDE // (vec * dtype.itemsize), 64)


def width(spec: Spec) -> int:
    """Columns of a strip: ragged, a pack less where columns are summed, since packs begin before its first column."""
    return (spec["LANES"] - (spec["ragged"] and not spec["apply"])) * spec["VEC"]


def known_bytes(spec: Spec) -> int:
    """Of what is known of a column when its result is computed."""
    return 12 if spec.dtype is F32 and not spec["log"] else 8


def ragged(x: Operand, y: Operand, read: Planes, written: Planes) -> bool:
    """Whether rows of both begin at the same places in packs of 16 bytes, and are long enough for these."""
    size = x.dtype.itemsize
    apart = (x.ptr - y.ptr, (read.step - written.step) * size, (read.plane - written.plane) * size)
    return x.dtype is y.dtype and not any(distance % rows.VECTOR for distance in apart) and begins_anywhere(x, read)


def begins_anywhere(x: Operand, read: Planes) -> bool:
    """Whether rows are long enough to be taken in packs of 16 bytes wherever they begin."""
    return read.columns * x.dtype.itemsize >= 8 * rows.VECTOR and x.ptr % x.dtype.itemsize == 0


def held(read: Planes, vec: int, dtype: DType, device: int, *, ragged: bool = False) -> dict[str, int] | None:
    """The axes of a specialization that holds such columns in registers, or None."""
    words = max(1, vec * dtype.itemsize // 4)
    least = 2 * vec if ragged else 1  # of threads for a column, of which every `vec`th begins at the same place
    depth = next((d for d in DEPTH.values if d >= least and d * (WORDS // words) >= read.length), THREADS)
    lanes = max(_lanes(vec, dtype), THREADS // 2 // depth)
    if lanes * depth > THREADS:
        return None
    sms = multiprocessors(device)
    narrowest = max(8, 32 * vec // depth if ragged else 0)
    while lanes > narrowest and 2 * read.planes * -(-read.columns // (lanes * vec)) < sms and lanes * depth > 32:
        lanes //= 2  # since multiprocessors without work cost more
    packs = next(h for h in HELD.values if h * depth >= read.length)
    return {"LANES": lanes, "DEPTH": depth, "HELD": packs, "VEC": vec}


def _streamed(vec: int, dtype: DType) -> dict[str, int]:
    """The axes of one for columns of any length."""
    lanes = _lanes(vec, dtype)
    packs = WORDS // max(1, vec * dtype.itemsize // 4)
    return {"LANES": lanes, "DEPTH": THREADS // lanes, "HELD": min(12, packs), "VEC": vec}


def _streamed_anywhere(columns: int, dtype: DType) -> dict[str, int]:
    """Those of one for rows that begin anywhere: of the two widths the one with fewer lanes beside the columns."""
    vec = rows.VECTOR // dtype.itemsize
    lanes = min((32, 8), key=lambda lanes: -(-columns // ((lanes - 1) * vec)) * lanes)
    return {"LANES": lanes, "DEPTH": THREADS // lanes, "HELD": 7 if lanes == 32 else 5, "VEC": vec}


def plan_columns(
    x: Operand, y: Operand, read: Planes, written: Planes, vec: int, wanted: Wanted, spec: Spec | None
) -> Plan:
    """One launch, with a strip of columns for each block, or with parts of one, and another for the result of these."""
    device = y.device
    whole = wanted.op == "logsumexp"
    flags = {name: on for name, on in wanted.flags(wide=y.dtype is not x.dtype).items() if on}
    if spec is None:
        values, anywhere = _cut(x, y, read, written, vec, whole)
    else:
        values, anywhere = {name: spec[name] for name in (*_AXES, "online")}, bool(spec["ragged"])
    if spec and (
        (spec["VEC"] > vec and not anywhere) or (not spec["online"] and spec["DEPTH"] * spec["HELD"] < read.length)
    ):
        raise SpecError(
            f"{wanted.op}: {spec.name} does not take columns of {read.length} in packs of {vec} at most neighbours"
        )
    tile = values["DEPTH"] * values["HELD"]
    across = values["VEC"] * (values["LANES"] - anywhere)
    strips = -(-read.columns // across) * read.planes
    parts = max(1, min(WAVES[whole] * multiprocessors(device) // strips, read.length // (2 * tile)))
    sizes = f"{read.planes} x {read.columns} columns of {read.length}"
    if not values["online"] or (parts == 1 and (whole or not anywhere)):
        spec = COLUMNS.spec(**values, **flags, ragged=anywhere, dtype=x.dtype)
        steps = (read.plane, read.step, written.plane, *(() if whole else (written.step,)))
        step = Step(spec, strips, 2, (read.length, read.columns), steps, wanted.floats)
        run = bind([step], device)[0]
        return Plan(picked(run, (0, -1)), (str(step),), f"{sizes}, {strips} strips")  # no mask

    height = -(-read.length // (parts * tile)) * tile
    parts = -(-read.length // height)
    together = math.isqrt(parts - 1) + 1
    groups = -(-parts // together)
    known = {name: on for name, on in flags.items() if whole or name != "wide"}
    partial = COLUMNS.spec(**values, **known, partial=True, ragged=anywhere, dtype=x.dtype)
    ints = (read.length, read.columns, parts, height)
    steps = (read.plane, read.step, *((written.plane,) if whole else ()))
    first = Step(partial, strips * parts, 4, (*ints, together), steps, wanted.floats)
    why = f"{sizes}, {strips} strips in {parts} parts each"
    found = strips * (parts + groups) * across * TOTAL
    counters = strips * (1 + groups)
    if whole:
        find = bind((first,), device)[0]

        def launch_one(pointers: Sequence[int], stream: int) -> None:
            memory, zeros, held = workspace(found, counters, device, stream)
            find((pointers[0], pointers[-1], memory, zeros), stream)
            del held  # once the launch is queued

        return Plan(launch_one, (str(first),), why)

    apply = COLUMNS.spec(**values, **flags, apply=True, ragged=anywhere, dtype=x.dtype)
    strips = -(-(read.columns + (values["DEPTH"] - 1 if anywhere else 0)) // width(apply)) * read.planes
    steps = (read.plane, read.step, written.plane, written.step)
    second = Step(apply, strips * parts, 3, ints, steps, wanted.floats)
    find, finish = bind((first, second), device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        size = found + read.planes * read.columns * known_bytes(apply)
        memory, zeros, held = workspace(size, counters, device, stream)
        find((pointers[0], memory + found, memory, zeros), stream)
        finish((pointers[0], memory + found, pointers[-1]), stream)
        del held  # once the launches are queued

    return Plan(launch, (str(first), str(second)), why)


def _cut(x: Operand, y: Operand, read: Planes, written: Planes, vec: int, whole: bool) -> tuple[dict[str, int], bool]:
    """The axes, and whether columns are read twice; whether packs are full wherever rows begin."""
    full = rows.VECTOR // x.dtype.itemsize
    begin = x.dtype is not F32 and begins_anywhere(x, read) if whole else ragged(x, y, read, written)
    anywhere = vec < full and begin
    values = held(read, full if anywhere and whole else vec, x.dtype, y.device, ragged=anywhere and whole)
    if values is not None:
        return {**values, "online": False}, anywhere and whole
    values = _streamed_anywhere(read.columns, x.dtype) if anywhere else _streamed(vec, x.dtype)
    return {**values, "online": True}, anywhere
