"""Norms of wide rows that begin, or whose results begin, amid packs: word by word; and their launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgen.device import shared_memory
from kgen.dtypes import F32
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, check_affine, vectors
from kgen.ops.norm.problem import Problem
from kgen.ops.norm.ring import text_of_turns
from kgen.ops.rows import SHARED, VECTOR, shared_for
from kgen.ops.rows_text import weight_of
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

LANES = Axis("LANES", "t", (128, 256, 512), "threads of a block")
PACKS = Axis("PACKS", "n", tuple(range(2, 17)), "packs of a thread in its block's part of a row")
WORD = 4  # bytes
HELD = 16  # words of a row, up to which a thread keeps them, beside weights
STAGES = 6  # rows of which a block has its part in shared memory, at most
THREADS = 512  # of a multiprocessor, or half as many with twice the registers
TOGETHER = 4  # packs of such a thread that it reads at once

REGISTERS = 1280
"""Packs of a row that begins elsewhere than its result, up to which 256 threads hold it in registers."""

Sizes = tuple[tuple[int, int, int], ...]
FEW: Sizes = tuple((256, cluster, 16) for cluster in (2, 4, 8, 16))
ALONE: Sizes = ((256, 1, 8), (512, 1, 8))
SIZES: dict[str, Sizes] = {
    "f32": (*ALONE, *FEW),
    "rms": (*ALONE, *((512, cluster, 8) for cluster in (2, 4, 8, 16))),
    "": ((128, 1, 16), (256, 1, 16), *FEW),
}
"""Threads of a block, blocks of a cluster, and packs of a thread at most, of all arrays: what took the least time on an
H200 for float32, for RMS norms of 16 bits, and for others. Few threads with many packs have more loads in flight."""


def _resident(lanes: int, packs: int, kept: int) -> int:
    """Blocks of a multiprocessor, whose threads have so many packs, and bytes of weights: 128 registers or 255."""
    many = packs > rows_ring.MOST or kept > 4 * rows_ring.WEIGHTS
    return max(1, THREADS // (2 * lanes if many else lanes))


def _kept(spec: Spec) -> int:
    return len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize * spec["PACKS"]


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"]:
        return "weights go along the rows"
    if _kept(spec) > 8 * rows_ring.WEIGHTS:
        return "a thread has no registers for so many weights"
    return check_affine(spec) or rows_ring.check(spec)


def _derive(spec: Spec) -> dict[str, int]:
    lanes, found, arrays = spec["LANES"], 4 if spec["rms"] else 8, 1 + spec["residual"]
    resident = _resident(lanes, spec["PACKS"] * arrays, _kept(spec))
    room = shared_for(resident)
    derived = rows_ring.derive(spec, found, arrays, threads=lanes, room=room, shifted=True)
    stages = min(derived["STAGES"], STAGES)
    memory = stages * rows_ring.slots(lanes, shifted=True) * spec["PACKS"] * arrays * VECTOR
    return {**derived, "STAGES": stages, "DYNAMIC_SMEM": memory, "RESIDENT": resident}


def _text(spec: Spec) -> dict[str, Any]:
    words = spec["VEC"] * spec.dtype.itemsize // WORD * spec["PACKS"]
    return {
        **text_of_turns(spec, "own"),
        "ragged": True,
        "shifted": True,
        "spread": True,
        "filled": True,
        "many": "STAGES",
        "together": TOGETHER if spec.derived["RESIDENT"] * spec["LANES"] < THREADS else 1,
        "single": not spec["rms"] and spec.dtype is not F32,
        "word": WORD // spec.dtype.itemsize,
        "posted": False,
        "once": not spec["rms"] and (_kept(spec) == 0 or words <= HELD),
    }


WORDS = register(
    Kernel(
        name="norm_words",
        summary="Normalises wide rows word by word, wherever they and their results begin; clusters take them in turn.",
        formula=formulas.forward,
        axes=(LANES, PACKS, rows_ring.VEC, rows_ring.CLUSTER),
        flags=(RMS, RESIDUAL, *AFFINE),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=(
            "norm_words_t256_n5_v4_c1_weight_bias_f32",
            "norm_words_t128_n10_v8_c1_weight_bias_bf16",
            "norm_words_t512_n3_v8_c2_rms_weight_bf16",
            "norm_words_t256_n5_v8_c2_rms_residual_weight_bf16",
            "norm_words_t256_n9_v4_c2_weight_bias_f32",
        ),
    )
)


def _pays(packs: int, ragged: bool, size: int, flags: Mapping[str, bool]) -> bool:
    """Whether rows of so many packs took less time than in registers, on an H200; `size`: bytes of an element.

    There they take most where 512 threads have three packs each, or four of rows that begin anywhere, and in clusters.
    """
    if flags["residual"]:
        return packs > 2048
    if not (flags.get("weight") or flags.get("bias")):
        return packs > 4096
    if REGISTERS < packs <= (2048 if ragged else 1536):
        return True
    if size == 4:
        return packs > (4096 if flags["rms"] else 772 if ragged else 1024)
    return packs >= 1000 if flags.get("wfloat") else packs > 2048


def cut(
    read: Rows, taken: rows_cut.Packs, size: int, kept: int, flags: Mapping[str, bool], device: int
) -> rows_ring.Cut | None:
    """The smallest of SIZES that has room for a row, or None where others do better; `kept`: bytes of weights beside a
    pack."""
    if shared_memory(device) < SHARED or not _pays(read.columns // taken.vec, taken.ragged, size, flags):
        return None
    arrays = 1 + flags["residual"]
    total = read.columns // taken.vec - rows_ring.EDGE
    for lanes, cluster, most in SIZES["f32" if size == 4 else "rms" if flags["rms"] and arrays == 1 else ""]:
        packs = -(-total // (lanes * cluster))
        if (
            cluster > rows_cut.largest(device)
            or packs * arrays > most
            or packs * kept > 4 * rows_ring.WEIGHTS * most // 8
        ):
            continue
        resident = _resident(lanes, packs * arrays, packs * kept)
        clusters = rows_ring.taking_turns(cluster, read.rows, rows_ring.TURNS, device, resident)
        enough = clusters and packs >= PACKS.values[0]
        return rows_ring.Cut(packs, taken.vec, cluster, clusters, threads=lanes) if enough else None
    return None


def plan_words(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    kept = sum(taken.vec * w.dtype.itemsize for w in problem.vectors)
    dtype = problem.x.dtype
    found = cut(problem.read, taken, dtype.itemsize, kept, problem.flags, problem.device) if taken.full else None
    if found is None:
        return None
    size = {"LANES": found.threads, "PACKS": found.packs, "VEC": found.vec, "CLUSTER": found.cluster}
    return problem.launch(WORDS.spec(**size, **problem.flags, dtype=dtype), found.blocks, f"for {found}", claiming=True)
