"""The gradients of a norm and its weights over wide rows, which stay in the shared memory of clusters.

A cluster takes rows in turn: it goes through the next one while what it has found of one gets about, and the packs of
those that follow are on their way all the time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kgen.device import shared_memory
from kgen.dtypes import F32, DType
from kgen.ops import rows_cut, rows_ring
from kgen.ops.norm.backward_kernels import BIAS, OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows import RESERVED, SHARED, VEC, VECTOR
from kgen.ops.rows_text import WEIGHT_TYPES, centred, text_of_weights
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

LANES = 512
PACKS = 2  # of each array, that a thread has of a row
EXCHANGES = 4  # of what is found of a row, in turn
CLUSTER = Axis("CLUSTER", "c", (2, 4, 8, 16), "blocks that share a row, as a cluster")
TURNS = 16  # rows of a cluster, from which on it pays


class Cut(NamedTuple):
    """How many neighbours make a pack, how many blocks share a row, and how many clusters take rows in turn."""

    vec: int
    cluster: int
    clusters: int

    def __str__(self) -> str:
        return f"{self.cluster} blocks of {LANES} threads, which take rows in turn"


def cut(height: int, columns: int, taken: rows_cut.Packs, device: int, dtype: DType, *, rms: bool) -> Cut | None:
    """The cut for so many rows, so wide, or None where another does better, or the device has no room for one.

    With 16 bits there is twice the arithmetic for each byte, so that less can be gained.
    """
    aligned = taken.full and not (taken.ragged or taken.shifted)
    total = columns // taken.vec
    if not aligned or total <= LANES * PACKS or shared_memory(device) < SHARED:
        return None
    cluster = next((c for c in CLUSTER.values if c <= rows_cut.largest(device) and c * LANES * PACKS >= total), None)
    if cluster is None or (dtype is not F32 and (not rms or cluster == 2)):
        return None
    clusters = rows_ring.taking_turns(cluster, height, TURNS, device)
    return Cut(taken.vec, cluster, clusters) if clusters else None


def _derive(spec: Spec) -> dict[str, int]:
    found = 4 if spec["rms"] else 8  # bytes
    static = EXCHANGES * (found * (LANES // 32 + spec["CLUSTER"]) + 8)
    ring = (SHARED - static - RESERVED) // (2 * LANES * VECTOR) // PACKS * PACKS
    return {
        "LANES": LANES,
        "PACKS": PACKS,
        "THREADS": LANES,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": ring * 2 * LANES * VECTOR,
        "RING": ring,
        "EXCHANGES": EXCHANGES,
        "CLUSTER": spec["CLUSTER"],
    }


def _text(spec: Spec) -> dict[str, Any]:
    factor = "(weight_offset + weight)" if spec["rms"] else "weight"
    less = "number * product" if spec["rms"] else "(sum + number * product)"
    return {
        **rows_ring.text(spec, "float" if spec["rms"] else "float2", claimed=False),
        **text_of_weights(spec),
        "merges": {"Sum": "a + b" if spec["rms"] else "make_float2(a.x + b.x, a.y + b.y)"},
        "channels": False,
        "normal": centred(spec, "number") + " * rstd",
        "upstream": f"dy * {factor}",
        "gradient": f"rstd * fmaf(dy, {factor}, -{less})",
    }


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    return None if spec["VEC"] * spec.dtype.itemsize == VECTOR else f"what is fetched for later is of {VECTOR} bytes"


RING = register(
    Kernel(
        name="norm_backward_ring",
        summary="The gradient of the input of a norm, and sums for those of its weights, over wide rows.",
        formula="n[i] = (x[i] - mean) rstd,  g[i] = dy[i] weight[i]\ndx[i] = rstd (g[i] - mean(g) - n[i] mean(g n))",
        axes=(VEC, CLUSTER),
        flags=(RMS, *OWN, BIAS),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many rows: as many clusters as all multiprocessors have room for",
        origin="the chain rule",
        defaults=("norm_backward_ring_v4_c4_bias_f32", "norm_backward_ring_v8_c4_rms_bf16"),
    )
)
