"""Clusters: blocks that write into one another's shared memory, and what checks find in kernels that do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kgen
from kgen import cpu
from kgen.cpu.check.checked import Outcome
from kgen.recipe import recipe
from kgen.render import render_recipe
from kgen.samples import call, cases_of, verify
from tests.cpu.executing import watched

KERNELS = (
    "softmax_t512_n8_v4_c2_f32",
    "softmax_t128_n2_v8_c8_bf16",
    "softmax_backward_t128_n4_v4_c4_f32",
    "norm_t128_n2_v8_c4_rms_weight_bf16",
    "norm_t128_n2_v4_c2_weight_bias_f32",
)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_rows_of_a_cluster_are_right_and_nothing_is_reported_in_any_order(name: str, order: str) -> None:
    spec = kgen.parse(name)
    for case in cases_of(spec):
        with watched(order=order) as watch:
            results = call(case)
        assert name in watch.kernels
        assert not watch.findings, str(watch)
        verify(case, results)


SOFTMAX = "softmax_t128_n2_v4_c4_f32"
BEGIN = "cluster_arrive();\n    cluster_wait();  //"
BROKEN = {  # what is in the text, what is put in its place, and what the report must say
    "nobody waits for the other blocks to begin": (BEGIN, "//", {"race", "uninitialised"}),
    "nobody waits for the bytes": ("} while (!done);", "} while (false);", {"race", "uninitialised"}),
    "too many bytes are awaited": ('"n"(8 * CLUSTER)', '"n"(8 * CLUSTER + 4)', {"deadlock"}),
    "too few bytes are awaited": ('"n"(8 * CLUSTER)', '"n"(8 * CLUSTER - 4)', {"race", "uninitialised", "deadlock"}),
    "all blocks write to one place": ("exchange.of_block[cluster_rank()]", "exchange.of_block[0]", {"race"}),
    "one block is left out": ("if (lane < CLUSTER) {", "if (lane < CLUSTER - 1) {", {"deadlock"}),
    "a block that does not exist": ("address_at(slot, lane)", "address_at(slot, lane + 1)", {"bounds"}),
    "a place beyond the array": ("exchange.of_block[cluster_rank()]", "exchange.of_block[64]", {"bounds"}),
    "no barrier of the block before": (
        "    __syncthreads();  // all warps have written their partial results\n",
        "",
        {"race"},
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_between_blocks_is_reported(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.cpu.check.checked.PATIENCE", 0.3)
    spec = kgen.parse(SOFTMAX)
    text = render_recipe(recipe(spec)).text
    old, new, kinds = BROKEN[what]
    assert old in text
    with watched({spec: text.replace(old, new)}) as watch:
        call(cases_of(spec)[0])
    assert {found.kind for found in watch.findings} & kinds, str(watch)


def test_asynchronous_stores_of_every_width_come_with_their_bytes() -> None:
    """Block r stores to block r + 1; each thread has its own stretch of 32 bytes."""
    stores = [  # from which byte on, the instruction, what it stores
        (0, "b32 [%0], 7, [%1]", np.array([7], np.int32)),
        (4, "s32 [%0 + 4], -7, [%1]", np.array([-7], np.int32)),
        (8, "b64 [%0 + 8], 0x123456789, [%1]", np.array([0x123456789])),
        (0, "v2.b32 [%0], {1, 2}, [%1]", np.array([1, 2], np.int32)),
        (16, "v2.u64 [%0 + 16], {3, 4}, [%1]", np.array([3, 4])),
        (0, "v4.u32 [%0], {5, 6, 7, 8}, [%1]", np.array([5, 6, 7, 8], np.int32)),
    ]
    want = np.full((6, 32), 0xEE, np.uint8)
    for row, (start, _, value) in zip(want, stores):
        row[start : start + value.nbytes] = value.view(np.uint8)
    sent = "\n".join(
        f'if (t == {i}) asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.{text};"'
        ' :: "r"(there), "r"(their) : "memory");'
        for i, (_, text, _) in enumerate(stores)
    )
    out = np.zeros((4, 6, 32), np.uint8)
    outcome = _exchange(sent, sum(value.nbytes for *_, value in stores), out)
    assert not outcome.findings, str(outcome)
    np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))


def _exchange(
    body: str, count: int, out: np.ndarray[Any, Any], wait: str = "wait(&full);", order: str = "forward"
) -> Outcome:
    """`body` in blocks of 32 threads, four of a cluster; `there` is the thread's stretch of the next block's memory,
    `their` is the mbarrier there, which awaits `count` bytes. Then each block copies its memory to `out`.
    """
    text = f"""
