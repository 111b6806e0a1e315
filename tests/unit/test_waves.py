"""In how many parts a reduction is cut: as was measured to be fastest on 132 multiprocessors."""

from __future__ import annotations

import pytest

from kgen.ops.reduce.waves import parts_of_columns


@pytest.mark.parametrize(
    ("groups", "tiles", "wave", "fastest"),
    [
        (1024, 16, 396, {1}),  # 512 x 262144 in bfloat16: 95 % of copy, in 8 parts 72
        (1024, 8, 396, {1}),  # 256 x 262144: 86 and 51
        (782, 10, 528, {1}),  # 300 x 200000, maxima: 85, in two parts 76
        (782, 19, 528, {1}),  # 600 x 100000 in float32: 94 and 91
        (586, 32, 528, {2, 3}),  # 1000 x 150000, maxima in bfloat16: 90, whole 86
        (529, 32, 528, {3, 4}),  # 1023 x 65537 in float32: 86 and 85, whole 80
        (64, 128, 396, {6}),  # 4096 x 16384 in bfloat16: 87, whole 38
    ],
)
def test_columns_are_cut_as_was_measured_to_be_fastest(groups: int, tiles: int, wave: int, fastest: set[int]) -> None:
    assert parts_of_columns(groups, tiles, wave) in fastest
