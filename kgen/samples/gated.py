"""Calls of linear attention with gates: three rounds of time steps and a part of one, hard gates among soft ones.

A shape is B, H, T, features, values; of a single step B, H, features, values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import F32
from kgen.ops.gated import scan as scans
from kgen.ops.gated.gla import gla, gla_backward, simple_gla
from kgen.ops.gated.rwkv6 import rwkv6
from kgen.ops.gated.scan_kernels import block_columns
from kgen.ops.gated.steps import gla_step, linear_attention_step
from kgen.ops.gated.tiles import Tile, tile_for
from kgen.samples.accuracy import GRADIENT_SLACK, RMS_BAR
from kgen.samples.case import Array, Case, Shape, between_poison, numbers
from kgen.spec import Spec


def _tile(spec: Spec) -> tuple[tuple[Any, str, Any], ...]:
    """The operator cuts states as this specialization does, where they fit."""
    tile = Tile(spec["ROWS"], spec["LANES"], spec["COLUMNS"], spec["WARPS"])

    def taken(rows: int, *about: Any) -> Tile:
        return tile if rows <= tile.rows * tile.lanes else tile_for(rows, *about)

    return ((scans, "tile_for", taken),)


def _inputs(spec: Spec, shape: Shape) -> tuple[Array, ...]:
    """q, k, v and gates, of which some forget everything."""
    *over, features, values = shape
    q, k, g, v = numbers(spec, *3 * [(*over, features)], (*over, values))
    g = np.where(abs(g) < 0.05, -np.inf, -abs(g.astype(np.float32)) / 8).astype(g.dtype)
    return q, k, v, between_poison(g)


def gated_scan(spec: Spec, shape: Shape | None = None) -> Case:
    """From one state to another; features that nearly fill the lanes, and a second tile of columns."""
    room, width = spec["ROWS"] * spec["LANES"], block_columns(spec)
    shape = shape or (1, 2, 3 * spec.derived["STEPS"] + 1, room - 4, width + 4)
    batch, heads, _, features, values = shape
    arrays = _inputs(spec, shape)
    operator: Any = gla
    if spec["GATE"] == 1:
        q, k, v, g = arrays
        operator, arrays = simple_gla, (q, k, v, between_poison(g[..., 0]))
    if spec["bonus"]:
        operator, arrays = rwkv6, (*arrays, *numbers(spec, (heads, features)))
    (initial,) = numbers(spec, (batch, heads, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "recurrent"}
    return Case(operator, arrays, options, expected, settings=_tile(spec))


def gradients(spec: Spec, shape: Shape | None = None) -> Case:
    """The features are a second tile of columns, the values nearly fill the lanes."""
    room, width = spec["ROWS"] * spec["LANES"], block_columns(spec)
    arrays = _inputs(spec, shape or (1, 2, 3 * spec.derived["STEPS"] + 1, width + 4, room - 4))
    return _backward(spec, arrays, _tile(spec))


def gated_sum(spec: Spec, shape: Shape | None = None) -> Case:
    """Two heads share their gates, whose gradient is a sum: two rounds of a block's rows, and a thread left over."""
    q, k, v, g = _inputs(spec, shape or (1, 2, 63, 20, 28))
    return _backward(spec, (q, k, v, between_poison(g[:, :1])), ())


def _backward(spec: Spec, arrays: tuple[Array, ...], settings: tuple[tuple[Any, str, Any], ...]) -> Case:
    q, k, v, g = arrays
    (do,) = numbers(spec, v.shape)
    every = np.broadcast_to(g, k.shape)
    initial, dstate = numbers(spec, *2 * [(*k.shape[:2], k.shape[3], v.shape[3])], dtype=np.float32)
    options = {"initial_state": initial, "dstate": dstate}
    made = reference.gated_backward(do, q, k, v, every, scale=q.shape[-1] ** -0.5, initial=initial, dstate=dstate)
    dg = made["g"] if g.shape == k.shape else made["g"].sum(1, keepdims=True)
    expected = (made["q"], made["k"], made["v"], dg, made["initial"])
    bar = GRADIENT_SLACK * RMS_BAR[spec.dtype.name]
    return Case(gla_backward, (do, *arrays), options, expected, bar, settings=settings)


