"""How a scan is cut: the tile of the state that a block, a warp and a thread hold, chosen by a model of its time.

The model counts what the four schedulers of a multiprocessor issue for a time step, what its shared memory serves, and
how long a warp waits. Its constants are those of compiled kernels and of timings on an H200.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

LOADERS = 4
"""Warps of a scan that prepare time steps."""

_SCHEDULERS = 4
_REGISTERS = 65536  # of a multiprocessor


class Tile(NamedTuple):
    """How a scan is cut: rows of a thread, lanes that share a column, columns of a thread, warps."""

    rows: int
    lanes: int
    columns: int
    warps: int

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.warps * (32 // self.lanes) * self.columns

    @property
    def axes(self) -> dict[str, int]:
        """As a scan's axes."""
        return {name.upper(): size for name, size in self._asdict().items()}


def together(lanes: int, columns: int) -> int:
    """Time steps whose results are added up over the lanes together: enough to give each lane one, four at most."""
    return max(1, min(4, lanes // columns))


@functools.lru_cache(maxsize=1024)
def tile_for(rows: int, columns: int, heads: int, gated: bool, sms: int, grouped: bool, least: int = 1) -> Tile:
    """The tile that takes the fewest cycles for a time step of all heads; `grouped`: states decay once in a group.

    Blocks have at `least` so many warps for the state: those of eight take less shared memory, which some devices need.
    """
    cycles = _grouped_cycles if grouped else _single_cycles
    return min(_tiles(rows, columns, grouped, least), key=lambda tile: cycles(tile, columns, heads, gated, sms))


def _tiles(rows: int, columns: int, grouped: bool, least: int) -> Iterator[Tile]:
    for lanes in (1, 2, 4, 8, 16, 32):
        own = -(-rows // (4 * lanes)) * 4
        if own <= 16:
            for width in (4, 8):
                for warps in (least, *(n for n in (2, 4, 8) if least < n and (n < 8 or grouped))):
                    tile = Tile(own, lanes, width, warps)
                    fits = not grouped or (own + together(lanes, width)) * width <= _held(warps)
                    if fits and (warps == least or tile.width // 2 < columns):
                        yield tile


def _held(warps: int) -> int:
    """Numbers of the state, and sums of steps that are taken together, for which a thread has registers."""
    return 80 if warps == 8 else 144


def _grouped_cycles(tile: Tile, columns: int, heads: int, gated: bool, sms: int) -> float:
    """What a multiprocessor with the most blocks takes for a time step."""
    rows, lanes, width, warps = tile
    blocks = -(-heads * -(-columns // tile.width) // sms)
    steps, rounds = together(lanes, width), lanes.bit_length() - 1
    spread = min(steps * width, lanes)
    folds = width * (1 - 1 / spread) + width / spread * ((lanes // spread).bit_length() - 1)
    wide_loads = rows / 2 + width / 4
    # A multiplication that shares no register with the one before it takes a cycle more.
    products = 2 * rows * width * (1.15 + 1.2 / width) + (rows * width / 10 if gated else 0)
    own = products + wide_loads + 3.7 * folds + 6
    loading = 2 + 0.05 * rows * lanes + 0.027 * tile.width + (7 if gated else 0)
    issued = blocks * (max(warps / _SCHEDULERS, 1 / blocks) * own + loading)
    served = blocks * warps * (5.06 * wide_loads + folds)
    resident = max(1, _REGISTERS // (32 * (warps + LOADERS) * (rows * width + 90)))
    alone = own + min(blocks, resident) * loading + 5 * rounds + 20
    return max(issued, served, -(-blocks // resident) * alone)


def _single_cycles(tile: Tile, columns: int, heads: int, gated: bool, sms: int) -> float:
    """The same for scans that take one step after another: gradients along features, and those with a normalizer."""
    rows, lanes, width, warps = tile
    blocks = -(-heads * -(-columns // tile.width) // sms)
    spread = min(width, lanes)
    shuffles = width // spread * (spread - 1 + (lanes // spread).bit_length() - 1)
    words = (3 if gated else 2) * rows + width
    issued = (3 if gated else 2) * rows * width + 4 * shuffles + words / 4 + 24
    loading = 40 + rows * lanes * 6 / 32 + tile.width * 3 / 32
    busy = blocks * warps / _SCHEDULERS
    return max(max(busy, 1.0) * issued + blocks * loading / LOADERS, blocks * warps * (words + shuffles))
