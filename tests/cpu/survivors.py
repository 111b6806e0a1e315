"""Mutants that no run can tell from the kernel, or none of the sizes that its operator gives it, each with the reason.

What a compiler finds to be the same code is no mutant and not listed here. The reasons come from reading the kernels.
"""

from __future__ import annotations

import fnmatch
from typing import NamedTuple


class Survivor(NamedTuple):
    """Globs of a specialization's name, of what was removed, and of the line that it was in; and why it survives."""

    kernels: str
    removed: str
    reason: str
    line: str = "*"


_WITHIN = "the threads' own loops end with the tile, so that only the array's end bounds them"
_IDLE = "it only saves work: what the others compute then is zero, or nobody reads it"
_UNLOADED = "what was not loaded is an undefined register, which the compiler takes to be loaded"
_LONG = "such wide loads are chosen for rows that are longer than what stands before the first one"
_FEW = "fewer elements than are before the first load make no load, and all are taken one by one in any case"

SURVIVORS: tuple[Survivor, ...] = (
    Survivor("lmha*", "min(columns - first_column, COLUMNS) -> columns - first_column", _WITHIN),
    Survivor("lmha_query*", "min(length - first_token, TOKENS) -> length - first_token", _WITHIN),
    Survivor("transpose*", "min(rows - first_row, ROWS) -> rows - first_row", _WITHIN),
    Survivor("transpose*", "min(columns - first_column, COLUMNS) -> columns - first_column", _WITHIN),
    Survivor("transpose_r*", "column < columns_here", f"into the tile in shared memory: {_IDLE}"),
    Survivor("transpose_r*", "row < rows_here", f"into the tile in shared memory: {_IDLE}"),
    Survivor("transpose_r*_i8*", "column + k < columns_here", "columns are a multiple of what is loaded at once"),
    Survivor("lmha_low_occupancy*", "lane < COLS_PER_THREAD", "further lanes write the same number to the same place"),
    Survivor("lmha_prefix*", "element >= elements", "states have a multiple of 1024 elements, a block 128 threads"),
    Survivor("lmha_chunk*", "column <= row", f"tiles of scores above the diagonal: {_IDLE}"),
    Survivor(
        "lmha_chunk*_outer_packed*", "row_token + r < end_token", "segments with others behind them are whole chunks"
    ),
    Survivor(
        "lmha_chunk*_outer_packed*", "min(first_token + segment_length, length) -> *", "as many tokens are behind them"
    ),
    Survivor(
        "lmha_chunk_e128*", "*LARGEST*", "numbers so large are only given to the smaller kernels of the same text"
    ),
    Survivor("lmha_chunk_e128*", "min(first_token + segment_length, length) -> length", "so are several segments"),
    Survivor("*_split_*", "row < rows", "a block has a row where several share one, and there are no further blocks"),
    Survivor("*_rows_*", "min(static_cast<long long>(ahead), exists ? length : 0) -> *", _LONG),
    Survivor("*m[ai][xn]_rows_*", "i * GROUP < left", _UNLOADED),
    Survivor("dot_*", "i * THREADS < left", _UNLOADED),
    Survivor("*_columns_*", "i < rows", _UNLOADED),
    Survivor("*_columns_*", "min((end - at + DEPTH - 1) / DEPTH, * -> (end - at + DEPTH - 1) / DEPTH", _WITHIN),
    Survivor(
        "*",
        "__syncthreads()",
        "this kernel meets at another barrier between two reductions; others that share the function do not",
        "*nobody reads what an earlier call left here any more",
    ),
    Survivor(
        "*",
        "__syncthreads()",
        "one thread writes the block's part and arrives itself; in other kernels several write",
        "*what the block has to say is written",
    ),
    Survivor(
        "*_columns_*",
        "__syncthreads()",
        "of two slices one is left, which is written by the thread that reads it; of more not",
        "*half as many slices are left",
    ),
    Survivor("gemv_*v*", "min((split + 1) * split_packs, packs) -> *", "only `partial` kernels take sums in pieces"),
    Survivor(
        "gemv_columns_*_f32", "min((split + 1) * split_rows, depth) -> *", "only `partial` kernels take sums in pieces"
    ),
    Survivor(
        "gemv_v4_l256_r1_*", "min(own_row, rows - 1) -> own_row", "a group is a whole block, and there is none too many"
    ),
    Survivor("gemv_*_ragged_*", "min((VEC - misaligned) % VEC, depth) -> *", _LONG),
    Survivor(
        "histogram_k112*", "min(static_cast<unsigned>(bins) - lowest, *", "only packed counters take several passes"
    ),
    Survivor("histogram_*", "threadIdx.x < 32", _IDLE),
    Survivor(
        "histogram_*_packed_*",
        "__syncthreads()",
        "matters where a warp stands between two atomics while others count 32768 elements, which no run shows",
        "*every counter that reached half its range has been emptied",
    ),
    Survivor("histogram_*_packed_*", "before < HALF", "the same"),
    Survivor("histogram_*", "min(static_cast<long long>(ahead), length) -> static_cast<long long>(ahead)", _FEW),
    Survivor("dot_*", "min(static_cast<long long>(ahead), length) -> static_cast<long long>(ahead)", _FEW),
    Survivor("nms_overlap*", "first > later", _IDLE),
    Survivor("take_*", "row < rows", "further rows read the last index, and its row, again", "*inside &&*"),
    Survivor("take_n16_l256*", "row < rows", "a block has one row, and there is none too many"),
    Survivor("take_n16_l256*", "min(first_row + r * GROUPS, rows - 1) -> first_row + r * GROUPS", "the same"),
    Survivor("lmha_chunk*_outer_*", "state_bound <= LARGEST_STATE", "a state that is only added to may be of any size"),
    Survivor("lmha_chunk*_outer_packed*", "min(token + C, end_token) -> *", "they are whole chunks"),
    Survivor("lmha_chunk*_outer_packed*", "[em] < [em]_size", "what is behind is the next token's, and not read later"),
    Survivor(
        "lmha_chunk*", "largest <= LARGEST", "a threshold with a margin: numbers of 2^100 come out right without it"
    ),
    Survivor("gated_*", "min(columns - first_column, BLOCK_COLUMNS) -> columns - first_column", _WITHIN),
    Survivor("gemv_v4_l256_r1_*", "own < rows", "a group is a whole block, and there is none too many"),
    Survivor("gated_scan*", "first + step < steps", f"into the time steps in shared memory: {_IDLE}"),
    Survivor("gated_scan*", "row_lane < SPREAD", "further lanes write the same number to the same place"),
    Survivor("lmha_*_s1_*", "min(length - start, STEPS) -> STEPS", "there is one step at a time, and always one left"),
    Survivor(
        "gemv_sum*", "column < columns", f"what lies behind the parts is read: {_IDLE}", "*if (column < columns) {"
    ),
)


def explanation(kernel: str, removed: str, line: str) -> str | None:
    """Why a mutant survives, if that is known."""
    for one in SURVIVORS:
        if (
            fnmatch.fnmatchcase(kernel, one.kernels)
            and fnmatch.fnmatchcase(removed, one.removed)
            and fnmatch.fnmatchcase(line, one.line)
        ):
            return one.reason
    return None
