"""Random operands in every layout, and how far a result is from float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.dtypes import DTYPES
from kgen.samples.accuracy import GRADIENT_SLACK, RMS_BAR, rms_bar, rms_error

__all__ = [
    "GRADIENT_SLACK",
    "RMS_BAR",
    "host",
    "max_relative_error",
    "operands",
    "poisoned",
    "rms_bar",
    "rms_error",
]


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
