"""The kernel that takes short rows whole where these begin with packs, in words of several elements if it may."""

from __future__ import annotations

from kgen.dtypes import U8, U16, U32, U64
from kgen.ops.moving.transpose_kernels import BATCH
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

MOST_TURNS, MOST_APART = 4, 2
"""Of a thread, of which all loads are under way together; and where long rows begin anywhere, so that each pack lies in
two."""
KIBS = (12, 16, 24, 32, 40, 56, 64, 72)
"""KiB of shared memory of a block, about: some more, so that a power of two of odd rows of packs fits. A multiprocessor
has room for three blocks of the most."""
_WORD = 4
"""Bytes that are turned over in registers."""


def room(kib: int) -> int:
    """Bytes of shared memory of a block."""
    return (kib << 10) + 256


def group(itemsize: int) -> int:
    """Neighbouring long rows, of each of which a thread takes a pack."""
    return max(1, _WORD // itemsize)


def _geometry(spec: Spec) -> dict[str, int]:
    in_word = spec["WORD"] // spec.dtype.itemsize
    return {
        "THREADS": spec["THREADS"],
        "STATIC_SMEM": 0,
        "DYNAMIC_SMEM": room(spec["KIB"]),
        "IN_WORD": in_word,
        "GROUP": group(spec.dtype.itemsize),
    }


def _problem(spec: Spec) -> str | None:
    size, word = spec.dtype.itemsize, spec["WORD"]
    if not size <= word <= max(size, _WORD):
        return f"words of {word} bytes hold no elements of {size}, or are more than what is turned over in registers"
    if spec["split"]:
        if spec["TURNS"] > 1:
            return "copies to shared memory are all under way together"
        if size > 2:
            return "elements of more than two bytes are split as fast in other ways"
    if spec["anywhere"] and spec["TURNS"] > MOST_APART:
        return "what lies in two packs takes the registers of two"
    if spec["anywhere"] and (size > 2 or (spec["split"] and (size > 1 or word < _WORD))):
        return "where long rows begin anywhere, these are as fast in other ways"
    return None


SHORT = register(
    Kernel(
        name="transpose_short",
        summary="A permutation of axes that moves a short one, of some dozens of elements, to or from the last place.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("WORD", "w", (1, 2, 4, 8), "bytes of the words that short rows are made of"),
            Axis("KIB", "k", KIBS, "KiB of short rows that a block takes, about", default=16),
            Axis("TURNS", "t", tuple(range(1, MOST_TURNS + 1)), "turns of a thread under way together", default=1),
            Axis("THREADS", "h", (256, 512), "threads of a block", default=256),
            BATCH._replace(default=0),
        ),
        flags=(
            Flag("anywhere", "long rows begin anywhere"),
            Flag("split", "rows of the input are short; without it, those of the result"),
        ),
        dtypes=(U8, U16, U32, U64),
        derive=_geometry,
        check=_problem,
        grid="(ceil(packs / tile_packs) * further axes): one block per tile_packs packs of the long rows",
        origin="arrays of structures and structures of arrays, by way of shared memory",
        defaults=(
            "transpose_short_w4_t2_b1_u16",
            "transpose_short_w4_k12_split_u8",
            "transpose_short_w1_k64_h512_anywhere_u8",
            "transpose_short_w4_k40_t3_h512_u16",
        ),
    )
)
