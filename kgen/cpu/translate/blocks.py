"""Straight-line code and where it goes next, and sets that are handed along these ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kgen.cpu.translate.ptx import Instruction


class Block(NamedTuple):
    """Straight-line code; `ends` is what follows: blocks chosen by the register `on` (`!` before it: not)."""

    number: int
    code: tuple[Instruction, ...]
    ends: tuple[int, ...]
    on: str
    cut: bool


def spread(
    blocks: Sequence[int], near: Callable[[int], Iterable[int]], made: Callable[[int, int], int]
) -> dict[int, int]:
    """The least sets (of bits) such that each block's is `made` of it and of the sets of those near it, united."""
    sets = dict.fromkeys(blocks, 0)
    before: dict[int, list[int]] = {at: [] for at in blocks}
    for at in blocks:
        for to in near(at):
            before[to].append(at)
    work = dict.fromkeys(blocks)  # a stack without repetitions
    while work:
        at, _ = work.popitem()
        met = 0
        for to in near(at):
            met |= sets[to]
        found = made(at, met)
        if found != sets[at]:
            sets[at] = found
            work.update(dict.fromkeys(before[at]))
    return sets


def cyclic(blocks: list[Block]) -> set[int]:
    """The blocks that lie on a cycle: those that can be come to from themselves."""
    behind = spread(
        range(len(blocks)), lambda at: blocks[at].ends, lambda at, met: met | sum({1 << to for to in blocks[at].ends})
    )
    return {at for at, found in behind.items() if found >> at & 1}
