"""The element types that kernels are specialized for.

A type is known by its short name (f32, f16, bf16), which goes into file names, and never by NumPy's type string:
ml_dtypes.bfloat16 and every fp8 type share theirs with plain bytes.
"""

from __future__ import annotations

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
        """The NumPy dtype; bfloat16 is ml_dtypes'."""
        import numpy as np  # here, since naming a type on the command line should not wait for NumPy

        if self.numpy_name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
        return np.dtype(self.numpy_name)

    def __str__(self) -> str:
        return self.name


F32 = DType("f32", "float", None, 4, "float32")
F16 = DType("f16", "__half", "cuda_fp16.h", 2, "float16")
BF16 = DType("bf16", "__nv_bfloat16", "cuda_bf16.h", 2, "bfloat16")

DTYPES = {dtype.name: dtype for dtype in (F32, F16, BF16)}
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
    found = DTYPES.get(key) or _BY_NUMPY_NAME.get(key)
    if found is None:
        raise SpecError(f"no kernel takes the dtype {value!r}", hint=f"taken: {', '.join(_BY_NUMPY_NAME)}")
    return found
