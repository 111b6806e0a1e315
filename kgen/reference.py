"""What the operators compute, in NumPy and float64: short enough to be believed by reading.

Every kernel is tested against these on the same, already rounded, inputs. All take [..., time, features] arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64  # time steps at once: the largest causal matrix that is formed


def causal_dot_product(q: Any, k: Any, v: Any, *, reverse: bool = False) -> NDArray[np.float64]:
    """o[t] = sum over s <= t of (q[t] . k[s]) v[s]; over s >= t with `reverse`.

    q, k  [..., L, E];  v  [..., L, M]  ->  [..., L, M] in float64

    >>> one = np.ones((3, 1))
    >>> causal_dot_product(one, one, one).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if reverse:
        return causal_dot_product(q[..., ::-1, :], k[..., ::-1, :], v[..., ::-1, :])[..., ::-1, :]
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    state = np.zeros((*q.shape[:-2], q.shape[-1], v.shape[-1]))
    for start in range(0, q.shape[-2], _BLOCK):
        here = slice(start, start + _BLOCK)
        scores = np.tril(q[..., here, :] @ k[..., here, :].swapaxes(-1, -2))
        out[..., here, :] = scores @ v[..., here, :] + q[..., here, :] @ state
        state += k[..., here, :].swapaxes(-1, -2) @ v[..., here, :]
    return out


def causal_dot_product_backward(
    do: Any, q: Any, k: Any, v: Any, *, reverse: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """dq, dk, dv of sum(do * causal_dot_product(q, k, v)): three scans with the operands' roles exchanged."""
    dq = causal_dot_product(do, v, k, reverse=reverse)
    dk = causal_dot_product(v, do, q, reverse=not reverse)
    dv = causal_dot_product(k, q, do, reverse=not reverse)
    return dq, dk, dv


def linear_state(k: Any, v: Any, *, segment: int | None = None) -> NDArray[np.float64]:
    """S = sum over t of k[t] v[t]^T: [..., E, M], or one of each `segment` time steps: [..., segments, E, M]."""
    k, v = (np.asarray(x, np.float64) for x in (k, v))
    if segment is None:
        whole: NDArray[np.float64] = k.swapaxes(-1, -2) @ v
        return whole
    starts = range(0, k.shape[-2], segment)
    parts = [k[..., s : s + segment, :].swapaxes(-1, -2) @ v[..., s : s + segment, :] for s in starts]
    return np.stack(parts, -3) if parts else np.zeros((*k.shape[:-2], 0, k.shape[-1], v.shape[-1]))


def query_state(q: Any, state: Any) -> NDArray[np.float64]:
    """o[t] = S^T q[t], for q [..., L, E] and S [..., E, M]."""
    return np.asarray(q, np.float64) @ np.asarray(state, np.float64)
