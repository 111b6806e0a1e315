"""Linear attention with gates and its gradients, in NumPy and float64, one time step after another.

Every kernel is tested against these on the same, already rounded, inputs. All arrays are [B, H, T, ...].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gated(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    u: Any = None,
    *,
    scale: float = 1.0,
    initial: Any = None,
    reverse: bool = False,
) -> tuple[Array, Array]:
    """S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T and o[t] = scale S[t]^T q[t]; returns o and the last state.

    q, k  [B, H, T, K];  v  [B, H, T, V];  g  [B, H, T, K] or [B, H, T] or None;  initial  [B, H, K, V]

    With u [H, K] (RWKV6), o[t] = scale (S[t - 1] + diag(u) k[t] v[t]^T)^T q[t].

    >>> one = np.ones((1, 1, 3, 1))
    >>> gated(one, one, one, np.log(one / 2))[0].ravel().tolist()
    [1.0, 1.5, 1.75]
    """
    o, states = _walk(q, k, v, g, u, scale, initial, reverse)
    return o, states[-1]


def states(k: Any, v: Any, g: Any = None, *, every: int, initial: Any = None, reverse: bool = False) -> Array:
    """S after 0, every, 2 every, ... time steps of that: [B, H, T // every + 1, K, V].

    >>> one = np.ones((1, 1, 5, 1))
    >>> states(one, one, every=2).ravel().tolist()
    [0.0, 2.0, 4.0]
    """
    _, made = _walk(k, k, v, g, None, 1.0, initial, reverse)
    return np.stack(made[::every], 2)


def gated_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    u: Any = None,
    *,
    scale: float = 1.0,
    initial: Any = None,
    dstate: Any = None,
    reverse: bool = False,
) -> dict[str, Array]:
    """The gradients of sum(do * o) + sum(dstate * last state), by name: q, k, v, g, u, initial."""
    q, k, v, do = (np.asarray(x, np.float64) for x in (q, k, v, do))
    _, states = _walk(q, k, v, g, u, scale, initial, reverse)
    a = _decays(g, k)
    made = {"q": np.zeros_like(q), "k": np.zeros_like(k), "v": np.zeros_like(v), "g": np.zeros(k.shape)}
    dbonus = np.zeros(k.shape)
    ds = np.zeros(states[0].shape) if dstate is None else np.asarray(dstate, np.float64).copy()
    order = range(q.shape[2])[:: -1 if reverse else 1]
    for at, t in reversed(list(enumerate(order))):
        before, after = states[at], states[at + 1]
        qt, kt, vt, dot = (x[:, :, t] for x in (q, k, v, do))
        outer = scale * qt[..., None] * dot[..., None, :]
        if u is None:
            ds = ds + outer
            made["q"][:, :, t] = scale * np.einsum("bhkv,bhv->bhk", after, dot)
            made["k"][:, :, t] = np.einsum("bhkv,bhv->bhk", ds, vt)
            made["v"][:, :, t] = np.einsum("bhkv,bhk->bhv", ds, kt)
            made["g"][:, :, t] = (a[:, :, t, :, None] * before * ds).sum(-1)
            ds = a[:, :, t, :, None] * ds
        else:
            bonus = np.asarray(u, np.float64)
            own = scale * (vt * dot).sum(-1)[..., None]
            made["q"][:, :, t] = scale * np.einsum("bhkv,bhv->bhk", before, dot) + own * bonus * kt
            made["k"][:, :, t] = np.einsum("bhkv,bhv->bhk", ds, vt) + own * bonus * qt
            through = scale * (qt * bonus * kt).sum(-1)[..., None]
            made["v"][:, :, t] = np.einsum("bhkv,bhk->bhv", ds, kt) + through * dot
            made["g"][:, :, t] = (a[:, :, t, :, None] * before * ds).sum(-1)
            dbonus[:, :, t] = own * qt * kt
            ds = a[:, :, t, :, None] * ds + outer
    if g is not None and np.ndim(g) == 3:
        made["g"] = made["g"].sum(-1)
    return made | {"u": dbonus.sum((0, 2)), "initial": ds}


def normalized(
    q: Any, k: Any, v: Any, *, scale: float, epsilon: float, initial: Any, normalizer: Any, reverse: bool = False
) -> tuple[Array, Array, Array]:
    """Linear attention divided by scale z[t] . q[t] + epsilon, z[t] = z[t - 1] + k[t]: o, last state, last z."""
    ones = np.ones((*np.shape(v)[:3], 1))
    states = np.concatenate([initial, np.asarray(normalizer)[..., None]], -1)
    o, last = gated(q, k, np.concatenate([v, ones], -1), scale=scale, initial=states, reverse=reverse)
    return o[..., :-1] / (o[..., -1:] + epsilon), last[..., :-1], last[..., -1]


def normalized_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float,
    epsilon: float,
    initial: Any,
    normalizer: Any,
    dstate: Any,
    dnormalizer: Any,
    reverse: bool = False,
) -> dict[str, Array]:
    """Its gradients: those of the numerator and the denominator, as columns of one linear attention."""
    ones = np.ones((*np.shape(v)[:3], 1))
    wide = np.concatenate([v, ones], -1)
    states = np.concatenate([initial, np.asarray(normalizer)[..., None]], -1)
    both, _ = gated(q, k, wide, scale=scale, initial=states, reverse=reverse)
    below = both[..., -1:] + epsilon
    do = np.asarray(do, np.float64)
    of_below = -(do * both[..., :-1]).sum(-1, keepdims=True) / below**2
    gradient = np.concatenate([dstate, np.asarray(dnormalizer)[..., None]], -1)
    upstream = np.concatenate([do / below, of_below], -1)
    made = gated_backward(upstream, q, k, wide, scale=scale, initial=states, dstate=gradient, reverse=reverse)
    initials = {"initial": made["initial"][..., :-1], "normalizer": made["initial"][..., -1]}
    return made | {"v": made["v"][..., :-1]} | initials


def _walk(
    q: Any, k: Any, v: Any, g: Any, u: Any, scale: float, initial: Any, reverse: bool
) -> tuple[Array, list[Array]]:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    a = _decays(g, k)
    b, h, length, features = k.shape
    state = np.zeros((b, h, features, v.shape[3])) if initial is None else np.asarray(initial, np.float64)
    states = [state]
    o = np.zeros((b, h, length, v.shape[3]))
    for t in range(length)[:: -1 if reverse else 1]:
        outer = k[:, :, t, :, None] * v[:, :, t, None, :]
        before = state
        state = a[:, :, t, :, None] * state + outer
        read = state if u is None else before + np.asarray(u, np.float64)[None, :, :, None] * outer
        o[:, :, t] = scale * np.einsum("bhkv,bhk->bhv", read, q[:, :, t])
        states.append(state)
    return o, states


def _decays(g: Any, k: Array) -> Array:
    if g is None:
        return np.ones(k.shape)
    a = np.exp(np.asarray(g, np.float64))
    return a if a.ndim == 4 else np.broadcast_to(a[..., None], k.shape)
