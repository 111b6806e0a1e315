"""Norms of rows that begin anywhere, in packs that begin with sectors of memory; and their launch.

To move the weights of its columns to where a row begins takes longer than the row itself, where that has 16 bits. So a
thread has the same columns of two rows, and moves their weights once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.ops import rows, rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm import formulas
from kgen.ops.norm.kernels import AFFINE, RMS, check_affine, vectors
from kgen.ops.norm.problem import Problem
from kgen.ops.rows_text import ALIGNED, affine, affine_of_edge, text_of_weights, weight_of
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

LANES = Axis("LANES", "t", (32, 64, 96, 128, 160, 192, 256, 320), "threads of a block that share rows")
PACKS = Axis("PACKS", "n", (1, 2, 3, 4), "packs of a thread in each of its rows")
HEIGHT = Axis("HEIGHT", "h", (1, 2), "rows of a thread")
SHIFTED = Flag("shifted", "rows are offset differently within packs where they are read and where they are written")
FILLED = 3 / 4  # of its threads' packs that a row must have: what warps do besides takes as long for fewer
TURNS = 4  # of teams one after another, from which on it pays
THREADS = 1024  # of a multiprocessor, about
PAYS = {
    (4, 2, False, False): range(254, 1025),
    (4, 2, False, True): range(190, 1025),
    (2, 2, False, False): range(110, 1281),
    (2, 2, False, True): range(190, 1025),
    (2, 2, True, False): range(110, 769),
    (2, 2, True, True): range(190, 641),
    (2, 1, True, False): range(254, 641),
}
"""Packs of a row, but for two, for which this took the least time on an H200: by the bytes of an element, how many
vectors go with a row, whether these are float32 beside 16 bits, and whether results begin elsewhere than what is read.
"""


def _derive(spec: Spec) -> dict[str, int]:
    lanes = spec["LANES"]
    found = 1 if spec["rms"] else 2
    return {
        "APART": rows_ring.SECTOR // spec.dtype.itemsize,
        "TEAMS": rows.threads(spec) // lanes,
        "THREADS": rows.threads(spec),
        "STATIC_SMEM": found * spec["HEIGHT"] * 4 * (lanes // 32) if lanes > 32 else 0,
        "DYNAMIC_SMEM": 0,
        "RESIDENT": THREADS // lanes if lanes > 256 else 0,  # of such blocks, one less is a third less
    }


def _text(spec: Spec) -> dict[str, Any]:
    lanes, vec, resident = spec["LANES"], spec["VEC"], spec.derived["RESIDENT"]
    loose = 2 * (vec - 1) + 3 * vec  # elements before and after packs: one is left free at both ends, and half a sector
    return {
        **ALIGNED,
        **text_of_weights(spec),
        "bounds": f"__launch_bounds__({spec.threads}, {resident})"
        if resident
        else f"__launch_bounds__({spec.threads})",
        "shared": lanes > 32,
        "warps_pair": lanes & (lanes - 1) == 0,
        "reduced": "float",
        "merges": {"Sum": "a + b"},
        "joined": False,
        "several": True,  # rows, which are added up together
        "carried": spec.dtype is F32,
        "filled": True,
        "ragged": True,
        "shifted": bool(spec["shifted"]),
        "sectors": True,
        "margin": True,
        "edged": True,
        "edges": -(-loose // lanes),
        "any_weights": True,
        "selected": weight_of(spec) is F32,
        "channels": False,
        "vectors": vectors(spec),
        "kept": {"weight": "weights", "bias": "biases"},
        # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
        "folded": not (spec["rms"] or spec.dtype is F32),
        "affine": affine(spec, "weight_of(weights, k)", "weight_of(biases, k)"),
        "edge_affine": affine_of_edge(spec, "[k]"),
    }


def _check(spec: Spec) -> str | None:
    if spec["VEC"] * spec.dtype.itemsize != rows.VECTOR:
        return f"a pack has {rows.VECTOR} bytes"
    if spec["channels"] or not vectors(spec):
        return "this is for the sake of weights along the rows"
    return check_affine(spec)


SECTORS = register(
    Kernel(
        name="norm_sectors",
        summary="Normalises rows that begin anywhere, in packs that begin with sectors of memory.",
        formula=formulas.forward,
        axes=(LANES, PACKS, rows_ring.VEC, HEIGHT),
        flags=(RMS, *AFFINE, SHIFTED),
        derive=_derive,
        text=_text,
        check=_check,
        grid="HEIGHT rows for each block, or for LANES neighbouring threads",
        origin="Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467",
        defaults=(
            "norm_sectors_t32_n4_v8_h2_weight_bias_bf16",
            "norm_sectors_t128_n4_v8_h2_weight_bias_wfloat_bf16",
            "norm_sectors_t128_n4_v8_h2_weight_bias_shifted_bf16",
            "norm_sectors_t256_n4_v4_h1_weight_bias_shifted_f32",
        ),
    )
)


class Cut(NamedTuple):
    """A point on the axes."""

    lanes: int
    packs: int
    vec: int
    height: int

    def values(self) -> dict[str, int]:
        """For `Kernel.spec`."""
        return {"LANES": self.lanes, "PACKS": self.packs, "VEC": self.vec, "HEIGHT": self.height}


def cut(read: Rows, taken: rows_cut.Packs, size: int, vectors: int, device: int, *, wide: bool) -> Cut | None:
    """The fewest lanes that hold a row in a few packs each, or None where other kernels do better.

    `size`: bytes of an element; `vectors`: how many go with the rows; `wide`: these are float32 beside 16 bits.
    """
    packs = read.columns // taken.vec - 2  # one is left free at both ends
    if packs not in PAYS.get((size, vectors, wide, taken.shifted), ()):
        return None
    lanes = next(lanes for lanes in LANES.values if lanes * PACKS.values[-1] >= packs)
    each = -(-packs // lanes)
    height = 2 if size == 2 and vectors > 1 else 1
    many = read.rows * lanes >= height * TURNS * THREADS * multiprocessors(device)
    return Cut(lanes, each, taken.vec, height) if many and packs >= FILLED * lanes * each else None


def plan_sectors(problem: Problem, taken: rows_cut.Packs) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    read, dtype = problem.read, problem.x.dtype
    anywhere = taken.full and (taken.ragged or taken.shifted)
    if not (anywhere and problem.vectors) or problem.flags["residual"] or problem.flags.get("channels"):
        return None
    found = cut(read, taken, dtype.itemsize, len(problem.vectors), problem.device, wide=problem.wide)
    if found is None:
        return None
    own = {name: on for name, on in problem.flags.items() if name != "residual"}
    spec = SECTORS.spec(**found.values(), **own, shifted=taken.shifted, dtype=dtype)
    apart = spec.derived["APART"]
    teams = -(-read.rows // (found.height * apart)) * apart
    return problem.launch(spec, -(-teams // spec.derived["TEAMS"]), f"for {found.lanes} threads each")
