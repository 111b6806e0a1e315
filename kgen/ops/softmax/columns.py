"""The softmax along an axis before others: columns side by side, so that no element needs to be moved first."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F16, F32
from kgen.ops import rows
from kgen.ops.rows_text import ALIGNED
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.flags import FLAGS, answer, below, scaled, text
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 256  # of a block, at most: others compute while one waits
WORDS = 32  # registers of a thread for packs
LEAST = 4  # bytes of a copy to shared memory that needs no registers
CHUNK = 4  # packs of a thread that are copied together
STAGES = 6  # times so many on their way, at most

RAGGED = Flag("ragged", "rows begin anywhere, those of x and of y at the same places in a pack")
STAGED = Flag("staged", "packs come to shared memory while others are computed on")
LANES = Axis("LANES", "t", (8, 16, 32, 64, 128), "threads side by side, each on a pack of columns")
DEPTH = Axis("DEPTH", "d", (1, 2, 4, 8, 16, 32), "threads that share a column")
HELD = Axis("HELD", "n", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32), "packs in a thread's registers")


def _words(spec: Spec) -> int:
    """Registers that a pack takes."""
    return max(1, spec["VEC"] * spec.dtype.itemsize // 4)


def width(spec: Spec) -> int:
    """Columns of a strip: ragged, a pack less where columns are summed, since packs begin before its first column."""
    return (spec["LANES"] - (spec["ragged"] and not spec["apply"])) * spec["VEC"]


def known_bytes(spec: Spec) -> int:
    """Of what is known of a column when its result is computed."""
    return 12 if spec.dtype is F32 and not spec["log"] else 8


def _resident(spec: Spec) -> int:
    """Threads of a multiprocessor, which has registers for so many."""
    if spec.dtype is F32:
        threads = 1024 if spec["lse"] or spec["partial"] or not spec["online"] else 768
    else:
        # Those who share a column by few threads, or want its logarithm, would have to spill for a third block.
        threads = 768 if spec["online"] or (spec["DEPTH"] >= 16 and not spec["log"]) else 640
    return threads - 128 if spec["scaled"] else threads


def _derive(spec: Spec) -> dict[str, int]:
    threads = spec["LANES"] * spec["DEPTH"]
    slots = threads // max(32, spec["LANES"])
    whole = not (spec["lse"] or spec["partial"] or spec["apply"])
    total = known_bytes(spec) if whole else 0
    found = (8 * slots + total) * width(spec) if spec["DEPTH"] > 1 and not spec["apply"] else 0
    static = -(-found // 8) * 8 + 8 * spec["partial"]  # and whether this block was the last to come
    resident = max(1, _resident(spec) // threads)
    derived = {
        "THREADS": threads,
        "STATIC_SMEM": static,
        "SLOTS": slots,
        "SLICES": min(slots, threads // width(spec)),
        "RESIDENT": resident,
    }
    if not spec["staged"]:
        return derived
    stage = threads * spec["HELD"] * spec["VEC"] * spec.dtype.itemsize
    static = -(-static // rows.LINE) * rows.LINE  # what is staged begins with a line
    room = rows.shared_for(resident) - static
    derived["STAGES"] = min(room // stage, STAGES)
    return {**derived, "STATIC_SMEM": static, "DYNAMIC_SMEM": derived["STAGES"] * stage}


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
    if spec["lse"] and not spec.flags.isdisjoint(("log", "scaled")):
        return "the sum alone is of all that is there"
    if spec["staged"] and not (spec["online"] and (spec["lse"] or spec["partial"] or spec["apply"])):
        return "what comes later is of columns that are read once"
    if spec["staged"] and spec["VEC"] * spec.dtype.itemsize < LEAST:
        return f"what comes later is copied in packs of {LEAST} bytes or more"
    if spec.derived.get("STAGES", 2) < 2:
        return "there is no shared memory for packs, and for what is to come"
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


def pairs(spec: Spec) -> dict[str, str]:
    """Two numbers of 16 bits side by side, and what makes them of float32."""
    f16 = spec.dtype is F16
    return {
        "two": "__half2" if f16 else "__nv_bfloat162",
        "two_from": "__floats2half2_rn" if f16 else "__floats2bfloat162_rn",
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
        "staged": bool(spec["staged"]),
        "lines": True,
        "deferred": bool(spec["staged"]),
        "slack": spec.dtype is not F32 and spec["staged"] and not (spec["apply"] or spec["scaled"]),
        **pairs(spec),
        "power": "addend" if spec.dtype is F32 and spec["staged"] else "exponential",
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
        formula=formulas.down,
        axes=(LANES, DEPTH, HELD, rows.VEC),
        flags=(
            *(flag for flag in FLAGS if flag.name in ("log", "scaled", "wide")),
            Flag("lse", "the logarithm of the sum alone, one number for a column"),
            Flag("online", "columns are longer than the threads can hold, and are read twice"),
            Flag("partial", "only what is known of a column, of which a block has a part"),
            Flag("apply", "only the second reading, from what is known"),
            RAGGED,
            STAGED,
        ),
        derive=_derive,
        text=_text,
        check=_check,
        grid="(ceil(columns / (LANES * VEC)) * planes): a block for each strip of columns, or for each part of one",
        origin="the textbook, and Milakov and Gimelshein, arXiv:1805.02867, where columns are read twice",
        defaults=(
            "softmax_columns_t8_d32_n8_v4_f32",
            "softmax_columns_t32_d8_n4_v8_online_apply_ragged_staged_bf16",
            "softmax_columns_t32_d8_n4_v8_online_partial_ragged_staged_bf16",
            "softmax_columns_t128_d1_n8_v8_bf16",
            "softmax_columns_t16_d16_n8_v8_online_bf16",
            "softmax_columns_t16_d16_n4_v4_online_partial_staged_f32",
            "softmax_columns_t16_d16_n4_v4_online_apply_staged_f32",
            "softmax_columns_t16_d16_n8_v8_lse_ragged_bf16",
        ),
    )
)
