"""What a launch must know of a kernel, and where the kernel's variables lie."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.cpu.translate.ptx import Entry, Module

SHARED_START = 1024
"""Where a block's shared memory starts: what is below belongs to the system, as on Hopper."""
RED_ZONE = 64
"""Bytes between shared variables that nobody may touch."""


@dataclass(frozen=True)
class Program:
    """What a launch of one kernel must know; sizes in bytes, `sites` (line, caller, text) of what reports may name.

    threads   of a block, at most, as __launch_bounds__ says; 0 where it does not
    """

    name: str
    params: tuple[tuple[int, int, str], ...]  # offset, size, type
    shared: int
    areas: tuple[tuple[int, int], ...]  # offset and size of the variables in shared memory
    stack: int
    threads: int
    cluster: tuple[int, int, int]
    globals: tuple[tuple[str, int], ...]  # symbol and size of the variables in global memory
    sites: tuple[tuple[int, int, str], ...]


class Layout:
    """Where variables lie: `shared` and `local` have their offsets, by name.

    areas    offset and size of the variables in shared memory
    end      of those; dynamic shared memory begins there
    room     bytes of local memory of a lane
    """

    def __init__(self, entry: Entry, module: Module) -> None:
        self.shared: dict[str, int] = {}
        self.local: dict[str, int] = {}
        self.areas: list[tuple[int, int]] = []
        self.room, at = 0, SHARED_START
        variables = [*entry.variables.values(), *(v for v in module.variables.values() if v.space == "shared")]
        for variable in variables:
            if variable.space == "shared" and variable.size:
                at = -(-at // variable.align) * variable.align
                self.shared[variable.name] = at
                self.areas.append((at, variable.size))
                at += variable.size + RED_ZONE
            elif variable.space == "local":
                self.room = -(-self.room // variable.align) * variable.align
                self.local[variable.name] = self.room
                self.room += variable.size
        dynamic = [variable for variable in variables if variable.space == "shared" and not variable.size]
        align = max([variable.align for variable in dynamic], default=16)
        self.end = -(-at // align) * align if self.areas else SHARED_START
        self.shared |= {variable.name: self.end for variable in dynamic}
