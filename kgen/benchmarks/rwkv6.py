"""RWKV6's time mixing beside flash-linear-attention."""

from kgen.benchmarks.gla import Gated

BENCH = Gated("rwkv6", gate=2, bonus=True, peers=("rwkv6", "rwkv6"))
