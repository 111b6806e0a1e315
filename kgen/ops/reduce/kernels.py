"""The kernels that reduce, for each operation a pair: rows, where the reduced axis is contiguous, and columns."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import BF16, BOOL, FLOATS, I64, INTEGERS, DType
from kgen.ops.reduce.text import FLOATING, carried_as_double, result_of_bits, text_of_extreme, text_of_sum
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

FORMULAS = {
    "sum": "out[k] = (sum over n of x[k, n]) / divisor",
    "prod": "out[k] = product over n of x[k, n]",
    "max": "out[k] = max over n of x[k, n]; NaN where there is one",
    "min": "out[k] = min over n of x[k, n]; NaN where there is one",
    "argmax": "out[k] = the first n at which x[k, n] is the greatest, or NaN",
    "argmin": "out[k] = the first n at which x[k, n] is the least, or NaN",
}
WORDS = {
    "sum": "sum",
    "prod": "product",
    "max": "maximum",
    "min": "minimum",
    "argmax": "place of the maximum",
    "argmin": "place of the minimum",
}
DEFAULTS = (
    "sum_rows_g256_v4_i4_o32_split_f32",
    "sum_rows_g8_v4_i4_o32_f32",
    "sum_rows_g8_v8_i5_o16_brain_bf16",
    "sum_columns_l48_v4_i4_o32_f32",
    "sum_columns_l32_v4_i4_o32_split_f32",
    "sum_columns_l32_v4_i4_o32_split_ragged_f32",
    "max_rows_g256_v4_i4_split_f32",
    "argmax_rows_g8_v4_i4_f32",
    "argmax_columns_l32_v4_i4_split_f32",
)
"""Enough to read: the other operations differ from these in a line."""
ELEMENTS = (*FLOATING, BOOL, *INTEGERS)
LOAD_BYTES = 16
STATIC_LIMIT = 48 * 1024
MOST_ROWS = (1 << 32) - 1
"""Places that 32 bits can tell."""
COLUMN_THREADS = 256
RESIDENT = 1024
"""Threads of row kernels among which the registers of a multiprocessor are to be divided,"""
RESIDENT_NARROW = 1280
"""and where a block has many rows, of types that do with fewer registers."""
RESIDENT_WIDE = 768
"""Threads of column kernels, where each has sums of eight columns in floats; but not where a block has whole columns of
rows that begin anywhere, of which more go into one wave then."""


def summed(op: str) -> bool:
    """Whether results have a type of their own, in which elements may need more room than they take."""
    return op in ("sum", "prod")


def result_axes(op: str, dtype: DType, out: DType) -> dict[str, int]:
    """The axes and flags by which a kernel's name says the type of its results."""
    if not summed(op):
        return {}
    fractional = dtype not in FLOATING and out in FLOATING
    return {"OUT": 8 * out.itemsize, "fractional": fractional, "brain": out is BF16}


def illegal_result(spec: Spec) -> str | None:
    op = operation(spec)
    if not summed(op):
        return None
    bits, fractional, brain = spec["OUT"], spec["fractional"], spec["brain"]
    if spec.dtype in FLOATING:
        if fractional or bits == 8 or (brain and bits != 16) or (spec.dtype is BF16 and bits == 16 and not brain):
            return "no floating-point result has this form"
        return None
    if brain or (fractional and bits != 64) or (bits != 64 and spec.dtype is not I64):
        return "integers are combined to 64 bits first"
    return None


def illegal_widening(spec: Spec) -> str | None:
    """Of kernels whose results have the type of their elements, or are places."""
    axes = result_axes(operation(spec), spec.dtype, spec.dtype)
    if axes != {axis: spec[axis] for axis in axes}:
        return "a result has the type of the elements"
    return None


def _illegal_load(spec: Spec) -> str | None:
    if spec["VEC"] > 1 and spec["VEC"] * spec.dtype.itemsize > LOAD_BYTES:
        return f"a load takes at most {LOAD_BYTES} bytes"
    return None


def _illegal_rows(spec: Spec) -> str | None:
    if spec["split"] and spec["GROUP"] <= 32:
        return "only whole blocks share a row"
    if spec["VEC"] > 1 and spec["VEC"] * spec.dtype.itemsize != LOAD_BYTES:
        return f"loads are of one element or of {LOAD_BYTES} bytes"
    return illegal_result(spec)


