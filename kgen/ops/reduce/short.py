"""Rows of at most 64 bytes that lie one behind the other, taken out of shared memory; and the launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.launch import Step
from kgen.ops.reduce.axes import Kept
from kgen.ops.reduce.kernels import (
    BITS,
    ELEMENTS,
    FORMULAS,
    LOAD_BYTES,
    OF_SUMS,
    WORDS,
    illegal_result,
    result_axes,
    summed,
    text_of,
)
from kgen.ops.reduce.passes import Pass, divisor_of, length_of, many_in_line
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = 256
WIDEST = 64
"""Bytes of a row, at most: the share of a thread in shared memory."""
KNOWN = range(2, 9)
"""Elements of a row for which kernels are compiled: the loop over them would take more time than they do."""


def _derive(spec: Spec) -> dict[str, int]:
    aligned = math.gcd(spec["LENGTH"] * spec.dtype.itemsize, LOAD_BYTES)
    return {"THREADS": THREADS, "STATIC_SMEM": THREADS * WIDEST, "SHORT": WIDEST, "ALIGN": aligned}


def _check(spec: Spec) -> str | None:
    length, itemsize = spec["LENGTH"], spec.dtype.itemsize
    if length and length * itemsize % LOAD_BYTES == 0:
        return "rows of whole loads need not go through shared memory"
    if not length and (max(KNOWN) + 1) * itemsize > WIDEST:
        return "a thread has no room for more elements than kernels are compiled for"
    return illegal_result(spec)


def _kernel(op: str) -> Kernel:
    bits = (BITS,) if summed(op) else ()
    return Kernel(
        name=f"{op}_short",
        summary=f"The {WORDS[op]} of every row, where rows are short and lie one behind the other.",
        formula=FORMULAS[op],
        axes=(Axis("LENGTH", "n", (0, *KNOWN), "elements of a row; 0: any number", default=0), *bits),
        flags=OF_SUMS if summed(op) else (),
        dtypes=ELEMENTS,
        derive=_derive,
        text=text_of,
        check=_check,
        grid="a block for as many rows as go into its shared memory",
        origin="the transposition of arrays of structures through shared memory",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_short_")),
        stem="reduce_short",
    )


DEFAULTS = ("sum_short_o32_f16", "argmax_short_n3_f32")
SHORT = {op: register(_kernel(op)) for op in FORMULAS}


def launch(one: Pass, rows: int, inside: Sequence[Kept]) -> Step | None:
    """None where rows lie apart, are too wide or too few, or where somebody named a kernel."""
    length = length_of(one.layout)
    nbytes = length * one.dtype.itemsize
    fits = length > 1 and nbytes <= WIDEST and nbytes % LOAD_BYTES != 0
    if not (fits and one.algorithm is None and many_in_line(one, rows, inside)):
        return None
    known = length in KNOWN
    spec = SHORT[one.op].spec(LENGTH=length * known, dtype=one.dtype, **result_axes(one.op, one.dtype, one.out))
    ints = (rows,) if known else (rows, length)
    blocks = -(-rows // (THREADS * (WIDEST // nbytes)))
    return Step(spec, blocks, 2, ints, (inside[0].out,), doubles=divisor_of(one))
