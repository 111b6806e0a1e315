"""The kernel of linear attention in chunks on the tensor cores of whole warpgroups: bfloat16, no gate, no feature map.

It is the scan of `gated_chunk`, with states in the same order, where a chip multiplies far faster by warpgroups.
"""

from __future__ import annotations

from typing import Any

from kgen.arch import Arch
from kgen.dtypes import BF16
from kgen.ops.gated.kernels import offset_type
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

ROOM = 128
"""Columns of z and x that it takes; fewer are padded."""
WIDE = 256
"""Likewise, of wide heads."""
CHUNK = 64
_BYTES = 2
_SHARED = 227 * 1024  # bytes of a block on Hopper
_SIGNALS = 32  # bytes of mbarriers
_GATES = 4 * (2 * (2 * CHUNK + 4) + 2 * (2 * CHUNK + 4))  # bytes of what becomes of gates,
_OWN = 4 * 2 * CHUNK  # and of products of a time step with itself
_LINE = 1024  # bytes, to whose multiples tiles are aligned


def _geometry(spec: Spec) -> dict[str, int]:
    k, v, outer = spec["K"], spec["V"], spec["outer"]
    parts = 2 if spec["fine"] else 1
    stage = _BYTES * CHUNK * (k * (1 if outer else 2) + v * (2 if spec["products"] else 1))
    prepared = 0 if outer else _BYTES * parts * CHUNK * CHUNK
    more = 2 * prepared + _SIGNALS + (_GATES if spec["GATE"] else 0) + (_OWN if spec["products"] else 0)
    stages = min(6, (_SHARED - more) // stage)
    loaders, state = (120, 192) if k == ROOM else (72, 216)
    return {
        "THREADS": 32 * (v // 16 + 4),
        "PARTS": parts,
        "STAGES": stages,
        "LOADER_REGISTERS": loaders,
        "STATE_REGISTERS": state,
        "DYNAMIC_SMEM": stages * stage + more,
    }


def _text(spec: Spec) -> dict[str, Any]:
    """What the template asks beside the axes; `shapes` are of the products that warpgroups compute.

    Where states take most of the registers (`crowded`), results are stored before the next products begin.
    Loaders that keep pointers spill less. Where products are few, those that begin anew with each chunk were faster:
    on an H200 the backward pass took 0.208 ms with them and 0.226 with the others, at 8 x 16 x 2048 x 128.
    """
    wide, outer = spec["K"] == WIDE, spec["outer"]
    columns = ("columns", 64, 1)
    rows = ("rows", 64, 0)
    tiles = ("tiles", 64, 0)
    return {
        "keeps_pointers": wide or spec["fine"] or outer or spec["V"] < ROOM,
        "hands_over": (wide or not outer) and spec["V"] == ROOM,  # fewer warps have enough registers
        "crowded": wide and not outer and spec["V"] == ROOM,
        "meets": not outer or bool(spec["GATE"]),
        "offset_type": offset_type(spec),
        "shapes": [columns] if outer else [tiles, rows, columns] if wide else [rows, columns],
    }


def _problem(spec: Spec) -> str | None:
    if spec["fine"] and spec["outer"] and not spec["GATE"]:
        return "without a gate states are sums of products of inputs, which are exact"
    if spec["GATE"] and not spec["fine"]:
        return "values that decay need more bits than a bfloat16 has"
    if not spec["GATE"] and (spec["gfloat"] or spec["adjoint"] or spec["products"]):
        return "what is not there has no type, no order and no gradient"
    if spec["outer"] and spec["products"]:
        return "states have no results"
    if spec["pair"] and (spec["outer"] or spec["GATE"] or spec["V"] < ROOM):
        return "only scans without a gate, of as many rows as columns, are each other's turned"
    return None


LINEAR = register(
    Kernel(
        name="linear_chunk",
        summary="Linear attention in chunks on the tensor cores of whole warpgroups, the state in registers.",
        formula="o[t] = z[t]^T S + sum over s <= t within t's chunk of (z[t] . x[s]) y[s]\n"
        "S    = sum over s of the chunks before t's of x[s] y[s]^T,    each decayed by the gates between, if any",
        axes=(
            Axis("K", "k", (ROOM, WIDE), "room for columns of z and x; the true count comes at run time", default=ROOM),
            Axis("V", "v", (ROOM // 2, ROOM), "columns of y of a block", default=ROOM),
            Axis("GATE", "g", (0, 1), "gates: none, one per time step", default=0),
            Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
        ),
        flags=(
            Flag("outer", "only the states: what each piece of a sequence adds"),
            Flag("pair", "two scans in one launch: in the other, x and y change places, and the state is turned"),
            Flag("products", "also each result times what it is the gradient of, for the gradient of gates"),
            Flag("adjoint", "a gradient's scan: a time step decays the state after it was added"),
            Flag("fine", "the state and the scores enter products in two parts, of 16 bits together, not of 8"),
            Flag("gfloat", "gates are floats"),
            Flag("warpgroup", "products are wgmma, which compute capability 9.0 alone has; else they are mma.sync"),
        ),
        dtypes=(BF16,),
        derive=_geometry,
        check=_problem,
        text=_text,
        grid="(ceil(columns / V) * segments * heads * sequences): one block per tile of columns and segment of time; "
        "as many again for the other scan of a pair",
        origin="Katharopoulos et al., Transformers are RNNs, 2020, in the chunked form of Hua et al., Transformer "
        "Quality in Linear Time, 2022; the state as an operand in registers as in FlashAttention-3 (Shah et al., 2024)",
        min_arch=Arch(9, 0),
        defaults=(
            "linear_chunk_fine_bf16",
            "linear_chunk_bf16",
            "linear_chunk_pair_bf16",
            "linear_chunk_outer_bf16",
            "linear_chunk_v64_fine_bf16",
            "linear_chunk_k256_fine_bf16",
            "linear_chunk_g1_fine_gfloat_bf16",
            "linear_chunk_g1_outer_fine_gfloat_bf16",
            "linear_chunk_g1_products_adjoint_fine_bf16",
        ),
    )
)
