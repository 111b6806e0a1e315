"""How a problem is computed: in chunks of time steps, or one step after another."""

from __future__ import annotations

from kgen.ops.gated import chunk, chunk_vector
from kgen.ops.gated.plan import Problem


def in_chunks(op: str, problem: Problem, mode: str) -> bool:
    """Whether in chunks; raises ValueError where these are asked for and cannot be."""
    if mode not in ("auto", "chunk"):
        return False
    module = chunk_vector if problem.gate == 2 else chunk
    refused = module.refusal(problem)
    if mode == "chunk" and refused:
        raise ValueError(f"{op}: mode='chunk' does not take this: {refused}; mode='recurrent' does")
    return not refused and (mode == "chunk" or module.pays(problem))
