"""The kernels of non-maximum suppression: places by score, overlaps of all pairs, and the sweep that decides."""

from __future__ import annotations

from kgen.arch import Arch
from kgen.dtypes import F32, F64, FLOATS, DType
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

TILE = 64
"""Boxes that a block of the sweep decides, and bits of a word."""
BOXES = (*FLOATS, F64)
REALS = (F32, F64)
_RANK_THREADS, _RANK_BOXES = 256, 4
_RANK_CHUNK = 1024  # keys in shared memory
_OVERLAP_THREADS = 256
_SWEEP_THREADS = 512
_BITS = "bits of tiles as in torchvision's non-maximum suppression"
_ORDER = "greedy choice by rounds, of which there are few: G. Blelloch et al., 2012"


def real_of(dtype: DType) -> DType:
    """The type of overlaps of boxes of this type."""
    return F64 if dtype is F64 else F32


RANK_BOXES = _RANK_BOXES * _RANK_THREADS // 32
"""Boxes that a block of `nms_rank` places."""

RANK = register(
    Kernel(
        name="nms_rank",
        summary="Boxes in the descending order of their scores, equal ones in the order in which they came.",
        formula="place[i] = #{j: s[j] > s[i]} + #{j < i: s[j] = s[i]}",
        axes=(Axis("CLASS_BYTES", "k", (0, 4, 8), "bytes of a class index; 0: there are no classes", default=0),),
        dtypes=BOXES,
        derive=lambda spec: {
            "THREADS": _RANK_THREADS,
            "BOXES": _RANK_BOXES,
            "CHUNK": _RANK_CHUNK,
            "STATIC_SMEM": _RANK_CHUNK * (8 if spec.dtype is F64 else 4),
        },
        min_arch=Arch(8, 0),  # warps add up in one instruction
        grid=f"(ceil(N / {RANK_BOXES}))",
        origin="sorting by counting",
        defaults=("nms_rank_f32",),
    )
)


def _overlap_smem(spec: Spec) -> dict[str, int]:
    per_box = 6 * spec.dtype.itemsize + 8 * spec["classes"]
    return {"THREADS": _OVERLAP_THREADS, "STATIC_SMEM": _OVERLAP_THREADS * per_box}


PAIRS = _OVERLAP_THREADS // TILE
"""Pairs of tiles that a block of `nms_overlap` takes."""

OVERLAP = register(
    Kernel(
        name="nms_overlap",
        summary="For every box, a bit for each box of a higher score that would suppress it.",
        formula="bit[j][i] = area(i and j) / area(i or j) > threshold, for i < j",
        axes=(),
        flags=(
            Flag("classes", "only boxes of one class suppress each other"),
            Flag("offset", "something is added to every width and height"),
        ),
        dtypes=REALS,
        derive=_overlap_smem,
        grid=f"(tiles * ceil(tiles / {PAIRS}))",
        origin=_BITS,
        defaults=("nms_overlap_f32",),
    )
)

SWEEP = register(
    Kernel(
        name="nms_sweep",
        summary="The boxes that stay: each one that no box of a higher score suppresses which stays itself.",
        formula="stays[j] = not any(i < j: stays[i] and bit[j][i])",
        axes=(),
        flags=(Flag("thresholded", "boxes whose score is not above a threshold count for nothing"),),
        dtypes=REALS,
        derive=lambda spec: {
            "THREADS": _SWEEP_THREADS,
            "UNROLL": 4,
            "STATIC_SMEM": _SWEEP_THREADS // 32 * (2 * 8 + 4),
        },
        min_arch=Arch(8, 0),
        grid="(tiles): one block for each, in this order",
        origin=_ORDER,
        defaults=("nms_sweep_f32",),
    )
)
