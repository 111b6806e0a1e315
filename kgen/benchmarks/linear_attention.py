"""Linear attention, one time step after another, beside flash-linear-attention."""

from kgen.benchmarks.gla import Gated

BENCH = Gated("linear_attention", gate=False)
