"""What the kernels that compute the gradients of a softmax share: their flags, and the gradient of a number."""

from __future__ import annotations

from kgen.spec import Flag, Spec

FLAGS = (
    Flag("log", "y is the logarithm of the softmax"),
    Flag("scaled", "x was multiplied by a number first"),
)


def gradient(spec: Spec) -> str:
    """Of x, from `upstream`, that of the result, its `value`, and the sum of the formula."""
    found = "upstream - exponential(value) * sum" if spec["log"] else "fmaf(upstream, value, -sum * value)"
    return f"scale * ({found})" if spec["scaled"] else found
