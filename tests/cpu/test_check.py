"""What checks find: one kernel with one bug for each kind of report, and its cure, which is to be silent."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import kgen
from kgen import cpu, reference
from kgen.checking import watching
from kgen.cpu.check import checked
from kgen.cpu.check.checked import Outcome, run_checked
from kgen.cpu.check.report import Finding
from kgen.cpu.run.buffers import buffers_of
from kgen.errors import CompileError

from .test_schedule import MBARRIER


def check(
    body: str, *, threads: int = 64, blocks: int = 1, shared: int = 0, head: str = "", **options: object
) -> Outcome:
    """Run `body` under watch, over `int* out` (unwritten) and `const int* in`, 256 of each."""
    text = f"""{head}
extern "C" __global__ void k(int* out, const int* in, int* zeros)
{{
    extern __shared__ int dynamic[];
    const int t = threadIdx.x;
{body}
}}"""
    given = np.arange(256, dtype=np.int32)
    given.flags.writeable = False
    out, zeros = np.zeros(256, np.int32), np.zeros(256, np.int32)
    kernel = cpu.compile_cuda(text, check=True)
    return kernel.check(grid=blocks, block=threads, shared=shared, args=[out, given, zeros], outputs=[out], **options)


def kinds(body: str, **options: object) -> set[str]:
    return {finding.kind for finding in check(body, **options).findings}  # type: ignore[arg-type]


BUGS = {
    # what the report must say: the bug, the cure
    "a missing barrier before a read": (
        "race",
        "__shared__ int s[64]; s[t] = in[t]; BARRIER out[t] = s[63 - t];",
    ),
    "a missing barrier before the next write": (
        "race",
        "__shared__ int s[64]; for (int i = 0; i < 3; ++i) { s[t] = i; __syncthreads(); out[t] = s[63 - t]; BARRIER }",
    ),
    "a missing __syncwarp": (
        "race",
        "__shared__ int s[64]; s[t] = in[t]; WARP_BARRIER out[t] = s[t ^ 1];",
    ),
    "a shuffle is no __syncwarp": (
        "race",
        "__shared__ int s[64]; s[t] = in[t]; int x = __shfl_sync(~0u, t, 0); WARP_BARRIER out[t] = s[t ^ 1] + x;",
    ),
    "halves of a warp that sync apart": (
        "race",
        """__shared__ int s[64]; s[t] = in[t];
        __syncwarp(t & 16 ? 0xffff0000u : 0xffffu); WARP_BARRIER out[t] = s[t ^ 16];""",
    ),
    "a race over halves of a word": (
        "race",
        "__shared__ short s[128]; s[t] = in[t]; BARRIER out[t] = s[t ^ 33];",
    ),
    "rows that their own lanes wrote before ldmatrix hands them to others": (
        "race",
        """__shared__ __align__(16) int s[256];
        for (int i = 0; i < 4; ++i) s[4 * t + i] = in[t];
        WARP_BARRIER
        int x[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"((unsigned)__cvta_generic_to_shared(s + 4 * t)));
        out[t] = x[0] + x[1] + x[2] + x[3];""",
    ),
    "rows that stmatrix wrote for their own lanes": (
        "race",
        """__shared__ __align__(16) int s[256];
        asm volatile("stmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 [%0], {%1, %1, %1, %1};"
            :: "r"((unsigned)__cvta_generic_to_shared(s + 4 * t)), "r"(in[t]) : "memory");
        WARP_BARRIER
        out[t] = s[4 * t] + s[4 * t + 3];""",
    ),
    "a bar.arrive that comes too early": (
        "race",
        """__shared__ int s[32];
        if (t < 32) { EARLY s[t] = in[t]; LATE }
        else { asm volatile("bar.sync 1, 64;" ::: "memory"); out[t - 32] = s[63 - t]; }""",
    ),
    "an arrival at an mbarrier that comes too early": (
        "race",
        """__shared__ unsigned long long full; __shared__ int s[32];
        if (t == 0) init(&full, 32);
        __syncthreads();
        if (t < 32) { EARLY_ARRIVE s[t] = in[t]; LATE_ARRIVE }
        else { wait(&full, 0); out[t - 32] = s[63 - t]; }""",
    ),
    "one lane that arrives for its warp without __syncwarp": (
        "race",
        """__shared__ unsigned long long full; __shared__ int s[32];
        if (t == 0) init(&full, 1);
        __syncthreads();
        if (t < 32) { s[t] = in[t]; WARP_BARRIER if (t == 0) arrive(&full); }
        else { wait(&full, 0); out[t - 32] = s[63 - t]; }""",
    ),
    "a cp.async that nobody waits for": (
        "race",
        """__shared__ int s[64];
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;"
            :: "r"((unsigned)__cvta_generic_to_shared(&s[t])), "l"(in + t) : "memory");
        COPY_WAIT
        __syncthreads();
        out[t] = s[63 - t];""",
    ),
    "a cp.async that is waited for after the barrier": (
        "race",
        """__shared__ int s[64];
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;"
            :: "r"((unsigned)__cvta_generic_to_shared(&s[t])), "l"(in + t) : "memory");
        COPY_WAIT
        __syncthreads();
        asm volatile("cp.async.wait_all;" ::: "memory");
        out[t] = s[63 - t];""",
    ),
    "a cp.async that is under way when its thread ends": (
        "unwaited",
        """__shared__ int s[64];
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 0; cp.async.commit_group;"
            :: "r"((unsigned)__cvta_generic_to_shared(&s[t])), "l"(in + t) : "memory");
        COPY_WAIT
        out[t] = t;""",
    ),
    "a fence that is missing before a flag": (
        "race",
        """if (blockIdx.x == 0) { if (t == 0) { zeros[5] = 7; FENCE atomicExch(&zeros[0], 1); } }
        else if (t == 0) { while (atomicAdd(&zeros[0], 0) == 0) { } __threadfence(); out[0] = zeros[5]; }""",
    ),
    "a fence that is missing after a flag": (
        "race",
        """if (blockIdx.x == 0) { if (t == 0) { zeros[5] = 7; __threadfence(); atomicExch(&zeros[0], 1); } }
        else if (t == 0) { while (atomicAdd(&zeros[0], 0) == 0) { } FENCE out[0] = zeros[5]; }""",
    ),
}

BUGS |= {
    f"{name}, transposed": (kind, body.replace("TRANS", ".trans"))
    for name, (kind, body) in BUGS.items()
    if "TRANS" in body
}

SILENT = {
    "TRANS": "",
    "BARRIER": "__syncthreads();",
    "WARP_BARRIER": "__syncwarp();",
    "FENCE": "__threadfence();",
    "EARLY_ARRIVE": "",
    "LATE_ARRIVE": "arrive(&full);",
    "EARLY": "",
    "LATE": 'asm volatile("bar.arrive 1, 64;" ::: "memory");',
    "COPY_WAIT": 'asm volatile("cp.async.wait_group 0;" ::: "memory");',
}
BUGGY = dict.fromkeys(SILENT, "") | {
    "EARLY_ARRIVE": "arrive(&full);",
    "EARLY": 'asm volatile("bar.arrive 1, 64;" ::: "memory");',
}


DISCARD = 'asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");'
LINE = "int* line = (int*)(((size_t)out + 127) / 128 * 128);"


def variant(body: str, words: dict[str, str]) -> str:
    for word in sorted(words, key=len, reverse=True):
        body = body.replace(word, words[word])
    return body


@pytest.mark.parametrize("name", BUGS)
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_a_race_is_reported_and_its_cure_is_not(name: str, order: str) -> None:
    kind, body = BUGS[name]
    blocks = 2 if "flag" in name else 1
    outcome = check(variant(body, SILENT), head=MBARRIER, blocks=blocks, order=order)
    assert not outcome.findings, str(outcome)
    assert kind in kinds(variant(body, BUGGY), head=MBARRIER, blocks=blocks, order=order)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("uninitialised", "__shared__ int s[64]; if (t < 60) s[t] = t; __syncthreads(); out[t] = s[t];"),
        ("uninitialised", "dynamic[t] = t; __syncthreads(); out[t] = dynamic[t + 64];"),
        ("uninitialised", "out[t] += t;"),
        ("bounds", "__shared__ int s[64]; s[t + 1] = t; __syncthreads(); out[t] = s[1];"),
        ("bounds", "__shared__ int a[64], b[64]; a[t] = b[t] = t; __syncthreads(); out[t] = a[t + (t == 63) + in[0]];"),
        ("bounds", "dynamic[t + 128] = t;"),
        ("bounds", "out[t + 193] = t;"),
        ("bounds", "out[t] = in[t - 1];"),
        ("bounds", """asm volatile("prefetch.global.L2 [%0];" ::"l"(in + 4 * t + 5)); out[t] = t;"""),
        ("bounds", "int x[4] = {1, 2, 3, 4}; for (int i = 0; i < 4; ++i) x[i ^ (t & 3)] += t; out[t] = x[t & 7];"),
        ("misaligned", "*(long long*)(out + 1 + 2 * t) = 0;"),
        ("misaligned", "*(int4*)(dynamic + t) = int4{};"),
        ("input", "((int*)in)[t] = 1;"),
        ("race", "out[blockIdx.x + t] = in[t];"),
        ("race", "__shared__ int s; s = t; __syncthreads(); out[t] = s;"),
        ("race", "out[t / 2] = t;"),
        ("race", "((char*)out)[t / 2] = t;"),
        ("race", "zeros[0] += t;"),
        ("race", f"{LINE} line[t] = t; if (t == 40) {DISCARD}"),
        ("divergence", "out[t] = __shfl_sync(t < 16 ? 0xffffu : 0xffffffffu, t, 0);"),
        ("divergence", "out[t] = __shfl_sync(0x7fffffffu, t, 0);"),
        ("divergence", "out[t] = __ballot_sync(0x7fffffffu + zeros[0], 1);"),
        ("divergence", "__syncwarp(0u); out[t] = t;"),
        ("barrier", 'asm volatile("bar.sync 1, 48;" ::: "memory");'),
        (
            "divergence",
            'if (t % 2) asm volatile("bar.sync 1;" ::: "memory"); else asm volatile("bar.sync 2;" ::: "memory");',
        ),
        ("deadlock", 'if (t < 32) asm volatile("bar.sync 1, 64;" ::: "memory");'),
        ("trap", "if (t == 7) __trap();"),
        ("hang", 'while (in[t] >= 0) { asm volatile(""); }'),
    ],
)
def test_each_kind_of_bug_is_reported_as_what_it_is(kind: str, body: str) -> None:
    assert kind in kinds(body, shared=512, blocks=2 if "blockIdx" in body else 1, timeout=3.0)


@pytest.mark.parametrize(("clock", "hangs"), [(time.perf_counter, False), (time.process_time, True)])
def test_only_seconds_of_work_count_as_a_hang(clock: Callable[[], float], hangs: bool) -> None:
    def work() -> list[Finding]:
        until = clock() + 1.5
        while clock() < until:
            if not hangs:
                time.sleep(0.1)
        return []

    found, ended = checked._in_child(work, timeout=1, memory=1 << 30)
    assert ([one.kind for one in found], ended) == ((["hang"], False) if hangs else ([], True))


def test_a_loop_without_end_is_a_hang_that_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.cpu.check.checked.PATIENCE", 0.05)
    (found,) = check("out[t] = t;\nfor (int i = 0; i >= 0; i = in[i % 256] % 3) out[t] = i;").findings
    assert found.kind == "hang" and "source.cu:7: for (int i = 0;" in found.text


@pytest.mark.parametrize(
    ("bounds", "kept", "taken", "hangs"),
    [
        ("__launch_bounds__(384, 1)", 24, 240, False),  # a launch gives each thread 168: 24 + 2 * 240 = 3 * 168
        ("__launch_bounds__(384, 1)", 32, 240, True),
        ("__launch_bounds__(384, 2)", 24, 112, True),  # 80
        ("__launch_bounds__(288, 1)", 24, 240, False),  # 168: registers are dealt to whole warpgroups
        ("__maxnreg__(128)", 56, 168, True),
        ("__launch_bounds__(384)", 232, 240, False),  # the assembler cannot tell, and leaves setmaxnreg out
    ],
)
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_warps_that_ask_for_more_registers_than_others_gave_back_wait_for_ever(
    bounds: str, kept: int, taken: int, hangs: bool, order: str
) -> None:
    text = f"""extern "C" __global__ void {bounds} k(int* out)
{{
    if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 {kept};");
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 {taken};");
    out[threadIdx.x] = 1;
}}"""
    block = 288 if "288" in bounds else 384
    out = np.zeros(block, np.int32)
    outcome = cpu.compile_cuda(text, check=True).check(grid=1, block=block, args=[out], outputs=[out], order=order)
    assert [found.kind for found in outcome.findings] == ["deadlock"] * hangs, str(outcome)
    assert not hangs or f"setmaxnreg.inc.sync.aligned.u32 {taken}" in str(outcome)


@pytest.mark.parametrize(
    "body",
    [
        """asm volatile("prefetch.global.L2 [%0];" ::"l"(in + 4 * t + 3)); out[t] = t;""",
        f"{LINE} if (t == 0) {DISCARD} __syncthreads(); line[t] = t;",
        "out[t] = in[255 - t];",
        "out[t / 2] = 5;",
        "((char*)out)[t / 2] = 5;",
        "out[t] = __shfl_sync(255u << (t & 24), t, 0, 8);",
        "__shared__ int s; s = 5; __syncthreads(); out[t] = s;",
        "atomicAdd(&zeros[0], t); out[t] = 1;",
        "__shared__ char s[64]; s[t] = t; __syncthreads(); out[t] = *(int*)&s[t & ~3];",
        "for (int i = t; i < 192; i += 64) if (i % 3 == (int)blockIdx.x) out[t] = i;",
    ],
)
def test_kernels_without_a_bug_are_silent(body: str) -> None:
    outcome = check(f"out += 64 * blockIdx.x; {body}", blocks=3)
    assert not outcome.findings, str(outcome)


def test_a_report_names_both_lines() -> None:
    body = "__shared__ int s[64];\n s[t] = in[t];\n out[t] = s[63 - t];"
    race = next(found for found in check(body).findings if found.kind == "race")
    assert "s[t] = in[t];" in race.text
    assert "out[t] = s[63 - t];" in race.text
    assert race.line in (7, 8)


def test_a_crash_costs_the_child_and_not_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("kgen.cpu.check.checked.launch_checked", crash)
    assert kinds("out[t] = 1;") == {"crash"}


MEETING = """
extern "C" __global__ void k(int* out, int* data, int* count)
{
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    data[own] = own;
    FENCE
    __syncthreads();
    if (threadIdx.x == 0) {
        FENCE
        atomicAdd(count, 1);
        while (*(volatile int*)count < (int)gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
    out[own] = data[(own + blockDim.x) % (gridDim.x * blockDim.x)];
}
"""
"""Every block waits for all others; each of its threads has a fence of its own."""


@pytest.mark.parametrize(("fence", "found"), [("__threadfence();", set()), ("", {"race"})])
def test_a_hundred_blocks_that_meet_are_watched_in_seconds(fence: str, found: set[str]) -> None:
    out, data, count = np.zeros(100 * 512, np.int32), np.zeros(100 * 512, np.int32), np.zeros(1, np.int32)
    kernel = cpu.compile_cuda(MEETING.replace("FENCE", fence), check=True)
    outcome = kernel.check(grid=100, block=512, args=[out, data, count], outputs=[out, data])
    assert {one.kind for one in outcome.findings} == found, str(outcome)[:2000]
    assert outcome.seconds < 30
    assert found or np.array_equal(out, np.roll(np.arange(out.size), -512))


def test_memory_that_begins_and_ends_anywhere_is_watched_to_its_end() -> None:
    """Of 126 words and a bit, which reach into one more, or two: what is known of 128 fills a page, of 129 one more."""
    text = """extern "C" __global__ void k(unsigned char* out, int n)
    {
        for (int i = threadIdx.x; i < n; i += 64) {
            out[i] = i;
        }
    }"""
    kernel = cpu.compile_cuda(text, check=True)
    for size in range(504, 508):
        for offset in range(4):
            memory = np.zeros(size + 8, np.uint8)
            out = memory[-memory.ctypes.data % 4 + offset :][:size]
            outcome = kernel.check(grid=1, block=64, args=[out, np.int32(size)], outputs=[out])
            assert not outcome.findings, f"{size} bytes at {offset}: {outcome}"
            assert np.array_equal(out, np.arange(size) % 256)


def test_checks_that_take_too_much_memory_say_so() -> None:
    out, data, count = (np.zeros(64 * 64, np.int32) for _ in range(3))
    kernel = cpu.compile_cuda(MEETING.replace("FENCE", "__threadfence();"), check=True)
    program = kernel.program("k")
    launch, _frame = kernel.prepare(program, [out, data, count], 64, 64)
    buffers = buffers_of([out, data, count])
    outcome = run_checked(launch, kernel.library, program, buffers, memory=1 << 20)
    assert [one.kind for one in outcome.findings] == ["memory"], str(outcome)
    assert "take more than 1 MiB" in str(outcome)


def test_an_operator_under_watch_says_what_its_kernels_do() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 40, 32), np.float32) for _ in range(3))
    with watching() as watch:
        o = kgen.causal_dot_product(q, k, v, algorithm="lmha_e64_t1_f32")
    assert watch.kernels == ["lmha_e64_t1_f32"]
    assert not watch.findings, str(watch)
    np.testing.assert_allclose(o, reference.causal_dot_product(q, k, v), rtol=1e-4, atol=1e-4)


def test_a_kernel_of_ones_own_is_watched_as_operators_are() -> None:
    text = 'extern "C" __global__ void k(int* out, int* data) { out[threadIdx.x] = data[threadIdx.x]++; }'
    data, out = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    given = np.arange(8, dtype=np.int32)
    given.flags.writeable = False
    plain = cpu.compile_cuda(text)
    with watching() as watch:
        kernel = cpu.compile_cuda(text)
        kernel.launch(grid=1, block=8, args=[out, data])
        assert not watch.findings, str(watch)
        assert list(data) == list(range(1, 9))
        with pytest.raises(ValueError, match="compile it with check=True"):
            plain.launch(grid=1, block=8, args=[out, data])
        kernel.launch(grid=1, block=16, args=[out, data])
        kernel.launch(grid=1, block=8, args=[out, given])
    assert {finding.kind for finding in watch.findings} == {"bounds", "input"}, str(watch)
    assert list(out) == list(given) == list(range(8))


def test_a_word_of_which_one_byte_lies_beyond_an_array_is_out_of_bounds() -> None:
    text = """extern "C" __global__ void k(int* out, const unsigned char* bytes)
{
    out[threadIdx.x] = *reinterpret_cast<const int*>(bytes + 4 * threadIdx.x);
}"""
    kernel = cpu.compile_cuda(text, check=True)
    for count, wanted in ((64, set()), (63, {"bounds"}), (61, {"bounds"})):
        given = np.ones(256, np.uint8)[:count]  # what lies behind is somebody else's
        given.flags.writeable = False
        out = np.zeros(16, np.int32)
        found = kernel.check(grid=1, block=16, args=[out, given], outputs=[out]).findings
        assert {finding.kind for finding in found} == wanted, count


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('printf("%d", *out);', "as vprintf\n  hint: leave out printf, assert and malloc"),
        ("*out = once_more(*out);", "once_more.*\n  hint: .*mark functions __forceinline__"),
    ],
)
def test_what_kernels_cannot_call_here_is_named(body, said):
    head = "__device__ __noinline__ int once_more(int x) { return x < 2 ? x : once_more(x / 2) + once_more(x - 2); }\n"
    with pytest.raises(CompileError, match=said):
        cpu.compile_cuda(head + 'extern "C" __global__ void k(int* out) { ' + body + " }")


def test_a_text_of_ones_own_is_not_said_to_come_from_a_template():
    with pytest.raises(CompileError, match=r"source\.cu:2: error") as caught:
        cpu.compile_cuda('extern "C" __global__ void k(int* out)\n{ *out = nothing; }')
    assert caught.value.hint is None


def test_a_function_that_was_not_inlined_is_named_with_what_to_do():
    with kgen.backend("cpu"), pytest.raises(CompileError, match=r"as __internal_accurate_pow\n  hint: pow, sin"):
        kgen.elementwise("2 ** x", x=np.ones(3))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"grid": 0}, "no blocks or threads"),
        ({"block": (32, 0)}, "no blocks or threads"),
        ({"cluster": (0, 1, 1)}, "no blocks or threads"),
        ({"block": 2560}, "at most .*1024"),
        ({"block": (32, 64)}, "at most 1024"),
        ({"block": (1, 1, 65)}, "at most .*64"),
        ({"grid": (1, 65536)}, "at most .*65535"),
        ({"block": 65}, "its __launch_bounds__ allow at most 64"),
        ({"block": (8, 3, 4)}, "allow at most 64"),
        ({"grid": 32, "cluster": (32, 1, 1)}, "at most 16"),
        ({"grid": 3, "cluster": (2, 1, 1)}, "no multiple of the cluster"),
        ({"shared": 227 * 1024 - 255}, r"256 \+ 232193 bytes of shared memory.* at most 232448"),
        ({"shared": -1}, "shared memory"),
    ],
)
def test_a_launch_that_no_gpu_makes_is_refused(checked, launch, said):
    text = """extern "C" __global__ void __launch_bounds__(64) k(int* out)
    {
        __shared__ int s[64];
        s[threadIdx.x] = 1;
        out[threadIdx.x] = s[threadIdx.x];
    }"""
    kernel = cpu.compile_cuda(text, check=checked)
    with pytest.raises(ValueError, match=f"k: .*{said}"):
        run = kernel.check if checked else kernel.launch
        run(**{"grid": 1, "block": 64, "args": [np.zeros(4096, np.int32)], **launch})


def test_more_shared_memory_than_a_kernel_may_declare_is_refused():
    text = """extern "C" __global__ void k(int* out)
    {
        __shared__ int s[12289];
        s[threadIdx.x] = out[threadIdx.x];
        out[threadIdx.x] = s[31 - threadIdx.x];
    }"""
    with pytest.raises(ValueError, match="k: 49156 bytes of shared memory are declared; a kernel may declare 49152"):
        cpu.compile_cuda(text).launch(grid=1, block=32, args=[np.zeros(32, np.int32)])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([3, 2.5], "argument 2 is 2.5, float; it takes 4 bytes, u32"),
        ([3, 1 << 32], "argument 2 is 4294967296, int; it takes 4 bytes"),
        ([3, None], "argument 2 is None, NoneType"),
        ([3, np.float64(2)], "argument 2 is .*float64; it takes 4 bytes"),
        ([3, np.zeros(3)], "argument 2 is an array of float64; it takes 4 bytes"),
        (["x", 2], "argument 1 is 'x', str; it takes 8 bytes"),
        ([3], "takes 2 arguments, not 1"),
    ],
)
def test_an_argument_of_another_kind_is_named(args, said):
    kernel = cpu.compile_cuda('extern "C" __global__ void k(int* out, int n) { *out = n; }')
    with pytest.raises(TypeError, match=f"k.*{said}"):
        kernel.launch(grid=1, block=1, args=args)


def test_numbers_become_what_a_parameter_takes():
    kernel = cpu.compile_cuda(
        'extern "C" __global__ void k(double* out, int i, unsigned u, float f, double d, bool b, long long x)'
        "{ out[0] = i; out[1] = u; out[2] = f; out[3] = d; out[4] = b; out[5] = (double)x; }"
    )
    out = np.zeros(6)
    kernel.launch(grid=1, block=1, args=[out, -1, 2**32 - 1, 0.5, 3, True, -7])
    assert list(out) == [-1, 2**32 - 1, 0.5, 3, 1, -7]


def test_an_order_that_there_is_not_is_named():
    kernel = cpu.compile_cuda('extern "C" __global__ void k(int* out) { *out = 1; }')
    with pytest.raises(ValueError, match="order is 'sideways'; it is one of forward, reverse, random"):
        kernel.launch(grid=1, block=1, args=[np.zeros(1, np.int32)], order="sideways")
    with pytest.raises(ValueError, match="it is one of forward"), watching(order=1):  # type: ignore[arg-type]
        pass
