"""Whole layers made of kgen's operators and the array library's matrix products: Gated Linear Attention and RWKV6.

A layer is a plain object that holds a dict of arrays; it takes NumPy, CuPy or torch arrays, whichever those are.
"""

from kgen.layers.gla import GatedLinearAttention as GatedLinearAttention
from kgen.layers.rwkv6 import RWKV6State as RWKV6State
from kgen.layers.rwkv6 import RWKV6TimeMixing as RWKV6TimeMixing
