"""The Gated Linear Attention layer: projections, a gate of low rank, `gla`, a norm of each head, a gated output."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen.layers.parameters import Array, Parameters, check_names, check_shape, library, multiple, product
from kgen.ops.elementwise.elementwise import elementwise
from kgen.ops.gated.gla import gla
from kgen.ops.gated.steps import gla_step
from kgen.ops.norm.norm import layer_norm, rms_norm

_LAYER = "GatedLinearAttention"
_PROJECTIONS = ("query", "key", "value", "gate_down", "output_gate")
"""The products of the input, which are one product with these side by side."""
_NEEDED = (*_PROJECTIONS, "gate_up", "gate_bias", "norm_weight", "output")
_OPTIONAL = ("output_gate_bias", "norm_bias")


class GatedLinearAttention:
    """A layer of the model GLA, from x [B, T, D] to y of the same shape; in inference, with its state in and out.

    For every batch, time step and head, with K features and V values:

        q, k, v = x query, x key, x value
        g       = logsigmoid(x gate_down gate_up + gate_bias) / temperature         in float32
        S[t]    = diag(e^g[t]) S[t - 1] + k[t] v[t]^T,   o[t] = K^-1/2 S[t]^T q[t]
        y       = (swish(x output_gate + output_gate_bias) * norm(o)) output

    where `norm` is that of each head by itself: RMSNorm, as models that were trained have it, or, where there is a
    `norm_bias`, LayerNorm, as the paper has it.

    Parameters
    ----------
    parameters : dict of NumPy, CuPy or torch arrays of one dtype: float32, float16 or bfloat16
        query [D, H K], key [D, H K], value [D, H V], gate_down [D, R], gate_up [R, H K], gate_bias [H K],
        output_gate [D, H V], output_gate_bias [H V] (optional), norm_weight [V], norm_bias [V] (optional),
        output [H V, D]. A product is x @ weight; torch.nn.Linear keeps the transpose. Keys, values and gates may be of
        fewer heads than H, which neighbouring heads share then.
    heads : int
        H.
    temperature : float
        By which gates are divided: the larger, the longer the memory.
    eps : float
        Of the norm.

    Attributes
    ----------
    parameters : dict
        Those of the projections of x are views of one array here, so that one matrix product does.

    Raises
    ------
    TypeError, ValueError
        For parameters that are missing, or do not fit together, and as `kgen.gla` does.

    Notes
    -----
    Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, sections 4.1 and 4.4.
    Matrix products are the array library's, cuBLAS for CuPy's and torch's; kgen does all else, in five kernels: the
    gate, the recurrence, the norm, the gate of the output. Arrays pass between them as views, without a copy.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> layer = GatedLinearAttention(GatedLinearAttention.random_parameters(32, heads=2), heads=2)
    >>> x = np.ones((1, 5, 32), "f")
    >>> with kgen.backend("cpu"):                                                  # doctest: +SKIP
    ...     y, state = layer(x, return_state=True)
    ...     y = layer.step(x[:, 0], state)
    """

    def __init__(self, parameters: Parameters, *, heads: int, temperature: float = 16.0, eps: float = 1e-5) -> None:
        check_names(_LAYER, parameters, _NEEDED, _OPTIONAL)
        arrays = dict(parameters)
        self._library = library(_LAYER, arrays)
        width, features, values = _check(arrays, heads)
        self.heads, self.width, self.features, self.values = heads, width, features, values
        self.temperature = temperature
        self.eps = eps
        self._inputs = self._library.concatenate([arrays[name] for name in _PROJECTIONS], 1)
        ends = np.cumsum([0, *(arrays[name].shape[1] for name in _PROJECTIONS)]).tolist()
        self._columns = dict(zip(_PROJECTIONS, map(slice, ends[:-1], ends[1:]), strict=True))
        self.parameters = arrays | {name: self._inputs[:, where] for name, where in self._columns.items()}

    @staticmethod
    def random_parameters(
        width: int, heads: int, *, features: int | None = None, values: int | None = None, rank: int = 16, seed: int = 0
    ) -> dict[str, Array]:
        """Parameters in NumPy and float32: normal, with the variance 1 / rows; by default half as wide in keys.

        >>> GatedLinearAttention.random_parameters(32, heads=2)["query"].shape
        (32, 16)
        """
        rng = np.random.default_rng(seed)
        keys, wide = heads * (features or width // heads // 2), heads * (values or width // heads)

        def normal(rows: int, columns: int) -> Array:
            return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

        return {
            "query": normal(width, keys),
            "key": normal(width, keys),
            "value": normal(width, wide),
            "gate_down": normal(width, rank),
            "gate_up": normal(rank, keys),
            "gate_bias": rng.standard_normal(keys).astype(np.float32),
            "output_gate": normal(width, wide),
            "norm_weight": np.ones(wide // heads, np.float32),
            "output": normal(wide, width),
        }

    def __call__(self, x: Array, state: Array = None, *, return_state: bool = False, cu_seqlens: Array = None) -> Any:
        """y [B, T, D] for x [B, T, D], both of the parameters' dtype, and with `return_state` the last state, too.

        state       [N, H, K, V] in float32, from which to go on; None: zero. N is B, or how many sequences there are
        cu_seqlens  [N + 1] of int32 or int64: where sequences begin that follow one another along T (B is 1 then)
        """
        check_shape(_LAYER, "x", x, -1, -1, self.width)
        q, k, v, g, gate = self._projected(x)
        o = gla(q, k, v, g, initial_state=state, return_state=return_state, cu_seqlens=cu_seqlens, layout="bthd")
        o, last = o if return_state else (o, None)
        y = self._output(o, gate)
        return (y, last) if return_state else y

    def step(self, x: Array, state: Array, *, indices: Array = None) -> Array:
        """y [B, D] for one token x [B, D] of each sequence; the state [N, H, K, V] is updated in place.

        indices  [B] of int32: which state of a pool is each token's, as in `kgen.gla_step`
        """
        check_shape(_LAYER, "x", x, -1, self.width)
        q, k, v, g, gate = self._projected(x)
        return self._output(gla_step(q, k, v, g, state, indices=indices), gate)

    def _projected(self, x: Array) -> tuple[Array, ...]:
        """q, k, v, g and the output's gate, by head: views of one product of x."""
        every = product(x, self._inputs)
        part = {name: every[..., where] for name, where in self._columns.items()}
        raw = product(part["gate_down"], self.parameters["gate_up"])
        g = _gate(raw, self.parameters["gate_bias"], self.temperature, dtype="float32")
        q, k, g = (_by_head(a, self.features) for a in (part["query"], part["key"], g))
        v, gate = (_by_head(a, self.values) for a in (part["value"], part["output_gate"]))
        return q, k, v, g, gate

    def _output(self, o: Array, gate: Array) -> Array:
        p = self.parameters
        if "norm_bias" in p:
            layer_norm(o, p["norm_weight"], p["norm_bias"], eps=self.eps, out=o)
        else:
            rms_norm(o, p["norm_weight"], eps=self.eps, out=o)
        if "output_gate_bias" in p:
            _biased(o, gate, p["output_gate_bias"].reshape(self.heads, self.values), out=o)
        else:
            _gated(o, gate, out=o)
        return product(o.reshape(*o.shape[:-2], self.heads * self.values), p["output"])


