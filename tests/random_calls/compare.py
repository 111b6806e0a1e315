"""How far a result may be from float64, and what is said where it is farther."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from kgen.dtypes import BF16, F16, F32, F64, DType
from tests.random_calls.draw import Array

ROUNDING = {F32: 2.0**-24, F16: 2.0**-11, BF16: 2.0**-8, F64: 2.0**-53}
"""The largest relative error of one rounding."""

BAR = {F32: 2.5e-6, F16: 8e-4, BF16: 4.5e-3, F64: 1e-11}
"""Of the RMS error over the RMS of a result. For 16 bits it is one rounding and a little: a result may be a single
number, or one that outweighs the rest, whose roundings do not average out. For float32 it is the arithmetic's."""

WORST = 40
"""So many times the bar may the largest error be, of the largest number."""

SUM = 3e-7
"""What float32 sums may be off by, of the sum of the magnitudes: some roundings, which a tree of them keeps few."""

TINY = 1e-30


class Wrong(AssertionError):
    """A result that is not what it should be, or memory that was written and should not have been."""


def check_form(result: Array, shape: tuple[int, ...], dtype: DType, what: str = "the result") -> None:
    if result.shape != tuple(shape):
        raise Wrong(f"{what} has shape {list(result.shape)}, not {list(shape)}")
    if result.dtype != dtype.numpy:
        raise Wrong(f"{what} is {result.dtype}, not {dtype.numpy}")


def check_close(
    result: Array, expected: Array, dtype: DType, *, slack: float = 1, bar: float = 0, what: str = "the result"
) -> None:
    """Within `slack` bars of its dtype (or of `bar`) of what is expected in float64, and infinite or NaN where that is.

    Infinite where that rounds to infinity, that is: next to the largest number of a dtype either is right.
    """
    check_form(result, expected.shape, dtype, what)
    if not result.size:
        return
    result = result.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype.numpy).astype(np.float64)
        either = np.isfinite(expected) & (abs(expected) > 0.99 * float(ml_dtypes.finfo(dtype.numpy).max))
    finite = np.isfinite(rounded)
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    unlike = ~either & np.where(finite, ~np.isfinite(result), ~same)
    if unlike.any():
        at = tuple(int(i) for i in np.argwhere(unlike)[0])
        raise Wrong(f"{what} is {result[at]} at {list(at)}, not {rounded[at]}; {int(unlike.sum())} such")
    finite &= ~either
    if not finite.any():
        return
    wanted = expected[finite]
    error = abs(result[finite] - wanted)
    bar = slack * (bar or BAR[dtype])
    finest = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal) / 2  # half the distance of the smallest numbers
    rms = (rms_of(error) - finest) / (rms_of(wanted) + TINY)
    worst = float((error.max() - finest) / (abs(wanted).max() + TINY))
    if rms > bar or worst > WORST * bar:
        raise Wrong(f"{what} is off by {rms:.2e} (RMS; at most {bar:.1e}), by {worst:.2e} of its largest number")


def check_rms(
    result: Array, expected: Array, dtype: DType, bar: float, what: str = "the result", *, least: float = 0
) -> None:
    """Finite everywhere, and within the bar; of an RMS of `least` where that of what is expected is smaller.

    The rounding errors of sums of products are of the size of the products: where there are few sums, and these happen
    to cancel, they are a larger part of the result than anywhere else.
    """
    check_form(result, expected.shape, dtype, what)
    if not result.size:
        return
    result = result.astype(np.float64)
    if not np.isfinite(result).all():
        raise Wrong(f"{what} is not finite")
    rms = float(rms_of(result - expected) / (max(rms_of(expected), least) + TINY))
    if rms > bar:
        raise Wrong(f"{what} is off by {rms:.2e} (RMS; at most {bar:.1e})")


def rms_of(x: Array) -> float:
    return float(np.sqrt(np.mean(x**2)))


def check_within(result: Array, expected: Array, most: Array, dtype: DType, what: str = "the result") -> None:
    """Each number within its own distance. NaN is not."""
    check_form(result, expected.shape, dtype, what)
    error = abs(result.astype(np.float64) - expected)
    far = ~(error <= most)
    if far.any():
        at = tuple(int(i) for i in np.argwhere(far)[0])
        raise Wrong(f"{what} is {result[at]} at {list(at)}, not {expected[at]}: {error[at]:.2e} off; {far.sum()} such")


def check_equal(result: Array, expected: Array, dtype: DType, what: str = "the result", *, nan: bool = False) -> None:
    """The same numbers; NaN is equal to NaN only where it may be in the result."""
    check_form(result, expected.shape, dtype, what)
    unlike = np.asarray(result != expected)
    if nan:
        unlike &= ~(np.isnan(result) & np.isnan(expected))
    if unlike.any():
        at = tuple(int(i) for i in np.argwhere(unlike)[0])
        raise Wrong(f"{what} is {result[at]} at {list(at)}, not {expected[at]}; {int(unlike.sum())} such")


def check_bits(result: Array, expected: Array, dtype: DType, what: str = "the result") -> None:
    """The same bits, of whichever strides."""
    check_form(result, expected.shape, dtype, what)
    unlike = bits_of(result.ravel()) != bits_of(expected.ravel())
    if unlike.any():
        at = int(unlike.argmax())
        raise Wrong(f"{what} is {result.ravel()[at]}, not {expected.ravel()[at]}; {int(unlike.sum())} such")


def bits_of(memory: Array) -> Array:
    """The same contiguous memory as unsigned integers."""
    return memory.view(f"u{memory.itemsize}")


def sum_distance(expected: Array, magnitudes: Array, dtype: DType) -> Array:
    """How far a sum may be from `expected`: its rounding, and what the arithmetic loses of its magnitudes.

    Sums of float16 round to denormals too, and to infinity beyond 65504.
    """
    part = SUM * (1e-8 if dtype == F64 else 1)
    rounding = 1.01 * ROUNDING[dtype] * abs(expected) + magnitudes * part + TINY
    if dtype != F16:
        return rounding
    return np.where(abs(expected) > 65000, np.inf, rounding + 2.0**-25)
