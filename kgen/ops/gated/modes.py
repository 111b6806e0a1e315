"""How a problem is computed: in chunks of time steps, or one step after another."""

from __future__ import annotations


def in_chunks(op: str, mode: str, refused: str | None, pays: bool) -> bool:
    """Whether in chunks, which are `refused` for a reason or taken by "auto" where that `pays`.

    Raises ValueError where these are asked for and cannot be.
    """
    if mode not in ("auto", "chunk"):
        return False
    if mode == "chunk" and refused:
        raise ValueError(f"{op}: mode='chunk' does not take this: {refused}; mode='recurrent' does")
    return not refused and (mode == "chunk" or pays)
