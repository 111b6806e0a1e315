"""Norms of many narrow rows that begin anywhere: spans of them pass through shared memory; and their launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kgen.device import device_arch, multiprocessors
from kgen.dtypes import F16, F32, DType
from kgen.operand import Operand
from kgen.ops import rows_cut
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.cuts import ELSEWHERE, MOVED
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, check_affine, vectors
from kgen.ops.norm.problem import Problem
from kgen.ops.rows import RESERVED, SHARED, VECTOR
from kgen.ops.rows_text import ALIGNED, affine, off_mean, text_of_weights
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

LANES = Axis("LANES", "t", (8, 16, 32), "threads of a warp that share a row")
PACKS = Axis("PACKS", "n", tuple(range(1, 25)), "packs of a thread; some have none of the last")
VEC = Axis("VEC", "v", (1, 2), "numbers of a pack, which is a word")
APART = Flag("apart", "results begin at other places in their 16 bytes than what is read")
WORD = 4  # bytes
THREADS = 256
COMING = 96 << 10
"""Bytes of a multiprocessor on their way. Of fewer there are not enough; of more, memory has to serve rows too far
apart."""
REGISTERS = 65536
MOST = {
    False: {2: {8: 14, 16: 14, 32: 18}, 4: {8: 24, 16: 24, 32: 24}},
    True: {2: {8: 17, 16: 9, 32: 24}, 4: {8: 24, 16: 18, 32: 24}},
}
"""Packs of a thread, by whether results begin apart, the bytes of an element and the lanes of a row.

