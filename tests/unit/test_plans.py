"""How problems are cut and which kernels they get, for any problem and with no GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.dtypes import BF16, F16, F32
from kgen.errors import SpecError
from kgen.ops.causal import algorithms, chunk, lmha
from kgen.ops.causal.scan import Scan

ROOMY, SMALL = 227 * 1024, 99 * 1024


def scan(batch=1, heads=8, length=2048, e=64, m=64, dtype=F32, align=16, reverse=False):
    def packed(width):
        return heads * length * width, length * width, width

    return Scan(batch, heads, length, e, m, dtype, packed(e), packed(e), packed(m), packed(m), align, reverse)


scans = st.builds(
    scan,
    batch=st.integers(1, 300),
    heads=st.integers(1, 300),
    length=st.integers(1, 100_000),
    e=st.integers(1, 1024),
    m=st.integers(1, 1024),
    dtype=st.sampled_from((F32, F16, BF16)),
    align=st.sampled_from((4, 8, 16)),
    reverse=st.booleans(),
)


@given(scans, st.integers(1, 200), st.sampled_from((ROOMY, SMALL)))
def test_segments_cover_the_sequence_and_none_is_empty(problem, sms, smem):
    cut = chunk.cut_of(problem, sms, smem)
    assert (cut.segments - 1) * cut.segment < problem.length <= cut.segments * cut.segment
    assert cut.segments == 1 or cut.segment % cut.chunk == 0


@given(scans, st.integers(1, 200), st.sampled_from((ROOMY, SMALL)))
def test_slices_cover_the_features_with_legal_kernels_that_fit_the_device(problem, sms, smem):
    cut = chunk.cut_of(problem, sms, smem)
    slices = [chunk._Slice(problem, start, cut, None) for start in range(0, problem.e, chunk.SLICE)]
    assert sum(part.steps[-1].ints[2] for part in slices) == problem.e
    assert [part.last for part in slices] == [False] * (len(slices) - 1) + [True]
    for part in slices:
        for step in part.steps:
            assert step.blocks > 0
            assert step.spec.static_smem + step.spec.dynamic_smem <= smem
            assert step.spec.dtype in (problem.dtype, F32)


@given(scans, st.integers(1, 200))
def test_few_heads_are_cut_until_they_fill_the_device_but_never_beyond(problem, sms):
    cut = chunk.cut_of(problem, sms, ROOMY)
    blocks = problem.sequences * -(-problem.m // cut.columns)
    assert cut.segments == 1 or blocks * cut.segments <= sms


@given(scans)
def test_plain_kernels_are_picked_for_any_problem_that_they_take(problem):
    for kernel in (lmha.LMHA, lmha.LOW_OCCUPANCY):
        if problem.e <= 256:
            assert lmha._room(kernel, problem) >= problem.e
        else:
            with pytest.raises(SpecError, match="at most 256 features"):
                lmha._room(kernel, problem)


def test_walking_backward_is_walking_forward_along_negative_strides():
    problem = scan(reverse=True)
    (part,) = [chunk._Slice(problem, 0, chunk.cut_of(scan(heads=500), 132, ROOMY), None)]
    batch, head, time = part.steps[-1].longs[:3]
    assert (batch, head, time) == (problem.q[0], problem.q[1], -problem.q[2])


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("nonsense", "no algorithm 'nonsense'"),
        ("", "no algorithm ''"),
        (1, "no algorithm 1"),
        (("lmha",), r"no algorithm \('lmha',\)"),
        ("lmha_e64_t1_f16", "takes f16, and the arrays are f32"),
        ("lmha_e32_t1_f32", "room for 32 features"),
        ("lmha_e64_t1_reverse_f32", "walks the other way"),
        ("lmha_low_occupancy_e64_w5_c4_f32", "WARPS=5"),
        ("lmha_chunk_e64_m64_outer_f32", "computes states"),
        ("lmha_chunk_e64_m64_adds_f32", "computes a sum with a part"),
        ("lmha_chunk_e64_m64_c99_f32", "C=99"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_refused_with_the_reason(algorithm, words):
    with pytest.raises(SpecError, match=words) as caught:
        algorithms.plan(scan(), algorithm, 0)
    assert str(caught.value).startswith("causal_dot_product: ")


def test_rows_that_begin_anywhere_get_a_kernel_that_loads_single_elements():
    cut = chunk.cut_of(scan(), 132, ROOMY)
    assert not chunk._Slice(scan(align=16), 0, cut, None).steps[-1].spec["unaligned"]
    assert chunk._Slice(scan(align=4), 0, cut, None).steps[-1].spec["unaligned"]
    assert chunk._Slice(scan(m=63), 0, cut, None).steps[-1].spec["unaligned"]
    with pytest.raises(SpecError, match="elements at once"):
        chunk._Slice(scan(align=4), 0, cut, chunk.CHUNK.spec(E=64, MB=64, dtype="f32"))