def gated_step(spec: Spec, shape: Shape | None = None) -> Case:
    """One token for nine states; a second tile of columns."""
    batch, heads, features, values = shape or (3, 3, spec["ROOM"] - 4, spec["COLUMNS"] + 4)
    q, k, v, g = (x[0] for x in _inputs(spec, (1, batch, heads, features, values)))
    (state,) = numbers(spec, (batch, heads, features, values), dtype=np.float32)
    along = [x[:, :, None] for x in (q, k, v, g)]
    o, last = reference.gated(*along, scale=features**-0.5, initial=state)

    def step(q: Array, k: Array, v: Array, g: Array) -> tuple[Array, Array]:
        own = between_poison(state)
        return gla_step(q, k, v, g, own), own

    return Case(step, (q, k, v, g), {}, (o[:, :, 0], last))


def gated_step_normal(spec: Spec, shape: Shape | None = None) -> Case:
    """One token for nine sums of keys, more features than threads."""
    batch, heads, features, values = shape or (3, 3, 140, 12)
    q, k, v, _ = (x[0] for x in _inputs(spec, (1, batch, heads, features, values)))
    (state,) = numbers(spec, (batch, heads, features, values), dtype=np.float32)
    normalizer = abs(numbers(spec, (batch, heads, features), dtype=np.float32)[0])
    f = {0: lambda x: x, 1: lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))), 2: lambda x: np.maximum(x, 0)}
    of_q, of_k = (f[spec["FEATURE"]](x.astype(np.float64))[:, :, None] for x in (q, k))
    about: Any = {"scale": features**-0.5, "epsilon": 1e-6, "initial": state, "normalizer": normalizer}
    o, last, sums = reference.normalized(of_q, of_k, v[:, :, None], **about)

    def step(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
        own, own_sums = between_poison(state), between_poison(normalizer)
        name = ("identity", "elu", "relu")[spec["FEATURE"]]
        return linear_attention_step(q, k, v, own, feature_map=name, normalizer=own_sums), own, own_sums

    return Case(step, (q, k, v), {}, (o[:, :, 0], last, sums))


def article(spec: Spec, shape: Shape | None = None) -> Case:
    """Two blocks of features and of values, and a part of a chunk at the end; gates that are soft, as the form asks."""
    shape = shape or ((1, 2, 43, 68, 68) if spec.kernel.name.startswith("gla") else (1, 2, 23, 36, 36))
    batch, heads, _, features, values = shape
    q, k, v, _ = _inputs(spec, shape)
    (g,) = numbers(spec, k.shape)
    arrays: tuple[Array, ...] = (q, k, v, between_poison((-abs(g.astype(np.float32)) / 8).astype(g.dtype)))
    if spec.kernel.name.startswith("rwkv6"):
        arrays = (*arrays, *numbers(spec, (heads, features)))
    (initial,) = numbers(spec, (batch, heads, features, values), dtype=np.float32)
    expected = reference.gated(*arrays, scale=features**-0.5, initial=initial)
    options = {"initial_state": initial, "return_state": True, "mode": "article"}
    # Beside the result, the decayed queries and keys of GLA and its state are rounded.
    bar = RMS_BAR[spec.dtype.name] * (1 if spec.dtype is F32 else 4**0.5)
    return Case(rwkv6 if len(arrays) > 4 else gla, arrays, options, expected, bar)


_ARTICLE = ("gla_decay_cumsum", "gla_prepare_qg_kg", "gla_fused_chunk", "gla_inner_chunk", "gla_combine")

CASES = {
    **dict.fromkeys((*_ARTICLE, "rwkv6_recurrent"), article),
    "gated_scan": gated_scan,
    "gated_scan_query": gradients,
    "gated_scan_key": gradients,
    "gated_sum": gated_sum,
    "gated_step": gated_step,
    "gated_step_normal": gated_step_normal,
}
