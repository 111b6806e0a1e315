"""What is read of arrays that the L2 cache cannot hold leaves it last; what fits into it is read as ever."""

from __future__ import annotations

import re

import pytest

import kgen
from kgen.arch import Arch
from kgen.nvrtc import compile_ptx
from kgen.render import render

READERS = (
    "norm_t16_n2_v4_rms_weight_ragged_f32",
    "norm_sectors_t256_n4_v4_h1_weight_bias_shifted_f32",
    "norm_words_t256_n5_v4_c1_weight_bias_f32",
    "norm_ring_n8_v8_c2_rms_weight_bf16",
    "norm_sums_n5_v4_c2_weight_f32",
    "softmax_t128_n4_v8_bf16",
    "softmax_ring_n8_v8_c2_bf16",
)
BRINGERS = ("norm_t128_n4_v8_rms_weight_bf16", "norm_t256_n4_v4_rms_residual_weight_f32", "softmax_t256_n4_v4_f32")
"""What they have brought into the cache keeps its priority when it is read from there."""
READ = re.compile(r"\b(?:cp\.async\.cg|ld\.global)\S*L2::cache_hint\S*")


def ptx_of(name: str) -> str:
    return compile_ptx(render(kgen.parse(name)).text, name, Arch.parse("sm_90a"))


@pytest.mark.parametrize("name", READERS)
def test_packs_of_rows_are_read_by_the_policy_of_their_array(name: str) -> None:
    ptx = ptx_of(name)
    assert [ptx.count(f"createpolicy.fractional.L2::evict_{priority}") for priority in ("last", "unchanged")] == [1, 1]
    reads = READ.findall(ptx)
    copied = "cp.async.cg" in ptx
    assert all(("cp.async" in read) == copied for read in reads)  # from shared memory they are read without
    assert ptx.count("cp.async.cg") == len(reads) if copied else len(reads) >= kgen.parse(name)["PACKS"]


@pytest.mark.parametrize("name", BRINGERS)
def test_rows_that_are_brought_into_the_cache_leave_it_last_where_they_are_of_a_large_array(name: str) -> None:
    ptx, spec = ptx_of(name), kgen.parse(name)
    packs = spec["PACKS"] * (2 if "residual" in spec.flags else 1)
    assert ptx.count("prefetch.global.L2::evict_last") == ptx.count("prefetch.global.L2 ") == packs
    assert "cache_hint" not in ptx
