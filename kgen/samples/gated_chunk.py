"""Calls of linear attention in chunks: pieces and segments, chunks that are not full, hard gates among soft ones.

A shape is B, H, T, features, values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import BF16
from kgen.ops.gated import chunk, chunk_cut, chunk_scan
from kgen.ops.gated.chunk_kernels import CHUNK
from kgen.ops.gated.gla import simple_gla, simple_gla_backward
from kgen.ops.gated.linear_attention import linear_attention, linear_attention_backward
from kgen.ops.gated.plan import Problem
from kgen.samples.accuracy import GRADIENT_SLACK, RMS_BAR
from kgen.samples.case import Array, Case, Shape, between_poison, numbers
from kgen.spec import Spec

_SLOPE_BAR = 3e-3  # of what has the most roundings, the gradient of gates


def gated_chunk(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """From one state to another; a second tile of columns, rows that do not fill theirs.

    Two segments that go round the stages in shared memory more than once, and a sequence in one, from its end.
    """
    settings = ((chunk_scan, "WARPS", spec["WARPS"]), (chunk_scan, "in_warpgroups", lambda *about: False))
    return tuple(
        case._replace(settings=(*case.settings, *settings)) for case in _chunks(spec, shape, stages=3, room=spec["K"])
    )


def linear_chunk(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """The same where whole warpgroups multiply."""
    flags = {name: name in spec.flags for name in ("outer", "adjoint", "products", "fine", "gfloat")}
    scan = CHUNK.spec(K=128, V=spec["V"], WARPS=spec["V"] // 16, GATE=spec["GATE"], dtype="bf16", **flags)
    if "pair" in spec.flags:
        return tuple(_in_teams(case, 0) for case in _pairs(scan, shape, spec.derived["STAGES"], spec["K"]))
    cases = _chunks(scan, shape, stages=spec.derived["STAGES"], room=spec["K"])
    return tuple(_apart(_in_teams(case, 0)) for case in cases)


def linear_team(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """The same by teams: of three blocks that have all that they have room for, and of nine, with a chunk or none.

    The nine of the forward pass begin with nothing and leave nothing.
    """
    scan = CHUNK.spec(K=spec["K"], V=spec["V"], WARPS=8, fine="fine" in spec.flags, dtype="bf16")
    room = spec.derived["CHUNKS"] * 64
    if shape is not None:
        return (_in_teams(_chunked(scan, shape, spec["K"], segments=1, reverse=False), -(-shape[2] // room)),)
    full = _chunked(scan, (1, 1, 3 * room - 7, spec["K"] - 8, spec["V"] + 8), spec["K"], segments=1, reverse=False)
    narrow = _chunked(scan, (1, 1, 5 * 64 + 9, spec["K"] - 24, spec["V"] - 24), spec["K"], segments=1, reverse=True)
    if "fine" in spec.flags:
        o, _ = reference.gated(*narrow.inputs, scale=narrow.inputs[0].shape[-1] ** -0.5, reverse=True)
        narrow = narrow._replace(options={"mode": "chunk", "reverse": True}, expected=o)
    return _in_teams(full, 3), _in_teams(narrow, 9)


def _pairs(scan: Spec, shape: Shape | None, stages: int, room: int) -> tuple[Case, ...]:
    """Both scans of a pair, from one state to another: in segments of two pieces, and in one."""
    if shape is not None:
        return (_chunked(scan, shape, room, segments=2, reverse=False),)
    segment = (stages + 2) * scan["C"]
    long = _chunked(scan, (1, 2, 2 * segment - 7, room - 24, room - 8), room, segments=2, pieces=4, reverse=True)
    return long, _chunked(scan, (1, 2, scan["C"] + 9, room - 8, room - 40), room, segments=1, reverse=False)


def _apart(case: Case) -> Case:
    """The scans of keys' and of values' gradients each in a launch of its own."""
    return case._replace(settings=(*case.settings, (chunk, "pair_cut", lambda *about: None)))


def _in_teams(case: Case, blocks: int) -> Case:
    return case._replace(settings=(*case.settings, (chunk_scan, "segments_of", lambda *about: blocks)))


def _chunks(spec: Spec, shape: Shape | None, stages: int, room: int) -> tuple[Case, ...]:
    short = spec["BYTES"] // 2
    sizes = room - short, spec["V"] + short
    if shape is not None:
        return (_chunked(spec, shape, room, segments=2, reverse=False),)
    segment = (stages + 2) * spec["C"]
    if spec["outer"]:  # of all segments but the last on the way
        return (_chunked(spec, (1, 2, 3 * segment - 7, *sizes), room, segments=3, reverse=True),)
    long = _chunked(spec, (1, 2, 2 * segment - 7, *sizes), room, segments=2, reverse=False)
    narrow = room - 24, spec["V"] - 24  # the last warps have no columns
    return long, _chunked(spec, (1, 2, spec["C"] + 9, *narrow), room, segments=1, reverse=True)


def _chunked(spec: Spec, shape: Shape, room: int, segments: int, *, reverse: bool, pieces: int = 0) -> Case:
    batch, heads, length, features, values = shape
    cut = chunk_cut.Cut(room, spec["V"], spec["C"], pieces or segments, segments)
    if spec["products"] or (spec.dtype is BF16 and not spec["fine"] and not spec["outer"]):
        turned = (batch, heads, length, values, features)
        return _backward(spec, cut, turned, gated=bool(spec["GATE"]), reverse=reverse)
    return _forward(spec, cut, shape, gated=bool(spec["GATE"]), reverse=reverse)


def states(spec: Spec, shape: Shape | None = None) -> Case:
    """The way from the caller's state to those of pieces, and to the last one."""
    gated = "gated" in spec.flags
    call = CHUNK.spec(K=64, V=64, WARPS=4, GATE=int(gated), dtype="bf16")
    shape = shape or (1, 2, 500, 56 - 8 * gated, 40)
    return _forward(call, chunk_cut.Cut(64, 64, 64, 4, 2), shape, gated=gated)


