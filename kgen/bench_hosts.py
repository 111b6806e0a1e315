"""Hot calls on torch tensors beside torch's own, on problems so small that the host is all that they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], object]
Pair = tuple[Call, Call]
"""kgen's call, and torch's of the same."""


def pairs(operator: str) -> dict[str, Pair]:
    """By function, the calls that belong to an operator's benchmark; raises ImportError where there is no torch.

    torch has some only as several calls, which stand here as its users write them, and gradients as its own autograd
    asks for them.
    """
    import torch

    import kgen

    add, relu, gelu, swiglu = (getattr(kgen, name) for name in ("add", "relu", "gelu", "swiglu"))
    function, aten = torch.nn.functional, torch.ops.aten
    x, dy, gate, bias, matrix = (torch.rand(shape, device="cuda") for shape in [(4, 256)] * 3 + [(256,), (256, 256)])
    line, weight = matrix.view(-1)[:1000], bias
    indices = torch.arange(8, device="cuda")
    places = torch.zeros(1000, dtype=torch.int32, device="cuda")
    heads, image = x.view(1, 1, 8, 128), x.view(1, 64, 4, 4)
    cos, sin = torch.rand(2, 8, 128, device="cuda")
    y = function.softmax(x, -1)
    _, mean, rstd = aten.native_layer_norm(x, [256], weight, bias, 1e-5)
    means, rstds = mean.view(4), rstd.view(4)

    def turned() -> Any:
        p, q = heads.chunk(2, -1)
        return heads * cos + torch.cat((-q, p), -1) * sin

    by_operator: dict[str, dict[str, Pair]] = {
        "elementwise": {
            "add": (lambda: add(x, dy), lambda: torch.add(x, dy)),
            "relu": (lambda: relu(x), lambda: torch.relu(x)),
            "gelu": (lambda: gelu(x), lambda: function.gelu(x)),
            "swiglu": (lambda: swiglu(gate, x), lambda: function.silu(gate) * x),
        },
        "reduce": {
            "sum": (lambda: kgen.sum(x), lambda: torch.sum(x)),
            "sum of rows": (lambda: kgen.sum(x, -1), lambda: torch.sum(x, -1)),
            "mean": (lambda: kgen.mean(x), lambda: torch.mean(x)),
            "prod": (lambda: kgen.prod(x), lambda: torch.prod(x)),
            "max": (lambda: kgen.max(x), lambda: torch.amax(x)),
            "argmax": (lambda: kgen.argmax(x, -1), lambda: torch.argmax(x, -1)),
        },
        "dot": {"dot": (lambda: kgen.dot(line, line), lambda: torch.dot(line, line))},
        "histogram": {
            "bincount": (lambda: kgen.bincount(places), lambda: torch.bincount(places)),
            "histogram": (lambda: kgen.histogram(x, 100, (0.0, 1.0)), lambda: torch.histc(x, 100, 0.0, 1.0)),
        },
        "softmax": {
            "softmax": (lambda: kgen.softmax(x, -1), lambda: torch.softmax(x, -1)),
            "log_softmax": (lambda: kgen.log_softmax(x, -1), lambda: torch.log_softmax(x, -1)),
            "logsumexp": (lambda: kgen.logsumexp(x, -1), lambda: torch.logsumexp(x, -1)),
            "softmax_backward": (
                lambda: kgen.softmax_backward(dy, y, -1),
                lambda: aten._softmax_backward_data(dy, y, -1, torch.float32),
            ),
        },
        "norm": {
            "layer_norm": (
                lambda: kgen.layer_norm(x, weight, bias),
                lambda: function.layer_norm(x, [256], weight, bias),
            ),
            "rms_norm": (lambda: kgen.rms_norm(x, weight), lambda: function.rms_norm(x, [256], weight)),
            "fused_add_rms_norm": (
                lambda: kgen.fused_add_rms_norm(x, dy, weight),
                lambda: function.rms_norm(x + dy, [256], weight),
            ),
            "group_norm": (lambda: kgen.group_norm(image, 32), lambda: function.group_norm(image, 32)),
            "layer_norm_backward": (
                lambda: kgen.layer_norm_backward(dy, x, means, rstds, weight),
                lambda: aten.native_layer_norm_backward(dy, x, [256], mean, rstd, weight, bias, [True, True, True]),
            ),
        },
        "gemv": {"matvec": (lambda: kgen.matvec(matrix, bias), lambda: torch.mv(matrix, bias))},
        "transpose": {"transpose": (lambda: kgen.transpose(matrix), lambda: matrix.t().contiguous())},
        "take": {
            "embedding": (lambda: kgen.embedding(indices, matrix), lambda: function.embedding(indices, matrix)),
            "take": (lambda: kgen.take(matrix, indices, mode="clip"), lambda: torch.index_select(matrix, 0, indices)),
        },
        "rope": {"rope": (lambda: kgen.rope(heads), turned)},
        "quantize": {"cast": (lambda: kgen.cast(x, "e4m3"), lambda: x.to(torch.float8_e4m3fn))},
    }
    return by_operator.get(operator, {})
