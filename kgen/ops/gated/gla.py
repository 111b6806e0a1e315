"""Gated linear attention: a gate for each feature (`gla`), or one for all features of a head (`simple_gla`)."""

from __future__ import annotations

from typing import Any

from kgen.ops.gated.checks import Form
from kgen.ops.gated.recurrent import backward_operator, forward_operator

_OPTIONS = ("scale", "reverse", "return_state", "states_every", "mode", "layout")
_GRADIENT_OPTIONS = ("scale", "reverse", "mode", "layout")


def gla(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
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
    """S[t] = diag(e^g[t]) S[t - 1] + k[t] v[t]^T and o[t] = scale S[t]^T q[t], for every batch and head.

    Parameters
    ----------
    g : array [B, H, T, K]
        Gates as natural logarithms, at most 0: the state decays by e^g. -inf erases it and 0 keeps it; both are exact,
        as is everything in between. A gate above 0 makes it grow. Of the dtype of q, or float32. It may have fewer
        heads.
    mode : "auto", "chunk", "recurrent" or "article"
        "chunk" computes chunks of 32 time steps on tensor cores, with states and decays in float32. It takes float16
        and bfloat16, and gates of at most 0 or little more: growth by 32 within a chunk may overflow. More than 128
        features are computed in parts of 128, whose results are summed in float32; each part needs memory for one
        result. "auto" chooses chunks from 32 time steps on, or, in parts, from 256 time steps or 3072 of all heads
        together. Where heads are few and sequences are split into segments of at most 256 time steps that all start at
        once, memory for two more results is needed. An infinity or NaN in v may reach up to 31 time steps before its
        own, and need not reach those for which no feature has 2^-126 of its decay left. "recurrent" works in float32,
        one step at a time; states above 1e26 may overflow. "article" uses five kernels, as flash-linear-attention did
        in 2024, to be read and timed beside ours (kgen.ops.gated.article); gates must then be finite, and gates such as
        -1000 cost digits.

    Other parameters, results and errors are those of `linear_attention`.

    Notes
    -----
    Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, equation 3.

    Examples
    --------
    >>> import cupy, kgen                                                          # doctest: +SKIP
    >>> q, k, v = (cupy.random.rand(1, 8, 2048, 64, dtype="f") for _ in "qkv")     # doctest: +SKIP
    >>> g = cupy.log(cupy.random.rand(1, 8, 2048, 64, dtype="f")) / 16             # doctest: +SKIP
    >>> o, state = kgen.gla(q, k, v, g, return_state=True)                         # doctest: +SKIP
    """
    options = (scale, reverse, return_state, states_every, mode, layout)
    outs = (out, None, None)[: 1 + bool(return_state) + (states_every is not None)]
    o, *states = _gla((q, k, v, g, initial_state, cu_seqlens), outs, options, stream)
    return (o, *states) if states else o


def gla_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
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
    """The gradients of `gla`, given do and, optionally, that of the last state.

    Returns
    -------
    dq, dk, dv, dg of the shapes and dtypes of q, k, v, g, and, where there is an `initial_state`, its gradient in
    float32. Parameters as in `gla` and `linear_attention_backward`; here chunks take no inputs with fewer heads than
    others, and of the parts of features dv is summed.

    Notes
    -----
    One time step after another, dg[t] = dg[t + 1] + q[t] dq[t] - k[t] dk[t], of dq and dk in float32 and without the
    token's own part, which both have; the sum carries its rounding errors along, and starts afresh behind a gate whose
    e^g is 0. In chunks dg[t] is what passes the gate: of the state and its gradient at the ends of a piece of 64 time
    steps, and of such sums within it; an infinity or NaN may reach any other time step of its piece.
    """
    inputs = (do, q, k, v, g, initial_state, cu_seqlens, dstate)
    outs = (None,) * (5 if initial_state is not None else 4)
    return tuple(_gla_backward(inputs, outs, (scale, reverse, mode, layout), stream))


def simple_gla(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
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
    """S[t] = e^g[t] S[t - 1] + k[t] v[t]^T and o[t] = scale S[t]^T q[t], for every batch and head.

    Parameters
    ----------
    g : array [B, H, T], or [B, T, H] with layout "bthd"
        A gate for each head and time step, as in `gla`. One that does not depend on time (retention, lightning
        attention) may be broadcast to that shape, which copies nothing.

    Other parameters, results and errors are those of `linear_attention`.
    """
    options = (scale, reverse, return_state, states_every, mode, layout)
    outs = (out, None, None)[: 1 + bool(return_state) + (states_every is not None)]
    o, *states = _simple((q, k, v, g, initial_state, cu_seqlens), outs, options, stream)
    return (o, *states) if states else o


def simple_gla_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
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
    """The gradients of `simple_gla`, as `gla_backward` gives them: dq, dk, dv, dg and that of an `initial_state`."""
    inputs = (do, q, k, v, g, initial_state, cu_seqlens, dstate)
    outs = (None,) * (5 if initial_state is not None else 4)
    return tuple(_simple_backward(inputs, outs, (scale, reverse, mode, layout), stream))


_gla = forward_operator("gla", Form("q", 2, "g"), *_OPTIONS)
_gla_backward = backward_operator("gla_backward", Form("q", 2, "g"), *_GRADIENT_OPTIONS)
_simple = forward_operator("simple_gla", Form("q", 1, "g"), *_OPTIONS)
_simple_backward = backward_operator("simple_gla_backward", Form("q", 1, "g"), "scale", "reverse", "mode", "layout")
