"""Rows of a few loads that lie one behind the other, taken out of shared memory; and the launch."""

from __future__ import annotations

from collections.abc import Sequence

from kgen.dtypes import FLOATS
from kgen.launch import Step
from kgen.ops.reduce.axes import Kept
from kgen.ops.reduce.kernels import (
    BITS,
    FORMULAS,
    LOAD_BYTES,
    OF_SUMS,
    WORDS,
    illegal_widening,
    operation,
    result_axes,
    summed,
    text_of,
)
from kgen.ops.reduce.passes import Pass, divisor_of, length_of, many_in_line, of_one_type
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = 128
ITEMS = Axis("ITEMS", "i", (6, 7, 8, 9, 10), "loads of a thread, all in flight at once")
LANES = Axis("LANES", "t", (1, 2, 4, 8), "threads of a row", default=1)
WIDEST = max(ITEMS.values) * LOAD_BYTES
"""Bytes of a row for each of its threads, at most."""
RESIDENT = 1024
"""Threads among which the registers of a multiprocessor are to be divided."""
TOGETHER = {2: 450, 4: 0}
"""Elements of a row, by their bytes, up to which several threads look for the place of an extreme so;"""
WORD, BANKS = 4, 32
"""unless what they have of it is as many words as shared memory has banks, which they then read together."""
FROM = 9
"""Elements of a row, from which on this pays."""


def _derive(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": THREADS,
        "ITEMS": spec["ITEMS"],
        "LANES": spec["LANES"],
        "VEC": LOAD_BYTES // spec.dtype.itemsize,
        "BLOCKS": RESIDENT // THREADS,
        "STATIC_SMEM": THREADS * spec["ITEMS"] * LOAD_BYTES,
    }


def _check(spec: Spec) -> str | None:
    if spec["LANES"] > 1 and not operation(spec).startswith("arg"):
        return "rows of many loads are read at once, but for places"
    return illegal_widening(spec)


def _kernel(op: str) -> Kernel:
    bits = (BITS._replace(values=(32, 16)),) if summed(op) else ()
    return Kernel(
        name=f"{op}_narrow",
        summary=f"The {WORDS[op]} of every row, where rows have a few loads and lie one behind the other.",
        formula=FORMULAS[op],
        axes=(ITEMS, LANES, *bits),
        flags=OF_SUMS if summed(op) else (),
        dtypes=FLOATS,
        derive=_derive,
        text=text_of,
        check=_check,
        grid="a block for as many rows as go into its shared memory",
        origin="the transposition of arrays of structures through shared memory",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_narrow_")),
        stem="reduce_narrow",
    )


DEFAULTS = (
    "sum_narrow_i9_o32_f32",
    "max_narrow_i9_bf16",
    "argmax_narrow_i9_f32",
    "argmax_narrow_i9_bf16",
    "argmax_narrow_i7_t4_bf16",
)
NARROW = {op: register(_kernel(op)) for op in FORMULAS}


def launch(one: Pass, rows: int, inside: Sequence[Kept]) -> Step | None:
    """None where rows lie apart, are too narrow or too wide, too few, or of whole loads."""
    length = length_of(one.layout)
    nbytes = length * one.dtype.itemsize
    lanes = lanes_of(nbytes)
    fits = length >= FROM and nbytes % LOAD_BYTES != 0
    if lanes != 1 and not (one.op.startswith("arg") and length <= TOGETHER.get(one.dtype.itemsize, 0)):
        return None
    if not (lanes and fits and not crowded(nbytes, lanes) and of_one_type(one) and many_in_line(one, rows, inside)):
        return None
    each, items = rows_of_a_thread(-(-nbytes // lanes))
    spec = NARROW[one.op].spec(ITEMS=items, LANES=lanes, dtype=one.dtype, **result_axes(one.op, one.dtype, one.out))
    blocks = -(-rows // (THREADS // lanes * each))
    return Step(spec, blocks, 2, (rows, length, each), (inside[0].out,), doubles=divisor_of(one))


def lanes_of(nbytes: int) -> int | None:
    """Threads of a row of so many bytes, as few as have room for it."""
    return next((lanes for lanes in LANES.values if nbytes <= lanes * WIDEST), None)


def crowded(nbytes: int, lanes: int) -> bool:
    """Whether the threads of a row, and with them those of its neighbours, read the same banks."""
    return lanes > 2 and -(-(nbytes // WORD) // lanes) % BANKS == 0


def rows_of_a_thread(nbytes: int) -> tuple[int, int]:
    """How many, of so many bytes, and in how many loads: those that are filled best."""

    def filled(items: int) -> float:
        return items * LOAD_BYTES // nbytes * nbytes / (items * LOAD_BYTES)

    items = max(ITEMS.values, key=lambda items: (filled(items), items))
    return items * LOAD_BYTES // nbytes, items
