"""What no GPU launches, refused as one would refuse it."""

from __future__ import annotations

import math

from kgen.cpu.translate.program import Program
from kgen.spec import MOST_THREADS

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Of a grid, in each of its dimensions."""
MOST_IN_BLOCK = (MOST_THREADS, MOST_THREADS, 64)
"""Threads, likewise."""
MOST_TOGETHER = 16
"""Blocks of a cluster."""
MOST_STATIC = 48 << 10
"""Bytes of shared memory that a kernel may declare."""
MOST_SHARED = 227 << 10
"""Bytes of shared memory of a block, on Hopper and on what came after it."""


def check(
    program: Program, grid: tuple[int, ...], block: tuple[int, ...], cluster: tuple[int, ...], dynamic: int
) -> None:
    """ValueError for a launch of more than there is, or of nothing; `dynamic` is the shared memory it asks for."""
    static = sum(size for _, size in program.areas)
    launch, threads = f"{[*grid]} x {[*block]}", math.prod(block)
    most = program.threads or MOST_THREADS
    problem = ""
    if min(*grid, *block, *cluster) < 1:
        problem = f"a launch of no blocks or threads: {launch}"
    elif any(given > limit for given, limit in zip((*grid, *block), (*MOST_BLOCKS, *MOST_IN_BLOCK))):
        problem = f"a launch of {launch}; a GPU takes at most {[*MOST_BLOCKS]} x {[*MOST_IN_BLOCK]}"
    elif threads > MOST_THREADS:
        problem = f"a block of {[*block]} threads; a GPU takes at most {MOST_THREADS}"
    elif threads > most:
        problem = f"a block of {[*block]} threads; its __launch_bounds__ allow at most {most}"
    elif math.prod(cluster) > MOST_TOGETHER:
        problem = f"a cluster of {[*cluster]} blocks; a GPU takes at most {MOST_TOGETHER}"
    elif any(g % c for g, c in zip(grid, cluster)):
        problem = f"the grid {[*grid]} is no multiple of the cluster {[*cluster]}"
    elif static > MOST_STATIC:
        problem = f"{static} bytes of shared memory are declared; a kernel may declare {MOST_STATIC}"
    elif not 0 <= dynamic <= MOST_SHARED - static:
        problem = f"{static} + {dynamic} bytes of shared memory, static and dynamic; a block has at most {MOST_SHARED}"
    if problem:
        raise ValueError(f"{program.name}: {problem}")
