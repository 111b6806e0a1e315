"""Calls of linear attention in chunks: pieces and segments, chunks that are not full, hard gates among soft ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import BF16
from kgen.ops.gated import chunk_scan
from kgen.ops.gated.chunk_kernels import CHUNK
from kgen.ops.gated.gla import simple_gla, simple_gla_backward
from kgen.ops.gated.linear_attention import linear_attention, linear_attention_backward
from kgen.ops.gated.plan import Problem
from kgen.samples.accuracy import GRADIENT_SLACK, RMS_BAR
from kgen.samples.case import Array, Case, between_poison, numbers
from kgen.spec import Spec

_SLOPE_BAR = 3e-3  # of what has the most roundings, the gradient of gates


def gated_chunk(spec: Spec) -> Case:
    """From one state to another; a second tile of columns, rows that do not fill theirs."""
    short = spec["BYTES"] // 2
    cut = chunk_scan.Cut(spec["K"], spec["V"], spec["C"], 4, 2)
    sizes = spec["K"] - short, spec["V"] + short
    gated = bool(spec["GATE"])
    if spec["products"] or (spec.dtype is BF16 and not spec["fine"] and not spec["outer"]):
        case = _backward(spec, cut, sizes[1], sizes[0], 8 * spec["C"] - 7, gated=gated)
    else:
        case = _forward(spec, cut, *sizes, 8 * spec["C"] - 7, gated=gated)
    return case._replace(settings=(*case.settings, (chunk_scan, "WARPS", spec["WARPS"])))


def states(spec: Spec) -> Case:
    """The way from the caller's state to those of pieces, and to the last one."""
    gated = "gated" in spec.flags
    call = CHUNK.spec(K=64, V=64, WARPS=4, GATE=int(gated), dtype="bf16")
    return _forward(call, chunk_scan.Cut(64, 64, 64, 4, 2), 56 - 8 * gated, 40, 500, gated=gated)


def slope(spec: Spec) -> Case:
    """Two segments, from one state to another."""
    return _backward(spec, chunk_scan.Cut(64, 64, spec["C"], 4, 2), 40, 48, 8 * spec["C"] - 5, gated=True)


def turn(spec: Spec) -> Case:
    """Of more features than values, from one state to another."""
    call = CHUNK.spec(K=64, V=64, WARPS=4, dtype="f16")
    usual = chunk_scan.cut_of

    def taken(*about: Any) -> chunk_scan.Cut:
        return usual(*about)._replace(chunk=64, pieces=4, segments=2)

    case = _backward(call, chunk_scan.Cut(64, 128, 64, 4, 2), 120, 40, 500, gated=False)
    return case._replace(settings=((chunk_scan, "cut_of", taken),))


def _arrays(spec: Spec, features: int, values: int, length: int, gated: bool) -> tuple[Array, ...]:
    q, k, v, g = numbers(spec, *2 * [(1, 2, length, features)], (1, 2, length, values), (1, 2, length))
    gates = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8)
    return (q, k, v, *([between_poison(gates.astype(np.float32 if spec["gfloat"] else g.dtype))] if gated else []))


def _forward(spec: Spec, cut: chunk_scan.Cut, features: int, values: int, length: int, *, gated: bool) -> Case:
    arrays = _arrays(spec, features, values, length, gated)
    (initial,) = numbers(spec, (1, 2, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "chunk"}
    settings = ((chunk_scan, "cut_of", lambda *about: cut),)
    return Case(simple_gla if gated else linear_attention, arrays, options, expected, settings=settings)


def _backward(spec: Spec, cut: chunk_scan.Cut, features: int, values: int, length: int, *, gated: bool) -> Case:
    """Its scans along the features are cut so; the other one as it comes."""
    arrays = _arrays(spec, features, values, length, gated)
    (do,) = numbers(spec, arrays[2].shape)
    initial, dstate = numbers(spec, *2 * [(1, 2, features, values)], dtype=np.float32)
    made = reference.gated_backward(do, *arrays, scale=features**-0.5, initial=initial, dstate=dstate)
    expected = tuple(made[name] for name in ("q", "k", "v", *(["g"] if gated else []), "initial"))
    options = {"initial_state": initial, "dstate": dstate, "mode": "chunk"}
    usual = chunk_scan.cut_of

    def taken(problem: Problem, rows: int, columns: int) -> chunk_scan.Cut:
        return cut if columns == features else usual(problem, rows, columns)

    bar = max(GRADIENT_SLACK * RMS_BAR[spec.dtype.name], _SLOPE_BAR)
    operator = simple_gla_backward if gated else linear_attention_backward
    return Case(operator, (do, *arrays), options, expected, bar, settings=((chunk_scan, "cut_of", taken),))


CASES = {
    "gated_chunk": gated_chunk,
    "gated_chunk_prefix": states,
    "gated_chunk_state": states,
    "gated_chunk_slope": slope,
    "gated_chunk_turn": turn,
}
