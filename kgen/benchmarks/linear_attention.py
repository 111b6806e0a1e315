"""Linear attention beside flash-linear-attention."""

from kgen.benchmarks.gla import Gated

BENCH = Gated("linear_attention", gate=0, peers=("linear_attn", "linear_attn"))
