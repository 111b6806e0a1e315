"""The kernels that count: elements into bins, and weights into bins; and how they are cut for a number of bins."""

from __future__ import annotations

from typing import NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import BF16, BOOL, F32, F64, FLOATS, I64, INTEGERS, DType
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

ELEMENTS = (F64, *FLOATS, BOOL, *INTEGERS)
INDICES = (I64, *(t for t in INTEGERS if t is not I64), BOOL)
LOAD_BYTES = 16
ITEMS = 4
BATCH = 1 << 14
"""Elements between two barriers, in blocks whose counters have 16 bits."""
COPIES = (16, 8, 4, 2, 1)
"""Counters for each bin. One for each lane would be no faster, and leave less room for loads."""
SLOTS = 4096
"""Bins that a block counts in shared memory where it has no room for all of them."""
PASSES = 8
"""Times that elements are read, at most, before counting in global memory takes over."""

MAPS = (
    Flag("uniform", "bins of one width between two bounds, instead of one for each integer"),
    Flag("edges", "bins between any edges, found by bisection"),
)


def _geometry(spec: Spec) -> dict[str, int]:
    big = spec["SMEM"] > 112
    return {
        "THREADS": 1024 if big else 512,
        "BLOCKS": 1 if big else 2,
        "ITEMS": items(spec),
        "SLOTS": SLOTS,
        "STATIC_SMEM": 0 if spec["SMEM"] else 8 * SLOTS,
        "DYNAMIC_SMEM": 1024 * spec["SMEM"],
    }


def edge_of(dtype: DType) -> DType:
    """The type of edges between bounds that are Python's numbers."""
    return F32 if dtype is BF16 else dtype if dtype in FLOATS else F64


def items(spec: Spec) -> int:
    """Loads that a thread has in flight, of up to 32 elements, and of no more than a batch of the block has."""
    threads = 1024 if spec["SMEM"] > 112 else 512
    most = BATCH // threads if spec["packed"] else 32
    return min(ITEMS, most // spec["VEC"])


def illegal_map(spec: Spec) -> str | None:
    """Why elements cannot be mapped to bins so, or None."""
    if spec["uniform"] and spec["edges"]:
        return "bins are uniform or not"
    if not (spec["uniform"] or spec["edges"]) and spec.dtype not in INDICES:
        return f"{spec.dtype.numpy_name} elements are no indices"
    return None


def _illegal(spec: Spec) -> str | None:
    if spec["VEC"] > 1 and spec["VEC"] * spec.dtype.itemsize != LOAD_BYTES:
        return f"loads are of one element or of {LOAD_BYTES} bytes"
    if (problem := illegal_map(spec)) is not None:
        return problem
    if spec["greatest"] and (spec["uniform"] or spec["edges"]):
        return "only of indices the greatest is asked for"
    if (spec["packed"] or not spec["SMEM"]) and spec["COPIES"] > 1:
        return "copies are for few bins"
    if not spec["SMEM"] and spec["packed"]:
        return "counters in global memory have 64 bits"
    if spec["packed"] and spec["SMEM"] != 224 and spec["SMEM"] != 48:
        return "16-bit counters are for what does not fit otherwise"
    return None


HISTOGRAM = register(
    Kernel(
        name="histogram",
        summary="How many elements fall into each bin.",
        formula="counts[b] += #{n : bin(x[n]) = b}",
        axes=(
            Axis("SMEM", "k", (48, 112, 224, 0), "KiB of shared memory for counters; 0: they are in global memory"),
            Axis("COPIES", "c", COPIES, "counters for each bin"),
            Axis("VEC", "v", (1, 2, 4, 8, 16), "elements of a load"),
        ),
        flags=(*MAPS, Flag("packed", "two counters in a word"), Flag("greatest", "the greatest element is told")),
        dtypes=ELEMENTS,
        derive=_geometry,
        text=lambda spec: {"edge": edge_of(spec.dtype).c},
        check=_illegal,
        grid="(resident blocks): passes vary fastest",
        origin="privatised counters: J. Gomez-Luna et al., An optimized approach to histogram computation on GPU, 2013",
        defaults=("histogram_k224_c1_v4_packed_i32", "histogram_k48_c16_v4_uniform_f32"),
    )
)


class Cut(NamedTuple):
    """How bins are laid out in blocks."""

    kib: int
    copies: int
    packed: bool
    per_pass: int
    passes: int


def cut_for(bins: int, device: int) -> Cut:
    """The fewest passes, then the most copies, that the shared memory of a device allows, and no more of it than that.

    What counters leave of it is where loads arrive.
    """
    sizes = [kib for kib in (48, 112, 224) if 1024 * kib <= shared_memory(device)]
    room = {kib: 1024 * kib // 4 for kib in sizes}
    shared = [kib for kib in sizes if kib <= 112]  # by two blocks
    for copies in COPIES:
        for kib in shared:
            if bins * copies <= room[kib]:
                return Cut(kib, copies, False, bins, 1)
    large = max(sizes)
    if bins <= room[large]:
        return Cut(large, 1, False, bins, 1)
    large = 224 if 224 in sizes else 48
    passes = -(-bins // (2 * room[large]))
    if passes <= PASSES:
        return Cut(large, 1, True, 2 * room[large], passes)
    return Cut(0, 1, False, bins, 1)


def blocks_for(spec: Spec, cut: Cut, length: int, device: int) -> int:
    """As many blocks as are resident, or as have work; a whole number of passes."""
    per_block = spec.threads * items(spec) * spec["VEC"]
    resident = multiprocessors(device) * (spec.derived["BLOCKS"] if cut.kib else 2)
    side_by_side = max(1, resident // cut.passes)
    return min(side_by_side, max(1, -(-length // per_block))) * cut.passes


def vector_for(dtype: DType, step: int) -> int:
    """Elements of a load: 16 bytes where elements are neighbours, wherever they begin."""
    return LOAD_BYTES // dtype.itemsize if step == 1 else 1


def map_of(uniform: bool | None) -> dict[str, bool]:
    """The flags that say how an element finds its bin; None: it is its own."""
    return {"uniform": uniform is True, "edges": uniform is False}
