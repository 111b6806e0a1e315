"""Norms of rows that blocks or clusters of them take in turn: the kernel, and its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.norm.kernels import AFFINE, RESIDUAL, RMS, affines, check_affine, vectors
from kgen.ops.rows import SHARED, VECTOR
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_text import (
    affine,
    affine_of_edge,
    affine_of_packs,
    centred,
    off_mean,
    text_of_weights,
    weight_of,
)
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

LANES = Axis("LANES", "t", (32, 64, 256, 512), "threads of a block that share a row", default=rows_ring.THREADS)
ROWS = {32: 12, 64: 8, 256: 3}  # of a block at once, at most, by the threads that share one
HALVES = 7  # packs of a thread, up to which half as many threads do better with a row that has a mean
CLAIMED = 512  # packs of a row, from which on claims, made one after another, take no longer than rows
CHANNELS = 2560  # of all groups, at most, where their weights lie in shared memory
FEW = 6  # packs of a thread, up to which what is done besides takes longer than memory


def _check(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and spec["ragged"] and not spec["across"]:
        return "packs that begin anywhere end so"
    if spec["LANES"] < rows_ring.THREADS and not _beside(spec):
        return "fewer threads share a row only where weights lie in shared memory"
    if spec["LANES"] < 256 and (spec["CLUSTER"] > 1 or spec["residual"]):
        return "several rows of a block are those of one array, and whole"
    kept = len(vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize * spec["PACKS"]
    if kept > 4 * rows_ring.WEIGHTS and not _beside(spec):
        return "a thread has no registers for so many weights"
    return check_affine(spec) or rows_ring.check(spec)


def _derive(spec: Spec) -> dict[str, int]:
    found = {"ROWS": _rows_at_once(spec), **({"CHANNELS": CHANNELS} if _gathered(spec) else {})}
    return found | _constants(spec, _behind(spec) if _beside(spec) else 0, found["ROWS"], posted=_posted(spec))


def _constants(spec: Spec, behind: int, teams: int = 1, *, posted: bool) -> dict[str, int]:
    found, arrays = 4 if spec["rms"] else 8, 1 + spec["residual"]
    channels = CHANNELS * F32.itemsize * len(affines(spec)) if _gathered(spec) else 0
    sizes = {"beside": channels, "behind": behind, "threads": spec["LANES"], "teams": teams}
    return rows_ring.derive(spec, found, arrays, posted=posted, **sizes)


def _gathered(spec: Spec) -> bool:
    """Whether the weights of all channels lie in shared memory: packs that begin anywhere lie in others in each row."""
    return bool(spec["channels"] and spec["ragged"]) and spec["PACKS"] <= FEW


def _beside(spec: Spec) -> bool:
    """Whether weights of columns lie in shared memory: packs of rows that begin anywhere have others in each row."""
    anywhere = bool(spec["ragged"] and vectors(spec))
    return anywhere and _constants(spec, _behind(spec), posted=spec["LANES"] > 32)["STAGES"] >= rows_ring.STAGES


def _rows_at_once(spec: Spec) -> int:
    """As many rows as a block has room for."""
    if spec["CLUSTER"] > 1 or spec["residual"] or not _beside(spec):
        return 1
    most = ROWS.get(spec["LANES"], 1)
    while most > 1 and _constants(spec, _behind(spec), most, posted=_posted(spec))["STAGES"] < rows_ring.STAGES:
        most -= 1
    return most


def _behind(spec: Spec) -> int:
    """Bytes of these weights: of a block's packs, and of two more behind as many as there are threads."""
    packs = spec["PACKS"] * (spec["LANES"] + rows_ring.SECTOR // VECTOR)
    return packs * spec["VEC"] * weight_of(spec).itemsize * len(vectors(spec))


def _posted(spec: Spec) -> bool:
    """Whether one warp finds out what follows for a row, for all: of groups in clusters of two, and where weights take
    up the registers, each warp does better by itself."""
    return (bool(spec["channels"]) and spec["CLUSTER"] >= 4) or (_beside(spec) and spec["LANES"] > 32)


def _known(spec: Spec) -> list[str]:
    """What all threads need to know of a row, as it is declared."""
    mean = [] if spec["rms"] else ["float mean;"]
    rest = ["float rest;  // what rstd misses"] if spec.dtype is F32 else []
    return [*mean, "float rstd;", *rest, "int coming;  // the row that comes where this one lies"]


def text_of_turns(spec: Spec, edge: str) -> dict[str, Any]:
    """What templates of norms need whose rows are taken in turn; `edge`: a thread's number outside of packs."""
    edge = "edge.of_x" if spec["residual"] else edge
    return {
        **rows_ring.text(spec, "float" if spec["rms"] else "float2"),
        **text_of_weights(spec),
        "carried": spec.dtype is F32,
        "known": _known(spec),
        "merges": {"Sum": "a + b"},
        "moments": not spec["rms"],
        "sources": ["x", "residual"] if spec["residual"] else ["x"],
        "edge": edge,
        "vectors": vectors(spec),
        "held": True,
        # Of 16 bits, what is lost where the mean is large is less than what the rounding of the result loses.
        "folded": "" if spec.dtype is F32 or spec["rms"] else "float_of(value, i)",
        "centred": centred(spec, "float_of(value, i)"),
        "off": off_mean(spec, "float_of(value, i)"),
        "affine": affine_of_packs(spec),
        "edge_centred": centred(spec, f"to_float({edge})"),
        "edge_off": off_mean(spec, f"to_float({edge})"),
        "edge_affine": affine_of_edge(spec),
    }


def _text(spec: Spec) -> dict[str, Any]:
    beside, gathered = _beside(spec), _gathered(spec)
    kept = bool(vectors(spec)) and not beside  # in registers
    own: dict[str, Any] = {"affine": affine(spec, "weight_of(affine)", "bias_of(affine)")} if beside else {}
    if spec.derived["ROWS"] > 1:
        own |= {"several_rows": True, "shared": False, "team": "blockIdx.x * ROWS + threadIdx.x / LANES"}
    return {
        **text_of_turns(spec, "edge"),
        "posted": _posted(spec),
        "at_once": not kept,
        "edge_most": (rows_ring.EDGE + 1) * spec["VEC"] - 1,  # elements of an edge
        "ordered": bool(spec["ragged"]) and kept,
        "beside": beside,
        "halves": weight_of(spec) is not F32 and len(vectors(spec)) > 1,
        "affine_bytes": weight_of(spec).itemsize * len(vectors(spec)),
        "affines": affines(spec),
        "edge_affine": affine_of_edge(spec, gathered=gathered),
        "gathered": gathered,
        "fixed": spec.derived["ROWS"] > 1 and spec["LANES"] * spec["PACKS"] < CLAIMED,
        **own,
    }


RING = register(
    Kernel(
        name="norm_ring",
        summary="Normalises wide rows, which blocks, or clusters of them, take in turn.",
        formula="y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]",
        axes=(LANES, *rows_ring.AXES),
        flags=(RMS, RESIDUAL, *AFFINE, RAGGED),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=(
            "norm_ring_n8_v4_c1_weight_bias_ragged_f32",
            "norm_ring_n5_v8_c1_weight_bias_bf16",
            "norm_ring_n8_v4_c4_weight_bias_f32",
            "norm_ring_n8_v8_c2_rms_weight_bf16",
            "norm_ring_n4_v8_c2_weight_bias_ragged_bf16",
            "norm_ring_n4_v8_c2_rms_residual_weight_bf16",
            "norm_ring_n2_v4_c2_rms_residual_weight_ragged_f32",
            "norm_ring_n7_v8_c2_rms_weight_ragged_bf16",
            "norm_ring_t32_n4_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_t64_n4_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_t256_n3_v8_c1_weight_bias_wfloat_ragged_bf16",
            "norm_ring_n4_v8_c2_weight_bias_channels_across_bf16",
            "norm_ring_n4_v4_c4_weight_bias_channels_across_ragged_f32",
        ),
    )
)


def _fitting(flags: Mapping[str, bool], weights: int) -> int:
    """Packs of a thread, at most, whose weights, so many bytes of each, there is room for in shared memory."""
    arrays = 1 + flags["residual"]
    return min(rows_ring.MOST, SHARED // (rows_ring.THREADS * (rows_ring.STAGES * arrays * VECTOR + weights)))


def _turns(taken: rows_cut.Packs) -> int:
    """Groups of a cluster from which on it pays: where these begin amid sectors, other kernels take longer."""
    return 6 if taken.ragged else 12 if taken.vec == 8 else rows_ring.TURNS


def plan_ring(
    named: Mapping[str, Operand | None],
    read: Rows,
    pitches: Sequence[int],
    taken: rows_cut.Packs,
    flags: Mapping[str, bool],
    order: Sequence[int],
    nobody: Sequence[int],
    groups: tuple[int, ...],
    floats: tuple[float, ...],
    alone: int,
) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted.

    `order` and `nobody`: which of a call's pointers the kernel takes, and what follows them; `groups`: of a group norm;
    `alone`: packs of a row, up to which a block does best with one.
    """
    x, y, weight, bias = (named.get(role) for role in ("x", "y", "weight", "bias"))
    assert x is not None and y is not None
    along = [w for w in (weight, bias) if w and not groups]
    within = not groups or groups[-1] >= rows_ring.SECTOR // x.dtype.itemsize
    if within and not flags["residual"]:
        taken = rows_ring.by_sectors(taken, read.columns, pitches[0])
    elif taken.ragged and not within:
        return None  # packs begin with a sector, behind more than a channel
    kept, arrays = sum(taken.vec * w.dtype.itemsize for w in along), 1 + flags["residual"]

    def cut_with(weights: int, most: int, threads: int = rows_ring.THREADS) -> rows_ring.Cut | None:
        return rows_ring.cut(
            read.rows,
            read.columns,
            taken,
            y.device,
            weights=weights,
            turns=_turns(taken) if groups else rows_ring.TURNS,
            wide=rows_ring.WIDE // arrays if flags["residual"] else alone,
            most=most,
            threads=threads,
        )

    cut = cut_with(0, _fitting(flags, kept)) if along and taken.ragged else None
    if cut and not flags["rms"]:
        fewer = cut_with(0, HALVES, rows_ring.THREADS // 2)
        cut = fewer if fewer and fewer.cluster == cut.cluster else cut
    cut = cut or cut_with(kept, rows_ring.MOST // arrays)
    if cut is None:
        return None
    if groups:
        if cut.ragged and cut.packs <= FEW and groups[0] * groups[1] > CHANNELS:
            return None
        flags = {**flags, "across": flags["across"] or cut.ragged}
    spec = RING.spec(LANES=cut.threads, **cut.values(), **flags, dtype=x.dtype)
    ints = (read.rows, read.columns, *groups)
    step = Step(spec, cut.blocks, len(order) + len(nobody) + 1, ints, tuple(pitches), floats)
    run = picked(rows_ring.taking(bind([step], y.device)[0], y.device), order, len(nobody))
    return Plan(run, (str(step),), f"{read.rows} rows of {read.columns} for {cut}")
