"""The logarithm of the sum of exponentials of rows of a few loads, taken out of shared memory; and the launch."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import BF16, F16, F32
from kgen.launch import Step
from kgen.operand import Operand
from kgen.ops.axes import Rows
from kgen.ops.reduce import narrow, passes
from kgen.ops.reduce.kernels import LOAD_BYTES
from kgen.ops.reduce.narrow import ITEMS, RESIDENT, THREADS, WIDEST
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

FEW = {2: range(3, 16), 4: range(3, 6)}
"""Elements of a row, by their bytes, for which this does better than a thread that has one to itself and loads it so,
too: where their number is part of the kernel, which without loops takes a third of the instructions."""
LENGTH = Axis("LENGTH", "n", (0, *FEW[2]), "elements of a row; 0: any number", default=0)


def _derive(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": THREADS,
        "ITEMS": spec["ITEMS"],
        "LENGTH": spec["LENGTH"],
        "VEC": LOAD_BYTES // spec.dtype.itemsize,
        "BLOCKS": RESIDENT // THREADS,
        "STATIC_SMEM": THREADS * spec["ITEMS"] * LOAD_BYTES,
    }


def _text(spec: Spec) -> dict[str, Any]:
    return {
        "divides": False,
        "result": "float" if spec["wide"] or spec.dtype is F32 else "Element",
        "pair": {F16: "__half2", BF16: "__nv_bfloat162"}.get(spec.dtype),
    }


NARROW = register(
    Kernel(
        name="logsumexp_narrow",
        summary="The logarithm of the sum of the exponentials of every row, where rows have a few loads.",
        formula="y = log(sum over i of exp(x[i]))",
        axes=(ITEMS, LENGTH),
        flags=(Flag("wide", "the result is in float32"),),
        derive=_derive,
        text=_text,
        check=lambda spec: "float32 is wide" if spec["wide"] and spec.dtype is F32 else None,
        grid="a block for as many rows as go into its shared memory",
        origin="the transposition of arrays of structures through shared memory",
        defaults=("logsumexp_narrow_i9_f32", "logsumexp_narrow_i9_bf16", "logsumexp_narrow_i9_n3_bf16"),
    )
)


def launch(x: Operand, y: Operand, read: Rows, written: Rows, sms: int, *, alone: bool) -> Step | None:
    """None where rows lie apart, are too wide, too few, or of whole loads; or where others do better.

    `alone`: a thread would have a row to itself.
    """
    nbytes = read.columns * x.dtype.itemsize
    few = read.columns in FEW[x.dtype.itemsize]
    fits = (few or not alone) and nbytes <= WIDEST and nbytes % LOAD_BYTES != 0
    in_line = read.pitch == read.columns and not x.ptr % LOAD_BYTES
    if not (fits and in_line and read.rows >= passes.BUSY * sms):
        return None
    each, items = narrow.rows_of_a_thread(nbytes)
    spec = NARROW.spec(ITEMS=items, LENGTH=read.columns if few else 0, wide=y.dtype is not x.dtype, dtype=x.dtype)
    blocks = -(-read.rows // (THREADS * each))
    sizes = (read.rows, each) if few else (read.rows, read.columns, each)
    return Step(spec, blocks, 2, sizes, (written.pitch,))
