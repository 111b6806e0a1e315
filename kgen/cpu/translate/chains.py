"""Places -> chains: each with those behind it that all its lanes go through together, and nobody else comes to.

Most cuts concern the whole warp, so that all lanes do what follows one, and the next such cut has nobody to wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kgen.cpu.translate.flow import Flow
from kgen.cpu.translate.warp import Cut


class Chains:
    """The chains of a kernel, in the order of their first places, and the numbers of those."""

    def __init__(self, flow: Flow, cuts: Mapping[int, Cut]) -> None:
        self._flow, self._cuts = flow, cuts
        places = sorted([*flow.regions, *cuts])
        before = Counter([0, *(to for at in places for to in self._exits(at))])
        self.chains: list[list[int]] = []
        taken: set[int] = set()
        for first in places:
            if first in taken:
                continue
            chain = [first]
            taken.add(first)
            parts = first in cuts and cuts[first].polls
            while not parts and (to := self.next(chain[-1])) is not None:
                waits = to in cuts and not (self._meets_all(first) and self._meets_all(to))
                if waits or before[to] > 1 or to in taken:
                    break
                chain.append(to)
                taken.add(to)
            self.chains.append(chain)
        self.numbers = {chain[0]: number for number, chain in enumerate(self.chains)}

    def next(self, at: int) -> int | None:
        """Where all lanes go from a place, if they stay together."""
        exits = self._exits(at)
        ends = at in self._flow.regions and self._flow.regions[at].ends
        return None if ends or len(exits) != 1 else exits[0]

    def _exits(self, at: int) -> Sequence[int]:
        return self._flow.regions[at].exits if at in self._flow.regions else self._flow.blocks[at].ends

    def _meets_all(self, at: int) -> bool:
        return at in self._cuts and self._cuts[at].group == "all"
