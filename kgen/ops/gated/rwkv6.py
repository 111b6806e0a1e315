"""RWKV6's time mixing: a gate for each feature, and a bonus by which a token reads itself instead of the state."""

from __future__ import annotations

from typing import Any

from kgen.ops.gated.checks import Form
from kgen.ops.gated.recurrent import backward_operator, forward_operator

_FORM = Form("r", 2, "w", bonus=True)


def rwkv6(
    r: Any,
    k: Any,
    v: Any,
    w: Any,
    u: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    states_every: int | None = None,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """o[t] = scale (S[t - 1] + diag(u) k[t] v[t]^T)^T r[t] and S[t] = diag(e^w[t]) S[t - 1] + k[t] v[t]^T.

    Parameters
    ----------
    r, k : array [B, H, T, K]
        Receptances and keys.
    w : array [B, H, T, K]
        Gates as natural logarithms, at most 0, as in `gla`: the model's decay is e^w, where w = -exp(what it learns).
        Of the dtype of r, or float32.
    u : array [H, K]
        The bonus by which a token reads itself. Of the dtype of r, or float32.
    scale : float, optional
        By default 1 / sqrt(K); RWKV6 itself uses 1.
    mode : "auto", "chunk", "recurrent" or "article"
        As in `gla`, but "article" is flash-linear-attention's recurrent kernel of 2024, to be read and timed beside
        ours.

    Other parameters, results and errors are those of `linear_attention`.

    Notes
    -----
    Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024, equations 19 and 20.

    Examples
    --------
    >>> import cupy, kgen                                                                    # doctest: +SKIP
    >>> r, k, v, raw = (cupy.random.randn(1, 8, 2048, 64).astype("f") for _ in range(4))     # doctest: +SKIP
    >>> u = cupy.random.randn(8, 64).astype("f")                                             # doctest: +SKIP
    >>> o = kgen.rwkv6(r, k, v, -cupy.exp(raw), u, scale=1)                                  # doctest: +SKIP
    """
    options = (scale, reverse, return_state, states_every, mode, layout)
    outs = (out, None, None)[: 1 + bool(return_state) + (states_every is not None)]
    o, *states = _forward((r, k, v, w, u, initial_state, cu_seqlens), outs, options, stream)
    return (o, *states) if states else o


def rwkv6_backward(
    do: Any,
    r: Any,
    k: Any,
    v: Any,
    w: Any,
    u: Any,
    *,
    dstate: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
    stream: Any = None,
) -> tuple[Any, ...]:
    """The gradients of `rwkv6`, given do and, optionally, that of the last state.

    Returns
    -------
    dr, dk, dv, dw, du of the shapes and dtypes of r, k, v, w, u, and, where there is an `initial_state`, its gradient
    in float32. Parameters as in `rwkv6` and `linear_attention_backward`; for dw, and for when
    chunks are taken, see `gla_backward`.
    """
    inputs = (do, r, k, v, w, u, initial_state, cu_seqlens, dstate)
    outs = (None,) * (6 if initial_state is not None else 5)
    return tuple(_backward(inputs, outs, (scale, reverse, mode, layout), stream))


_forward = forward_operator("rwkv6", _FORM, "scale", "reverse", "return_state", "states_every", "mode", "layout")
_backward = backward_operator("rwkv6_backward", _FORM, "scale", "reverse", "mode", "layout")