Where they begin apart, other kernels take longer. Half a warp then has fewer: two odd rows share half of their banks,
and a warp for each takes less time as soon as that leaves half as many packs.
"""
PAYS = {
    False: {(2, 1): range(64, 449), (2, 2): range(64, 1153), (4, 1): range(64, 100), (4, 2): range(64, 193)},
    True: {(2, 1): range(64, 1089), (2, 2): range(64, 1537), (4, 1): range(64, 129), (4, 2): range(64, 769)},
}
"""For which columns this pays, by whether results begin apart, the bytes of an element and how many vectors go with
them."""
WHOLE = {(2, 2): range(64, 897), (4, 2): range(64, 513)}
"""The same of columns that fill vectors of 16 bytes, where results begin apart."""
FILLED = {True: {(2, 2): 15 / 16, (4, 2): 3 / 4}, False: {(2, 1): 7 / 8, (4, 2): 15 / 16}}
"""The share of lanes with such vectors from which on these do better, by whether columns fill them. Where that is not
said, moving weights to them takes too long."""
LOOSE = 960  # bytes of other columns, below which what is before and after vectors takes too long
SPANS = 12  # of a multiprocessor, from which on it does


def _derive(spec: Spec) -> dict[str, int]:
    lanes, packs, vec = spec["LANES"], spec["PACKS"], spec["VEC"]
    stages = 2 * (THREADS * vec * packs * WORD + VECTOR)
    memory = stages * (1 + spec["residual"]) + (stages // 2 if spec["apart"] else 0)
    held = _held(packs, len(vectors(spec)), spec.dtype, apart=bool(spec["apart"]))
    resident = max(1, min(-(-COMING // stages), SHARED // (memory + VECTOR + RESERVED), held))
    return {
        "THREADS": THREADS,
        "RESIDENT": resident,
        "HEIGHT": THREADS // lanes * vec,
        "STATIC_SMEM": VECTOR,  # a claim, and room until chunks begin
        "DYNAMIC_SMEM": memory,
    }


def _text(spec: Spec) -> dict[str, Any]:
    return {
        **ALIGNED,
        **text_of_weights(spec),
        "bounds": f"__launch_bounds__(THREADS, {spec.derived['RESIDENT']})",
        "shared": False,
        "reduced": "float",
        "merges": {"Sum": "a + b"},
        "joined": False,
        "carried": spec.dtype is F32,
        "vectors": vectors(spec),
        "kept": {"weight": "weights", "bias": "biases"},
        "channels": True,  # as there, weights are taken one by one
        "bits": "unsigned short" if spec["VEC"] > 1 else "unsigned",
        # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
        "folded": not (spec["rms"] or spec.dtype is F32),
        "off_mean": off_mean(spec, "NUMBER"),
        "affine": _affine(spec),
    }


def _held(packs: int, vectors: int, dtype: DType, *, apart: bool) -> int:
    """Blocks that a multiprocessor has registers for, about: sixteen packs of 32 lanes with two vectors spill two."""
    vec = WORD // dtype.itemsize
    numbers = packs * vec
    # What a thread has, about. Where results begin apart it takes numbers without branches, and keeps them as floats.
    own = 20 + numbers * (1 + vectors) if apart else 30 + 3 * vec + packs + numbers * vectors
    own += 5 if dtype is F16 else 0  # nine packs spill in 80, with some compilers
    return REGISTERS // (THREADS * own)


def _filled(vectors: int, most: Mapping[int, int]) -> float:
    """The share of lanes that have some, where they are taken whole, so many of each thread."""
    lanes = next(lanes for lanes, each in most.items() if lanes * each >= vectors)
    return vectors / (-(-vectors // lanes) * lanes)


def _affine(spec: Spec) -> str:
    """What becomes of `normal`; an offset is in the weights already."""
    plain = Spec(spec.kernel, spec.values, spec.flags - {"rms"}, spec.dtype)
    return affine(plain, "weights[pack]INDEX", "biases[pack]INDEX")


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize != WORD:
        return f"a pack has {WORD} bytes"
    if spec["PACKS"] > MOST[bool(spec["apart"])][spec.dtype.itemsize][spec["LANES"]]:
        return "a thread has no registers for the numbers and the weights of so many packs"
    if spec["residual"] and (spec["apart"] or not spec["rms"]):
        return "only an RMS norm takes a residual, and all its arrays begin alike"
    if spec["channels"] or not vectors(spec):
        return "this is for the sake of weights along the rows"
    return check_affine(spec)


SPAN = register(
    Kernel(
        name="norm_span",
        summary="Normalises narrow rows that begin anywhere, spans of which pass through shared memory.",
        formula=formulas.forward,
        axes=(LANES, PACKS, VEC),
        flags=(RMS, RESIDUAL, *AFFINE, APART),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.COPIES,
        grid="a block for many spans of rows: as many blocks as all multiprocessors have room for",
        origin="Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467",
        defaults=(
            "norm_span_t8_n7_v2_weight_bias_bf16",
            "norm_span_t16_n8_v2_rms_weight_f16",
            "norm_span_t32_n14_v2_weight_bias_bf16",
            "norm_span_t8_n17_v1_weight_bias_f32",
            "norm_span_t16_n8_v2_rms_residual_weight_bf16",
            "norm_span_t32_n14_v2_weight_bias_wfloat_apart_bf16",
            "norm_span_t16_n16_v1_weight_bias_apart_f32",
        ),
    )
)


class Cut(NamedTuple):
    """A point on the axes."""

    lanes: int
    packs: int
    vec: int

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec}

    @property
    def height(self) -> int:
        """Rows of a span."""
        return THREADS // self.lanes * self.vec


def cut(read: Rows, x: Operand, vectors: int, *, apart: bool) -> Cut | None:
    """The fewest lanes that have registers for rows so wide, or None where other kernels do better."""
    size = x.dtype.itemsize
    vec = WORD // size
    off = x.ptr // size % vec if read.columns % vec == 0 else 0
    total = -(-(off + read.columns) // vec)
    whole = apart and read.columns * size % VECTOR == 0
    pays = WHOLE if whole else PAYS[apart]
    if read.columns not in pays.get((size, vectors), ()):
        return None
    if apart and (whole or read.columns * size >= LOOSE):
        each = MOVED if size == F32.itemsize and not whole else ELSEWHERE
        if _filled(read.columns * size // VECTOR, each) >= FILLED[whole].get((size, vectors), math.inf):
            return None
    # Rows of an even width that a warp takes at once lie in the same banks. Two do little harm beside what it takes to
    # write results apart; otherwise they are left to other kernels.
    even = read.columns % 2 == 0
    allowed = LANES.values[1:] if even and apart else LANES.values
    lanes = next((n for n in allowed if n * MOST[apart][size][n] >= total), None)
    if lanes is None or (even and not apart and lanes < LANES.values[-1]):
        return None
    found = Cut(lanes, -(-total // lanes), vec)
    return found if read.rows >= SPANS * found.height * multiprocessors(x.device) else None


def plan_span(problem: Problem) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    x, read = problem.x, problem.read
    begins = {o.ptr % VECTOR for o in map(problem.named.get, ("x", "residual", "y", "total")) if o}
    apart = len(begins) > 1
    if problem.flags["residual"] and (apart or x.dtype is F32):
        return None
    whole = all(pitch == read.columns for pitch in problem.pitches)
    if problem.flags.get("channels") or not whole or device_arch(problem.device) < rows_cut.COPIES:
        return None
    found = cut(read, x, len(problem.vectors), apart=apart)
    if found is None:
        return None
    spec = SPAN.spec(**found.values(), **problem.flags, apart=apart, dtype=x.dtype)
    blocks = min(-(-read.rows // found.height), spec.derived["RESIDENT"] * multiprocessors(problem.device))
    return problem.launch(spec, blocks, "pass through shared memory", pitches=(), claiming=True)
