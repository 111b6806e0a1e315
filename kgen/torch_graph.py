"""Calls of operators as nodes of the graph by which torch finds gradients."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kgen.launch import loading_for

Tensors = Sequence[Any]
Forward = Callable[..., tuple[Any, Tensors]]
"""From the inputs, the results and what is kept for the gradients."""
Backward = Callable[[Tensors, Tensors], Tensors]
"""From the gradients of the results and what was kept, the gradient of each input."""


def record(forward: Forward, backward: Backward, *inputs: Any) -> Any:
    """A call, as one node of torch's graph where a gradient may be asked for."""
    recorder = _hidden if "torch._dynamo" in sys.modules else _recorder
    return recorder()(forward, backward, *inputs)


@functools.cache
def _hidden() -> Any:
    """`_recorder()`, but left alone by torch.compile, whose import takes seconds: only for who has it imported."""
    import torch

    return torch.compiler.disable(_recorder())


@functools.cache
def _recorder() -> Any:
    import torch

    class Node(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, forward: Forward, backward: Backward, *inputs: Any) -> Any:
            def gradient() -> Any:
                results, kept = forward(*inputs)
                return backward(results if isinstance(results, tuple) else (results,), kept)  # gradients are alike

            with loading_for(gradient):
                results, kept = forward(*inputs)
            ctx.save_for_backward(*kept)
            ctx.gradients_of = backward
            return results

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> Any:
            return None, None, *ctx.gradients_of(gradients, ctx.saved_tensors)

    def recorded(forward: Forward, backward: Backward, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(x is not None and getattr(x, "requires_grad", False) for x in inputs):
            return Node.apply(forward, backward, *inputs)
        return forward(*inputs)[0]

    return recorded
