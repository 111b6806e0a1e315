"""Calls of linear attention with a gate for each feature in chunks: segments of several, hard gates among soft ones.

A shape is B, H, T, features, values.
"""

from __future__ import annotations

import numpy as np

from kgen import gated_reference as reference
from kgen.ops.gated import chunk_vector, chunk_vector_backward, chunk_vector_walks
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, WIDEST
from kgen.ops.gated.gla import gla, gla_backward
from kgen.ops.gated.rwkv6 import rwkv6, rwkv6_backward
from kgen.ops.gated.vector_team import CHUNKS
from kgen.samples.accuracy import GRADIENT_SLACK, RMS_BAR
from kgen.samples.case import Case, Shape, between_poison, numbers
from kgen.spec import Spec


def scan(spec: Spec, shape: Shape | None = None, *, length: int = 8 * CHUNK + 7, begun: bool = True) -> Case:
    """From one state, or none, to another, in two segments of chunks and a part; a second tile of the widest columns.

    Features, where they are split, make two parts.
    """
    tiles, parts = 2 if spec["V"] == WIDEST else 1, 2 if spec["split"] else 1
    *over, features, values = shape or (1, 1, length, spec["K"] * parts - 4, spec["V"] * tiles - 28)
    q, k, v, g = numbers(spec, *2 * [(*over, features)], (*over, values), (*over, features))
    g = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8).astype(g.dtype)
    arrays = (q, k, v, between_poison(g), *(numbers(spec, (over[1], features)) if spec["bonus"] else ()))
    initial = numbers(spec, (*over[:2], features, values), dtype=np.float32)[0] if begun else None
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "chunk"}
    cut = chunk_vector_walks.Cut(-(-values // spec["V"]), 2, 4, spec["K"], spec["V"], -(-features // spec["K"]))
    settings = ((chunk_vector, "cut_of", lambda problem: cut), (chunk_vector, "segments_of", lambda *about: 0))
    return Case(rwkv6 if spec["bonus"] else gla, arrays, options, expected, settings=settings)


def scans(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """From a state, and from none, which leaves sums of what slots add to the scan."""
    return scan(spec, shape), scan(spec, shape, begun=False)


def team(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """The same by a team of four blocks, the last of which has no time steps; and by one of two, from nothing, with
    gates that forget all within two chunks. Without states, both from nothing to nothing."""
    alike = CHUNK_SCAN.spec(K=spec["K"], V=spec["V"], bonus="bonus" in spec.flags, dtype=spec.dtype.name)
    stateless = "stateless" in spec.flags
    full = scan(alike, shape, begun=not stateless)
    if stateless:
        full = full._replace(expected=full.expected[0], options={"mode": "chunk"})
    if shape is not None:
        return (_in_team(full, max(2, -(-shape[2] // (CHUNKS * CHUNK)))),)
    q, k, v, g, *bonus = full.inputs
    strong = between_poison((g.astype(np.float32) - 2).astype(g.dtype))
    o, last = reference.gated(q, k, v, strong, *bonus, scale=q.shape[-1] ** -0.5)
    options = {**full.options, "initial_state": None}
    alone = full._replace(inputs=(q, k, v, strong, *bonus), expected=o if stateless else (o, last), options=options)
    return _in_team(full, 4), _in_team(alone, 2)


def _in_team(case: Case, blocks: int) -> Case:
    return case._replace(settings=(*case.settings[:1], (chunk_vector, "segments_of", lambda *about: blocks)))


def states(spec: Spec, shape: Shape | None = None) -> Case:
    """What comes before and after such a scan."""
    return scan(_scan_of(spec), shape)


def ends(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """What segments make of the state, also of a sequence that ends in the first; and both ways, for gradients."""
    short = scan(_scan_of(spec), shape, length=3 * CHUNK + 4, begun=False)
    return (states(spec, shape), short, *([kept(spec, shape)] if spec["K"] == spec["V"] else []))


def _scan_of(spec: Spec) -> Spec:
    return CHUNK_SCAN.spec(K=spec["K"], V=spec["V"], split="split" in spec.flags, dtype="bf16")


def kept(spec: Spec, shape: Shape | None = None) -> Case:
    """States on the way, for gradients."""
    return _gradients(spec, spec["K"], shape, wide=bool(spec["split"]))


def gradients(spec: Spec, shape: Shape | None = None) -> Case:
    """In two segments on the way there and back, whose ends lie in the midst of a chunk."""
    wide = bool(spec["fsplit"] or spec["vsplit"])
    return _gradients(spec, spec["ROOM"], shape, bonus=bool(spec["bonus"]), fours=bool(spec["fours"]), wide=wide)


def _gradients(
    spec: Spec, room: int, shape: Shape | None, *, bonus: bool = False, fours: bool = False, wide: bool = False
) -> Case:
    most = 2 * room if wide else room
    *over, features, values = shape or (1, 1, 8 * CHUNK + 7, most - (36 if fours else 40), most - (28 if fours else 24))
    q, k, g, v, do = numbers(spec, *3 * [(*over, features)], *2 * [(*over, values)])
    g = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8).astype(g.dtype)
    initial, dstate = numbers(spec, *2 * [(*over[:2], features, values)], dtype=np.float32)
    arrays = (q, k, v, between_poison(g), *(numbers(spec, (over[1], features)) if bonus else ()))
    made = reference.gated_backward(do, *arrays, scale=features**-0.5, initial=initial, dstate=dstate)
    expected = tuple(made[name] for name in ("q", "k", "v", "g", *(("u",) if bonus else ()), "initial"))
    options = {"initial_state": initial, "dstate": dstate, "mode": "chunk"}
    cut = chunk_vector_walks.Cut(-(-values // room), 2, 4, room, room, -(-features // room))
    settings = ((chunk_vector_backward, "cut_of", lambda problem, both_ways: cut),)
    bar = GRADIENT_SLACK * RMS_BAR[spec.dtype.name]
    return Case(rwkv6_backward if bonus else gla_backward, (do, *arrays), options, expected, bar, settings=settings)


CASES = {
    "gated_chunk_vector_gradient": gradients,
    "gated_chunk_vector": scans,
    "gated_vector_team": team,
    "gated_chunk_vector_ends": ends,
    "gated_chunk_vector_state": kept,
    "gated_prefix": states,
    "gated_unpack": states,
}