def slope(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Two segments, from one state to another; and one that takes more than two rounds of a block's threads."""
    segmented = _backward(
        spec, chunk_cut.Cut(64, 64, spec["C"], 4, 2), shape or (1, 2, 8 * spec["C"] - 5, 40, 48), gated=True
    )
    if shape:
        return (segmented,)
    whole = chunk_cut.Cut(64, 64, spec["C"], 1, 1)
    return segmented, _backward(spec, whole, (1, 1, 2 * spec.threads + 99, 24, 24), gated=True)


def turn(spec: Spec, shape: Shape | None = None) -> Case:
    """Of more features than values, from one state to another; the last state of all is among those that turn."""
    call = CHUNK.spec(K=64, V=64, WARPS=4, dtype="f16")
    usual = chunk_cut.cut_of

    def taken(*about: Any) -> chunk_cut.Cut:
        return usual(*about)._replace(chunk=64, pieces=2, segments=2)

    case = _backward(call, chunk_cut.Cut(64, 128, 64, 2, 2), shape or (1, 2, 300, 104, 40), gated=False)
    return case._replace(settings=((chunk_scan, "cut_of", taken),))


def _arrays(spec: Spec, shape: Shape, gated: bool) -> tuple[Array, ...]:
    *over, features, values = shape
    q, k, v, g = numbers(spec, *2 * [(*over, features)], (*over, values), tuple(over))
    gates = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8)
    if gated:  # the second head hardly forgets, and yet is no larger
        gates[:, 1:] = -abs(g[:, 1:].astype(np.float32)) / 1024
        v[:, 1:] /= 16
    return (q, k, v, *([between_poison(gates.astype(np.float32 if spec["gfloat"] else g.dtype))] if gated else []))


def _forward(spec: Spec, cut: chunk_cut.Cut, shape: Shape, *, gated: bool, reverse: bool = False) -> Case:
    batch, heads, _, features, values = shape
    arrays = _arrays(spec, shape, gated)
    (initial,) = numbers(spec, (batch, heads, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial, reverse=reverse)
    options = {"initial_state": initial, "return_state": True, "mode": "chunk", "reverse": reverse}
    settings = ((chunk_scan, "cut_of", lambda *about: cut),)
    return Case(simple_gla if gated else linear_attention, arrays, options, expected, settings=settings)


def _backward(spec: Spec, cut: chunk_cut.Cut, shape: Shape, *, gated: bool, reverse: bool = False) -> Case:
    """Its scans along the features, or those of a pair, are cut so; the other one as it comes."""
    batch, heads, _, features, values = shape
    arrays = _arrays(spec, shape, gated)
    (do,) = numbers(spec, arrays[2].shape)
    initial, dstate = numbers(spec, *2 * [(batch, heads, features, values)], dtype=np.float32)
    about: Any = {"scale": features**-0.5, "initial": initial, "dstate": dstate, "reverse": reverse}
    made = reference.gated_backward(do, *arrays, **about)
    expected = tuple(made[name] for name in ("q", "k", "v", *(["g"] if gated else []), "initial"))
    options = {"initial_state": initial, "dstate": dstate, "mode": "chunk", "reverse": reverse}
    usual = chunk_cut.cut_of

    def taken(problem: Problem, rows: int, columns: int, in_warpgroups: bool, scans: int = 1) -> chunk_cut.Cut:
        return cut if columns == features or scans > 1 else usual(problem, rows, columns, in_warpgroups)

    bar = max(GRADIENT_SLACK * RMS_BAR[spec.dtype.name], _SLOPE_BAR)
    operator = simple_gla_backward if gated else linear_attention_backward
    return Case(operator, (do, *arrays), options, expected, bar, settings=((chunk_scan, "cut_of", taken),))


CASES = {
    "gated_chunk": gated_chunk,
    "linear_chunk": linear_chunk,
    "linear_team": linear_team,
    "gated_chunk_prefix": states,
    "gated_chunk_state": states,
    "gated_chunk_slope": slope,
    "gated_chunk_turn": turn,
}
