"""Element types: every spelling leads to the one object, and nothing else to any."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.dtypes import BF16, BOOL, DTYPES, E5M2, F16, F32, F64, I64, DType, dtype_of
from kgen.errors import SpecError


class TorchDType:
    """Like torch's: no name, only a text."""

    def __repr__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (F16, F16),
        ("f16", F16),
        ("float16", F16),
        (np.float16, F16),
        (np.dtype("f4"), F32),
        ("float32", F32),
        (ml_dtypes.bfloat16, BF16),
        (np.dtype(ml_dtypes.bfloat16), BF16),
        (TorchDType(), BF16),
        (np.float64, F64),
        (np.bool_, BOOL),
        (np.dtype("i8"), I64),
        (ml_dtypes.float8_e5m2, E5M2),
    ],
)
def test_every_spelling_of_a_dtype_is_the_same_object(value: object, dtype: DType) -> None:
    assert dtype_of(value) is dtype


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_dtype_knows_its_numpy_dtype_and_size(dtype: DType) -> None:
    assert dtype_of(dtype.numpy) is dtype
    assert dtype.numpy.itemsize == dtype.itemsize


@pytest.mark.parametrize(
    "value", ["f128", "", "F32", np.complex64, np.dtype("V2"), ml_dtypes.float8_e4m3b11fnuz, None, 3, [], "<V2"]
)
def test_a_dtype_that_no_kernel_takes_is_refused_with_those_that_are(value: object) -> None:
    with pytest.raises(SpecError, match="no kernel takes the dtype") as caught:
        dtype_of(value)
    assert caught.value.hint.startswith("taken: float64, float32, float16, bfloat16, ")


@given(st.one_of(st.text(), st.integers(), st.none(), st.floats(), st.binary()))
def test_any_value_is_a_dtype_or_a_spec_error(value: object) -> None:
    with contextlib.suppress(SpecError):
        dtype_of(value)


def test_naming_a_dtype_does_not_import_numpy(run_python) -> None:
    assert run_python("import sys, kgen.dtypes as d; d.dtype_of('f16'); print('numpy' in sys.modules)") == "False\n"
