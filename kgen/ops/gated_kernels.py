"""The kernels of linear attention with gates, one time step after another, and the tile that suits a scan.

Forward and backward are one kernel with its roles exchanged: `gated_scan` walks along time with a state S, to which
each step adds x y^T, and of which z reads. The gradients' scans are named by what they give:

    o    z = q,  x = k,  y = v              S = a S + x y^T
    dv   z = k,  x = q,  y = do   adjoint   S = a (S + x y^T), the other way in time
    dq   z = do, x = v,  y = k    turned    the state of o, read along the values
    dk   z = v,  x = do, y = q    turned, adjoint
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

LOADERS = 4
"""Warps of a scan that prepare time steps."""
WIDEST = 512
"""Features and value columns that a head may have."""
SUM_THREADS = 256
STEP_THREADS = 256

_FLOAT_BYTES = 4


def _steps(room: int) -> int:
    """Time steps from barrier to barrier: fewer where each takes much of a loader's registers."""
    return 16 if room <= 128 else 8 if room <= 256 else 4


def _token_floats(spec: Spec) -> int:
    room, columns = spec["ROWS"] * spec["LANES"], block_columns(spec)
    turned, vector = spec["turned"], spec["GATE"] == 2
    signed = spec["products"] or spec["slopes"]
    shifted = spec["bonus"] and turned
    along_rows = 2 + (vector and not turned)
    along_columns = 1 + (vector and turned) + bool(signed or (spec["FEATURE"] and turned)) + spec["slopes"] + shifted
    scalars = 1 + (spec["GATE"] == 1) + shifted
    return -(-(room * along_rows + columns * along_columns + scalars) // 4) * 4


def block_columns(spec: Spec) -> int:
    return spec["WARPS"] * (32 // spec["LANES"]) * spec["COLUMNS"]


def _scan_geometry(spec: Spec) -> dict[str, int]:
    steps = _steps(spec["ROWS"] * spec["LANES"])
    return {
        "THREADS": 32 * (spec["WARPS"] + LOADERS),
        "LOADERS": LOADERS,
        "STEPS": steps,
        "DYNAMIC_SMEM": 2 * steps * _token_floats(spec) * _FLOAT_BYTES,
    }


def _scan_problem(spec: Spec) -> str | None:
    if spec["ROWS"] * spec["LANES"] > WIDEST:
        return f"{spec['ROWS']} rows on {spec['LANES']} lanes are more than {WIDEST}"
    if spec["products"] and (not spec["turned"] or spec["adjoint"] or not spec["GATE"]):
        return "products are of the gradient of queries, where there is a gate"
    if spec["slopes"] and not (spec["turned"] and spec["adjoint"] and spec["GATE"]):
        return "a gate's gradient comes with that of keys"
    if spec["partial"] and not spec["slopes"]:
        return "parts are of a gate's gradient"
    if spec["slopes"] and spec["GATE"] == 1 and not spec["partial"]:
        return "the gradient of a gate for all features comes in parts"
    if spec["bonus"] and spec["GATE"] != 2:
        return "a bonus goes with a gate for each feature"
    if (spec["ufloat"] and not spec["bonus"]) or (spec["gfloat"] and not spec["GATE"]):
        return "what is not there has no type"
    if spec.dtype.name == "f32" and (spec["wide"] or spec["gfloat"] or spec["ufloat"]):
        return "all is float already"
    return None


SCAN = register(
    Kernel(
        name="gated_scan",
        summary="Linear attention with a gate, one time step after another, the state in the registers of a few warps.",
        formula="S[t] = diag(a[t]) S[t - 1] + x[t] y[t]^T\no[t] = z[t]^T S",
        axes=(
            Axis("ROWS", "r", (4, 8, 12, 16), "rows of the state in a thread"),
            Axis("LANES", "l", (1, 2, 4, 8, 16, 32), "lanes that share a column"),
            Axis("COLUMNS", "c", (4, 8), "columns of the state in a thread"),
            Axis("WARPS", "w", (1, 2, 4), "warps that hold states"),
            Axis("GATE", "g", (0, 1, 2), "gates: none, one per time step, one per feature", default=0),
            Axis("FEATURE", "f", (0, 1, 2), "features of queries and keys: as they are, elu + 1, relu", default=0),
            Axis(
                "OFFSETS", "s", (0, 4, 8), "bytes of an offset of sequences that follow one another; 0: none", default=0
            ),
            Axis("VEC", "v", (1, 4), "consecutive elements that are loaded at once", default=4),
        ),
        flags=(
            Flag("turned", "rows are value columns: what is read lies along the features, and so do gates"),
            Flag("adjoint", "a gradient's scan: a step decays the state after it was added"),
            Flag("reverse", "from the last time step to the first"),
            Flag("bonus", "a token reads the state before its gate, and itself times a bonus (RWKV6)"),
            Flag("products", "also each result times the query, of which gates' gradients are made"),
            Flag("slopes", "also the gate's gradient"),
            Flag("partial", "the gate's gradient as floats that are yet to be summed"),
            Flag("wide", "results are floats"),
            Flag("gfloat", "gates are floats"),
            Flag("ufloat", "the bonus is floats"),
        ),
        derive=_scan_geometry,
        check=_scan_problem,
        grid="(ceil(columns / BLOCK_COLUMNS) * heads * sequences): one block per tile of columns",
        origin="Yang et al., Gated Linear Attention Transformers, 2024; Peng et al., Eagle and Finch: RWKV, 2024",
        defaults=("gated_scan_r16_l8_c8_w4_g2_bf16", "gated_scan_r4_l32_c4_w4_g2_bonus_f32"),
    )
)

SUM = register(
    Kernel(
        name="gated_sum",
        summary="Adds up what the heads of a group, or the tiles of a head, gave to the same gradient.",
        formula="out[b, h, t, d] = sum over groups and splits of parts",
        axes=(),
        derive=lambda spec: {"THREADS": SUM_THREADS},
        grid="(ceil(numbers / THREADS)): one thread per number of the result",
        origin="a sum in fixed order",
        defaults=("gated_sum_f32",),
    )
)

STEP = register(
    Kernel(
        name="gated_step",
        summary="One token of linear attention with a gate: the state is read, updated in place and read by the query.",
        formula="S = diag(a) S + k v^T\no = q^T S",
        axes=(
            Axis("COLUMNS", "c", (32, 64, 128), "columns of the state of a block"),
            Axis("ROOM", "k", (64, 128, 256, 512), "rows at most"),
            Axis("GATE", "g", (0, 1, 2), "gates: none, one per head, one per feature", default=0),
            Axis("FEATURE", "f", (0, 1, 2), "features of queries and keys: as they are, elu + 1, relu", default=0),
        ),
        flags=(
            Flag("bonus", "the token reads the state before its gate, and itself times a bonus (RWKV6)"),
            Flag("indexed", "the states lie in a pool, and each sequence names its own"),
            Flag("packed", "columns lie side by side, and four of them are moved at once"),
            Flag("gfloat", "gates are floats"),
            Flag("ufloat", "the bonus is floats"),
        ),
        derive=lambda spec: {
            "THREADS": STEP_THREADS,
            "BATCH": 8 if spec["packed"] else 4,
            "STATIC_SMEM": _FLOAT_BYTES * (spec["ROOM"] * (2 + (spec["GATE"] == 2)) + STEP_THREADS * 4),
        },
        check=lambda spec: "a bonus goes with a gate for each feature" if spec["bonus"] and spec["GATE"] != 2 else None,
        grid="(ceil(columns / COLUMNS) * heads * batch): one block per tile of a state",
        origin="the recurrence itself",
        defaults=("gated_step_c128_k128_g2_packed_bf16",),
    )
)


class Tile(NamedTuple):
    """How a scan is cut: rows of a thread, lanes that share a column, columns of a thread, warps."""

    rows: int
    lanes: int
    columns: int
    warps: int

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.warps * (32 // self.lanes) * self.columns


@functools.lru_cache(maxsize=1024)
def tile_for(rows: int, columns: int, heads: int, gated: bool, sms: int) -> Tile:
    """The tile whose busiest multiprocessor issues the fewest instructions for a time step of all heads."""
    return min(_tiles(rows, columns), key=lambda tile: _cycles(tile, columns, heads, gated, sms))


def _tiles(rows: int, columns: int) -> Iterator[Tile]:
    for lanes in (1, 2, 4, 8, 16, 32):
        own = -(-rows // (4 * lanes)) * 4
        if own <= 16:
            for width in (4, 8):
                for warps in (1, 2, 4):
                    tile = Tile(own, lanes, width, warps)
                    if warps == 1 or tile.width // 2 < columns:
                        yield tile


def _cycles(tile: Tile, columns: int, heads: int, gated: bool, sms: int) -> float:
    """What a multiprocessor with the most blocks takes for a time step: its four schedulers, or its shared memory."""
    rows, lanes, width, warps = tile
    blocks = -(-heads * -(-columns // tile.width) // sms)
    spread = min(width, lanes)
    shuffles = width // spread * (spread - 1 + (lanes // spread).bit_length() - 1)
    words = (3 if gated else 2) * rows + width
    issued = (3 if gated else 2) * rows * width + 4 * shuffles + words / 4 + 24
    loading = 40 + rows * lanes * 6 / 32 + tile.width * 3 / 32
    busy = blocks * warps / 4
    return max(max(busy, 1.0) * issued + blocks * loading / LOADERS, blocks * warps * (words + shuffles))
