"""In how many parts a reduction is cut: as was measured to be fastest on 132 multiprocessors."""

from __future__ import annotations

import pytest

from kgen.ops.reduce.waves import SIDE_BY_SIDE, lanes_of_columns, parts_of_columns, parts_of_ragged, tile_of_row


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


@pytest.mark.parametrize(
    ("rows", "packs", "wave", "fastest"),
    [
        (600, 25_000, 528, {48}),  # 100000 columns of float32: 99 % of copy, by 32 lanes 95, by 16 lanes 94
        (1000, 8750, 396, {24}),  # 70000 of bfloat16, sums: 96 %, by 32 lanes 90
        (1000, 8750, 528, {24}),  # the same, argmax: 94 and 89
        (600, 12_500, 396, {32}),  # 100000 of bfloat16, sums: 94, by 16 lanes 87
        (600, 12_500, 528, {32}),  # the same, argmax: 91, by 24 lanes 90, by 48 lanes 84
        (300, 37_500, 396, {48}),  # 300000 of bfloat16, sums: 96, by 32 lanes 93
        (300, 37_500, 528, {24, 48}),  # the same, argmax: 88, by 32 lanes 85
    ],
)
def test_blocks_are_as_wide_as_was_measured_to_be_fastest(rows: int, packs: int, wave: int, fastest: set[int]) -> None:
    blocks = {lanes: -(-packs // lanes) for lanes in SIDE_BY_SIDE}
    assert lanes_of_columns(blocks, rows / 1024, wave) in fastest


@pytest.mark.parametrize(
    ("groups", "wave", "fastest"),
    [
        (67, 528, {5, 6}),  # 8193 x 8191 in float32: 97 % of copy, in 7 parts 95
        (133, 528, {3}),  # 4097 x 16383: 97, in two 92
        (34, 528, {12}),  # 16385 x 4097 in float32: 95, in 15 parts 94; argmax of 16386 x 8191 in bfloat16: 95 and 92
        (34, 396, {11}),  # sums of the latter: 96, in more than a wave 70
        (265, 528, {1}),  # 2049 x 32767 in float32: 94, in two 77
    ],
)
def test_ragged_columns_are_cut_as_was_measured_to_be_fastest(groups: int, wave: int, fastest: set[int]) -> None:
    assert parts_of_ragged(groups, 1000, wave, 132) in fastest


@pytest.mark.parametrize(
    ("width", "itemsize", "fastest"),
    [
        (129, 2, {(4, 4)}),  # places in bfloat16: 87 % of copy, by five loads of each thread 81
        (151, 2, {(4, 5)}),  # 90, by four in two turns 78
        (161, 2, {(4, 5)}),  # 91 and 73
        (184, 2, {(4, 6)}),  # 96, on 8 threads 84
        (211, 2, {(4, 4)}),  # 85, on 8 threads at once 80
        (300, 2, {(8, 5)}),  # 93, by four in two turns 72
        (389, 2, {(8, 6)}),  # 97, on 16 threads 84
        (472, 2, {(8, 4)}),  # 96, on 16 threads at once 92
        (601, 2, {(16, 5)}),  # 99, by four in two turns 75
        (777, 2, {(16, 6)}),  # 97, on 32 threads 84
        (81, 4, {(4, 5)}),  # in float32: 96, by four in two turns 76
        (151, 4, {(8, 5)}),  # 98 and 79
        (257, 4, {(16, 4)}),  # 99
    ],
)
def test_a_place_is_looked_for_among_loads_that_are_taken_at_once(
    width: int, itemsize: int, fastest: set[tuple[int, int]]
) -> None:
    vec = 16 // itemsize
    assert tile_of_row((width - vec // 2) // vec if width % vec else width // vec, itemsize) in fastest
