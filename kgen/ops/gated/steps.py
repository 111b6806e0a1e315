"""One token of each operator of linear attention, for decoding; calls of whole sequences import none of this."""

from __future__ import annotations

from typing import Any

from kgen.ops.gated.checks import Form
from kgen.ops.gated.step import step, step_operator


def linear_attention_step(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    *,
    scale: float | None = None,
    feature_map: str | None = None,
    normalizer: Any = None,
    epsilon: float = 1e-6,
    indices: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """One time step of `linear_attention` for decoding: the states are updated in place.

    Parameters
    ----------
    q, k : array [B, H, K]
    v : array [B, H, V]
    state : array [N, H, K, V]
        In float32, of any strides; updated in place. Without `indices`, N is B.
    normalizer : array [N, H, K], optional
        z, in float32, of any strides, likewise read and overwritten: o is divided by scale z . f(q) + epsilon.
    indices : array [B] of int32, optional
        The slot of each token's state in the pool; no two may be the same. A negative slot is padding: its o is zero. A
        slot beyond the pool gives NaN. Neither touches a state.

    Other parameters are as in `linear_attention`.

    Returns
    -------
    array [B, H, V] of the inputs' dtype.
    """
    return step(_linear_attention, (q, k, v, indices), state, scale, out, stream, feature_map, normalizer, epsilon)


def simple_gla_step(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    state: Any,
    *,
    scale: float | None = None,
    indices: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """One time step of `simple_gla` for decoding: the states are updated in place.

    Parameters
    ----------
    q, k : array [B, H, K]
    v : array [B, H, V]
    g : array [B, H]
    state : array [N, H, K, V]
        In float32, of any strides; updated in place. Without `indices`, N is B.
    indices : array [B] of int32, optional
        The slot of each token's state in the pool; no two may be the same. A negative slot is padding: its o is zero. A
        slot beyond the pool gives NaN. Neither touches a state.

    Other parameters are as in `simple_gla`.

    Returns
    -------
    array [B, H, V] of the inputs' dtype.
    """
    return step(_simple_gla, (q, k, v, g, indices), state, scale, out, stream)


def gla_step(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    state: Any,
    *,
    scale: float | None = None,
    indices: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """One time step of `gla` for decoding: the states are updated in place.

    Parameters
    ----------
    q, k, g : array [B, H, K]
    v : array [B, H, V]
    state : array [N, H, K, V]
        In float32, of any strides; updated in place. Without `indices`, N is B.
    indices : array [B] of int32, optional
        The slot of each token's state in the pool; no two may be the same. A negative slot is padding: its o is zero. A
        slot beyond the pool gives NaN. Neither touches a state.

    Other parameters are as in `gla`.

    Returns
    -------
    array [B, H, V] of the inputs' dtype.
    """
    return step(_gla, (q, k, v, g, indices), state, scale, out, stream)


def rwkv6_step(
    r: Any,
    k: Any,
    v: Any,
    w: Any,
    u: Any,
    state: Any,
    *,
    scale: float | None = None,
    indices: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """One time step of `rwkv6` for decoding: the states are updated in place.

    Parameters
    ----------
    r, k, w : array [B, H, K]
    v : array [B, H, V]
    u : array [H, K]
    state : array [N, H, K, V]
        In float32, of any strides; updated in place. Without `indices`, N is B.
    indices : array [B] of int32, optional
        The slot of each token's state in the pool; no two may be the same. A negative slot is padding: its o is zero. A
        slot beyond the pool gives NaN. Neither touches a state.

    Other parameters are as in `rwkv6`.

    Returns
    -------
    array [B, H, V] of the inputs' dtype.
    """
    return step(_rwkv6, (r, k, v, w, u, indices), state, scale, out, stream)


_linear_attention = step_operator(Form("q", 0, normal=True), linear_attention_step)
_simple_gla = step_operator(Form("q", 1, "g"), simple_gla_step)
_gla = step_operator(Form("q", 2, "g"), gla_step)
_rwkv6 = step_operator(Form("r", 2, "w", bonus=True), rwkv6_step)
