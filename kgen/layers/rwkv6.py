"""RWKV6's time mixing: each token mixed with the one before, projections, `rwkv6`, a norm of each head, a gate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgen.layers.parameters import Array, Parameters, check_names, check_shape, library, product
from kgen.ops.elementwise.elementwise import elementwise
from kgen.ops.gated.rwkv6 import rwkv6
from kgen.ops.gated.steps import rwkv6_step
from kgen.ops.norm.norm import group_norm
from kgen.ops.options import check_real

_LAYER = "RWKV6TimeMixing"
_PROJECTIONS = ("receptance", "key", "value", "gate")
_MIXED = ("decay", *_PROJECTIONS)
_NEEDED = (
    *("mix", "mixes", "mix_down", "mix_up", *_PROJECTIONS),
    *("decay", "decay_down", "decay_up", "bonus", "norm_weight", "norm_bias", "output"),
)


class RWKV6State(NamedTuple):
    """What a sequence leaves behind: its last token [B, D], and the states [B, H, K, K] in float32."""

    token: Array
    state: Array


class RWKV6TimeMixing:
    """The time mixing of a layer of RWKV6 (Finch), from x [B, T, D] to y of the same shape; with its state in and out.

    For every batch, time step and head, with K features, and x' the token before x:

        x_i  = x + (x' - x) (mixes_i + tanh(m mix_down_i) mix_up_i),   m = x + (x' - x) mix,   for i of w, r, k, v, g
        r, k, v, g = x_r receptance, x_k key, x_v value, x_g gate
        w    = -exp(decay + tanh(x_w decay_down) decay_up)                           in float32
        o[t] = (S[t - 1] + diag(bonus) k[t] v[t]^T)^T r[t],   S[t] = diag(e^w[t]) S[t - 1] + k[t] v[t]^T
        y    = (norm(o) * silu(g)) output

    where `norm` is LayerNorm of each head by itself.

    Parameters
    ----------
    parameters : dict of NumPy, CuPy or torch arrays of one dtype: float32, float16 or bfloat16
        mix [D], mixes [5, D] and mix_up [5, R, D] in the order w, r, k, v, g, mix_down [D, 5 R] likewise;
        receptance, key, value, gate [D, H K]; decay [H K], decay_down [D, Q], decay_up [Q, H K]; bonus [H, K];
        norm_weight, norm_bias [H K]; output [H K, D]. A product is x @ weight; torch.nn.Linear keeps the transpose.
    eps : float
        Of the norm; the models' is 1e-5 times the square of 8.

    Raises
    ------
    TypeError, ValueError
        For parameters that are missing, or do not fit together, and as `kgen.rwkv6` does.

    Notes
    -----
    Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024, section 4.2:
    Finch. Matrix products are the array library's, cuBLAS for CuPy's and torch's; kgen does all else.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> layer = RWKV6TimeMixing(RWKV6TimeMixing.random_parameters(32, heads=2))
    >>> x = np.ones((1, 5, 32), "f")
    >>> with kgen.backend("cpu"):                                                  # doctest: +SKIP
    ...     y, state = layer(x, return_state=True)
    ...     y = layer.step(x[:, 0], state)
    """

    def __init__(self, parameters: Parameters, *, eps: float = 64e-5) -> None:
        check_names(_LAYER, parameters, _NEEDED)
        check_real(_LAYER, eps=eps)
        arrays = dict(parameters)
        self._library = library(_LAYER, arrays)
        self.width, self.heads, self.features = _check(arrays)
        self.eps = eps
        self.parameters = arrays

    @staticmethod
    def random_parameters(
        width: int, heads: int, *, features: int | None = None, rank: int = 32, decay_rank: int = 64, seed: int = 0
    ) -> dict[str, Array]:
        """Parameters in NumPy and float32: matrices normal, with the variance 1 / rows; decays from slow to fast.

        >>> RWKV6TimeMixing.random_parameters(32, heads=2)["bonus"].shape
        (2, 16)
        """
        rng = np.random.default_rng(seed)
        features = features or width // heads
        wide = heads * features

        def normal(*shape: int) -> Array:
            return (rng.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32)

        return {
            "mix": rng.random(width, np.float32),
            "mixes": rng.random((len(_MIXED), width), np.float32),
            "mix_down": normal(width, len(_MIXED) * rank),
            "mix_up": normal(len(_MIXED), rank, width),
            **{name: normal(width, wide) for name in _PROJECTIONS},
            "decay": np.linspace(-6, 1, wide, dtype=np.float32),
            "decay_down": normal(width, decay_rank),
            "decay_up": normal(decay_rank, wide),
            "bonus": rng.standard_normal((heads, features), np.float32),
            "norm_weight": np.ones(wide, np.float32),
            "norm_bias": np.zeros(wide, np.float32),
            "output": normal(wide, width),
        }

    def __call__(self, x: Array, state: RWKV6State | None = None, *, return_state: bool = False) -> Any:
        """y [B, T, D] for x [B, T, D], both of the parameters' dtype, and with `return_state` the last state, too.

        state  from which to go on; None: no token before the first, and zero
        """
        check_shape(_LAYER, "x", x, -1, -1, self.width)
        batch = x.shape[0]
        if state is None:
            nothing = self._library.zeros_like(self.parameters["mix"])
            before = self._library.broadcast_to(nothing, (batch, 1, self.width))
        else:
            _check_state(state, batch, self.width)
            before = state.token[:, None]
        tokens = self._library.concatenate([before, x], 1)
        r, k, v, gate, w = self._projected(x, tokens[:, :-1])
        o = rwkv6(
            *(r, k, v, w, self.parameters["bonus"]),
            scale=1,
            initial_state=None if state is None else state.state,
            return_state=return_state,
            layout="bthd",
        )
        o, last = o if return_state else (o, None)
        y = self._output(o, gate)
        # Concatenating copies the token: a view would keep all of them.
        return (y, RWKV6State(self._library.concatenate([tokens[:, -1]]), last)) if return_state else y

    def step(self, x: Array, state: RWKV6State) -> Array:
        """y [B, D] for one token x [B, D] of each sequence; the state is updated in place."""
        check_shape(_LAYER, "x", x, -1, self.width)
        _check_state(state, *x.shape)
        r, k, v, gate, w = self._projected(x, state.token)
        o = rwkv6_step(r, k, v, w, self.parameters["bonus"], state.state, scale=1)
        state.token[...] = x
        return self._output(o, gate)

    def _projected(self, x: Array, earlier: Array) -> tuple[Array, ...]:
        """r, k, v by head, the output's gate, and w by head."""
        p = self.parameters
        low = _tanh(product(_mix(x, earlier, p["mix"]), p["mix_down"]))
        rank = p["mix_up"].shape[1]
        mixed = []
        for i in range(len(_MIXED)):
            by = product(low[..., i * rank : (i + 1) * rank], p["mix_up"][i])
            mixed.append(_mix_by(x, earlier, p["mixes"][i], by, out=by))
        decay, *others = mixed
        r, k, v, gate = (product(m, p[name]) for m, name in zip(others, _PROJECTIONS, strict=True))
        raw = product(_tanh(product(decay, p["decay_down"])), p["decay_up"])
        w = _decay(p["decay"], raw, dtype="float32")
        shape = (*x.shape[:-1], self.heads, self.features)
        return (*(a.reshape(shape) for a in (r, k, v)), gate, w.reshape(shape))

    def _output(self, o: Array, gate: Array) -> Array:
        p, wide = self.parameters, self.heads * self.features
        rows = o.reshape(math.prod(o.shape[:-2]), wide)
        group_norm(rows, self.heads, p["norm_weight"], p["norm_bias"], eps=self.eps, out=rows)
        return product(_gated(rows.reshape(gate.shape), gate), p["output"])


