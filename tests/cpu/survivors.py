"""Mutants that no run can tell from the kernel, or none of the sizes that its operator gives it, each with the reason.

What a compiler finds to be the same code is no mutant and not listed here. The reasons come from reading the kernels.
"""

from __future__ import annotations

import fnmatch
from typing import NamedTuple


class Survivor(NamedTuple):
    """Globs of a specialization's name, of what was removed, of the line between one before and two behind; and why."""

    kernels: str
    removed: str
    reason: str
    line: str = "*"


_IDLE = "it only saves work: what the others compute then is zero, or nobody reads it"
_MORE = "the largest of more numbers than the thread's own share, all of them the matrix's, is no other in the end"
_BESIDE = f"lanes beside the block's: {_IDLE}"
_SAME = "further lanes write the same number to the same place"

SURVIVORS: tuple[Survivor, ...] = (
    Survivor("lmha_low_occupancy*", "lane < COLS_PER_THREAD", f"{_SAME}, and all lanes' stores cost binary16 a tenth"),
    Survivor("lmha_chunk*", "column <= row", f"tiles of scores above the diagonal: {_IDLE}"),
    Survivor("lmha_chunk*_partial_*", "e < e_size", "slices of the features with others behind them are full"),
    Survivor("lmha_chunk*_outer_*", "state_bound <= LARGEST_STATE", "a state that is only added to may be of any size"),
    Survivor(
        "argm*_rows_g8_*",
        "found_at + i * GROUP < loads",
        "an extreme that was loaded stands nearer than what lies behind the last load",
    ),
    Survivor("argm*_rows_*", "found_at + stride < loads", "the same tile is loaded again"),
    Survivor(
        "*_columns_*_split_*",
        "min((* - at + DEPTH - 1) / DEPTH, * -> (* - at + DEPTH - 1) / DEPTH",
        "so that the number is an int: no sample has 2^31 rows for a thread",
    ),
    Survivor("*_columns_*_ragged_*", "*min(first_column + COLUMNS, columns)*", _BESIDE),
    Survivor("*_columns_*_ragged_*", "min(last_row, 0LL) -> *", "samples have no rows in reverse; tests have"),
    Survivor("gated_chunk_k*", "chunk < chunks", "a chunk behind the last is zeros in a free stage"),
    Survivor("linear_chunk_k256*", "chunk < chunks", "with two stages none is loaded ahead: it is always true"),
    Survivor("linear_chunk_*g1*", "block <= own_warp", f"scores above the diagonal: {_IDLE}"),
    Survivor("linear_chunk_*products*", "lane < 16", _SAME, "*products[[]direction*"),
    Survivor("linear_team*", "chunk < chunks", f"into the chunks in shared memory: {_IDLE}", "*load_rows*"),
    Survivor("linear_team*", "empty <= first + to", f"the state before the first segment, where it is zero: {_IDLE}"),
    Survivor("linear_team*", "segment < needed", f"what the last segment adds, where nobody wants it: {_IDLE}"),
    Survivor(
        "linear_team*",
        "named_barrier(AMONG_GROUP + group, 128)",
        "wgmma reads a tile for four warps at once, the executor's products only the rows of their own warp",
    ),
    Survivor("gated_chunk_k*", "block <= strip", f"scores above the diagonal: {_IDLE}", "for (int block = 0;*"),
    Survivor("gated_chunk_k*_bf16", "block <= strip", f"scores above the diagonal: {_IDLE}"),
    Survivor(
        "gated_scan*",
        "min(columns - first_column, BLOCK_COLUMNS) -> columns - first_column",
        "it only saves loads: what lanes would load behind a narrow tile has no place in shared memory",
    ),
    Survivor("gated_scan*", "first + step < steps", f"into the time steps in shared memory: {_IDLE}"),
    Survivor("gated_scan_r*", "min(steps - first, STEPS) -> STEPS", f"time steps behind the end are zero: {_IDLE}"),
    Survivor("gated_scan*", "row_lane < SPREAD", _SAME),
    Survivor("softmax_ring*causal*", "pack * STRIDE < reach", f"in fetch: {_IDLE}", "*copy_async*"),
    Survivor("softmax_ring*mask*", "row < rows", f"the mask has such a row: {_IDLE}", "*load_choice*"),
    Survivor(
        "softmax_ring*ragged*",
        "edge_column(head) < columns",
        "a zero more, of which the greatest number is taken: tests of operators have numbers far below",
        "*float top = *",
    ),
    Survivor(
        "softmax_ring*_shifted_*",
        "threadIdx.x % 32 < PACKS",
        "where a lane has no such pack, the last one's would lie behind the row",
        "*behind + VEC <= columns*",
    ),
    Survivor(
        "softmax_ring*_c[248]_ragged_shifted_*",
        "__syncwarp()",
        "what the block has found of the row that lay there is told before, for which all warps wait",
        "*auto fetch_row*",
    ),
    Survivor(
        "norm_ring*channels_across_ragged*",
        "nth * LANES + threadIdx.x < groups * channels",
        f"there is room for more: {_IDLE}",
        "*affines[[]*own*",
    ),
    Survivor("softmax_strips*", "threadIdx.x % 32 < LANES", _SAME),
    Survivor(
        "softmax_strips*_grid_*",
        "__syncwarp()",
        "lanes pass numbers on right behind it, for which they wait, too",
        "*distance = 16*",
    ),
    Survivor(
        "softmax_strips*_grid_*",
        "wait(told[[]turn % TURNS], *",
        "messages carry the number of their turn, and are looked at until it is theirs",
        "*part + warp * parts; column < MESSAGES*",
    ),
    Survivor("softmax_columns*", "threadIdx.x % 32 < LANES", _SAME),
    Survivor("softmax_columns*ragged*", "min(first_column + WIDTH, columns) -> *", _BESIDE),
    Survivor("softmax_columns*ragged*", "column < end_column", _BESIDE),
    *(
        Survivor(
            f"norm_ring_{of_one_row}*weight*_ragged_*",
            "__syncthreads()",
            "nobody reads the weights before all have told what they found of the first row",
            "*// all are there*",
        )
        for of_one_row in ("n", "t256_n[348]")
    ),
    Survivor("norm_ring_t32*", "__syncthreads()", "a warp that has a row tells nobody else", "*they are ready*"),
    Survivor("norm_ring_t32*", "min(max(* threads) -> max(*", "a warp that has a row has all of its edge and packs"),
    Survivor(
        "norm_ring*_shifted_*",
        "threadIdx.x % 32 < PACKS",
        "where a lane has no such pack, the last one's would lie behind the row",
        "*behind <= columns*",
    ),
    Survivor(
        "norm_ring_t64*_shifted_*",
        "__syncwarp()",
        "the lanes have added up what they found since they read, or heard, anything",
        "*all lanes have read what*",
    ),
    Survivor("norm_ring_t*", "sure < *", "samples have no row for a team at fixed turns, or as many as it begins with"),
    Survivor(
        "norm_ring*weight*_ragged_*",
        "columns >= VEC",
        "behind its columns a pack has poison of the sample's memory, and nobody uses it",
    ),
    Survivor("softmax_strips*ragged*", "column < columns", f"packs behind the row: {_IDLE}", "*column + VEC > 0*"),
    Survivor("softmax_strips*ragged*", "column < KNOWN", f"columns that are of no pack that it writes: {_IDLE}"),
    Survivor("softmax_columns*_partial_ragged*", "slice < SLICES", f"beside the slices: {_IDLE}"),
    Survivor(
        "softmax_columns*_apply_ragged*", "column < columns", f"packs behind the row: {_IDLE}", "*column + VEC > 0*"
    ),
    Survivor("gated_scan*", "all <= -SMALLEST", "no sample's state grows by e^22 within a group"),
    Survivor("gated_scan*", "all <= 1 / SMALLEST", "no sample's state grows by 2^40 within a group"),
    Survivor("gated_scan*posted*", "column >= columns_here", f"what is added up behind the last column: {_IDLE}"),
    Survivor(
        "gated_scan*posted*",
        "column + 4 <= columns_here",
        "results of samples lie without gaps: where rows are aligned, the last columns are four",
    ),
    Survivor(
        "gated_scan*posted*",
        "column + j < columns_here",
        "where values are loaded four at a time samples have fours of columns; tests of operators have others",
    ),
    Survivor(
        "gated_vector_team*stateless*",
        "segment + 1 < full",
        "the last segment leaves what it adds, too, and nobody reads it",
        "*const bool leaves = *",
    ),
    Survivor("gated_vector_team_k64*", "segment + 1 < full", "the last segment leaves for nobody", "*ending.scored*"),
    Survivor("gated_chunk_vector_gradient*", "threadIdx.x < ROOM", "what it writes is written over before it is read"),
    Survivor("gated_chunk_vector_gradient*vsplit*", "warp < 6", f"products of further warps: {_IDLE}", "*(below,*"),
    Survivor("gated_chunk_vector_gradient*vsplit*", "value_panel + 1 < value_panels", "loads the last panel once more"),
    Survivor(
        "gated_chunk_vector_gradient*vsplit*",
        "__syncwarp()",
        "so do all warps between two panels",
        "*__syncwarp(); / * / *---- dg:*",
    ),
    Survivor("gated_sum*", "min(packs, THREADS) -> packs", "matters for rows of more than 1024 numbers; no head has"),
    Survivor("gemv_columns*", "row < end", f"a round of no rows: {_IDLE}"),
    Survivor("gemv_columns*", "row < depth", f"a round of no rows: {_IDLE}"),
    Survivor("gemv_columns*_ragged_*", "row < stop", f"a round of no rows: {_IDLE}", "*if (row < stop)*"),
    Survivor("gemv_columns*_ragged_*", "column < columns", f"packs behind the row: {_IDLE}", "*if (column < columns)*"),
    Survivor(
        "gemv_columns*_p2_*",
        "min((columns - 1 - column) / APART, PACKS - 1) -> *",
        f"packs behind the row, of which those behind the matrix are looked for: {_IDLE}",
    ),
    Survivor("gemv_v*_f32", "at < end", "a number of x is read where it is multiplied, which no pack past the end is"),
    Survivor("gemv_v*_f32", "lane < ROWS", f"lanes beside those that write: {_IDLE}", "*total = sums*"),
    Survivor("gemv_v*_f32", "fabsf(lost) <= 3.402823466e38f", "no sample has an infinity; test_rounded_once.py has"),
    Survivor("gemv_span*_f32", "fabsf(lost) <= 3.402823466e38f", "the same; test_narrow_rows.py has"),
    Survivor("gla_inner*", "key <= query", f"scores above the diagonal: {_IDLE}"),
    Survivor(
        "histogram_*_packed_*",
        "__syncthreads()",
        "matters where a warp stands between two atomics while others count 32768 elements, which no run shows",
        "*every counter that reached half its range has been emptied*",
    ),
    Survivor("histogram_*_packed_*", "before < HALF", "the same"),
    Survivor("histogram_weights*", "shift < -63", "the hardware shifts by more than 63 bits as by 64: nothing is left"),
    Survivor("gemv_span*", "* -> (blockIdx.x + 1) * turns * WARPS", f"spans behind the matrix are zero: {_IDLE}"),
    Survivor(
        "gemv_span*", "* -> rows - head - nth * HEIGHT", "further bytes than those of the span are not asked for either"
    ),
    Survivor("*_flat_*", "threadIdx.x < together", f"what further threads find is not kept: {_IDLE}", "*? reads + *"),
    *(
        Survivor(
            f"*{extreme}_flat_*", mutant, "what it reads twice or not at all holds no extreme of a sample; sums do"
        )
        for extreme in ("max", "min")
        for mutant in ("min(static_cast<int>(blockIdx.x), more) -> *", "blockIdx.x < more")
    ),
    Survivor(
        "arg*_narrow_*_t*",
        "min((lane + 1) * share, number) -> number",
        "a thread that looks on in what others have finds nothing else",
    ),
    Survivor("*_flat_*", "min(columns, THREADS) -> THREADS", "one thread for each column finds the same"),
    Survivor("*_flat_*", "share < sharers", f"threads beside those that share a column: {_IDLE}"),
    Survivor(
        "norm_words*",
        "reinterpret_cast<size_t>(own) / 4 % 32 < threadIdx.x % 32",
        "all words are stored by one instruction or the next, wherever lines begin",
    ),
    Survivor(
        "norm_words*",
        "reinterpret_cast<size_t>(to) / 4 % 32 < threadIdx.x % 32",
        "all words are stored by one instruction or the next, wherever lines begin",
    ),
    Survivor("norm_words*_f32", "min(max(behind, 0), 32 * VEC) -> max(*", "no lane has words behind those of its warp"),
    Survivor("norm_words*_f32", "min(max(columns - *, 0), threads) -> max(*", "an edge has fewer elements than that"),
    Survivor(
        "norm_words*_rms_*",
        "loose + static_cast<int>(offset_of(from)) < head",
        "one number of so wide a row for another changes its root mean square by too little; norms with a mean show it",
    ),
    Survivor("norm_span*", "threadIdx.x >= 2 * CHUNK", "further threads find that theirs is behind the span, too"),
    Survivor("norm_backward_ring*", "* + behind) -> columns - VEC + 1", f"fetched packs of the next block: {_IDLE}"),
    Survivor(
        "norm_backward_span*", "min(* - __ffs(columns), ?) -> ?", "it only decides in which banks rows of a warp lie"
    ),
    Survivor("norm_backward*_f32", "sizeof(Number) < 4", "a shift by no bits: these numbers are words"),
    Survivor("quantize_columns_*_l??_bf16", "min((split + 1) * split_rows, rows) -> rows", _MORE),
    Survivor("quantize_columns_*_l??_bf16", "threadIdx.x < LANES", _MORE),
    Survivor("transpose_*_short_n?_u*", "shift <= i + j", "samples' results begin with a pack; those of tests do not"),
    Survivor(
        "transpose_short_*anywhere_u*",
        "min(tile_packs, (length * -> tile_packs",
        "packs behind a row hold what is not written",
    ),
    Survivor("transpose_short_*anywhere_u*", "pack < packs", "the same"),
    Survivor("argm*_short_n?_*", "min(row, count - 1) -> row", f"rows that are not there: {_IDLE}"),
    Survivor("transpose_ragged_r*", "__syncwarp()", "no lane waits for another: it orders what the compiler emits"),
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
