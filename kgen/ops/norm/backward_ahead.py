"""Rows whose gradients do best where several are on their way to each of their threads; the table is measured."""

from __future__ import annotations

from kgen.device import device_arch, multiprocessors
from kgen.ops import rows_cut
from kgen.ops.rows import Cut

SUITS = {
    (8, False, True): ((64, 2), (128, 2), (256, 2)),
    (8, False, False): ((64, 2), (128, 2), (256, 2)),
    (8, True, True): ((512, 2),),
    (8, True, False): ((64, 2), (256, 1), (512, 2)),
    (4, True, True): ((256, 1), (512, 1)),
    (4, True, False): ((256, 1),),
    (4, False, False): ((256, 1),),
}
"""Lanes and packs of a row, by the elements of a pack, whether rows begin anywhere, and whether there is a bias."""
TURNS = 8  # rows of the same threads, from which on it pays


def cut(rows: int, columns: int, taken: rows_cut.Packs, device: int, *, bias: bool) -> Cut | None:
    """The cut for so many rows, so wide, or None where others do better: at most a quarter of the lanes is idle."""
    if not taken.full or taken.shifted or device_arch(device) < rows_cut.COPIES:
        return None
    total, threads = columns // taken.vec, 1024 * multiprocessors(device)
    for lanes, packs in SUITS.get((taken.vec, taken.ragged, bias), ()):
        if 3 * lanes * packs < 4 * total <= 4 * lanes * packs and rows >= TURNS * threads // lanes:
            return Cut(lanes, packs, taken.vec, 1, True)
    return None
