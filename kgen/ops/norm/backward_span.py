"""Gradients of norms of many narrow rows of 16 bits, which begin anywhere: spans of them pass through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kgen.device import device_arch, multiprocessors, shared_memory
from kgen.dtypes import BF16, F16
from kgen.ops import rows_cut
from kgen.ops.norm import formulas
from kgen.ops.norm.backward_kernels import BIAS, OWN
from kgen.ops.norm.kernels import RMS
from kgen.ops.rows import SHARED, VECTOR, shared_for
from kgen.ops.rows_text import ALIGNED, WEIGHT_TYPES, text_of_weights
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = 256
REGISTERS = 65536
LANES = Axis("LANES", "t", (8, 16), "threads of a warp that share a row")
PACKS = Axis("PACKS", "n", tuple(range(5, 12)), "packs of a thread; some have none of the last")
VEC = Axis("VEC", "v", (2,), "numbers of a pack, which is a word")
MOST = {8: 9, 16: 11}  # packs of a thread, by the lanes of a row, that do best
CHUNK = 8  # elements of 16 bytes
PAYS = {True: (range(129, 225), range(257, 351)), False: (range(145, 193), range(257, 351))}
"""For which columns this pays, by whether there is a bias."""
ALIGNED_PAYS = {True: (range(193, 217),), False: ()}
"""The same, where rows begin at multiples of 16 bytes."""
ROWS = 400  # of a multiprocessor, from which on it does


def _derive(spec: Spec) -> dict[str, int]:
    lanes, packs = spec["LANES"], spec["PACKS"]
    statistics = 1 if spec["rms"] else 2
    own = 40 + packs * spec["VEC"] * (3 + spec["bias"])  # registers of a thread, about
    resident = min(4, REGISTERS // (THREADS * own))
    turn = 2 * THREADS * packs * 4 + 4 * statistics * (THREADS // lanes)  # bytes for a row of each thread
    warps = THREADS // 32
    rows = shared_for(resident) // (2 * turn) * warps  # of as many lanes in each warp
    # Rows of a warp are a power of two apart: where they are odd, this one puts them into different banks.
    reach = min(lanes.bit_length(), rows.bit_length() - 1)
    turns = (rows >> reach << reach) // warps
    return {
        "THREADS": THREADS,
        "RESIDENT": resident,
        "TURNS": turns,
        "REACH": reach,
        "DYNAMIC_SMEM": 2 * turns * turn,
    }


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **ALIGNED,
        **text_of_weights(spec),
        "filled": True,
        "shared": False,
        "reduced": "float" if spec["rms"] else "float2",
        "merges": {"Sum": "a + b" if spec["rms"] else "make_float2(a.x + b.x, a.y + b.y)"},
        "joined": False,
        "channels": True,  # as there, weights are taken one by one
    }


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    return None


SPAN = register(
    Kernel(
        name="norm_backward_span",
        summary="The gradient of the input of a norm, and sums for those of its weights, of narrow rows.",
        formula=formulas.backward,
        axes=(LANES, PACKS, VEC),
        flags=(RMS, *OWN, BIAS),
        dtypes=(F16, BF16),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.COPIES,
        grid="a block for many spans of rows: as many blocks as all multiprocessors have room for",
        origin="the chain rule",
        defaults=("norm_backward_span_t8_n9_v2_bias_bf16", "norm_backward_span_t16_n10_v2_rms_f16"),
    )
)


class Cut(NamedTuple):
    """A point on the axes."""

    lanes: int
    packs: int

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"LANES": self.lanes, "PACKS": self.packs, "VEC": VEC.values[0]}

    def __str__(self) -> str:
        return f"{self.lanes} threads each, by way of shared memory"


def cut(places: Sequence[rows_cut.Pitched], size: tuple[int, int], *, bias: bool) -> Cut | None:
    """The fewest lanes that have registers for so many rows, so wide, or None where other kernels do better.

    `places`: where rows are read and written.
    """
    (rows, columns), device = size, places[0].operand.device
    pays = (PAYS if columns % CHUNK else ALIGNED_PAYS)[bias]
    if any(place.itemsize != 2 or place.pitch != columns or place.offset(0) % VECTOR for place in places):
        return None
    if not any(columns in widths for widths in pays) or rows < ROWS * multiprocessors(device):
        return None
    if device_arch(device) < rows_cut.COPIES or shared_memory(device) < SHARED // 2:
        return None
    total = -(-columns // VEC.values[0])
    lanes = next(lanes for lanes, most in MOST.items() if lanes * most >= total)
    return Cut(lanes, -(-total // lanes))


def blocks(spec: Spec, count: int, device: int) -> int:
    """As many as all multiprocessors have room for."""
    height = spec.derived["TURNS"] * THREADS // spec["LANES"]
    return min(-(-count // height), spec.derived["RESIDENT"] * multiprocessors(device))
