"""Operands of matrix products, in the bits of their types.

By warp: small integers, whose products and sums are exact; numbers of like size; numbers of unlike size, which show how
far below the largest product the hardware looks; bit patterns; and in every sixteenth warp some that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

WARP = 32
Words = np.ndarray[Any, np.dtype[np.uint64]]


class Layout(NamedTuple):
    """A float's bits: of the exponent and of the mantissa, and how many numbers a register holds."""

    exponent: int
    mantissa: int
    packed: int = 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


LAYOUTS = {
    "f64": Layout(11, 52),
    "f32": Layout(8, 23),
    "tf32": Layout(8, 23),  # the hardware is to ignore the last 13 bits
    "f16x2": Layout(5, 10, 2),
    "bf16x2": Layout(8, 7, 2),
    "e4m3x4": Layout(4, 3, 4),
    "e5m2x4": Layout(5, 2, 4),
}


def tile(kind: str, words: Callable[[], Words], count: int) -> Words:
    """A register of an operand for `count` lanes, from raw words."""
    if kind in ("s8x4", "s32"):
        bits = words()
        small = (bits >> np.uint64(40)) % np.uint64(2)
        low = bits & np.uint64(0xFFFFFFFF)
        # Sums near the ends of int32, for the saturating forms.
        return np.where(small == 0, low, low & np.uint64(0x7F7F7F7F)) if kind == "s8x4" else low
    layout = LAYOUTS[kind]
    found = np.zeros(count, np.uint64)
    for part in range(layout.packed):
        found |= _numbers(layout, words, count) << np.uint64(part * layout.bits)
    return found


def _numbers(layout: Layout, words: Callable[[], Words], count: int) -> Words:
    warp = np.arange(count, dtype=np.uint64) // np.uint64(WARP)
    bits, more = words(), words()
    exponent, mantissa = np.uint64(layout.exponent), np.uint64(layout.mantissa)
    bias = np.uint64(2 ** (layout.exponent - 1) - 1)
    low = np.uint64(2**layout.mantissa - 1)
    sign = (bits >> np.uint64(63)) << (exponent + mantissa)
    fraction = bits & low

    integer = (more % np.uint64(9)).astype(np.int64)
    log2 = np.array([0, 0, 1, 1, 2, 2, 2, 2, 3], np.uint64)[integer]
    exact = (bias + log2) << mantissa | (integer.astype(np.uint64) << mantissa >> log2) & low
    exact = np.where(integer == 0, np.uint64(0), exact)

    alike = (bias - np.minimum(more % np.uint64(4), bias - np.uint64(1))) << mantissa | fraction
    spread = min(24, 2 ** (layout.exponent - 1) - 3)
    unlike = (bias - np.uint64(spread // 2) + more % np.uint64(spread)) << mantissa | fraction
    pattern = more >> np.uint64(64 - layout.exponent) << mantissa | fraction
    top = np.uint64(2**layout.exponent - 1) << mantissa
    finite = np.where(pattern & top == top, pattern ^ (np.uint64(1) << (mantissa + exponent - np.uint64(1))), pattern)

    kind = warp % np.uint64(4)
    magnitude = np.select([kind == 0, kind == 1, kind == 2], [exact, alike, unlike], finite)
    magnitude = np.where((warp % np.uint64(16) == 13) & ((bits >> np.uint64(55)) % np.uint64(64) == 0), top, magnitude)
    return sign | magnitude
