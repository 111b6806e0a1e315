"""Loading and launching, as far as it shows on a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

import kgen
from kgen.launch import Step

pytestmark = pytest.mark.gpu

TEMPLATE = """\
{% include "common/header.j2" %}

extern "C" __global__ void {{ symbol }}(float* y, const float* x, int n, float a)
{
    const int i = blockIdx.x * {{ THREADS }} + threadIdx.x;
    if (i < n) {
        y[i] += a * x[i];
    }
}
"""


def test_an_own_kernel_launches_on_cupy_arrays(make_kernel):
    import cupy

    spec = make_kernel(
        "saxpy", TEMPLATE, axes=(), flags=(), dtypes=(kgen.F32,), derive=lambda spec: {"THREADS": 128}
    ).spec()
    x, y = cupy.arange(1000, dtype="f"), cupy.ones(1000, "f")
    kgen.load(spec)(8, y, x, np.int32(999), np.float32(2))
    expected = 1 + 2 * np.arange(1000, dtype="f")
    expected[999] = 1
    assert (cupy.asnumpy(y) == expected).all()


def test_a_bound_launch_passes_every_argument_whatever_their_mix():
    import cupy

    q, k, v = (cupy.random.rand(1, 2, 50, 32, dtype="f") for _ in range(3))
    spec = kgen.parse("lmha_low_occupancy_e32_w4_c4_f32")
    strides = (2 * 50 * 32, 50 * 32, 32)
    first, second = cupy.empty_like(v), cupy.empty_like(v)
    sizes = (2, 50, 32, 32)
    bound = kgen.load(spec).bind(Step(spec, 64, 4, sizes, strides * 4))
    bound((q.data.ptr, k.data.ptr, v.data.ptr, first.data.ptr), cupy.cuda.get_current_stream().ptr)
    scalars = (*map(np.int32, sizes), *map(np.int64, strides * 4))
    kgen.load(spec)(64, q, k, v, second, *scalars)
    assert (first == second).all()


def test_a_launch_that_cannot_be_is_an_error():
    from cupy.cuda import driver

    spec = kgen.parse("lmha_low_occupancy_e32_w4_c4_f32")
    with pytest.raises(driver.CUDADriverError):
        kgen.load(spec).bind(Step(spec, 0, 4, (1, 1, 1, 1), (1, 1, 1) * 4))((0, 0, 0, 0), 0)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_thread_that_never_used_cuda_launches_a_call_that_was_met(library):
    module = pytest.importorskip(library)
    x = module.arange(1000, **({"dtype": "f"} if library == "cupy" else {"dtype": module.float32, "device": "cuda"}))
    out = module.empty_like(x)
    kgen.negative(x, out=out)
    out.fill(0) if library == "cupy" else out.zero_()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(kgen.negative, x, out=out).result()
    assert (out == -x).all()


SLOW = """\
extern "C" __global__ void slow(float* x, int n)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");  // what follows may begin
#endif
    const long long begin = clock64();
    while (clock64() - begin < 1000000) {
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] += 1.0f;
    }
}
"""


@pytest.mark.parametrize("captured", [False, True])
def test_a_kernel_that_begins_early_sees_all_that_the_one_before_writes(captured):
    """Another library's kernel lets it begin at once, and writes a millisecond later; then kernels of ours follow."""
    import cupy

    slow = cupy.RawKernel(SLOW, "slow")
    x = cupy.zeros(1000, "f")
    kept = [cupy.empty_like(x) for _ in range(4)]

    def calls():
        slow((1,), (256,), (x, np.int32(x.size)))
        kgen.add(x, 1.0, out=kept[0])
        for source, result in pairwise(kept):
            kgen.multiply(source, 2.0, out=result)

    calls()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        if captured:
            stream.begin_capture()
            calls()
            graph = stream.end_capture()
        for _ in range(20):
            graph.launch() if captured else calls()
    stream.synchronize()
    assert (x == 21).all()
    assert [float(result.min()) for result in kept] == [float(result.max()) for result in kept] == [22, 44, 88, 176]
