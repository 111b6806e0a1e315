"""Linear attention with state in and out, in the numbers of the caller's type, accumulated in float32."""

from __future__ import annotations

from typing import Any

from kgen.ops.gated.checks import Form
from kgen.ops.gated.recurrent import backward_operator, forward_operator

_FORM = Form("q", 0, normal=True)
_OPTIONS = ("scale", "reverse", "feature_map", "normalize", "epsilon", "return_state", "states_every", "mode", "layout")
_GRADIENT_OPTIONS = ("scale", "reverse", "feature_map", "feature_slope", "normalize", "epsilon", "mode", "layout")


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    states_every: int | None = None,
    feature_map: str | None = None,
    normalize: bool = False,
    epsilon: float = 1e-6,
    initial_normalizer: Any = None,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """S[t] = S[t - 1] + f(k[t]) v[t]^T and o[t] = scale S[t]^T f(q[t]), for every batch and head.

    Parameters
    ----------
    q, k : array [B, H, T, K]
        Queries and keys; float32, float16 or bfloat16, of any strides, K from 1 to 512.
    v : array [B, H, T, V]
        Values, of the same dtype, V from 1 to 512. One of q, k and v may have fewer heads than another; adjacent heads
        then share one, as if it were repeated.
    scale : float, optional
        By default 1 / sqrt(K).
    initial_state : array [N, H, K, V], optional
        S before the first time step, in float32; by default zero.
    return_state : bool
        Also return the last state.
    states_every : int, optional
        Also return the state after every so many time steps, a multiple of 64. This makes a prefix cache: requests that
        start with the same time steps can continue from it. In chunks it takes another pass over keys, values and
        gates. Not with `cu_seqlens` or mode "article".
    feature_map : "elu", "relu", "identity" or an expression
        f, applied to each element: elu(x) + 1, max(x, 0), x, or an expression of x as in `kgen.elementwise`, such as
        "exp(x / 2)" or "silu(x) + 0.3". An expression is compiled into kernels of its own, and computed in float32.
    normalize : bool
        Divide o[t] by scale z[t] . f(q[t]) + epsilon, where z[t] = z[t - 1] + f(k[t]).
    initial_normalizer : array [N, H, K], optional
        z before the first time step, in float32; by default zero.
    reverse : bool
        Run from the last time step to the first.
    cu_seqlens : array [N + 1] of int32 or int64, optional
        Where each of several sequences packed along T starts, and where the last one ends; B must be 1. It is read on
        the device. Time steps outside all sequences are not written.
    mode : "auto", "chunk" or "recurrent"
        In chunks of time steps on tensor cores, or one step at a time; the state is in registers either way. Chunks
        take float16 and bfloat16, at most 256 features and value columns, no normalizer, and as feature maps only
        "relu" and, with float16, "elu"; "auto" chooses them from 64 time steps on. In chunks, an infinity or NaN in v
        may reach up to 63 time steps before its own.
    layout : "bhtd" or "bthd"
        The order of the axes of q, k, v and of the result: "bthd" is [B, T, H, D]. States have heads first in both.
    out, stream : optional
        Where to write o; and a CuPy or torch stream, or a pointer to one.

    Returns
    -------
    o : array [B, H, T, V] of the inputs' dtype, H the largest number of heads. Sums and states are in float32, and the
    same from call to call bit for bit.
    state : array [N, H, K, V] in float32, with `return_state`; with `normalize` also z [N, H, K].
    states : array [B, H, T // states_every + 1, K, V] in float32, with `states_every`; with `normalize` also
        normalizers [B, H, T // states_every + 1, K]. states[:, :, i] is S after i * states_every time steps (the last
        ones with `reverse`), so that a call on what is left goes on from there with it as `initial_state`; the first is
        where this call begins. All else is bit for bit what it is without them.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted. What
        lies in them is looked at within `kgen.checked()` only.
    CaptureError
        At the first call of its kind, if that is made during a CUDA graph capture.

    Notes
    -----
    Katharopoulos et al., "Transformers are RNNs", 2020, equations 16 to 20.

    Examples
    --------
    >>> import cupy, kgen                                                          # doctest: +SKIP
    >>> q, k, v = (cupy.random.rand(1, 8, 2048, 64, dtype="f") for _ in "qkv")     # doctest: +SKIP
    >>> o, state = kgen.linear_attention(q, k, v, return_state=True)               # doctest: +SKIP
    >>> o = kgen.linear_attention(q, k, v, initial_state=state)                    # doctest: +SKIP

    Of a prompt whose first 96 time steps were met before, 64 need not be computed again:

    >>> import kgen, numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 100, 8), "f")
    >>> with kgen.backend("cpu"):
    ...     o, states = kgen.linear_attention(q, k, v, states_every=64)
    ...     rest = kgen.linear_attention(*(x[:, :, 64:] for x in (q, k, v)), initial_state=states[:, :, 1])
    >>> states.shape, np.allclose(rest, o[:, :, 64:])
    ((1, 2, 2, 8, 8), True)
    """
    options = (scale, reverse, feature_map, normalize, epsilon, return_state, states_every, mode, layout)
    sets = bool(return_state) + (states_every is not None)
    outs = (out, *(None,) * (sets * (1 + bool(normalize))))
    o, *more = _forward((q, k, v, initial_state, cu_seqlens, initial_normalizer), outs, options, stream)
    return (o, *more) if more else o


def linear_attention_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    dstate: Any = None,
    dnormalizer: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    feature_map: str | None = None,
    feature_slope: str | None = None,
    normalize: bool = False,
    epsilon: float = 1e-6,
    initial_normalizer: Any = None,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
    stream: Any = None,
) -> tuple[Any, ...]:
    """The gradients of `linear_attention`, given those of its results.

    Parameters
    ----------
    do : array, of the shape and dtype of o
        The gradient with respect to o.
    dstate : array [N, H, K, V] in float32, optional
        The gradient with respect to the last state; by default zero.
    dnormalizer : array [N, H, K] in float32, optional
        And to the last z.
    feature_slope : str, with a feature map that is an expression
        Its derivative, an expression of x: that of "exp(x / 2)" is "exp(x / 2) / 2".

    Returns
    -------
    dq, dk, dv of the shapes and dtypes of q, k, v, and, where there are an `initial_state` and an `initial_normalizer`,
    their gradients in float32. The other parameters, and what is raised, are as in `linear_attention`. Bit for bit the
    same from call to call.

    Notes
    -----
    In chunks, states and scores are rounded to bfloat16 once on the way to dk and dv, whose relative RMS error is
    2.4e-3 then; that of a correctly rounded bfloat16 is 1.7e-3, which dq and the forward pass meet.
    """
    inputs = (do, q, k, v, initial_state, cu_seqlens, initial_normalizer, dstate, dnormalizer)
    outs = (None,) * (3 + (initial_state is not None) + (initial_normalizer is not None))
    options = (scale, reverse, feature_map, feature_slope, normalize, epsilon, mode, layout)
    return tuple(_backward(inputs, outs, options, stream))


_forward = forward_operator("linear_attention", _FORM, *_OPTIONS)
_backward = backward_operator("linear_attention_backward", _FORM, *_GRADIENT_OPTIONS)
