"""Which specializations rows, tall matrices and arrays out of place get on a large device; nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kgen
from kgen.arch import Arch
from kgen.catalog import parse
from kgen.device import HOST
from kgen.dtypes import dtype_of
from kgen.operand import Operand
from kgen.ops import calls, rows, rows_cut, rows_ring
from kgen.ops.elementwise import plans
from kgen.ops.gemv import flat as gemv_flat
from kgen.ops.gemv import plan as gemv_plan
from kgen.ops.gemv import row_plans
from kgen.ops.gemv import span as gemv_span
from kgen.ops.moving import transpose_steps
from kgen.ops.norm import sectors, span
from kgen.ops.reduce import flat as reduce_flat
from kgen.ops.reduce import plan as reduce_plan
from kgen.ops.softmax import logsumexp
from kgen.scratch import listing

TYPES = {"f32": np.dtype("f4"), "bf16": np.dtype(ml_dtypes.bfloat16)}
BYTES = 1 << 28


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, rows_cut, rows_ring, sectors, span, plans, gemv_plan, gemv_flat, transpose_steps, logsumexp):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(calls, "remember", lambda *_: None)


def told(function: Any, *operands: Any, **options: Any) -> str:
    """The specialization and the blocks of a call of one launch."""
    with kgen.backend("cpu"), listing():
        return kgen.explain(function, *operands, **options).splitlines()[0]


def with_weights(name: str, dtype: str, width: int, weights: int) -> tuple[Any, ...]:
    own = TYPES[dtype]
    return (np.empty((BYTES // own.itemsize // width, width), own), *[np.empty(width, own)] * weights)


@pytest.mark.parametrize(
    ("name", "dtype", "width", "weights", "expected"),
    [
        ("layer_norm", "f32", 129, 2, "norm_span_t8_n17_v1_weight_bias_f32"),
        ("layer_norm", "f32", 193, 2, "norm_t16_n3_v4_weight_bias_ragged_looped_f32"),
        ("rms_norm", "f32", 97, 1, "norm_span_t8_n13_v1_rms_weight_f32"),
        ("rms_norm", "f32", 129, 1, "norm_t16_n2_v4_rms_weight_ragged_f32"),
        ("layer_norm", "bf16", 129, 2, "norm_span_t8_n9_v2_weight_bias_bf16"),
        ("layer_norm", "bf16", 129, 0, "norm_t8_n2_v8_ragged_bf16"),
        ("layer_norm", "bf16", 128, 2, "norm_t8_n2_v8_weight_bias_bf16"),
        ("layer_norm", "bf16", 130, 2, "norm_t8_n2_v8_weight_bias_ragged_looped_bf16"),
        ("layer_norm", "bf16", 257, 2, "norm_span_t16_n9_v2_weight_bias_bf16"),
        ("layer_norm", "bf16", 500, 2, "norm_span_t32_n8_v2_weight_bias_bf16"),
        ("layer_norm", "bf16", 895, 2, "norm_span_t32_n14_v2_weight_bias_bf16"),
        ("layer_norm", "bf16", 1023, 2, "norm_sectors_t32_n4_v8_h2_weight_bias_bf16"),
        ("rms_norm", "bf16", 129, 1, "norm_span_t8_n9_v2_rms_weight_bf16"),
        ("rms_norm", "bf16", 511, 1, "norm_t16_n4_v8_rms_weight_ragged_bf16"),
        ("layer_norm", "f32", 5001, 2, "norm_t256_n5_v4_weight_bias_ragged_f32"),
        ("layer_norm", "f32", 5401, 2, "norm_ring_t256_n3_v4_c2_weight_bias_ragged_f32"),
        ("layer_norm", "f32", 8191, 2, "norm_ring_t256_n4_v4_c2_weight_bias_ragged_f32"),
        ("layer_norm", "f32", 65536, 2, "norm_ring_n4_v4_c8_weight_bias_ragged_f32"),
        ("rms_norm", "f32", 131072, 1, "norm_ring_n4_v4_c16_rms_weight_ragged_f32"),
        ("layer_norm", "f32", 262144, 2, "norm_ring_n8_v4_c16_weight_bias_f32"),
        ("layer_norm", "bf16", 65535, 2, "norm_ring_t256_n8_v8_c4_weight_bias_ragged_bf16"),
        ("layer_norm", "bf16", 131072, 2, "norm_ring_t256_n8_v8_c8_weight_bias_ragged_bf16"),
        ("layer_norm", "f32", 16384, 2, "norm_t512_n8_v4_weight_bias_f32"),
        ("layer_norm", "f32", 16383, 2, "norm_ring_n4_v4_c2_weight_bias_ragged_f32"),
        ("layer_norm", "f32", 16383, 0, "norm_t512_n8_v4_ragged_f32"),
        ("rms_norm", "f32", 16383, 1, "norm_t512_n8_v4_rms_weight_ragged_f32"),
        ("layer_norm", "bf16", 16383, 2, "norm_ring_t256_n4_v8_c2_weight_bias_ragged_bf16"),
        ("layer_norm", "bf16", 32768, 2, "norm_ring_n8_v8_c1_weight_bias_bf16"),
        ("rms_norm", "bf16", 16384, 1, "norm_t512_n4_v8_rms_weight_bf16"),
        ("softmax", "bf16", 24576, 0, "softmax_ring_t256_n6_v8_c2_bf16"),
        ("softmax", "f32", 129, 0, "softmax_t16_n2_v4_ragged_f32"),
        ("softmax", "bf16", 129, 0, "softmax_t16_n1_v8_ragged_bf16"),
        ("softmax", "bf16", 255, 0, "softmax_t16_n2_v8_ragged_bf16"),
        ("softmax", "f32", 8191, 0, "softmax_t512_n4_v4_ragged_f32"),
        ("softmax", "f32", 16384, 0, "softmax_t512_n8_v4_f32"),
        ("softmax", "f32", 16383, 0, "softmax_t1024_n4_v4_ragged_f32"),
        ("softmax", "bf16", 16383, 0, "softmax_t512_n4_v8_ragged_bf16"),
    ],
)
def test_rows_that_a_block_takes(name: str, dtype: str, width: int, weights: int, expected: str) -> None:
    operands = with_weights(name, dtype, width, weights)
    found = told(getattr(kgen, name), *operands, **({"axis": -1} if name == "softmax" else {}))
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "width", "what", "expected"),
    [
        ("f32", 23968, "plain", "softmax_ring_n6_v4_c2_f32 on 132 blocks"),
        ("f32", 17001, "apart", "softmax_ring_t256_n9_v4_c2_ragged_shifted_f32 on 264 blocks"),
        ("f32", 23968, "apart", "softmax_ring_n6_v4_c2_ragged_shifted_f32 on 132 blocks"),
        ("f32", 39630, "plain", "softmax_ring_t256_n10_v4_c4_ragged_f32 on 264 blocks"),
        ("f32", 44195, "masked", "softmax_ring_t256_n6_v4_c8_mask_ragged_f32 on 240 blocks"),
        ("f32", 87965, "causal", "softmax_ring_t256_n11_v4_c8_causal_ragged_f32 on 240 blocks"),
        ("f32", 98883, "causal", "softmax_ring_n7_v4_c8_causal_ragged_f32 on 120 blocks"),
        ("f32", 127668, "causal", "softmax_ring_n8_v4_c8_causal_ragged_f32 on 120 blocks"),  # packs begin with a sector
        ("f32", 159838, "apart", "softmax_ring_t256_n10_v4_c16_ragged_shifted_f32 on 240 blocks"),
        ("f32", 8639, "masked", "softmax_ring_t256_n5_v4_c2_mask_ragged_f32 on 264 blocks"),
        ("f32", 12052, "masked", "softmax_t512_n6_v4_mask_f32 on 5568 blocks"),
        ("f32", 6501, "masked", "softmax_t512_n4_v4_mask_ragged_f32 on 10322 blocks"),
        ("f32", 5001, "masked", "softmax_t384_n4_v4_mask_ragged_f32 on 13419 blocks"),
        ("bf16", 14102, "causal", "softmax_t384_n5_v8_causal_ragged_bf16 on 9517 blocks"),
        ("bf16", 16305, "causal", "softmax_ring_t256_n4_v8_c2_causal_ragged_bf16 on 264 blocks"),
        ("bf16", 44195, "plain", "softmax_ring_n6_v8_c2_ragged_bf16 on 132 blocks"),
        ("bf16", 73484, "causal", "softmax_ring_t256_n9_v8_c4_causal_ragged_bf16 on 264 blocks"),
        ("bf16", 73484, "masked", "softmax_ring_t256_n5_v8_c8_mask_ragged_bf16 on 240 blocks"),
        ("bf16", 180001, "apart", "softmax_ring_t256_n11_v8_c8_ragged_shifted_bf16 on 240 blocks"),
    ],
)
def test_two_blocks_share_a_multiprocessor_where_rows_fit(dtype: str, width: int, what: str, expected: str) -> None:
    rows = BYTES // TYPES[dtype].itemsize // width
    x = np.empty(rows * width + 1, TYPES[dtype])[what == "apart" :][: rows * width].reshape(rows, width)
    about = {"mask": np.empty((rows, width), bool)} if what == "masked" else {"causal": what == "causal"}
    assert told(kgen.softmax, x, -1, **about) == expected


@pytest.mark.parametrize(
    ("name", "width", "weights", "expected"),
    [
        ("layer_norm", 887, "f32", "norm_span_t32_n14_v2_weight_bias_wfloat_bf16 on 264 blocks"),
        ("layer_norm", 1101, "f32", "norm_span_t32_n18_v2_weight_bias_wfloat_bf16 on 264 blocks"),
        ("layer_norm", 1155, "f32", "norm_ring_t32_n5_v8_c1_weight_bias_wfloat_ragged_bf16 on 132 blocks"),
        ("layer_norm", 2049, "f32", "norm_sectors_t64_n4_v8_h2_weight_bias_wfloat_bf16 on 32752 blocks"),
        ("layer_norm", 4097, "f32", "norm_sectors_t128_n4_v8_h2_weight_bias_wfloat_bf16 on 16384 blocks"),
        ("layer_norm", 8191, "f32", "norm_ring_t128_n8_v8_c1_weight_bias_wfloat_ragged_bf16 on 132 blocks"),
        ("layer_norm", 10241, "f32", "norm_ring_t256_n5_v8_c1_weight_bias_wfloat_ragged_bf16 on 132 blocks"),
        ("layer_norm", 2048, "f32", "norm_t"),  # weights need not be moved
        ("layer_norm", 23968, "f32", "norm_ring_t256_n6_v8_c2_weight_bias_wfloat_ragged_bf16 on 132 blocks"),
        ("layer_norm", 1357, "bf16", "norm_sectors_t64_n3_v8_h2_weight_bias_bf16 on 49456 blocks"),
        ("layer_norm", 2049, "bf16", "norm_sectors_t64_n4_v8_h2_weight_bias_bf16 on 32752 blocks"),
        ("rms_norm", 8191, "f32", "norm_ring_t128_n8_v8_c1_rms_weight_wfloat_ragged_bf16 on 132 blocks"),
        ("rms_norm", 2049, "f32", "norm_sectors_t64_n4_v8_h1_rms_weight_wfloat_bf16 on 65504 blocks"),
    ],
)
def test_weights_that_are_dear_to_move_are_kept_for_several_rows_or_moved_for_two(
    name: str, width: int, weights: str, expected: str
) -> None:
    x = np.empty((BYTES // 2 // width, width), TYPES["bf16"])
    about = [np.empty(width, TYPES[weights])] * (1 if name == "rms_norm" else 2)
    assert told(getattr(kgen, name), x, *about).startswith(expected)


def test_blocks_move_many_weights_for_all_of_their_rows() -> None:
    wide = told(kgen.layer_norm, *with_weights("layer_norm", "f32", 16383, 2))
    narrow = told(kgen.layer_norm, *with_weights("layer_norm", "f32", 193, 2))
    assert wide.endswith(" on 132 blocks")
    assert int(narrow.split()[-2]) == BYTES // 4 // 193 // 8 // rows.TURNS  # 8 rows a block: a thread's begin alike


def test_three_blocks_are_resident_where_registers_allow() -> None:
    for name, blocks in {
        "softmax_t512_n4_v4_f32": 3,
        "softmax_t512_n4_v4_ragged_f32": 3,
        "softmax_t512_n5_v4_f32": 2,
        "norm_t512_n4_v8_weight_bias_bf16": 3,
        "norm_t512_n4_v8_weight_bias_ragged_bf16": 2,
        "norm_t512_n4_v8_rms_weight_bf16": 2,
        "norm_t512_n4_v4_weight_bias_f32": 2,
    }.items():
        assert parse(name).derived["RESIDENT"] == blocks


@pytest.mark.parametrize(
    ("dtype", "width", "expected"),
    [
        ("f32", 128, "gemv_columns_v4_l16_u4_t512_partial_f32"),
        ("bf16", 128, "gemv_columns_v8_l8_u4_t512_partial_bf16"),
        ("f32", 256, "gemv_columns_v4_l8_u4_partial_f32"),
        ("bf16", 512, "gemv_columns_v8_l8_u4_partial_bf16"),
        ("f32", 16, "gemv_columns_v4_l4_u4_t512_partial_f32"),
        ("f32", 33, "gemv_flat_t576_early_f32"),
        ("bf16", 17, "gemv_flat_t1024_early_bf16"),
        ("bf16", 97, "gemv_flat_t992_early_bf16"),
        ("bf16", 9, "gemv_flat_t1024_early_bf16"),
        ("bf16", 264, "gemv_flat_t1024_early_bf16"),
        ("bf16", 200, "gemv_columns_v8_l16_u4_t512_partial_bf16"),
        ("f32", 401, "gemv_columns_v4_l16_p2_u2_t512_ragged_partial_f32"),
        ("f32", 8193, "gemv_columns_v4_l32_p2_u2_t512_ragged_partial_f32"),
        ("bf16", 8193, "gemv_columns_v8_l32_p2_u2_t512_ragged_partial_bf16"),
        ("bf16", 129, "gemv_flat_t928_early_bf16"),
        ("f32", 257, "gemv_flat_t544_early_f32"),
    ],
)
def test_tall_matrices_are_read_by_whole_lines(dtype: str, width: int, expected: str) -> None:
    own = TYPES[dtype]
    depth = (BYTES + 4) // own.itemsize // width
    found = told(kgen.gemv, np.empty((depth, width), own), np.empty(depth, own), trans=True)
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("u1", (1001, 999), "transpose_ragged_r128_c384_u8"),
        ("u1", (8191, 8193), "transpose_ragged_r128_c384_u8"),
        ("f2", (1001, 999), "transpose_ragged_r64_c192_t256_u16"),
        ("f2", (8192, 8196), "transpose_ragged_r64_c192_t256_u16"),
        ("f2", (2052, 2060), "transpose_r64_c64_i4_o4_u16"),
        ("u1", (16, 2796203), "transpose_short_w4_k32_anywhere_u8"),
        ("u1", (48, 2796203), "transpose_short_w4_k32_anywhere_u8"),
        ("u1", (48, 2796208), "transpose_short_w4_u8"),
        ("u1", (32, 2796208), "transpose_r32_c512_i16_o16_u8"),
        ("u1", (16384, 16384), "transpose_r128_c256_i16_o16_u8"),
        ("f4", (1001, 999), "transpose_ragged_r64_c96_t256_u32"),
        ("f4", (8191, 8193), "transpose_ragged_r64_c96_t256_u32"),
        ("f4", (171, 60001), "transpose_ragged_r64_c96_t256_u32"),
        ("f4", (67041, 1001), "transpose_ragged_r128_c96_across_u32"),
        ("f2", (134083, 1001), "transpose_ragged_r128_c192_across_u16"),
        ("f2", (44195, 3036), "transpose_ragged_r128_c192_u16"),
        ("f2", (144631, 928), "transpose_ragged_r128_c192_across_u16"),
        ("f2", (67104, 2000), "transpose_ragged_r128_c192_across_u16"),  # 90 % of copy; 89 in tiles, 88 not across
        ("f2", (400, 335544), "transpose_ragged_r64_c192_t256_u16"),  # 95; 93 where tiles share lines
        ("f4", (200, 335544), "transpose_ragged_r64_c96_t256_u32"),  # 96; 93
        ("u1", (262144, 1023), "transpose_ragged_r128_c384_across_u8"),
    ],
)
def test_tiles_suit_where_rows_begin(dtype: str, shape: tuple[int, int], expected: str) -> None:
    assert told(kgen.transpose, np.empty(shape, dtype)).split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("f4", (131, 60001), "transpose_ragged_short_n4_k64_u32"),
        ("f4", (60001, 131), "transpose_ragged_short_n4_k84_split_u32"),
        ("f4", (60001, 201), "transpose_ragged_r64_c224_u32"),
        ("f4", (60001, 301), "transpose_ragged_r64_c96_t256_across_u32"),
        ("f4", (234179, 300), "transpose_ragged_r128_c96_across_u32"),
        ("f2", (129, 1089219), "transpose_short_w2_k32_t2_anywhere_u16"),  # 90 % of copy; 87 with three turns
        ("f2", (135, 1040803), "transpose_short_w2_k40_t2_anywhere_u16"),
        ("f2", (97, 1448547), "transpose_short_w2_k32_t2_anywhere_u16"),
        ("f2", (48, 2796202), "transpose_short_w4_k32_t2_anywhere_u16"),
        ("f2", (257, 522247), "transpose_short_w2_k32_t2_anywhere_u16"),  # 90; 82 in tiles
        ("f2", (250, 562035), "transpose_short_w4_k32_t2_anywhere_u16"),
        ("f2", (256, 548867), "transpose_ragged_r64_c192_t256_u16"),
        ("u1", (201, 1398099), "transpose_short_w1_k32_anywhere_u8"),
        ("u1", (320, 878179), "transpose_short_w4_k40_anywhere_u8"),
        ("u1", (347, 773589), "transpose_short_w1_k56_h512_anywhere_u8"),  # 79; 55 in tiles
        ("u1", (513, 523265), "transpose_short_w1_k64_h512_anywhere_u8"),  # 84; 62
        ("u1", (513, 52001), "transpose_ragged_r128_c384_u8"),  # few blocks
        ("f2", (300, 447392), "transpose_short_w4_k40_t3_h512_u16"),  # 95; 93 by fewer threads in two turns
        ("f4", (60000, 300), "transpose_ragged_r64_c96_t256_across_u32"),  # or tiles would share lines
        ("f4", (3, 50177), "transpose_ragged_short_n4_k4_u32"),
        ("f4", (33, 600001), "transpose_ragged_short_n4_k16_u32"),
        ("f4", (90000, 100), "transpose_ragged_short_n4_k76_g2_split_u32"),  # all of it in packs, too
        ("f2", (33, 60001), "transpose_short_w2_k32_t2_anywhere_u16"),
        ("f2", (60000, 33), "transpose_short_w2_k12_split_u16"),
        ("f2", (60001, 33), "transpose_ragged_short_n4_k24_split_u16"),
        ("f2", (600001, 33), "transpose_ragged_short_n4_k28_g2_split_u16"),
        ("f2", (600001, 100), "transpose_ragged_short_n4_k76_g2_split_u16"),
        ("f2", (600001, 201), "transpose_ragged_short_n2_k104_g2_split_u16"),
        ("f2", (60000, 34), "transpose_ragged_short_n4_k24_split_u16"),
        ("f2", (34, 60000), "transpose_short_w4_t2_u16"),
        ("f2", (52, 60000), "transpose_short_w4_t2_u16"),
        ("f2", (600001, 300), "transpose_ragged_r64_c448_u16"),
        ("f2", (600001, 180), "transpose_ragged_r64_c192_t256_u16"),
        ("f4", (600000, 220), "transpose_ragged_r64_c224_u32"),
        ("u1", (60000, 34), "transpose_short_w2_k24_split_u8"),
        ("u1", (60001, 34), "transpose_ragged_short_n2_k16_split_u8"),
        ("u1", (60001, 36), "transpose_short_w4_k32_anywhere_split_u8"),
        ("u1", (60000, 98), "transpose_short_w2_k24_split_u8"),
        ("u1", (60000, 300), "transpose_short_w4_k40_split_u8"),
        ("f2", (60001, 128), "transpose_ragged_r64_c192_t256_u16"),  # all of it in the L2 cache
        ("f2", (600001, 128), "transpose_padded_short_n2_split_u16"),  # or all lanes would ask one bank
        ("f2", (60001, 32), "transpose_padded_short_n2_split_u16"),
        ("f2", (60000, 32), "transpose_padded_short_n2_split_u16"),
        ("f2", (32, 60000), "transpose_r32_c256_i8_o8_u16"),
        ("f4", (60001, 96), "transpose_ragged_r64_c96_t256_u32"),
        ("f2", (8192, 8192), "transpose_r128_c128_i8_o8_u16"),
        ("f2", (8192, 128), "transpose_r64_c128_i8_o8_u16"),  # the L2 cache holds both sides
        ("f2", (8256, 8192), "transpose_r64_c128_i8_o8_u16"),  # every other row of the result begins amid 256 bytes
        ("f4", (8192, 8196), "transpose_ragged_r64_c96_t256_u32"),
        ("u1", (8134407, 33), "transpose_ragged_short_n8_k44_g2_split_u8"),  # 93 % of copy; 84 with four lines
        ("f4", (8196, 8192), "transpose_ragged_r64_c96_t256_u32"),  # rows of the result begin amid sectors
        ("u1", (60000, 33), "transpose_short_w1_k12_split_u8"),
        ("u1", (33, 60000), "transpose_short_w1_u8"),
        ("f4", (33, 600000), "transpose_short_w4_t4_u32"),
    ],
)
def test_short_rows_are_taken_whole_where_banks_allow(dtype: str, shape: tuple[int, int], expected: str) -> None:
    assert told(kgen.transpose, np.empty(shape, dtype)).split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "depth", "width", "expected"),
    [
        ("bf16", 8191, 8193, "gemv_columns_v8_l32_u4_ragged_partial_bf16"),
        ("bf16", 60001, 513, "gemv_columns_v8_l16_p2_u2_t512_ragged_partial_bf16"),
        ("bf16", 15001, 513, "gemv_columns_v8_l32_u4_ragged_partial_bf16"),
        ("bf16", 300, 400001, "gemv_columns_v8_l32_p2_u2_ragged_bf16"),
        ("bf16", 100, 60001, "gemv_columns_v8_l32_u4_ragged_bf16"),
    ],
)
def test_tiles_of_rows_that_begin_anywhere_are_wide_where_sums_are_in_few_parts(
    dtype: str, depth: int, width: int, expected: str
) -> None:
    own = TYPES[dtype]
    found = told(kgen.gemv, np.empty((depth, width), own), np.empty(depth, own), trans=True)
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "width", "expected"),
    [
        ("bf16", 32, "gemv_v8_l4_r4_u1_bf16"),
        ("bf16", 7, "gemv_span_k7_t4_bf16"),
        ("bf16", 96, "gemv_span_k96_t1_bf16"),
        ("bf16", 127, "gemv_span_k127_t1_bf16"),
        ("bf16", 129, "gemv_span_k129_t1_bf16"),  # 98 % of copy; of lanes that share a row, 89
        ("bf16", 142, "gemv_span_k142_t1_bf16"),  # 99; 88
        ("f32", 134, "gemv_span_k134_t1_f32"),  # 96; 89 where a third of the lanes' loads were past the row's end
        ("f32", 90, "gemv_span_k90_t1_f32"),  # of four lanes that take three turns, 82
        ("f32", 129, "gemv_v4_l16_r4_u2_ragged_f32"),  # 102; 95 in spans
        ("bf16", 512, "gemv_v8_l32_r4_u2_bf16"),
        ("bf16", 8192, "gemv_v8_l128_r1_u4_bf16"),
        ("f32", 33, "gemv_span_k33_t1_f32"),
        ("f32", 65, "gemv_v4_l8_r4_u2_ragged_f32"),
        ("f32", 128, "gemv_v4_l16_r4_u2_f32"),
        ("f32", 256, "gemv_v4_l32_r4_u2_f32"),
        ("f32", 513, "gemv_v4_l32_r4_u2_ragged_f32"),
    ],
)
def test_threads_take_several_short_rows(dtype: str, width: int, expected: str) -> None:
    own = TYPES[dtype]
    found = told(kgen.gemv, np.empty((BYTES // own.itemsize // width, width), own), np.empty(width, own))
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("width", "rows", "expected"),
    [
        (33, 8000000, "gemv_span_quantized_k33_t1_i8"),
        (129, 2000000, "gemv_span_quantized_k129_t1_i8"),
        (200, 1400000, "gemv_span_quantized_k200_t1_i8"),
        (192, 1400000, "gemv_quantized_v16_l4_r4_u1_i8"),
        (255, 1100000, "gemv_quantized_v16_l4_r4_u1_ragged_i8"),
        (512, 540000, "gemv_quantized_v16_l8_r4_u1_i8"),
        (1001, 280000, "gemv_quantized_v16_l16_r4_u1_ragged_i8"),
        (4096, 65536, "gemv_quantized_v16_l32_r4_u1_i8"),
        (4096, 4096, "gemv_quantized_v16_l64_r2_u2_i8"),
        (16384, 16384, "gemv_quantized_v16_l64_r4_u1_i8"),
        (16385, 17000, "gemv_quantized_v16_l128_r4_u1_ragged_i8"),
    ],
)
def test_rows_of_bytes_share_what_it_takes_to_widen_a_vector(width: int, rows: int, expected: str) -> None:
    found = told(kgen.gemv, np.empty((rows, width), np.int8), np.empty(width, np.float32))
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (320, None, "gemv_v4_l16_r4_u2_f32"),
        (640, None, "gemv_v4_l32_r2_u2_f32"),
        (1024, None, "gemv_v4_l64_r2_u2_f32"),
        (5120, None, "gemv_v4_l64_r1_u4_f32"),
        (8192, None, "gemv_v4_l256_r1_u4_f32"),
        (1536, 1536, "gemv_v4_l128_r1_u4_f32"),  # fewer lanes would leave too few threads
    ],
)
def test_lanes_of_float32_have_little_to_do_past_the_ends_of_rows(
    width: int, height: int | None, expected: str
) -> None:
    rows = height or BYTES // 4 // width
    found = told(kgen.gemv, np.empty((rows, width), np.float32), np.empty(width, np.float32))
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("dtype", "starts", "expected"),
    [
        ("f32", (0, 0), "sigmoid_v4_i2_f32"),
        ("f32", (1, 0), "sigmoid_v4_i2_unaligned_f32"),
        ("bf16", (0, 0), "sigmoid_v8_i2_bf16"),
        ("bf16", (3, 3), "sigmoid_v8_i2_unaligned_bf16"),
        ("bf16", (3, 4), "sigmoid_v8_i2_unaligned_bf16"),
    ],
)
def test_a_thread_takes_two_vectors_wherever_arrays_start(dtype: str, starts: tuple[int, int], expected: str) -> None:
    kind, n = dtype_of(TYPES[dtype]), BYTES // TYPES[dtype].itemsize
    x, out = (Operand(4096 + at * kind.itemsize, (n,), (1,), kind, HOST, "numpy", "x", None, None) for at in starts)
    with kgen.backend("cpu"), listing():
        made = plans.plan(plans.Call("sigmoid", parse(expected).kernel, (x,), out, (), None))
    assert made.steps[0].split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("function", "start", "expected"),
    [
        (kgen.relu, 0, "relu_v8_bf16"),
        (kgen.relu, 1, "relu_v8_i2_unaligned_bf16"),
        (kgen.sigmoid, 0, "sigmoid_v8_i2_bf16"),
    ],
)
def test_a_thread_takes_one_vector_where_there_is_little_to_compute(
    function: Callable[..., Any], start: int, expected: str
) -> None:
    x = np.empty(BYTES // 2 + start, TYPES["bf16"])[start:]
    assert told(function, x).split(" on ")[0] == expected


@pytest.mark.parametrize("vec", [4, 8])
def test_a_block_of_one_row_leaves_at_most_a_quarter_of_its_threads_idle(vec: int) -> None:
    """Of rows of 129 packs on: a row of 130 packs took 256 threads once, and 1.2 to 1.8 times as long."""
    taken = rows_cut.Packs(vec, ragged=True, full=True)
    for total in range(129, rows_cut.ALONE + 1):
        cut = rows_cut.cut(100_000, total * vec + 1, taken, 40, HOST)
        assert cut is not None and total <= cut.lanes * cut.packs <= 4 / 3 * total, (total, cut)


@pytest.mark.parametrize("packs", [*range(17, 600), 1000, 3000])
def test_lanes_of_a_product_load_little_past_a_rows_end(packs: int) -> None:
    """In turns of two packs for each lane; a row of 150 packs took lanes for 256 once, and 1.2 times as long."""
    lanes = row_plans.filled(packs, 2, ragged=True)
    assert -(-packs // (2 * lanes)) * 2 * lanes <= 1.5 * packs


@pytest.mark.parametrize(("packs", "lanes"), [(144, 16), (150, 16), (187, 32), (289, 32)])
def test_lanes_of_a_product_rather_take_a_turn_more_than_load_past_rows(packs: int, lanes: int) -> None:
    """Of 144, 150 and 289 packs a fifth more was loaded once, which took up to 7 % longer."""
    assert row_plans.filled(packs, 2, ragged=True) == lanes


def test_few_long_rows_of_a_product_are_cut_so_that_the_last_wave_of_blocks_is_full() -> None:
    """408 blocks on 132 multiprocessors that hold three each took a second wave for the last twelve."""
    for blocks, tiles in ((204, 40), (156, 53), (94, 87), (285, 57)):
        parts = row_plans._splits(blocks, tiles, 396)
        waves = -(-blocks * parts // 396)
        assert waves * -(-tiles // parts) * 396 <= 1.2 * blocks * tiles, (blocks, tiles, parts)


@pytest.mark.parametrize(
    ("dtype", "width", "expected"),
    [
        ("f32", 9, "logsumexp_t1_n9_v1_f32"),
        ("f32", 33, "logsumexp_narrow_i9_f32"),
        ("bf16", 7, "logsumexp_narrow_i7_n7_bf16"),  # with loops 60 to 90 % of copy
        ("bf16", 20, "logsumexp_t1_n5_v4_bf16"),
        ("bf16", 17, "logsumexp_narrow_i9_bf16"),
        ("f32", 129, "logsumexp_t8_n4_v4_ragged_f32"),
        ("f32", 4097, "logsumexp_t128_n8_v4_ragged_f32"),
        ("f32", 1043, "logsumexp_t32_n9_v4_ragged_f32"),
        ("f32", 1357, "logsumexp_t64_n6_v4_ragged_f32"),
        ("f32", 2511, "logsumexp_t128_n5_v4_ragged_f32"),
        ("f32", 6467, "logsumexp_t256_n7_v4_ragged_f32"),
        ("bf16", 129, "logsumexp_t4_n4_v8_ragged_bf16"),
        ("bf16", 336, "logsumexp_t8_n6_v8_bf16"),
        ("bf16", 725, "logsumexp_t16_n6_v8_ragged_bf16"),
        ("bf16", 1043, "logsumexp_t32_n5_v8_ragged_bf16"),
        ("bf16", 4097, "logsumexp_t128_n4_v8_ragged_bf16"),
        ("bf16", 11472, "logsumexp_t256_n6_v8_bf16"),
    ],
)
def test_rows_of_which_one_number_is_wanted_are_taken_at_once(dtype: str, width: int, expected: str) -> None:
    """As was measured to be fastest: 98 to 103 % of copy; where a second turn is nearly empty, 66 to 85."""
    own = TYPES[dtype]
    found = told(kgen.logsumexp, np.empty((BYTES // own.itemsize // width, width), own), 1)
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize(
    ("name", "dtype", "width", "axis", "expected"),
    [
        ("argmax", "bf16", 203, 1, "argmax_narrow_i7_t4_bf16"),  # 97 % of copy; of as many lanes as hold a row, 81
        ("argmax", "bf16", 255, 1, "argmax_rows_g8_v8_i4_bf16"),  # 94; 77 where four threads read the same banks
        ("argmax", "f32", 311, 1, "argmax_rows_g16_v4_i5_f32"),
        ("sum", "bf16", 98883, 0, "sum_columns_l32_v8_i4_o16_brain_ragged_bf16"),  # 95; 82 in waves and a bit
        ("max", "bf16", 352, 0, "max_flat_t576_early_bf16"),  # 97; 91 in tiles, as rows begin amid lines
        ("sum", "bf16", 576, 0, "sum_columns_l8_v8_i4_o16_split_brain_bf16"),  # 98; 90
        ("max", "bf16", 1000, 0, "max_flat_t512_early_bf16"),  # tiles of rows that begin amid lines reach 90
        ("argmax", "f32", 800, 0, "argmax_columns_l8_v4_i4_split_f32"),  # 99; 95
        (
            "argmax",
            "bf16",
            1001,
            0,
            "argmax_flat_t1024_early_bf16",
        ),  # 85 in tiles, of whose lanes a fifth had no columns
        ("argmax", "bf16", 129, 0, "argmax_flat_t544_early_bf16"),  # 94; 92 in two narrow blocks that begin at the end
        ("sum", "f32", 33, 0, "sum_flat_t544_o32_early_f32"),  # 95; 93 in a block of 1024 threads
    ],
)
def test_reductions_are_cut_as_was_measured_to_be_fastest(
    name: str, dtype: str, width: int, axis: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce_plan, "multiprocessors", lambda device: 132)
    own = TYPES[dtype]
    found = told(getattr(kgen, name), np.empty((BYTES // own.itemsize // width, width), own), axis)
    assert found.split(" on ")[0] == expected


@pytest.mark.parametrize("columns", [129, 289, 449, 601, 799, 897, 1001])
def test_odd_columns_that_are_read_flat_have_loads_enough_in_flight(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products down 601 columns had 2404 on a multiprocessor, and took 90 % of copy."""
    monkeypatch.setattr(reduce_plan, "multiprocessors", lambda device: 132)
    a = np.empty((BYTES // 2 // columns, columns), TYPES["bf16"])
    for found in (told(kgen.sum, a, 0), told(kgen.gemv, a, a[:1, :1].repeat(len(a)), trans=True)):
        assert "_flat_" in found
        spec = parse(found.split(" on ")[0])
        period = reduce_flat.period_of(columns, spec.dtype)
        active = spec.derived["BLOCKS"] * (spec.threads // period * period)
        assert active * spec.derived["ITEMS"] > 3400


@pytest.mark.parametrize(("columns", "dtype"), [(17, "f32"), (257, "f32"), (601, "bf16"), (1001, "bf16")])
def test_a_multiprocessor_has_room_for_no_block_beside_those_that_begin_early(
    columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two of the next launch would share one and bring what they read first into the cache much too early."""
    monkeypatch.setattr(reduce_plan, "multiprocessors", lambda device: 132)
    own = TYPES[dtype]
    a = np.empty((BYTES // own.itemsize // columns, columns), own)
    for found in (
        told(kgen.argmax, a, 0),
        told(kgen.sum, a, 0),
        told(kgen.gemv, a, a[:1, :1].repeat(len(a)), trans=True),
    ):
        spec = parse(found.split(" on ")[0])
        if "_flat_" in found:
            assert spec["early"]
            each = spec.static_smem + spec.dynamic_smem + rows.RESERVED
            blocks = spec.derived["BLOCKS"]
            assert each * blocks <= rows.SHARED + rows.RESERVED < each * (blocks + 1)


def test_blocks_begin_early_only_where_one_can_ask_for_most_of_the_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = np.empty((BYTES // 4 // 33, 33), "f4")
    for memory, arch, early in ((227, "sm_90a", True), (227, "sm_80", False), (99, "sm_120", False)):
        monkeypatch.setattr(reduce_flat, "shared_memory", lambda device, memory=memory: memory << 10)
        monkeypatch.setattr(reduce_flat, "device_arch", lambda device, arch=arch: Arch.parse(arch))
        assert ("_early_" in told(kgen.max, a, 0)) is early


@pytest.mark.parametrize("columns", [7, 9, 17, 33, 63, 127, 129, 200])
def test_spans_of_a_product_begin_with_a_line_of_shared_memory(columns: int) -> None:
    """Rows of 17 and 49 numbers, behind 80 and 208 bytes of others, reached 80 % of copy to the 96 of 15 and 47."""
    assert gemv_span.SPAN_QUANTIZED.spec(COLUMNS=columns, TIMES=1, dtype="i8").static_smem % rows.LINE == 0
