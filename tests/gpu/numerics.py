"""Random operands in every layout, and how far a result is from float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import DTYPES

RMS_BAR = {"f32": 2e-6, "f16": 6e-4, "bf16": 2.0e-3}
"""Largest relative RMS error of an output against float64 on the same rounded inputs."""

GRADIENT_SLACK = 1.5

FEW = 4096
_HALF_ULP = {"f32": 2**-24, "f16": 2**-11, "bf16": 2**-8}
"""The largest relative error of one rounding."""


def rms_bar(dtype: str, outputs: int) -> float:
    """The bar for so many outputs. It counts on roundings that average out; those of a few may all be large."""
    return RMS_BAR[dtype] if outputs >= FEW else RMS_BAR[dtype] + _HALF_ULP[dtype]


def rms_error(result: Any, expected: np.ndarray) -> float:
    """RMS of the error over RMS of what is expected; infinite where anything is not finite."""
    result = np.asarray(result, np.float64)
    assert result.shape == expected.shape
    if not np.isfinite(result).all():
        return float("inf")
    return float(np.sqrt(np.mean((result - expected) ** 2)) / (np.sqrt(np.mean(expected**2)) + 1e-300))


def max_relative_error(result: Any, expected: np.ndarray) -> float:
    """fast-transformers' own measure, for positive inputs."""
    return float(np.max(np.abs(np.asarray(result, np.float64) - expected) / (np.abs(expected) + 1e-6)))


def operands(
    rng: np.random.Generator, shapes: list[tuple[int, ...]], dtype: str, *, uniform: bool = False
) -> list[Any]:
    """CuPy arrays of these shapes and one dtype."""
    import cupy

    draw = rng.random if uniform else rng.standard_normal
    return [cupy.asarray(draw(shape).astype(DTYPES[dtype].numpy)) for shape in shapes]


def host(array: Any) -> np.ndarray:
    """A CuPy array in float64 on the host."""
    import cupy

    return cupy.asnumpy(array).astype(np.float64)


def poisoned(shape: tuple[int, ...], dtype: str) -> Any:
    """An output whose every element shows if it is not written."""
    import cupy

    return cupy.full(shape, np.nan, dtype=DTYPES[dtype].numpy)
