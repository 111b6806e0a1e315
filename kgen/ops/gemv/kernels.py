"""The kernels that multiply a matrix by a vector: along rows, along columns, and the sum of the parts of a split."""

from __future__ import annotations

from kgen.dtypes import F32, I8
from kgen.ops.gemv.types import QUANTIZED, VALUE_FLAGS, VALUES, total_of, types_of
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

WARP = 32
PACK = 16
"""Bytes that a thread loads at once where it may."""

_SUM_COLUMNS, _SUM_THREADS = 32, 512

_RAGGED = Flag("ragged", "rows that start anywhere and are of any length")
_PARTIAL = Flag("partial", "sums of a piece of the matrix, in the type in which they are added")
_INNER = Flag("inner", "scales belong to the numbers of x")
QUANTIZED_FLAGS = (*VALUE_FLAGS, _INNER)
_QUANTIZED_FLAGS = (
    _RAGGED,
    *VALUE_FLAGS,
    Flag("blocks", "a scale for every block of a row, instead of one for the row"),
    _INNER,
    _PARTIAL,
)
_VEC = Axis("VEC", "v", (1, 2, 4, 8, 16), "consecutive elements that are loaded at once")
_LANES = Axis("LANES", "l", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "threads along a row")
_ROWS = Axis("ROWS", "r", (1, 2, 4), "rows that a thread takes together")
_PACKS = Axis("PACKS", "p", (1, 2), "packs of a row that a thread takes", default=1)
_UNROLL = Axis("UNROLL", "u", (1, 2, 4, 8), "packs of each row that a thread has in flight")
_THREADS = Axis("THREADS", "t", (256, 512, 1024), "threads of a block", default=256)
_ABSENT = dict.fromkeys(("half", "brain", "blocks", "inner"), 0)  # what only a quantized matrix has


