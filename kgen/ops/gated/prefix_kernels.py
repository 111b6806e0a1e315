"""The kernels that bring states of segments into order: those before each segment, and the last one to its caller."""

from __future__ import annotations

from kgen.arch import Arch
from kgen.dtypes import F32
from kgen.registry import register
from kgen.spec import Axis, Kernel

PREFIX_THREADS = 128
STATE_AXES = (
    Axis("K", "k", (64, 128), "room for features of q and k; the true count comes at run time"),
    Axis("V", "v", (32, 64, 128), "value columns of a block"),
)


def _states_kernel(name: str, summary: str, formula: str, unpack: bool, defaults: tuple[str, ...]) -> Kernel:
    return register(
        Kernel(
            name=name,
            stem="gated_prefix",
            summary=summary,
            formula=formula,
            axes=STATE_AXES,
            dtypes=(F32,),
            derive=lambda spec: {"THREADS": PREFIX_THREADS},
            text=lambda spec: {"unpack": unpack},
            grid="(tiles * K * V / 4 / THREADS * heads * sequences): one thread per four numbers of a state",
            origin="the second pass of a segmented scan",
            min_arch=Arch(8, 0),
            defaults=defaults,
        )
    )


PREFIX = _states_kernel(
    "gated_prefix",
    "The states before each segment, each in place of what its segment adds.",
    "S[s + 1] = diag(decay[s]) S[s] + added[s]",
    False,
    ("gated_prefix_k128_v128_f32",),
)
UNPACK = _states_kernel(
    "gated_unpack",
    "The last state, from the tiles in which chunked scans keep it to where it is wanted.",
    "last[k, v] = S[k, v]",
    True,
    ("gated_unpack_k128_v128_f32",),
)
