"""Which rings take the gradients of norms on an H200, and on devices of other sizes."""

from __future__ import annotations

import numpy as np
import pytest

import kgen
from kgen import explain, layer_norm_backward, rms_norm_backward
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.scratch import listing


def told(columns: int, dtype: str, multiprocessors: int = 132, offset: float | None = None) -> str:
    """What takes 268 MB of such rows of a layer norm, or of an RMS norm with an offset of its weights."""
    own = DTYPES[dtype].numpy
    rows = (1 << 28) // own.itemsize // columns
    x, statistics = np.empty((rows, columns), own), np.empty(rows, np.float32)
    stand_for(Facts(multiprocessors, 227 * 1024, "sm_90a"))
    try:
        with kgen.backend("cpu"), listing():
            if offset is None:
                return explain(layer_norm_backward, x, x, statistics, statistics, x[0])
            return explain(rms_norm_backward, x, x, statistics, x[0], weight_offset=offset)
    finally:
        stand_for(HOST_FACTS)


@pytest.mark.parametrize(
    ("dtype", "columns", "expected"),
    [
        ("bf16", 65536, "n4_v8_c4_bias_bf16 on 120 blocks"),
        ("bf16", 65544, "n4_v8_c4_bias_ragged_bf16 on 120 blocks"),  # 8 more than packs have room for
        ("bf16", 50257, "n3_v8_c4_bias_ragged_bf16 on 120 blocks"),
        ("f32", 25001, "n3_v4_c4_bias_ragged_f32 on 120 blocks"),
        ("f32", 49152 + 4099, "n4_v4_c8_bias_ragged_f32 on 120 blocks"),  # more than threads have room for
    ],
)
def test_elements_that_packs_have_no_room_for_need_no_larger_cut(dtype: str, columns: int, expected: str) -> None:
    assert told(columns, dtype).startswith(f"norm_backward_ring_{expected}")


@pytest.mark.parametrize(("dtype", "columns"), [("bf16", 16383), ("bf16", 32769), ("f32", 13999)])
def test_packs_begin_with_lines_where_no_multiprocessor_is_left_idle_for_it(dtype: str, columns: int) -> None:
    assert "_lined" in told(columns, dtype)
    assert " on 128 blocks" in told(columns, dtype)
    assert "_lined" not in told(columns, dtype, multiprocessors=114)
    assert "_lined" not in told(131071, dtype)  # there are too few clusters of four


def test_a_number_is_added_to_weights_where_there_is_one() -> None:
    assert "_offset" not in told(16384, "bf16", offset=0.0)
    assert "norm_backward_ring_n2_v8_c2_rms_offset_bf16" in told(16384, "bf16", offset=1.0)