def _illegal_columns(spec: Spec) -> str | None:
    if spec.static_smem > STATIC_LIMIT:
        return f"{spec.static_smem} bytes of shared memory; a launch gets {STATIC_LIMIT} without asking"
    if spec["ragged"] and (spec["VEC"] == 1 or COLUMN_THREADS // spec["LANES"] % spec["VEC"]):
        return "a thread's rows must all start alike: VEC > 1 must divide the rows that are read at once"
    slices = spec.threads // (spec["LANES"] * spec["VEC"])
    if spec["split"] and slices & (slices - 1):
        return "slices of the parts are combined by halves"
    return _illegal_load(spec) or illegal_result(spec)


def _rows(spec: Spec) -> dict[str, int]:
    group = spec["GROUP"]
    threads = group if group > 32 else 256
    arg = operation(spec).startswith("arg")
    few = spec["ITEMS"] <= 4 and (group <= 32 or arg)
    resident = RESIDENT_NARROW if few and spec.dtype in FLOATING else RESIDENT
    shared = _shared_bytes(spec, group // 32) if group > 32 else 0
    if group > 32 and arg:  # the extreme itself is found first, and then where it stands
        shared = shared * spec["split"] + group // 32 * max(4, spec.dtype.itemsize) + 8
    return {"THREADS": threads, "BLOCKS": resident // threads, "STATIC_SMEM": shared}


def _columns(spec: Spec) -> dict[str, int]:
    lanes = spec["LANES"]
    threads = COLUMN_THREADS // lanes * lanes
    sets = threads // (lanes if spec["ragged"] or 32 % lanes else 32)  # of sums that meet in shared memory
    values = sets * lanes * spec["VEC"]
    shared = _shared_bytes(spec, max(values, COLUMN_THREADS) if spec["split"] else values)
    shared += 4 * sets * spec["ragged"]
    op = operation(spec)
    few = summed(op) or (spec.dtype in FLOATS and (op.startswith("arg") or spec.dtype.itemsize < 4))
    alone = spec["ragged"] and not spec["split"]
    resident = (
        residents(op, spec.dtype, 1 if alone else spec["VEC"]) if few and spec.dtype in FLOATING else COLUMN_THREADS
    )
    return {"THREADS": threads, "BLOCKS": resident // COLUMN_THREADS, "STATIC_SMEM": shared}


def residents(op: str, dtype: DType, vec: int) -> int:
    """Threads of column kernels among which the registers of a multiprocessor are to be divided."""
    return RESIDENT_WIDE if summed(op) and dtype in FLOATING and vec >= 8 else RESIDENT


def _shared_bytes(spec: Spec, values: int) -> int:
    """Values that warps exchange, and a word that says which block was last, in whole values up to eight bytes wide."""
    size = value_bytes(spec)
    return values * size + spec["split"] * min(size, 8)


def operation(spec: Spec) -> str:
    """What a kernel of this module does to a row or a column: the first word of its name."""
    return spec.kernel.name.partition("_")[0]


def text_of(spec: Spec) -> dict[str, Any]:
    op = operation(spec)
    if not summed(op):
        return text_of_extreme(op, spec.dtype) | {"ranks": ranked(spec)}
    fractional, brain = bool(spec["fractional"]), bool(spec["brain"])
    return text_of_sum(op, spec.dtype, result_of_bits(spec.dtype, spec["OUT"], fractional=fractional, brain=brain))


def value_bytes(spec: Spec) -> int:
    """Bytes of what threads hand to one another: an accumulator, and where it stands if that is asked for."""
    op = operation(spec)
    if op.startswith("arg"):
        return 8 if ranked(spec) else 16
    if summed(op):
        narrow = spec.dtype in FLOATS and spec["OUT"] != 64
        return 4 if narrow and not carried_as_double(op, spec.dtype, spec["OUT"]) else 8
    return max(4, spec.dtype.itemsize)


def ranked(spec: Spec) -> bool:
    """Whether an extreme and where it stands, of 32 bits, are one number."""
    one = spec.kernel.stem in ("reduce_flat", "reduce_narrow") or (
        spec.kernel.stem == "reduce_columns" and spec["VEC"] > 1
    )
    return one and operation(spec).startswith("arg") and spec.dtype in FLOATS


BITS = Axis("OUT", "o", (64, 32, 16, 8), "bits of an element of the result")
OF_SUMS = (Flag("fractional", "integers with a floating-point result"), Flag("brain", "16 bits that are bfloat16"))
_RAGGED = Flag("ragged", "rows that begin anywhere and are of any length")
_SPLIT = Flag("split", "several blocks share a row, and the last to finish combines their parts in their order")


def _kernels(op: str) -> tuple[Kernel, Kernel]:
    bits, flags = ((BITS,), (_SPLIT, *OF_SUMS)) if summed(op) else ((), (_SPLIT,))
    rows = Kernel(
        name=f"{op}_rows",
        summary=f"The {WORDS[op]} of every row, which is contiguous or, with VEC 1, of any stride.",
        formula=FORMULAS[op],
        axes=(
            Axis("GROUP", "g", (1, 2, 4, 8, 16, 32, 128, 256), "threads of a row"),
            Axis("VEC", "v", (1, 2, 4, 8, 16), "elements of a load"),
            Axis("ITEMS", "i", (1, 4, 5, 6), "loads of a thread that are in flight together"),
            *bits,
        ),
        flags=flags,
        dtypes=ELEMENTS,
        derive=_rows,
        check=_illegal_rows,
        grid="(rows * parts, or ceil(rows / ROWS)): parts vary fastest",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_rows_")),
        stem="reduce_rows",
        text=text_of,
    )
    columns = Kernel(
        name=f"{op}_columns",
        summary=f"The {WORDS[op]} over an axis that is not the contiguous one: of every column.",
        formula=FORMULAS[op],
        axes=(
            Axis("LANES", "l", (1, 2, 4, 8, 16, 24, 32, 48, 64), "threads side by side in a row"),
            Axis("VEC", "v", (1, 2, 4, 8, 16), "columns of a thread, read at once"),
            Axis("ITEMS", "i", (4, 8), "rows of a thread that are in flight together"),
            *bits,
        ),
        flags=(*flags, _RAGGED),
        dtypes=ELEMENTS,
        derive=_columns,
        check=_illegal_columns,
        grid="(outer * ceil(columns / WIDTH) * parts): parts vary fastest",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_columns_")),
        stem="reduce_columns",
        text=text_of,
    )
    return register(rows), register(columns)


KERNELS: dict[str, tuple[Kernel, Kernel]] = {op: _kernels(op) for op in FORMULAS}
"""By operation: the kernel of rows, and that of columns."""
