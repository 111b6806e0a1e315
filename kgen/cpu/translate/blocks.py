"""Straight-line code and where it goes next; which of it lies on a cycle."""

from __future__ import annotations

from typing import NamedTuple

from kgen.cpu.translate.ptx import Instruction


class Block(NamedTuple):
    """Straight-line code; `ends` is what follows: blocks chosen by the register `on` (`!` before it: not)."""

    number: int
    code: tuple[Instruction, ...]
    ends: tuple[int, ...]
    on: str
    cut: bool


def cyclic(blocks: list[Block]) -> set[int]:
    """The blocks that lie on a cycle: Tarjan's strongly connected components, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: set[int] = set()
    for root in range(len(blocks)):
        if root in index:
            continue
        work = [(root, iter(blocks[root].ends))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            at, ends = work[-1]
            for to in ends:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(blocks[to].ends)))
                    break
                if to in on_stack:
                    low[at] = min(low[at], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    members = []
                    while True:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                        if members[-1] == at:
                            break
                    if len(members) > 1 or at in blocks[at].ends:
                        found.update(members)
    return found
