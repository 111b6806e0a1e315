"""Small problems through every algorithm, for compute-sanitizer: `make sanitize` runs this under each of its tools.

    python -m tests.gpu.sanitize [--every-thread-arrives] [number of shapes]
    python -m tests.gpu.sanitize [--every-thread-arrives] --kernels GLOB ...

The second way runs the sample calls of the default specializations whose names the globs match.

CuPy's memory pool is off, so that every array is an allocation of its own and an access past its end is seen.

racecheck does not follow an arrival at an mbarrier that one lane makes for its warp after __syncwarp, and reports what
the other lanes wrote or read; nor that what a warp reads behind a barrier, at which the others only arrive, is written
again when they have heard, through the mbarriers of a cluster, what became of it. Under it, kernels that do so are
therefore run with one change: every thread arrives for itself, and waits. Nor does it know that __syncthreads orders
what warps do that went through different numbers of other barriers before (seen on 2026-11-29: its reports went away
where all rows of a block take as many turns, as those of gradients of norms do since).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

import kgen
from kgen import gated_reference, reference
from kgen.ops.causal.algorithms import ALGORITHMS
from kgen.recipe import BUILTIN_TEMPLATES
from kgen.samples import call, cases_of, complaint
from tests.gpu.numerics import GRADIENT_SLACK, RMS_BAR, host, operands, poisoned, rms_error

SHAPES = [(1, 2, 300, 64, 64), (2, 1, 77, 20, 33), (1, 1, 530, 100, 100), (1, 1, 40, 150, 70), (1, 1, 1, 1, 1)]


SLOPE_BAR = 3e-3  # of the gradients of gates
STATE_BAR = 3e-4  # of states
CHUNKED = [((1, 2, 300, 128, 128), "bf16"), ((1, 1, 130, 60, 40), "f16"), ((1, 2, 130, 200, 136), "bf16")]

ARRIVALS = {
    "common/pipeline.cuh.j2": {
        """    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        asm volatile("{ .reg .b64 phase; mbarrier.arrive""": """    {
        asm volatile("{ .reg .b64 phase; mbarrier.arrive""",
        """shared_address(&mbarrier)), "r"(warps)""": """shared_address(&mbarrier)), "r"(32 * warps)""",
    },
    "common/rows_team.cuh.j2": {
        """shared_address(&exchange.arrived)), "n"(WARPS)""": """shared_address(&exchange.arrived)), "n"(32 * WARPS)""",
        """        asm volatile("mbarrier.arrive""": """    }
    {
        asm volatile("mbarrier.arrive""",
    },
    "common/rows_deferred.cuh.j2": {
        """{% set several = several_rows | default(false) %}
    const unsigned barrier = 1 + {{ "threadIdx.x / LANES * 2 + " if several }}nth % 2;
    if (threadIdx.x{{ " % LANES" if several }} >= 32) {
        asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "n"(LANES) : "memory");
    } else {
        asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "n"(LANES) : "memory");
""": """{% if several_rows | default(false) %}
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + threadIdx.x / LANES), "n"(LANES) : "memory");
    if (threadIdx.x % LANES < 32) {
{% else %}
    __syncthreads();
    if (threadIdx.x < 32) {
{% endif %}
""",
    },
    "norm_backward_grid.cu.j2": {
        """shared_address(&exchange.found)), "n"(WARPS)""": """shared_address(&exchange.found)), "n"(32 * WARPS)""",
        "mbarrier.init.shared.b64 [%0], 2;": "mbarrier.init.shared.b64 [%0], 64;",
        """row + 1);
                arrive(exchange.known);
            }
""": """row + 1);
            }
            arrive(exchange.known);
""",
        """                exchange.of_row = known;
                arrive(exchange.known);
            }
""": """                exchange.of_row = known;
            }
            arrive(exchanges[row % EXCHANGES].known);
""",
        """                    arrive(exchange.found);
                }
""": """                }
                arrive(exchanges[turn % EXCHANGES].found);
""",
    },
}
"""By template, what is written otherwise."""


def let_every_thread_arrive() -> None:
    """Put changed templates before kgen's own."""
    folder = Path(tempfile.mkdtemp())
    for template, changes in ARRIVALS.items():
        text = (BUILTIN_TEMPLATES / template).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{template} has changed: {old!r}"
            text = text.replace(old, new)
        (folder / template).parent.mkdir(exist_ok=True)
        (folder / template).write_text(text)
    os.environ["KGEN_TEMPLATES"] = str(folder)


def chunked(rng: np.random.Generator) -> int:
    """The gated operators in chunks, and their gradients; returns how many results were checked."""
    import cupy

    checked = 0
    for (*outer, e, m), dtype in CHUNKED:
        q, k, v, do = operands(rng, [(*outer, e), (*outer, e), (*outer, m), (*outer, m)], dtype)
        # From the host, as all that is read: initcheck does not see what CuPy's kernels write.
        step, feature = (cupy.asarray(-rng.exponential(size=x).astype("f")) for x in (outer, (*outer, e)))
        (bonus,) = operands(rng, [(outer[1], e)], dtype)
        for forward, backward, more in (
            (kgen.linear_attention, kgen.linear_attention_backward, ()),
            (kgen.simple_gla, kgen.simple_gla_backward, (step,)),
            (kgen.gla, kgen.gla_backward, (feature,)),
            (kgen.rwkv6, kgen.rwkv6_backward, (feature, bonus)),
        ):
            given = (q, k, v, *more)
            exact = [host(x) for x in given]
            out = poisoned(v.shape, dtype)
            forward(*given, mode="chunk", scale=1.0, out=out)
            assert rms_error(host(out), gated_reference.gated(*exact)[0]) <= RMS_BAR[dtype], (forward, dtype)
            _, states = forward(*given, mode="chunk", scale=1.0, states_every=64)
            assert rms_error(host(states), gated_reference.states(*exact[1:4], every=64)) <= STATE_BAR, (forward, dtype)
            wanted = gated_reference.gated_backward(host(do), *exact)
            made = backward(do, *given, mode="chunk", scale=1.0)
            for name, x in zip("qkvgu", made):
                bar = SLOPE_BAR if name == "g" else GRADIENT_SLACK * RMS_BAR[dtype]
                assert x is None or rms_error(host(x), wanted[name]) <= bar, (backward, dtype, name)
            checked += 2 + len(given)
    return checked


def sampled(globs: Sequence[str]) -> int:
    """Sample calls, from and to the host; returns how many were right."""
    checked = 0
    for spec in kgen.select():
        if any(fnmatch(spec.name, glob) for glob in globs):
            for case in cases_of(spec):
                with kgen.backend("gpu"):
                    wrong = complaint(case, call(case))
                assert not wrong, f"{spec.name}: {wrong}"
                checked += 1
    return checked


def main(words: list[str]) -> None:
    import cupy

    if "--every-thread-arrives" in words:
        let_every_thread_arrive()
        words.remove("--every-thread-arrives")
    cupy.cuda.set_allocator(None)
    if "--kernels" in words:
        print(f"{sampled(words[words.index('--kernels') + 1 :])} sample calls are right")
        return
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
    checked += chunked(rng)
    cupy.cuda.Device().synchronize()
    print(f"{checked} results are right")


if __name__ == "__main__":
    main(sys.argv[1:])
