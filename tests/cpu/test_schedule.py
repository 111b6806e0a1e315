"""How lanes, warps and blocks take turns: divergence, loops, early ends, barriers, waiting for one another."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from kgen import cpu
from kgen.cpu.run.frame import PATIENCE
from kgen.errors import ExecutionError


def run(body: str, out: Any, *, threads: Any = 64, blocks: Any = 1, head: str = "", **more: Any) -> Any:
    """Run `body` as a kernel over `int* out` (and `int* tmp`, zeroed); returns `out`."""
    text = f'{head}\nextern "C" __global__ void k(int* out, volatile int* tmp) {{ {body} }}'
    kernel = cpu.compile_cuda(text)
    kernel.launch(grid=blocks, block=threads, args=[out, np.zeros(256, np.int32)], **more)
    return out


def test_lanes_that_part_come_together_again() -> None:
    body = """
        int x = threadIdx.x;
        if (x % 3 == 0) x = x * 2;
        else if (x % 3 == 1) { for (int i = 0; i < (int)threadIdx.x; ++i) x += i & 1; }
        else x = -x;
        out[threadIdx.x] = x + __shfl_xor_sync(~0u, x, 1);"""

    got = run(body, np.zeros(64, np.int32))
    want = [_parted(t) for t in range(64)]
    assert got.tolist() == [want[t] + want[t ^ 1] for t in range(64)]


def _parted(t: int) -> int:
    if t % 3 == 0:
        return 2 * t
    return -t if t % 3 == 2 else t + sum(i & 1 for i in range(t))


def test_a_shuffle_of_half_a_warp_waits_for_that_half_only() -> None:
    body = """
        unsigned mask = threadIdx.x & 16 ? 0xffff0000u : 0x0000ffffu;
        int x = threadIdx.x;
        if (threadIdx.x & 16) x += 100;
        out[threadIdx.x] = __shfl_sync(mask, x, 3, 16);"""
    got = run(body, np.zeros(32, np.int32), threads=32)
    assert got.tolist() == [3] * 16 + [119] * 16


def test_halves_of_a_warp_that_shuffle_in_different_places_do_not_meet() -> None:
    body = """
        int x = threadIdx.x;
        if (threadIdx.x < 16) x = __shfl_xor_sync(0xffffu, x, 1); else x = 2 * __shfl_xor_sync(0xffff0000u, x, 2);
        out[threadIdx.x] = x;"""
    got = run(body, np.zeros(32, np.int32), threads=32)
    assert got.tolist() == [t ^ 1 if t < 16 else 2 * (t ^ 2) for t in range(32)]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_a_barrier_holds_every_warp_and_is_passed_by_those_that_ended(order: str) -> None:
    body = """
        __shared__ int s[128];
        int t = threadIdx.x;
        if (t >= 100) return;
        s[t] = t;
        for (int step = 1; step < 64; step *= 2) {
            __syncthreads();
            int other = s[(t + step) % 100];
            __syncthreads();
            s[t] += other;
        }
        out[t] = s[t];"""
    got = run(body, np.zeros(100, np.int32), threads=128, order=order)
    s = np.arange(100)
    for step in (1, 2, 4, 8, 16, 32):
        s = s + np.roll(s, -step)
    assert got.tolist() == s.tolist()


def test_named_barriers_let_some_arrive_and_others_wait() -> None:
    body = """
        __shared__ int s;
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) s = 42;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[threadIdx.x - 32] = s;
        }"""
    assert run(body, np.zeros(32, np.int32)).tolist() == [42] * 32


def test_a_barrier_counts_and_combines_votes() -> None:
    body = """
        int n = __syncthreads_count(threadIdx.x % 3 == 0);
        int a = __syncthreads_and(threadIdx.x < 64), o = __syncthreads_or(threadIdx.x == 63);
        out[threadIdx.x] = n * 100 + a * 10 + o;"""
    assert run(body, np.zeros(64, np.int32)).tolist() == [22 * 100 + 11] * 64


def test_blocks_that_wait_for_each_other_are_all_alive_in_the_end() -> None:
    body = """
        if (threadIdx.x == 0) {
            atomicAdd((int*)tmp, 1);
            while (tmp[0] < (int)gridDim.x) { }
        }
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = tmp[0];"""
    for workers in (1, 2, 3):
        assert run(body, np.zeros(640, np.int32), blocks=10, workers=workers).tolist() == [10] * 640


def test_a_lane_that_holds_a_lock_gets_on_while_the_others_of_its_warp_spin() -> None:
    body = """
        while (atomicCAS((int*)tmp, 0, 1) != 0) { }
        tmp[1] = tmp[1] + 1;
        __threadfence();
        atomicExch((int*)tmp, 0);
        __syncthreads();
        out[threadIdx.x] = tmp[1];"""
    assert run(body, np.zeros(64, np.int32)).tolist() == [64] * 64


def test_lanes_of_a_warp_that_wait_in_two_places_let_other_warps_go() -> None:
    body = """
        if (threadIdx.x == 0) { while (tmp[0] == 0) { } }
        else if (threadIdx.x == 1) { while (tmp[1] == 0) { } }
        else if (threadIdx.x == 2) { while (tmp[2] == 0) { } }
        else if (threadIdx.x == 32) { tmp[2] = 7; tmp[0] = 7; tmp[1] = 7; }
        __syncthreads();
        out[threadIdx.x] = tmp[threadIdx.x % 3];"""
    assert run(body, np.zeros(64, np.int32)).tolist() == [7] * 64


def test_producer_and_consumer_warps_meet_at_mbarriers_through_many_phases() -> None:
    body = """
        __shared__ unsigned long long full[2], empty[2];
        __shared__ int slot[2][32];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) { init(&full[i], 32); init(&empty[i], 32); }
        __syncthreads();
        int sum = 0;
        for (int n = 0; n < 9; ++n) {
            const int i = n % 2, phase = n / 2 % 2;
            if (warp == 0) { wait(&empty[i], phase ^ 1); slot[i][lane] = n * 32 + lane; arrive(&full[i]); }
            else { wait(&full[i], phase); sum += slot[i][lane ^ 1]; arrive(&empty[i]); }
        }
        if (warp) out[lane] = sum;"""
    got = run(body, np.zeros(32, np.int32), head=MBARRIER)
    assert got.tolist() == [sum(n * 32 + (lane ^ 1) for n in range(9)) for lane in range(32)]


MBARRIER = """
__device__ unsigned at(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(void* b, int n)
{ asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory"); }
__device__ void arrive(void* b)
{ asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at(b)) : "memory"); }
__device__ void wait(void* b, int parity)
{
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
                 "@p bra over; bra again; over: }"
                 :: "r"(at(b)), "r"(parity) : "memory");
}
"""


def test_a_barrier_that_some_lanes_never_reach_is_an_error_that_names_both_lines() -> None:
    body = """
        if (threadIdx.x % 32 < 7) { asm volatile("bar.sync 1;" ::: "memory"); out[threadIdx.x] = 1; }
        else { asm volatile("bar.sync 2;" ::: "memory"); out[threadIdx.x] = 2; }"""
    with pytest.raises(ExecutionError, match=r"(?s)divergence.*bar\.sync.*bar\.sync"):
        run(body, np.zeros(64, np.int32))


def test_warps_that_wait_for_nobody_are_a_deadlock_and_not_a_hang() -> None:
    with pytest.raises(ExecutionError, match=r"(?s)deadlock.*every warp waits at a barrier.*warp 1"):
        run(
            'if (threadIdx.x >= 32) asm volatile("bar.sync 1, 64;" ::: "memory"); else out[0] = 1;',
            np.zeros(64, np.int32),
        )


@pytest.mark.parametrize("order", ["forward", "random"])
def test_warps_that_wait_at_mbarriers_for_nobody_are_a_deadlock_at_once(order: str) -> None:
    """No other block begins for their sake, and nobody waits until the patience with those who poll is over."""
    body = """
        __shared__ unsigned long long b;
        if (threadIdx.x == 0) init(&b, 65);
        __syncthreads();
        if (blockIdx.x) out[blockIdx.x] = 1;
        arrive(&b);
        wait(&b, 0);"""
    out, began = np.zeros(64, np.int32), time.perf_counter()
    with pytest.raises(ExecutionError, match=r"(?s)deadlock.*try_wait.*try_wait"):
        run(body, out, head=MBARRIER, blocks=64, workers=1, order=order)
    assert time.perf_counter() - began < PATIENCE / 2
    assert out.sum() <= 1


def test_a_warp_may_look_at_an_mbarrier_as_often_as_it_likes_while_it_works() -> None:
    body = """
        __shared__ unsigned long long b;
        __shared__ volatile int steps;
        if (threadIdx.x == 0) init(&b, 1), steps = 0;
        __syncthreads();
        if (threadIdx.x == 32) {
            for (int done = 0, i = 0; !done; ++i) {
                asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                             : "=r"(done) : "r"(at(&b)) : "memory");
                out[0] = i;
                if (i == 2000) arrive(&b);
            }
        }"""
    assert run(body, np.zeros(64, np.int32), head=MBARRIER)[0] > 2000


@pytest.mark.parametrize("turn", ["out[70 + out[70]] = i;", "out[70] += __shfl_xor_sync(~0u, out[71], 1);"])
def test_a_warp_that_goes_round_for_ever_is_an_error_that_names_the_loop(
    monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    monkeypatch.setattr("kgen.cpu.run.launch.PATIENCE", 0.1)
    body = f"out[threadIdx.x] = 7;\nif (threadIdx.x >= 32)\nfor (int i = 0; out[72] == 0; ++i)\n{{ {turn} }}"
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"(?s)hang in block 0, warp 1\n  at source\.cu:[45]:.*for ever"):
            run(body, np.zeros(128, np.int32))


def test_a_cluster_of_blocks_reads_each_others_shared_memory() -> None:
    body = """
        __shared__ int s[32];
        unsigned rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        s[threadIdx.x] = 1000 * rank + threadIdx.x;
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        unsigned mine = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]), other; int x;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(mine), "r"((rank + 1) % 4));
        asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(x) : "r"(other));
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        out[blockIdx.x * 32 + threadIdx.x] = x;"""
    got = run(body, np.zeros(256, np.int32), threads=32, blocks=8, cluster=(4, 1, 1))
    want = [1000 * ((b % 4 + 1) % 4) + t for b in range(8) for t in range(32)]
    assert got.tolist() == want


def test_what_stands_before_the_barrier_in_the_text_waits_for_the_break_behind_it() -> None:
    # so NVRTC writes for (int i = 0;; ++i) { ..; __syncthreads(); if (i == n) break; .. }
    kernel = cpu.compile_ptx("""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .u32 %i, %n, %x, %t; .reg .u64 %a; .reg .pred %last, %late;
    ld.param.u32 %n, [n];
    mov.u32 %i, 0;
    mov.u32 %x, 0;
    bra.uni AROUND;
