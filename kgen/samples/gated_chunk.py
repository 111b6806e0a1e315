"""Calls of linear attention in chunks: pieces and segments, chunks that are not full, hard gates among soft ones."""

from __future__ import annotations

import numpy as np

from kgen import gated_reference as reference
from kgen.ops.gated import chunk
from kgen.ops.gated.chunk_kernels import CHUNK
from kgen.ops.gated.gla import simple_gla
from kgen.ops.gated.linear_attention import linear_attention
from kgen.samples.case import Case, between_poison, numbers
from kgen.spec import Spec

_STATES = chunk.Cut(64, 64, 64, 4, 2)


def gated_chunk(spec: Spec) -> Case:
    """From one state to another; a second tile of columns, rows that do not fill theirs."""
    short = spec["BYTES"] // 2
    cut = chunk.Cut(spec["K"], spec["V"], spec["C"], 4, 2)
    case = _call(spec, cut, spec["K"] - short, spec["V"] + short, 8 * spec["C"] - 7, gated=bool(spec["GATE"]))
    return case._replace(settings=(*case.settings, (chunk, "WARPS", spec["WARPS"])))


def states(spec: Spec) -> Case:
    """The way from the caller's state to those of pieces, and to the last one."""
    gated = "gated" in spec.flags
    call = CHUNK.spec(K=64, V=64, WARPS=4, GATE=int(gated), dtype="bf16")
    return _call(call, _STATES, 56 - 8 * gated, 40, 500, gated=gated)


def _call(spec: Spec, cut: chunk.Cut, features: int, values: int, length: int, *, gated: bool) -> Case:
    q, k, v, g = numbers(spec, *2 * [(1, 2, length, features)], (1, 2, length, values), (1, 2, length))
    gates = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8).astype(g.dtype)
    arrays = (q, k, v, *([between_poison(gates)] if gated else []))
    (initial,) = numbers(spec, (1, 2, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "chunk"}
    settings = ((chunk, "cut_of", lambda *about: cut),)
    return Case(simple_gla if gated else linear_attention, arrays, options, expected, settings=settings)


CASES = {"gated_chunk": gated_chunk, "gated_chunk_prefix": states, "gated_chunk_state": states}
