"""Kernels whose numbers stay in registers: what the compiler cannot unroll goes through memory, ten times as slow."""

from __future__ import annotations

import pytest

import kgen
from kgen.arch import Arch

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.mark.parametrize(
    "name",
    [
        "norm_t8_n2_v8_weight_bias_wfloat_ragged_shifted_bf16",
        "norm_t16_n4_v8_rms_residual_weight_wfloat_ragged_f16",
        "norm_ring_t256_n8_v8_c1_weight_bias_ragged_shifted_bf16",
        "norm_ring_t256_n7_v8_c4_weight_bias_ragged_shifted_f16",
        "norm_ring_t128_n6_v8_c1_weight_bias_wfloat_ragged_shifted_f16",
        "norm_span_t32_n17_v2_weight_bias_wfloat_apart_f16",
    ],
)
def test_rows_of_norms_stay_in_registers(name: str) -> None:
    resources = kgen.build(kgen.parse(name), Arch.parse("sm_90a")).resources
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "transpose_short_w1_k64_h512_anywhere_u8",
        "transpose_short_w2_k32_t2_anywhere_u16",
        "transpose_short_w4_k40_t3_h512_u16",
        "transpose_short_w4_k56_t2_h512_u8",
    ],
)
def test_packs_of_transposes_stay_in_registers_that_1024_threads_share(name: str) -> None:
    resources = kgen.build(kgen.parse(name), Arch.parse("sm_90a")).resources
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)
    assert resources.registers * 1024 <= 65536
