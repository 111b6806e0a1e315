"""The kernels that multiply a matrix by a vector: along rows, along columns, and the sum of the parts of a split."""

from __future__ import annotations

from kgen.dtypes import BF16, E4M3, E5M2, F16, F32, F64, FLOATS, I8, DType
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

WARP = 32
PACK = 16
"""Bytes that a thread loads at once where it may."""

VALUES = (*FLOATS, F64)
QUANTIZED = (I8, E4M3, E5M2)
"""What a matrix alone may be made of: the vectors are then of one of FLOATS."""
WEIGHTS = (*VALUES, *QUANTIZED)

_SUM_COLUMNS, _SUM_THREADS = 32, 512

_FLAGS = (
    Flag("ragged", "rows that start anywhere and are of any length"),
    Flag("half", "x, y and the result are float16; without it they are float32, where the matrix is quantized"),
    Flag("brain", "x, y and the result are bfloat16"),
    Flag("blocks", "a scale for every block of a row, instead of one for the row"),
    Flag("inner", "scales belong to the numbers of x"),
    Flag("partial", "writes sums of a piece of the matrix, in the type in which it adds"),
)
_VEC = Axis("VEC", "v", (1, 2, 4, 8, 16), "consecutive elements that are loaded at once")
_THREADS = Axis("THREADS", "t", (64, 128, 256, 512, 1024), "threads of a block", default=256)


def _problem(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize > PACK:
        return f"{spec['VEC']} elements are more than the {PACK} bytes that a thread can load at once"
    if spec["LANES"] > spec["THREADS"]:
        return f"a row has {spec['LANES']} threads, and a block {spec['THREADS']}"
    if spec["half"] + spec["brain"] > (spec.dtype in QUANTIZED):
        return "the vectors are of the matrix's own type, but for a quantized matrix: then float32, float16 or bfloat16"
    if spec["blocks"] + spec["inner"] > (spec.dtype in QUANTIZED):
        return "only a quantized matrix has scales, and those of blocks stand by themselves"
    return None


def _rows_problem(spec: Spec) -> str | None:
    if spec["ragged"] and spec["VEC"] == 1:
        return "single elements are aligned anyhow"
    if spec["ROWS"] * spec["UNROLL"] * spec["VEC"] * spec.dtype.itemsize > 16 * PACK:
        return "more than sixteen packs in flight for a thread do not fit in its registers"
    if spec["inner"] and spec["ragged"]:
        return "scales of x are read for packs that are aligned"
    return _problem(spec)


def _columns_problem(spec: Spec) -> str | None:
    if spec["ragged"] and (spec["VEC"] == 1 or spec["THREADS"] // spec["LANES"] % spec["VEC"] or spec["LANES"] < 2):
        return "the rows of a group must all start alike: VEC > 1 must divide THREADS / LANES"
    if spec["ragged"] and spec["blocks"]:
        return "scales of blocks are for packs that are aligned"
    if spec["THREADS"] * spec["VEC"] * _real(spec) > 44 * 1024:
        return "the groups' sums would not fit in 48 KiB of shared memory"
    return _problem(spec)


def _real(spec: Spec) -> int:
    return 8 if spec.dtype is F64 else 4


def _rows_geometry(spec: Spec) -> dict[str, int]:
    shared = spec["THREADS"] // WARP * spec["ROWS"] * _real(spec) if spec["LANES"] > WARP else 0
    return {"THREADS": spec["THREADS"], "BLOCKS": _resident(spec), "STATIC_SMEM": shared}


def _columns_geometry(spec: Spec) -> dict[str, int]:
    shared = spec["THREADS"] * spec["VEC"] * _real(spec)
    shared += 4 * spec["THREADS"] // spec["LANES"] if spec["ragged"] else 0
    return {"THREADS": spec["THREADS"], "BLOCKS": _resident(spec), "STATIC_SMEM": shared}


def _resident(spec: Spec) -> int:
    """Blocks among which the registers of an SM are divided; sixteen numbers of x in registers take more."""
    wide = spec["VEC"] == 16 or spec["ragged"]
    return max(1, (768 if wide else 1024) // spec["THREADS"])


GEMV = register(
    Kernel(
        name="gemv",
        summary="A matrix times a vector, for a matrix whose rows are contiguous: sums along rows.",
        formula="y[m] = alpha (sum over k of a[m][k] x[k]) + beta y[m]",
        axes=(
            _VEC,
            Axis("LANES", "l", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "threads along a row"),
            Axis("ROWS", "r", (1, 2, 4, 8), "rows that a thread takes together"),
            Axis("UNROLL", "u", (1, 2, 4, 8), "packs of each row that a thread has in flight"),
            _THREADS,
        ),
        flags=_FLAGS,
        dtypes=WEIGHTS,
        derive=_rows_geometry,
        check=_rows_problem,
        grid="(splits * ceil(M / (ROWS * THREADS / LANES)) * batches): pieces of a row vary fastest",
        origin="the sgemv of every BLAS; k16, k32 and k128 of CUDA-Learn-Notes are points on these axes",
        defaults=(
            "gemv_v1_l32_r1_u1_f32",
            "gemv_v4_l32_r1_u1_f32",
            "gemv_v4_l128_r2_u4_f32",
            "gemv_v8_l128_r2_u4_ragged_bf16",
            "gemv_v16_l64_r4_u2_half_i8",
        ),
    )
)

COLUMNS = register(
    Kernel(
        name="gemv_columns",
        summary="A matrix times a vector, for a matrix whose columns are contiguous: sums across rows.",
        formula="y[n] = alpha (sum over k of a[k][n] x[k]) + beta y[n]",
        axes=(
            _VEC,
            Axis("LANES", "l", (1, 2, 4, 8, 16, 32, 64), "threads along a row"),
            Axis("UNROLL", "u", (4, 8, 16), "rows that a thread has in flight"),
            _THREADS,
        ),
        flags=_FLAGS,
        dtypes=WEIGHTS,
        derive=_columns_geometry,
        check=_columns_problem,
        grid="(ceil(N / (LANES * VEC)) * splits * batches): column tiles vary fastest",
        origin="the transposed sgemv of every BLAS",
        defaults=("gemv_columns_v4_l32_u8_f32", "gemv_columns_v8_l32_u8_partial_bf16"),
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
            "STATIC_SMEM": _SUM_THREADS * _real(spec),
        },
        grid="(ceil(M / COLUMNS)): one block per COLUMNS numbers of the result",
        origin="the second pass of a segmented sum",
        defaults=("gemv_sum_f32",),
    )
)

SUM_COLUMNS = _SUM_COLUMNS


def value_flags(weight: DType, value: DType) -> dict[str, bool]:
    """The flags that name the vectors' type."""
    return {"half": value is F16, "brain": value is BF16} if weight in QUANTIZED else {}


def value_of(spec: Spec) -> DType:
    """The vectors' type of a specialization."""
    if spec.dtype not in QUANTIZED:
        return spec.dtype
    return F16 if spec["half"] else BF16 if spec["brain"] else F32