def _problem(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > PACK:
        return f"{spec['VEC']} elements are more than the {PACK} bytes that a thread can load at once"
    if spec["LANES"] > spec["THREADS"]:
        return f"a row has {spec['LANES']} threads, and a block {spec['THREADS']}"
    if {"half", "brain"} <= spec.flags:
        return "the vectors are of one type"
    if {"blocks", "inner"} <= spec.flags:
        return "scales of blocks stand by themselves"
    return None


def _rows_problem(spec: Spec) -> str | None:
    if spec["ragged"] and spec["VEC"] == 1:
        return "single elements are aligned anyhow"
    if spec["ROWS"] * spec["UNROLL"] > 8:
        return "more than eight packs in flight for a thread do not fit in its registers"
    if spec["ragged"] and "inner" in spec.flags:
        return "scales of x are read for packs that are aligned"
    return _problem(spec)


def _columns_problem(spec: Spec) -> str | None:
    if spec["ragged"] and (spec["VEC"] == 1 or spec["THREADS"] // spec["LANES"] % spec["VEC"] or spec["LANES"] < 2):
        return "the rows of a group must all start alike: VEC > 1 must divide THREADS / LANES"
    if spec["ragged"] and "blocks" in spec.flags:
        return "scales of blocks are for packs that are aligned"
    if spec["PACKS"] > 1 and not spec["ragged"]:
        return "groups read more of a row where they begin and end within lines"
    if spec["THREADS"] * spec["PACKS"] * spec["VEC"] * total_of(spec).itemsize > 44 * 1024:
        return "the groups' sums would not fit in 48 KiB of shared memory"
    return _problem(spec)


def _text(spec: Spec) -> dict[str, object]:
    columns = spec["LANES"] * spec["VEC"]
    sharers = 1 if spec["ragged"] else max(1, WARP // columns)  # lanes of a warp, where there are fewer columns
    return types_of(spec, spec["VEC"]) | {"sharers": sharers, "spans": False}


def _rows_geometry(spec: Spec) -> dict[str, int]:
    shared = spec["THREADS"] // WARP * spec["ROWS"] * total_of(spec).itemsize if spec["LANES"] > WARP else 0
    many = spec.dtype is F32 and spec["ROWS"] * spec["UNROLL"] == 8
    return _geometry(spec, shared, crowded=spec.dtype is I8, wide="ragged" in spec.flags or many)


def _columns_geometry(spec: Spec) -> dict[str, int]:
    shared = spec["THREADS"] * spec["PACKS"] * spec["VEC"] * total_of(spec).itemsize
    shared += 4 * spec["THREADS"] // spec["LANES"] if spec["ragged"] else 0
    shared += 4 if spec["partial"] else 0  # whether the block is the last to arrive
    shared = -(-shared // PACK) * PACK  # sums are stored in packs
    crowded = "ragged" in spec.flags and spec["PACKS"] * spec["VEC"] < 2 * PACK
    return _geometry(spec, shared, crowded=crowded, wide="ragged" in spec.flags)


def _geometry(spec: Spec, shared: int, *, crowded: bool, wide: bool) -> dict[str, int]:
    """With the blocks among which the registers of an SM are divided.

    Sixteen numbers of x take more of them, and so do kernels that are `wide`. But where one is `crowded` with other
    work between its loads, a fourth block, which loads meanwhile, is worth more.
    """
    wide = (spec["VEC"] == 16 or wide) and not crowded
    blocks = max(1, (768 if wide else 1024) // spec["THREADS"])
    present = dict.fromkeys(spec.flags, 1)
    return _ABSENT | present | {"THREADS": spec["THREADS"], "BLOCKS": blocks, "STATIC_SMEM": shared}


_ROWS_SUMMARY = "A matrix times a vector, for a matrix whose rows are contiguous: sums along rows."
_ROWS_GRID = "(splits * ceil(M / (ROWS * THREADS / LANES)) * batches): pieces of a row vary fastest"
_COLUMNS_SUMMARY = "A matrix times a vector, for a matrix whose columns are contiguous: sums across rows."
_COLUMNS_GRID = "(ceil(N / (PACKS * LANES * VEC)) * splits * batches): column tiles vary fastest"
_OF_THREE = (1, 4, 16)

GEMV = register(
    Kernel(
        name="gemv",
        summary=_ROWS_SUMMARY,
        formula="y[m] = alpha (sum over k of a[m][k] x[k]) + beta y[m]",
        axes=(_VEC, _LANES, _ROWS, _UNROLL, _THREADS._replace(values=(256, 512))),
        flags=(_RAGGED, _PARTIAL),
        dtypes=VALUES,
        derive=_rows_geometry,
        text=_text,
        check=_rows_problem,
        grid=_ROWS_GRID,
        origin="the sgemv of every BLAS; k16, k32 and k128 of CUDA-Learn-Notes are points on these axes",
        defaults=(
            "gemv_v1_l32_r1_u1_f32",
            "gemv_v4_l32_r1_u1_f32",
            "gemv_v4_l256_r1_u4_f32",
            "gemv_v4_l16_r4_u2_f32",
            "gemv_v8_l256_r4_u2_ragged_bf16",
        ),
    )
)
GEMV_QUANTIZED = register(
    Kernel(
        name="gemv_quantized",
        stem="gemv",
        summary=_ROWS_SUMMARY,
        formula="y[m] = alpha s[m] (sum over k of a[m][k] x[k]) + beta y[m]",
        axes=(
            _VEC._replace(values=_OF_THREE),
            _LANES,
            _ROWS,
            _UNROLL._replace(values=(1, 2, 4)),
            _THREADS._replace(values=(256,)),
        ),
        flags=_QUANTIZED_FLAGS,
        dtypes=QUANTIZED,
        derive=_rows_geometry,
        text=_text,
        check=_rows_problem,
        grid=_ROWS_GRID,
        origin="the sgemv of every BLAS, for numbers that share a scale",
        defaults=("gemv_quantized_v16_l64_r4_u1_i8",),
    )
)
COLUMNS = register(
    Kernel(
        name="gemv_columns",
        summary=_COLUMNS_SUMMARY,
        formula="y[n] = alpha (sum over k of a[k][n] x[k]) + beta y[n]",
        axes=(
            _VEC,
            _LANES._replace(values=(1, 2, 4, 8, 16, 32)),
            _PACKS,
            _UNROLL._replace(values=(2, 4, 8)),
            _THREADS,
        ),
        flags=(_RAGGED, _PARTIAL),
        dtypes=VALUES,
        derive=_columns_geometry,
        text=_text,
        check=_columns_problem,
        grid=_COLUMNS_GRID,
        origin="the transposed sgemv of every BLAS",
        defaults=(
            "gemv_columns_v4_l8_u4_t1024_f32",
            "gemv_columns_v8_l32_u8_partial_bf16",
            "gemv_columns_v8_l32_p2_u2_t512_ragged_partial_bf16",
        ),
    )
)
COLUMNS_QUANTIZED = register(
    Kernel(
        name="gemv_columns_quantized",
        stem="gemv_columns",
        summary=_COLUMNS_SUMMARY,
        formula="y[n] = alpha (sum over k of s[k] a[k][n] x[k]) + beta y[n]",
        axes=(
            _VEC._replace(values=_OF_THREE),
            _LANES._replace(values=(1, 2, 4, 8, 16, 32)),
            _PACKS,
            _UNROLL._replace(values=(2, 4, 8)),
            _THREADS._replace(values=(256, 512)),
        ),
        flags=_QUANTIZED_FLAGS,
        dtypes=QUANTIZED,
        derive=_columns_geometry,
        text=_text,
        check=_columns_problem,
        grid=_COLUMNS_GRID,
        origin="the transposed sgemv of every BLAS, for numbers that share a scale",
        defaults=("gemv_columns_quantized_v16_l32_u8_inner_partial_i8",),
    )
)

SUM = register(
    Kernel(
        name="gemv_sum",
        summary="The sums of the parts that a split matrix product leaves.",
        formula="y[m] = alpha (sum over the parts s of p[s][m]) + beta y[m]",
        axes=(),
        dtypes=VALUES,
        derive=lambda spec: {
            "THREADS": _SUM_THREADS,
            "COLUMNS": _SUM_COLUMNS,
            "STATIC_SMEM": _SUM_THREADS * total_of(spec).itemsize,
        },
        grid="(ceil(M / COLUMNS)): one block per COLUMNS numbers of the result",
        origin="the second pass of a segmented sum",
        defaults=("gemv_sum_f32",),
    )
)

SUM_COLUMNS = _SUM_COLUMNS
