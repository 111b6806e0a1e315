"""The executor notices what is missing from a kernel; `python -m tests.cpu.mutants` asks that of all kernels."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from pytest import MonkeyPatch

import kgen
from kgen.cpu.compiler import cores
from tests.cpu.judging import judge, reason_for, source_of
from tests.cpu.mutation import mutants

SUBSET = (
    "lmha_low_occupancy_e64_w4_c4_f32",
    "softmax_t128_n4_v8_bf16",
    "sum_rows_*_split_f32",
    "gemv_columns_*_u8_partial_bf16",
    "transpose_r64_c64_i4_o4_u32",
    "quantize_columns_*_l32_bf16",
    "argmax_rows_g8_*",
)
"""Kernels that compile in little time: warps that hand over, rows in a block, blocks that meet, tiles, survivors."""

TEXT = """\
__device__ __forceinline__ void arrive(int barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait(int barrier)
{
    unsigned done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ mbarrier.try_wait.parity.shared.b64 p, [%1], 0; }"
#else
        asm volatile("{ mbarrier.test_wait.parity.shared.b64 p, [%1], 0; }"
#endif
                     : "=r"(done) : "r"(barrier));
    } while (!done);
}

extern "C" __global__ void kernel(float* x, int n)
{
    const int rows = min(n - 1, ROWS);
    for (int i = 0; i < n; ++i) {  // __syncthreads();
        arrive(3);
        wait(3);
        if (i % 2 == 0 && i + (n < 3) <= rows) {
            x[i] = i < n ? x[i] : static_cast<float>(n);
        }
#pragma unroll
        for (int turn = 0; turn < 4; ++turn) {
            if (turn + 1 < TURNS && turn < n) {  // the first of them is decided by the compiler
                ++smallest;
            }
        }
        smallest = min(smallest, i);
        __syncthreads();
    }
    if (threadIdx.x >= n) {
        return;
    }
}
"""


def test_one_thing_is_removed_at_a_time_and_lines_stay() -> None:
    found = mutants(TEXT)
    assert [(one.line, one.removed) for one in found] == [
        (3, 'asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory")'),
        (7, "all of wait()"),
        (21, "min(n - 1, ROWS) -> ROWS"),
        (21, "min(n - 1, ROWS) -> n - 1"),
        (23, "arrive(3)"),
        (24, "wait(3)"),
        (25, "i + (n < 3) <= rows"),
        (25, "n < 3"),
        (26, "i < n"),
        (30, "turn < n"),
        (35, "__syncthreads()"),
        (37, "threadIdx.x >= n"),
    ]
    for one in found:
        assert one.text != TEXT
        assert one.text.count("\n") == TEXT.count("\n")


def test_most_mutants_are_flagged_and_what_survives_is_explained(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """One test, since workers side by side would judge for each of several."""
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))
    chosen = [spec for spec in kgen.select() if any(fnmatch.fnmatch(spec.name, name) for name in SUBSET)]
    assert len(chosen) == len(SUBSET)
    verdicts = list(judge([(spec, one) for spec in chosen for one in mutants(source_of(spec))], cores()))
    assert not [str(one) for one in verdicts if one.how == "survived" and not one.why]
    assert not [str(one) for one in verdicts if one.how == "refused"]
    listed = [one for one in verdicts if reason_for(one.spec, one.mutant)]
    assert len(listed) >= 4
    assert not [str(one) for one in listed if one.how == "flagged"], "it survives, as is listed"
    counted = [one for one in verdicts if one.how == "flagged" or (one.how == "survived" and not one.why)]
    assert len(counted) >= 25
    assert sum(one.how == "flagged" for one in counted) >= 0.95 * len(counted)
