"""Calls of linear attention with a gate for each feature in chunks: segments of several, hard gates among soft ones."""

from __future__ import annotations

import numpy as np

from kgen import gated_reference as reference
from kgen.ops.gated import chunk_vector
from kgen.ops.gated.chunk_vector_kernels import CHUNK, CHUNK_SCAN, WIDEST
from kgen.ops.gated.gla import gla
from kgen.ops.gated.rwkv6 import rwkv6
from kgen.samples.case import Case, between_poison, numbers
from kgen.spec import Spec


def scan(spec: Spec) -> Case:
    """From one state to another, in two segments of several chunks and a part; a second tile of the widest columns."""
    tiles = 2 if spec["V"] == WIDEST else 1
    features, values, length = spec["K"] - 4, spec["V"] * tiles - 28, 8 * CHUNK + 7
    q, k, v, g = numbers(spec, *2 * [(1, 1, length, features)], (1, 1, length, values), (1, 1, length, features))
    g = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8).astype(g.dtype)
    arrays = (q, k, v, between_poison(g), *(numbers(spec, (1, features)) if spec["bonus"] else ()))
    (initial,) = numbers(spec, (1, 1, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "chunk"}
    cut = chunk_vector.Cut(tiles, 2, 4)
    settings = ((chunk_vector, "cut_of", lambda problem: cut),)
    return Case(rwkv6 if spec["bonus"] else gla, arrays, options, expected, settings=settings)


def states(spec: Spec) -> Case:
    """What comes before and after such a scan."""
    return scan(CHUNK_SCAN.spec(K=spec["K"], V=spec["V"], dtype="bf16"))


CASES = {
    "gated_chunk_vector": scan,
    "gated_chunk_vector_state": states,
    "gated_prefix": states,
    "gated_unpack": states,
}
