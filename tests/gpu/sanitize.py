"""Small problems through every algorithm, for compute-sanitizer: `make sanitize` runs this under each of its tools.

    python -m tests.gpu.sanitize [--every-thread-arrives] [number of shapes]

CuPy's memory pool is off, so that every array is an allocation of its own and an access past its end is seen.

racecheck does not follow an arrival at an mbarrier that one lane makes for its warp after __syncwarp, and reports what
the other lanes wrote. Under it, lmha_chunk is therefore run with one change: every thread arrives for itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import kgen
from kgen import reference
from kgen.ops.causal.algorithms import ALGORITHMS
from kgen.recipe import BUILTIN_TEMPLATES
from tests.gpu.numerics import RMS_BAR, host, operands, poisoned, rms_error

SHAPES = [(1, 2, 300, 64, 64), (2, 1, 77, 20, 33), (1, 1, 530, 100, 100), (1, 1, 40, 150, 70), (1, 1, 1, 1, 1)]


ARRIVALS = {
    "common/pipeline.cuh.j2": {
        """    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        asm volatile("{ .reg .b64 phase; mbarrier.arrive""": """    {
        asm volatile("{ .reg .b64 phase; mbarrier.arrive""",
    },
    "lmha_chunk.cu.j2": {
        "initialize(stages[stage].ready, PRODUCERS);": "initialize(stages[stage].ready, 32 * PRODUCERS);",
        "initialize(stages[stage].free, CONSUMERS);": "initialize(stages[stage].free, 32 * CONSUMERS);",
    },
}


def let_every_thread_arrive() -> None:
    """Put a changed lmha_chunk before kgen's own."""
    folder = Path(tempfile.mkdtemp())
    (folder / "common").mkdir()
    for name, changes in ARRIVALS.items():
        text = (BUILTIN_TEMPLATES / name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{name} has changed: {old!r}"
            text = text.replace(old, new)
        (folder / name).write_text(text)
    os.environ["KGEN_TEMPLATES"] = str(folder)


def main(words: list[str]) -> None:
    import cupy

    if "--every-thread-arrives" in words:
        let_every_thread_arrive()
        words.remove("--every-thread-arrives")
    cupy.cuda.set_allocator(None)
    rng = np.random.default_rng(0)
    checked = 0
    for *outer, e, m in SHAPES[: int(words[0]) if words else None]:
        for dtype in ("f32", "f16", "bf16"):
            for algorithm in ALGORITHMS:
                if e > 128 and dtype != "f32" and algorithm != "lmha_chunk":
                    continue  # one dtype is enough for the wide row of the plain kernels, which take minutes here
                for reverse in (False, True):
                    q, k, v = operands(rng, [(*outer, e), (*outer, e), (*outer, m)], dtype)
                    out = poisoned(v.shape, dtype)
                    kgen.causal_dot_product(q, k, v, algorithm=algorithm, reverse=reverse, out=out)
                    expected = reference.causal_dot_product(*map(host, (q, k, v)), reverse=reverse)
                    assert rms_error(host(out), expected) <= RMS_BAR[dtype], (algorithm, dtype, outer, e, m)
                    checked += 1
        q, k, v = operands(rng, [(*outer, e), (*outer, e), (*outer, m)], "f32")
        state = kgen.linear_state(k, v)
        assert rms_error(host(state), reference.linear_state(host(k), host(v))) <= RMS_BAR["f32"]
        kgen.linear_state(k, v, segment=37)
        assert (
            rms_error(host(kgen.query_state(q, state)), reference.query_state(host(q), host(state))) <= RMS_BAR["f32"]
        )
        k[..., outer[2] // 2, 0] = np.inf  # the plain path of a chunk that tensor cores may not see
        kgen.causal_dot_product(q, k, v)
    cupy.cuda.Device().synchronize()
    print(f"{checked} results are right")


if __name__ == "__main__":
    main(sys.argv[1:])
