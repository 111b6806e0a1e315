"""The types of a product with a vector: of the matrix, of the vectors, and of the sums."""

from __future__ import annotations

from kgen.dtypes import BF16, E4M3, E5M2, F16, F32, F64, FLOATS, I8, DType
from kgen.spec import Flag, Spec

VALUES = (*FLOATS, F64)
QUANTIZED = (I8, E4M3, E5M2)
"""What a matrix alone may be made of: the vectors are then of one of FLOATS."""
WEIGHTS = (*VALUES, *QUANTIZED)

VALUE_FLAGS = (
    Flag("half", "x, y and the result are float16; without it they are float32"),
    Flag("brain", "x, y and the result are bfloat16"),
)


def value_flags(value: DType) -> dict[str, bool]:
    """The flags of a quantized kernel that name the vectors' type."""
    return {"half": value is F16, "brain": value is BF16}


def value_of(spec: Spec) -> DType:
    """The vectors' type of a specialization."""
    if spec.dtype not in QUANTIZED:
        return spec.dtype
    return F16 if "half" in spec.flags else BF16 if "brain" in spec.flags else F32


def total_of(spec: Spec) -> DType:
    """The type in which sums of several threads are added: those of float32 are exact until they are rounded at last.

    Sums of products with a quantized matrix are not.
    """
    return F64 if spec.dtype in (F32, F64) else F32


def types_of(spec: Spec, vec: int) -> dict[str, object]:
    """The types that a template writes: of the vectors, of sums, and of a pack below eight bytes."""
    word = {1: "unsigned char", 2: "unsigned short"}.get(vec * spec.dtype.itemsize, "unsigned")
    value = value_of(spec)
    real, total = ("double" if dtype is F64 else "float" for dtype in (spec.dtype, total_of(spec)))
    return {
        "quantized": spec.dtype in QUANTIZED,
        "value": value.c,
        "real": real,
        "total": total,
        "part": "double" if value in (F32, F64) else "float",
        "exact": spec.dtype is F32,
        "word": word,
    }