def _by_head(array: Array, size: int) -> Array:
    """The last axis as heads of so many elements; of no tokens, too, where no reshape finds out how many those are."""
    return array.reshape(*array.shape[:-1], array.shape[-1] // size, size)


def _check(arrays: dict[str, Array], heads: int) -> tuple[int, int, int]:
    """The width of the model, and the features and values of a head; raises ValueError for what does not fit."""
    check_shape(_LAYER, "query", arrays["query"], -1, -1)
    check_shape(_LAYER, "output", arrays["output"], -1, -1)
    width = arrays["query"].shape[0]
    features = multiple(_LAYER, "query", arrays["query"].shape[1], heads)
    values = multiple(_LAYER, "output (transposed)", arrays["output"].shape[0], heads)
    for name in ("key", "value", "gate_down"):
        check_shape(_LAYER, name, arrays[name], width, -1)
    check_shape(_LAYER, "gate_up", arrays["gate_up"], arrays["gate_down"].shape[1], -1)
    gates = arrays["gate_up"].shape[1]
    for name, size, of in (
        ("key", arrays["key"].shape[1], features),
        ("value", arrays["value"].shape[1], values),
        ("gate_up", gates, features),
    ):
        multiple(_LAYER, name, size, of)
    check_shape(_LAYER, "gate_bias", arrays["gate_bias"], gates)
    check_shape(_LAYER, "output_gate", arrays["output_gate"], width, heads * values)
    check_shape(_LAYER, "norm_weight", arrays["norm_weight"], values)
    check_shape(_LAYER, "output", arrays["output"], heads * values, width)
    for name, size in (("output_gate_bias", heads * values), ("norm_bias", values)):
        if name in arrays:
            check_shape(_LAYER, name, arrays[name], size)
    return width, features, values


_gate = elementwise("logsigmoid(raw + bias) / temperature")
_gated = elementwise("o * silu(gate)")
_biased = elementwise("o * silu(gate + bias)")
