"""However a scan of linear attention is cut, it gives float64's results; and it is cut so that it fits."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kgen import gated_reference as reference
from kgen.ops.gated import scan
from kgen.ops.gated.tiles import Tile, tile_for, together
from tests.gpu.numerics import rms_bar, rms_error
from tests.ops.test_gated import FORWARD

AsNumpy = Callable[[Any], np.ndarray]

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.mark.parametrize(
    ("operator", "tile", "features", "values"),
    [
        ("gla", Tile(8, 16, 8, 8), 120, 130),  # two steps for each lane's sum
        ("rwkv6", Tile(4, 32, 4, 4), 126, 40),  # eight steps together
        ("gla", Tile(4, 1, 4, 1), 3, 40),  # nothing to add up
        ("rwkv6", Tile(4, 4, 8, 2), 16, 40),  # more columns than lanes
        ("simple_gla", Tile(8, 16, 4, 2), 128, 20),
        ("linear_attention", Tile(16, 32, 4, 1), 500, 12),  # fewer steps from barrier to barrier
        ("simple_gla", Tile(16, 8, 8, 4), 120, 101),  # the loading warps add up
        ("linear_attention", Tile(8, 8, 8, 1), 63, 40),
    ],
)
def test_every_cut_gives_the_results_of_float64(
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    tile: Tile,
    features: int,
    values: int,
) -> None:
    monkeypatch.setattr(scan, "tile_for", lambda *about: tile)
    rng = np.random.default_rng(1)
    for length in (1, 2, 17, 38):
        shapes = [(1, 2, length, features)] * 2 + [(1, 2, length, values)]
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        if operator != "linear_attention":
            gates = -np.exp(rng.standard_normal(shapes[0][:3] if operator == "simple_gla" else shapes[0]))
            gates = np.where(rng.random(gates.shape) < 0.05, -np.inf, gates)
            gates[:, :, 16:32] = -0.1 * rng.random(gates[:, :, 16:32].shape)  # of these, no group decays by much
            arrays.append(gates.astype(np.float32))
        if operator == "rwkv6":
            arrays.append(rng.standard_normal((2, features)).astype(np.float32))
        initial = rng.standard_normal((1, 2, features, values)).astype(np.float32)
        out = xp.full((1, 2, length, values), np.nan, dtype=np.float32)
        reverse = length == 17
        options = {"initial_state": xp.asarray(initial), "return_state": True, "mode": "recurrent", "reverse": reverse}
        o, state = FORWARD[operator](*map(xp.asarray, arrays), **options, out=out)
        expected = reference.gated(*arrays, scale=features**-0.5, initial=initial, reverse=reverse)
        for made, wanted in zip((o, state), expected, strict=True):
            assert rms_error(asnumpy(made), wanted) < rms_bar("f32", wanted.size), (length, tile)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_a_cut_has_room_for_every_row_and_its_state_fits_the_registers(gated: bool, paired: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows, columns = (int(n) for n in rng.integers(1, 513, 2))
        heads = int(2 ** rng.integers(0, 12))
        tile = tile_for(rows, columns, heads, gated, 132, paired)
        assert tile.rows * tile.lanes >= rows
        assert tile.width < 2 * columns or tile.warps == 1
        threads = 32 * (tile.warps + 4)
        # A launch has 64 K registers; a thread needs some eighty beside its part of the state.
        assert threads * min(255, tile.rows * tile.columns + 80) <= 65536
        assert 16 % together(tile.lanes, tile.columns) == 0
