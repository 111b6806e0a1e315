"""Sample calls of causal linear attention's kernels; a shape is B, H, T, E, M."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import reference
from kgen.backend import HOST
from kgen.errors import SpecError
from kgen.launch import Step, bind
from kgen.notice import notice
from kgen.ops.causal_dot_product import causal_dot_product
from kgen.ops.linear_state import linear_state, query_state
from kgen.samples import Sample, Shape
from kgen.spec import Spec

_TOLERANCE = {"f32": 2e-6, "f16": 2e-3, "bf16": 1e-2}


def _arrays(spec: Spec, shape: Shape, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Queries, keys and values that must not be written to."""
    if len(shape) != 5:
        raise SpecError(f"{spec.name}: a shape is B H T E M, not {' '.join(map(str, shape))}")
    batch, heads, length, e, m = shape
    made = []
    for features in (e, e, m):
        x = rng.standard_normal((batch, heads, length, features)).astype(spec.dtype.numpy)
        x.flags.writeable = False
        made.append(x)
    return made[0], made[1], made[2]


def _scan(spec: Spec, shape: Shape | None, rng: np.random.Generator) -> Sample:
    reverse = "reverse" in spec.flags
    q, k, v = _arrays(spec, shape or (1, 2, 83, spec["E"] - 4, 36), rng)
    expected = reference.causal_dot_product(q, k, v, reverse=reverse)
    return Sample(
        lambda: causal_dot_product(q, k, v, reverse=reverse, algorithm=spec.name),
        (expected,),
        _TOLERANCE[spec.dtype.name],
    )


def _chunk(spec: Spec, shape: Shape | None, rng: np.random.Generator) -> Sample:
    """Whole rows where the kernel wants them; more features, or longer sequences, where it does only a part."""
    e, m = spec["E"], spec["MB"] + (-8 if spec["outer"] else 0 if spec["unaligned"] else 8)
    if spec["unaligned"]:
        e, m = e - 3, m - 3
    if spec["outer"] and not spec["packed"]:
        return _state(spec, shape or (1, 1, 83, e, m), rng)
    parts = spec["partial"] or spec["adds"]
    length = 270 if spec["outer"] else 83
    q, k, v = _arrays(spec, shape or (1, 1, length, e + 128 * parts, m), rng)
    named = None if parts or spec["outer"] else spec.name
    expected = reference.causal_dot_product(q, k, v)
    return Sample(
        lambda: causal_dot_product(q, k, v, algorithm=named or "lmha_chunk"), (expected,), _TOLERANCE[spec.dtype.name]
    )


def _state(spec: Spec, shape: Shape | None, rng: np.random.Generator) -> Sample:
    _, k, v = _arrays(spec, shape or (1, 2, 283, 60, 36), rng)
    return Sample(lambda: linear_state(k, v), (reference.linear_state(k, v),), _TOLERANCE[spec.dtype.name])


def _query(spec: Spec, shape: Shape | None, rng: np.random.Generator) -> Sample:
    heads, length = {16: (4, 13), 64: (1, 283), 128: (12, 283)}[spec["TOKENS"]]
    q, _, v = _arrays(spec, shape or (1, heads, length, 60 + (spec["VEC"] == 1), 40), rng)
    state = rng.standard_normal((*q.shape[:2], q.shape[3], v.shape[3])).astype(np.float32)
    state.flags.writeable = False
    return Sample(lambda: query_state(q, state), (reference.query_state(q, state),), _TOLERANCE[spec.dtype.name])


def _prefix(spec: Spec, shape: Shape | None, rng: np.random.Generator) -> Sample:
    """The states of segments, summed in place; no call is so long here that it would launch this kernel."""
    heads, segments, elements = 2, 37, 700
    states = rng.standard_normal((heads, segments, elements)).astype(np.float32)
    first = states.copy()
    blocks = heads * -(-elements // spec.threads)
    expected = np.cumsum(first, axis=1, dtype=np.float64) - first[:, :1]

    def call() -> Any:
        states[...] = first
        (run,) = bind([Step(spec, blocks, 2, (segments, elements))], HOST)
        run((notice(states).ctypes.data, 0), 0)
        return states

    return Sample(call, (expected,), _TOLERANCE["f32"])


SAMPLES = {
    "lmha": _scan,
    "lmha_low_occupancy": _scan,
    "lmha_chunk": _chunk,
    "lmha_total": _state,
    "lmha_query": _query,
    "lmha_prefix": _prefix,
}
