"""Operators that torch's autograd differentiates: called as in kgen, on torch tensors, and `loss.backward()` works.

    from kgen import autograd

    o = autograd.gla(q, k, v, g)  # kgen.gla
    loss(o).backward()            # kgen.gla_backward

A call is one node of torch's graph, which keeps the inputs (softmax, sigmoid and tanh: the result; norms: their
statistics, too). Where it has kernels to compile, its gradient's are compiled beside them. `out=`, `stream=`,
`algorithm=`, `dtype=`, `states_every=` and `residual=` are not taken, nor are a norm's statistics returned, and torch
refuses a gradient of a gradient. Without a tensor that requires a gradient, a call is that of kgen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import kgen
from kgen.torch_graph import Tensors, record


def causal_dot_product(q: Any, k: Any, v: Any, *, reverse: bool = False, layout: str = "bhtd") -> Any:
    """`kgen.causal_dot_product`; q, k, v and the result are torch tensors on a GPU."""

    def forward(*qkv: Any) -> tuple[Any, Tensors]:
        return kgen.causal_dot_product(*qkv, reverse=reverse, layout=layout), qkv

    def backward(gradients: Tensors, qkv: Tensors) -> Tensors:
        return kgen.causal_dot_product_backward(gradients[0], *qkv, reverse=reverse, layout=layout)

    return record(forward, backward, q, k, v)


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    feature_map: str | None = None,
    feature_slope: str | None = None,
    normalize: bool = False,
    epsilon: float = 1e-6,
    initial_normalizer: Any = None,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
) -> Any:
    """`kgen.linear_attention`; `feature_slope` is the derivative of a feature map that is an expression."""
    options = {"scale": scale, "feature_map": feature_map, "normalize": normalize, "epsilon": epsilon}
    options |= {"reverse": reverse, "cu_seqlens": cu_seqlens, "mode": mode, "layout": layout}
    starts = {"initial_state": initial_state, "initial_normalizer": initial_normalizer}
    return _along_time("linear_attention", (q, k, v), starts, return_state, options, {"feature_slope": feature_slope})


def gla(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
) -> Any:
    """`kgen.gla`, with respect to all of its inputs and an `initial_state`."""
    options = {"scale": scale, "reverse": reverse, "cu_seqlens": cu_seqlens, "mode": mode, "layout": layout}
    return _along_time("gla", (q, k, v, g), {"initial_state": initial_state}, return_state, options)


def simple_gla(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
) -> Any:
    """`kgen.simple_gla`, with respect to all of its inputs and an `initial_state`."""
    options = {"scale": scale, "reverse": reverse, "cu_seqlens": cu_seqlens, "mode": mode, "layout": layout}
    return _along_time("simple_gla", (q, k, v, g), {"initial_state": initial_state}, return_state, options)


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
    reverse: bool = False,
    cu_seqlens: Any = None,
    mode: str = "auto",
    layout: str = "bhtd",
) -> Any:
    """`kgen.rwkv6`, with respect to all of its inputs and an `initial_state`."""
    options = {"scale": scale, "reverse": reverse, "cu_seqlens": cu_seqlens, "mode": mode, "layout": layout}
    return _along_time("rwkv6", (r, k, v, w, u), {"initial_state": initial_state}, return_state, options)


def softmax(
    x: Any, axis: int | tuple[int, ...] | None = None, *, scale: float = 1, causal: bool = False, mask: Any = None
) -> Any:
    """`kgen.softmax`; what is masked has the gradient 0."""
    return _of_one("softmax", x, axis, of_result=True, only_forward={"causal": causal, "mask": mask}, scale=scale)


def log_softmax(x: Any, axis: int | tuple[int, ...] | None = None, *, scale: float = 1) -> Any:
    """`kgen.log_softmax`, without a mask."""
    return _of_one("log_softmax", x, axis, of_result=True, scale=scale)


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, axis: int | tuple[int, ...] = -1, eps: float = 1e-5
) -> Any:
    """`kgen.layer_norm`, with respect to x, weight and bias; a bias takes a weight beside it."""
    if bias is not None and weight is None:
        raise TypeError("autograd.layer_norm: there is a bias and no weight; pass a weight of ones, too")

    def forward(x: Any, weight: Any, bias: Any) -> tuple[Any, Tensors]:
        y, mean, rstd = kgen.layer_norm(x, weight, bias, axis=axis, eps=eps, return_stats=True)
        return y, (x, mean, rstd, weight)

    def backward(gradients: Tensors, kept: Tensors) -> Tensors:
        made = kgen.layer_norm_backward(gradients[0], *kept, axis=axis)
        dx, dweight, dbias = made if weight is not None else (made, None, None)
        return dx, dweight, dbias if bias is not None else None

    return record(forward, backward, x, weight, bias)


def rms_norm(
    x: Any, weight: Any = None, *, axis: int | tuple[int, ...] = -1, eps: float = 1e-6, weight_offset: float = 0.0
) -> Any:
    """`kgen.rms_norm`, with respect to x and weight."""

    def forward(x: Any, weight: Any) -> tuple[Any, Tensors]:
        y, rstd = kgen.rms_norm(x, weight, axis=axis, eps=eps, weight_offset=weight_offset, return_rstd=True)
        return y, (x, rstd, weight)

    def backward(gradients: Tensors, kept: Tensors) -> Tensors:
        made = kgen.rms_norm_backward(gradients[0], *kept, axis=axis, weight_offset=weight_offset)
        return made if weight is not None else (made, None)

    return record(forward, backward, x, weight)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """`kgen.elu`."""
    return _of_one("elu", x, alpha)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    """`kgen.leaky_relu`."""
    return _of_one("leaky_relu", x, negative_slope)


def softplus(x: Any, beta: float = 1.0) -> Any:
    """`kgen.softplus`."""
    return _of_one("softplus", x, beta)


def _elementwise(name: str, *, of_result: bool = False) -> Callable[[Any], Any]:
    """The function of that name, whose gradient is told by its result or by its input."""

    def function(x: Any) -> Any:
        return _of_one(name, x, of_result=of_result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`kgen.{name}`."
    return function


gelu = _elementwise("gelu")
gelu_tanh = _elementwise("gelu_tanh")
hardsigmoid = _elementwise("hardsigmoid")
hardswish = _elementwise("hardswish")
relu = _elementwise("relu")
sigmoid = _elementwise("sigmoid", of_result=True)
silu = _elementwise("silu")
tanh = _elementwise("tanh", of_result=True)


def _of_one(
    name: str,
    x: Any,
    *parameters: Any,
    of_result: bool = False,
    only_forward: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """One node for one array, whose gradient is told by the result or by the array."""
    operator, gradient = getattr(kgen, name), getattr(kgen, f"{name}_backward")

    def forward(x: Any) -> tuple[Any, Tensors]:
        y = operator(x, *parameters, **only_forward, **options)
        return y, (y if of_result else x,)

    def backward(gradients: Tensors, kept: Tensors) -> Tensors:
        return (gradient(*gradients, *kept, *parameters, **options),)

    return record(forward, backward, x)


def _along_time(
    name: str,
    arrays: Tensors,
    starts: Mapping[str, Any],
    return_state: bool,
    options: Mapping[str, Any],
    slope: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """One node for arrays and for what the recurrence starts from, where that is given."""
    operator, gradient = getattr(kgen, name), getattr(kgen, f"{name}_backward")
    count = len(arrays)

    def forward(*inputs: Any) -> tuple[Any, Tensors]:
        start = dict(zip(starts, inputs[count:], strict=True))
        return operator(*inputs[:count], **start, **options, return_state=return_state), inputs

    def backward(gradients: Tensors, inputs: Tensors) -> Tensors:
        start = dict(zip(starts, inputs[count:], strict=True))
        ends = dict(zip(("dstate", "dnormalizer"), gradients[1:], strict=False))
        made = iter(gradient(gradients[0], *inputs[:count], **ends, **start, **options, **slope))
        return tuple(None if x is None else next(made) for x in inputs)

    return record(forward, backward, *arrays, *starts.values())