__device__ unsigned at(const void* p) {{ return (unsigned)__cvta_generic_to_shared(p); }}
__device__ unsigned mapped(const void* p, int rank)
{{ unsigned x; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(x) : "r"(at(p)), "r"(rank)); return x; }}
__device__ void wait(const void* p)
{{
    asm volatile("{{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;"
                 "@p bra over; bra again; over: }}" :: "r"(at(p)) : "memory");
}}
__device__ void meet() {{ asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }}
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* out)
{{
    __shared__ alignas(16) int s[6][8];
    __shared__ unsigned long long full;
    const int t = threadIdx.x, rank = blockIdx.x % 4;
    if (t < 6) for (int i = 0; i < 8; ++i) s[t][i] = 0xeeeeeeee;
    if (t == 0) {{
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&full)) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], {count};" :: "r"(at(&full)) : "memory");
    }}
    meet();
    const unsigned there = mapped(s[t < 6 ? t : 0], (rank + 1) % 4), their = mapped(&full, (rank + 1) % 4);
    {body}
    {wait}
    if (t < 6) for (int i = 0; i < 8; ++i) out[48 * blockIdx.x + 8 * t + i] = s[t][i];
    meet();
}}"""
    kernel = cpu.compile_cuda(text, check=True)
    return kernel.check(grid=out.nbytes // 192, block=32, args=[out], outputs=[out], order=order)


PLAIN = 'if (t < 6) asm volatile("st.shared::cluster.u32 [%0], 9;" :: "r"(there), "r"(their) : "memory");'
ASYNC = (
    'if (t < 6) asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], 9, [%1];"'
    ' :: "r"(there), "r"(their) : "memory");'
)


RELAXED = 'asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");'


READ = "const int x = t < 6 ? s[t][4] : 0;"
WRITE_BACK = """wait(&full);
    if (t < 6) asm volatile("st.shared::cluster.u32 [%0], 9;" :: "r"(mapped(&s[t][4], (rank + 3) % 4)) : "memory");
    meet();
    if (x == 12345) out[0] = x;"""


@pytest.mark.parametrize(
    ("body", "count", "wait", "kind"),
    [
        (ASYNC, 24, "wait(&full);", ""),
        (READ + ASYNC, 24, WRITE_BACK, ""),  # what was read before it may be overwritten
        (ASYNC + READ, 24, WRITE_BACK, "race"),
        (PLAIN, 0, "meet();", ""),
        (ASYNC, 24, "meet();", "race"),  # a barrier of the cluster does not wait for asynchronous stores
        (PLAIN, 0, "", "race"),
        (PLAIN + ASYNC.replace("[%0]", "[%0 + 4]"), 24, "wait(&full); meet();", ""),
        # The bytes of an asynchronous store tell of that store alone.
        (PLAIN + ASYNC.replace("[%0]", "[%0 + 4]"), 24, "wait(&full);", "race"),
        (PLAIN.replace("[%0]", "[%0 + 4096]"), 0, "meet();", "bounds"),
        (PLAIN.replace("[%0]", "[%0 + 1]"), 0, "meet();", "misaligned"),
        (PLAIN, 0, "meet(); if (rank) return; for (int i = 0; i < 9; ++i) __nanosleep(20);" + PLAIN, "bounds"),
        (PLAIN, 0, RELAXED, "race"),
        (PLAIN, 0, 'asm volatile("fence.acq_rel.cluster;" ::: "memory");' + RELAXED, ""),
    ],
)
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_what_orders_blocks_of_a_cluster(body: str, count: int, wait: str, kind: str, order: str) -> None:
    outcome = _exchange(body, count, np.zeros(48 * 8, np.int32), wait, order)
    assert {found.kind for found in outcome.findings} == ({kind} if kind else set()), str(outcome)