AGAIN:
    add.u32 %i, %i, 1;
    setp.gt.u32 %late, %i, %n;
    @%late trap;
AROUND:
    mad.lo.u32 %x, %x, 10, %i;
    bar.sync 0;
    setp.eq.u32 %last, %i, %n;
    @%last bra DONE;
    bra.uni AGAIN;
DONE:
    mov.u32 %t, %tid.x;
    ld.param.u64 %a, [out];
    mad.wide.u32 %a, %t, 4, %a;
    st.global.u32 [%a], %x;
    ret;
}""")
    for n, want in enumerate([0, 1, 12, 123]):
        out = np.zeros(64, np.int32)
        kernel.launch(grid=1, block=64, args=[out, np.int32(n)])
        assert out.tolist() == [want] * 64


def test_blocks_and_threads_have_three_dimensions() -> None:
    body = """
        int t = threadIdx.x + 3 * (threadIdx.y + 5 * threadIdx.z), b = blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z);
        out[b * 30 + t] = blockDim.x * 100 + blockDim.y * 10 + blockDim.z + 1000 * gridDim.z;"""
    got = run(body, np.zeros(30 * 24, np.int32), threads=(3, 5, 2), blocks=(2, 3, 4))
    assert set(got.tolist()) == {4352}


def test_a_register_that_nobody_wrote_is_a_nan() -> None:
    kernel = cpu.compile_ptx("""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .u32 %t; .reg .u64 %a; .reg .f32 %x; .reg .pred %p;
    mov.u32 %t, %tid.x;
    setp.lt.u32 %p, %t, 60;
    @%p mov.f32 %x, 0f3F800000;
    ld.param.u64 %a, [out];
    mad.wide.u32 %a, %t, 4, %a;
    st.global.f32 [%a], %x;
    ret;
}""")
    out = np.zeros(64, np.float32)
    for _ in range(2):
        kernel.launch(grid=1, block=64, args=[out])
        np.testing.assert_array_equal(out, [1] * 60 + [np.nan] * 4)
