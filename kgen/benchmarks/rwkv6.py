"""RWKV6's time mixing beside flash-linear-attention."""

from kgen.benchmarks.gla import Gated

BENCH = Gated("rwkv6", gate=True, bonus=True)
