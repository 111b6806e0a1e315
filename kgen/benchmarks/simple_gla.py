"""Linear attention with a gate for each head and time step beside flash-linear-attention."""

from kgen.benchmarks.gla import Gated

BENCH = Gated("simple_gla", gate=1, peers=("simple_gla", "simple_gla"))
