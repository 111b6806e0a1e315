"""The element types that kernels are specialized for.

A type is known by its short name (f32, bf16, i64), which goes into file names, and never by NumPy's type string:
ml_dtypes.bfloat16 and every fp8 type share theirs with plain bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kgen.errors import SpecError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type: its name here, in CUDA C++ (with the header that declares it), and in NumPy."""

    name: str
    c: str
    header: str | None
    itemsize: int
    numpy_name: str

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 and fp8 are ml_dtypes'."""
        import numpy as np  # here, since naming a type on the command line should not wait for NumPy

        if self in (BF16, E4M3, E5M2):
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, self.numpy_name))  # type: ignore[no-any-return]
        return np.dtype(self.numpy_name)

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", "double", None, 8, "float64")
F32 = DType("f32", "float", None, 4, "float32")
F16 = DType("f16", "__half", "cuda_fp16.h", 2, "float16")
BF16 = DType("bf16", "__nv_bfloat16", "cuda_bf16.h", 2, "bfloat16")
E4M3 = DType("e4m3", "__nv_fp8_e4m3", "cuda_fp8.h", 1, "float8_e4m3fn")
E5M2 = DType("e5m2", "__nv_fp8_e5m2", "cuda_fp8.h", 1, "float8_e5m2")
BOOL = DType("bool", "bool", None, 1, "bool")
I8 = DType("i8", "signed char", None, 1, "int8")
I16 = DType("i16", "short", None, 2, "int16")
I32 = DType("i32", "int", None, 4, "int32")
I64 = DType("i64", "long long", None, 8, "int64")
U8 = DType("u8", "unsigned char", None, 1, "uint8")
U16 = DType("u16", "unsigned short", None, 2, "uint16")
U32 = DType("u32", "unsigned", None, 4, "uint32")
U64 = DType("u64", "unsigned long long", None, 8, "uint64")

FLOATS = (F32, F16, BF16)
"""What every operator takes; some take more."""
FP8 = (E4M3, E5M2)
SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = SIGNED + UNSIGNED

DTYPES = {dtype.name: dtype for dtype in (F64, *FLOATS, *FP8, BOOL, *INTEGERS)}
_BY_NUMPY_NAME = {dtype.numpy_name: dtype for dtype in DTYPES.values()}


def dtype_of(value: object) -> DType:
    """The `DType` that a name ("f16", "float16"), a NumPy dtype or scalar type, or a torch dtype stands for.

    Raises SpecError (a ValueError) for anything else.

    >>> dtype_of("f16") is dtype_of("float16") is F16
    True
    """
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None) or getattr(value, "__name__", None)
    # torch.bfloat16 has no name; its text is "torch.bfloat16".
    key = name if isinstance(name, str) else str(value).rpartition(".")[2]
    found = DTYPES.get(key) or _BY_NUMPY_NAME.get(key) or (BOOL if key == "bool_" else None)  # NumPy 1's scalar type
    if found is None:
        raise SpecError(f"no kernel takes the dtype {value!r}", hint=f"taken: {', '.join(_BY_NUMPY_NAME)}")
    return found


def listed(dtypes: Sequence[DType]) -> str:
    """The types as a sentence has them.

    >>> listed(FLOATS)
    'float32, float16 or bfloat16'
    """
    names = [dtype.numpy_name for dtype in dtypes]
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
