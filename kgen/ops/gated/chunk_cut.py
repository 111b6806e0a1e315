"""How a problem is cut for a scan in chunks: tiles of its states, chunks and segments of its time."""

from __future__ import annotations

from typing import NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.ops.gated.chunk_kernels import CHUNK
from kgen.ops.gated.plan import Problem

HUGE_SHARED, LARGE_SHARED = 200 * 1024, 136 * 1024
"""Bytes of shared memory that blocks take with chunks of 64 time steps, and with 32 of more than 128 features; blocks
with 32 of up to 128 features take no more than the 99 KiB that every chip has."""
_SHORT_SEGMENT = 4  # chunks, the fewest of a segment: its state costs a second pass over its keys and values


class Cut(NamedTuple):
    """How a scan is cut: room for rows, columns of a block, time steps of a chunk, pieces and segments of a sequence.

    A block walks through a segment, which is pieces / segments pieces; of the segments but the last, the states are
    needed beforehand, and a block of the first pass walks through one piece only.
    """

    room: int
    columns: int
    chunk: int
    pieces: int
    segments: int


def cut_of(problem: Problem, rows: int, columns: int, in_warpgroups: bool = False, scans: int = 1) -> Cut:
    """As many segments as fill the device, and not more; of wide heads, warpgroups take tiles as large as of others.

    Two scans in one launch fill it with half as many, where these can be halved, or else in two rounds.
    """
    sms = multiprocessors(problem.device)
    room = next(value for value in CHUNK.axes[0].values if value >= rows)
    width = next((value for value in CHUNK.axes[1].values if value >= columns), 128)
    wide = room == 256 and not in_warpgroups
    if wide:
        width = min(width, 64)
    chunk = 32 if wide or shared_memory(problem.device) < HUGE_SHARED else 64
    blocks = problem.shared * -(-columns // width)
    length = problem.length // (max(problem.sequences, 1) if problem.offsets else 1)
    segments = max(1, min(sms // max(blocks, 1), length // (_SHORT_SEGMENT * chunk)))
    if segments % scans == 0 and blocks * segments * scans > sms:
        segments //= scans
    pieces = segments
    if segments > 1:
        while blocks * (segments - 1) * (pieces // segments) * 2 <= sms and pieces * 2 * chunk <= length:
            pieces *= 2
    return Cut(room, width, chunk, pieces, segments)


def fours_of(cut: Cut, columns: int) -> int:
    """Of numbers in a state, in the order of registers: a multiple of SUM_THREADS, since a tile has 64 rows or more."""
    return -(-columns // 16) * cut.room * 4
