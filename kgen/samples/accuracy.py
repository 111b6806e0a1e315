"""How far results may be from float64 on the same rounded inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

RMS_BAR = {"f64": 1e-14, "f32": 2e-6, "f16": 6e-4, "bf16": 2.0e-3}
"""Largest relative RMS error of an output against float64 on the same rounded inputs."""

GRADIENT_SLACK = 1.5

FEW = 4096
_HALF_ULP = {"f64": 2**-53, "f32": 2**-24, "f16": 2**-11, "bf16": 2**-8}
"""The largest relative error of one rounding."""


def rms_bar(dtype: str, outputs: int) -> float:
    """The bar for so many outputs. It counts on roundings that average out; those of a few may all be large."""
    return RMS_BAR[dtype] if outputs >= FEW else RMS_BAR[dtype] + _HALF_ULP[dtype]


def rms_error(result: Any, expected: np.ndarray[Any, Any]) -> float:
    """RMS of the error over RMS of what is expected; infinite where anything is not finite, or of another shape."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    if result.shape != expected.shape or not np.isfinite(result).all():
        return float("inf")
    return float(np.sqrt(np.mean((result - expected) ** 2)) / (np.sqrt(np.mean(expected**2)) + 1e-300))
