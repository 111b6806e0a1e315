"""Fixed point: what weights are added in, the largest weight that sets its unit, and the doubles that sums are.

The unit is 2^-93 of the power of two above the largest weight. Integers add up to the same in any order, so results are
the same at every run, and at least as exact as sums of doubles in any order.
"""

from __future__ import annotations

from kgen.dtypes import F32, F64
from kgen.registry import register
from kgen.spec import Flag, Kernel

THREADS = 256
ITEMS = 4
FRACTION = 93
"""Bits of a sum below the power of two above the largest weight."""
SUM_BYTES = 16
DIGIT_BYTES = 32
"""Of a sum in digits, as float64 weights need it that are added in global memory at once."""
LONGEST = 1 << 32
"""Elements whose sum cannot run over: as many as the bits above the largest weight, and a sign, allow."""

LARGEST = register(
    Kernel(
        name="histogram_largest",
        summary="The largest finite magnitude among weights, as the bits of a double.",
        formula="largest = max over n of |weights[n]|",
        axes=(),
        dtypes=(F64, F32),
        derive=lambda spec: {"THREADS": THREADS, "ITEMS": ITEMS},
        grid="(resident blocks)",
        defaults=("histogram_largest_f64",),
    )
)
TOTAL = register(
    Kernel(
        name="histogram_total",
        summary="Sums of weights, from fixed point.",
        formula="out[b] = sums[b]",
        axes=(),
        flags=(Flag("digits", "sums come in digits"),),
        dtypes=(F64,),
        derive=lambda spec: {"THREADS": THREADS, "FRACTION": FRACTION},
        grid="(ceil(bins / THREADS))",
        defaults=("histogram_total_f64",),
    )
)
