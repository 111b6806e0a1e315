"""Rows of a few elements that lie one behind the other, as many for each thread as fill a store; and the launch."""

from __future__ import annotations

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
    operation,
    result_axes,
    summed,
    text_of,
)
from kgen.ops.reduce.passes import Pass, divisor_of, length_of, many_in_line
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = 256
LENGTH = Axis("LENGTH", "n", tuple(range(2, 9)), "elements of a row, and loads of a thread")


def _derive(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": THREADS,
        "VEC": LOAD_BYTES // spec.dtype.itemsize,
        "STATIC_SMEM": THREADS * spec["LENGTH"] * LOAD_BYTES,
    }


def _check(spec: Spec) -> str | None:
    if spec["LENGTH"] * spec.dtype.itemsize % LOAD_BYTES == 0:
        return "rows of whole loads need not go through shared memory"
    if summed(operation(spec)) and spec["OUT"] != 8 * spec.dtype.itemsize:
        return "results take as many bytes as elements"
    return illegal_result(spec)


def _kernel(op: str) -> Kernel:
    return Kernel(
        name=f"{op}_packs",
        summary=f"The {WORDS[op]} of every row, where rows have a few elements and lie one behind the other.",
        formula=FORMULAS[op],
        axes=(LENGTH, BITS) if summed(op) else (LENGTH,),
        flags=OF_SUMS if summed(op) else (),
        dtypes=ELEMENTS,
        derive=_derive,
        text=text_of,
        check=_check,
        grid="a block for as many rows as its threads have",
        origin="the transposition of arrays of structures through shared memory",
        defaults=tuple(name for name in DEFAULTS if name.startswith(f"{op}_packs_")),
        stem="reduce_packs",
    )


DEFAULTS = ("sum_packs_n3_o16_brain_bf16", "max_packs_n3_i8")
PACKS = {op: register(_kernel(op)) for op in FORMULAS if not op.startswith("arg")}


def launch(one: Pass, rows: int, inside: Sequence[Kept]) -> Step | None:
    """None where rows or results lie apart, are too wide or too few, where results take other room than elements."""
    length = length_of(one.layout)
    fits = length in LENGTH.values and length * one.dtype.itemsize % LOAD_BYTES != 0
    alike = one.op in PACKS and (one.out.itemsize == one.dtype.itemsize)
    if not (fits and alike and one.algorithm is None and many_in_line(one, rows, inside) and inside[0].out == 1):
        return None
    spec = PACKS[one.op].spec(LENGTH=length, dtype=one.dtype, **result_axes(one.op, one.dtype, one.out))
    blocks = -(-rows // (THREADS * spec.derived["VEC"]))
    return Step(spec, blocks, 2, (rows,), doubles=divisor_of(one))
