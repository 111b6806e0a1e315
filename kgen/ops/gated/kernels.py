"""What the kernels of linear attention with gates share, and the one that adds up their parts."""

from __future__ import annotations

from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

WIDEST = 512
"""Features and value columns that a head may have."""
SUM_THREADS = 256
SUM_ROUNDS = 4


def offset_type(spec: Spec) -> str:
    """The type of offsets, where sequences follow one another."""
    return {0: "", 4: "int", 8: "long long"}[spec["OFFSETS"]]


SUM = register(
    Kernel(
        name="gated_sum",
        summary="Adds up what the heads of a group, or the parts of a head, gave to the same result.",
        formula="out[b, h, t, d] = sum over groups and splits of parts",
        axes=(
            Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
            Axis("VEC", "v", (1, 4), "neighbours that a thread takes", default=4),
        ),
        derive=lambda spec: {"THREADS": SUM_THREADS, "ROUNDS": SUM_ROUNDS},
        text=lambda spec: {"offset_type": offset_type(spec)},
        grid="(ceil(length / rows) * heads * batch): one block per some rows of the result",
        origin="a sum in fixed order",
        defaults=("gated_sum_f32",),
    )
)