def _check_state(state: object, batch: int, width: int) -> None:
    if not isinstance(state, RWKV6State):
        raise TypeError(f"{_LAYER}: state is a {type(state).__name__}; it takes an RWKV6State")
    check_shape(_LAYER, "state.token", state.token, batch, width)


def _check(arrays: dict[str, Array]) -> tuple[int, int, int]:
    """The width of the model, its heads, and their features; raises ValueError for what does not fit."""
    check_shape(_LAYER, "bonus", arrays["bonus"], -1, -1)
    check_shape(_LAYER, "mix", arrays["mix"], -1)
    check_shape(_LAYER, "mix_up", arrays["mix_up"], len(_MIXED), -1, -1)
    check_shape(_LAYER, "decay_down", arrays["decay_down"], -1, -1)
    heads, features = arrays["bonus"].shape
    width, wide, kinds = arrays["mix"].shape[0], heads * features, len(_MIXED)
    rank, decay_rank = arrays["mix_up"].shape[1], arrays["decay_down"].shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "mixes": (kinds, width),
        "mix_down": (width, kinds * rank),
        "mix_up": (kinds, rank, width),
        **dict.fromkeys(_PROJECTIONS, (width, wide)),
        "decay": (wide,),
        "decay_down": (width, decay_rank),
        "decay_up": (decay_rank, wide),
        "norm_weight": (wide,),
        "norm_bias": (wide,),
        "output": (wide, width),
    }
    for name, shape in shapes.items():
        check_shape(_LAYER, name, arrays[name], *shape)
    return width, heads, features


_mix = elementwise("x + (earlier - x) * by")
_mix_by = elementwise("x + (earlier - x) * (mixes + by)")
_tanh = elementwise("tanh(x)")
_decay = elementwise("-exp(decay + raw)")
_gated = elementwise("o * silu(gate)")
