"""Layer, RMS and group normalisation beside torch, torch.compile and Liger, with a weight (and bias) of x's dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, BenchError, Case, Contestant, Problem, compiled, tensor
from kgen.benchmarks.softmax import SHAPES, normal, optional, peer, rows_of
from kgen.dtypes import BF16, F16, F32, FLOATS

LAYER, RMS, FUSED, GROUP = "layer forward", "rms forward", "fused add forward", "group forward"
LAYER_BACKWARD, RMS_BACKWARD = "layer backward", "rms backward"
STAGES = (LAYER, RMS, FUSED, GROUP, LAYER_BACKWARD, RMS_BACKWARD)
MOVED = {LAYER: 2, RMS: 2, FUSED: 4, GROUP: 2, LAYER_BACKWARD: 3, RMS_BACKWARD: 3}
"""Arrays of the size of x that must be read or written."""

EPS = 1e-5
GROUPS, CHANNELS = 32, 8
"""A row is a group of so many channels, of which an item has so many."""
_QUICK = 3
_BARS = {F32: Bars(2e-7), F16: Bars(6e-4), BF16: Bars(4e-3)}


class Norm(Bench):
    """A stage is an operator and its pass."""

    operator = "norm"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES[:-1], FLOATS)
        cases = [Case(shape, dtype, stage) for dtype in dtypes for stage in STAGES for shape in shapes]
        return [
            case for case in cases if case.stage != GROUP or not (case.shape[0] % GROUPS or case.shape[1] % CHANNELS)
        ]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return rows_of(text)

    def nbytes(self, case: Case) -> int:
        return MOVED[case.stage] * math.prod(case.shape) * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        return _BARS[case.dtype]

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        if case.stage == GROUP and not _whole(case.shape):
            raise BenchError(
                f"{self.label(case.shape)} are no groups", hint=f"rows a multiple of {GROUPS}, columns of {CHANNELS}"
            )
        sets = normal(case, 1)
        others = normal(case, 2) if case.stage not in (LAYER, RMS, GROUP) else sets
        rng = cupy.random.default_rng(3)
        size = GROUPS * CHANNELS if case.stage == GROUP else case.shape[1]
        weight, bias = (rng.standard_normal(size, dtype="f4").astype(case.dtype.numpy) for _ in range(2))
        exact = _exact(case.stage, sets[0], others[0], weight, bias)
        own = Contestant("kgen", _kgen(case.stage, sets, others, weight, bias), outputs=list)
        return Problem([own, *(_peers(case.stage, sets, others, weight, bias) if peers else [])], exact)

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.norm.norm import rms_norm

        x, weight, out = cupy.ones((4, 256), "f4"), cupy.ones(256, "f4"), cupy.empty((4, 256), "f4")
        return lambda: rms_norm(x, weight, out=out)


BENCH = Norm()


def _kgen(
    stage: str, sets: Sequence[Array], others: Sequence[Array], weight: Array, bias: Array
) -> Callable[[int], Sequence[Array]]:
    """A call that returns the results that are compared."""
    from kgen.ops.norm.backward import layer_norm_backward, rms_norm_backward
    from kgen.ops.norm.norm import fused_add_rms_norm, group_norm, layer_norm, rms_norm

    if stage == GROUP:
        images = [_images(x) for x in sets]
        return lambda n: (group_norm(images[n % len(images)], GROUPS, weight, bias, eps=EPS),)
    if stage == LAYER:
        return lambda n: (layer_norm(sets[n % len(sets)], weight, bias, eps=EPS),)
    if stage == RMS:
        return lambda n: (rms_norm(sets[n % len(sets)], weight, eps=EPS),)
    if stage == FUSED:
        return lambda n: (fused_add_rms_norm(sets[n % len(sets)], others[n % len(sets)], weight, eps=EPS),)
    if stage == LAYER_BACKWARD:
        stats = [layer_norm(x, weight, bias, eps=EPS, return_stats=True) for x in sets]
        whole = [(dy, x, mean, rstd, weight) for dy, x, (_, mean, rstd) in zip(others, sets, stats, strict=True)]
        return lambda n: layer_norm_backward(*whole[n % len(sets)])
    rstds = [rms_norm(x, weight, eps=EPS, return_rstd=True)[1] for x in sets]
    return lambda n: rms_norm_backward(others[n % len(sets)], sets[n % len(sets)], rstds[n % len(sets)], weight)


def _whole(shape: tuple[int, ...]) -> bool:
    """Whether rows make whole items, and columns whole channels."""
    return not (shape[0] % GROUPS or shape[1] % CHANNELS)


def _images(x: Array) -> Array:
    """Rows as groups of channels: items x channels x places."""
    return x.reshape(len(x) // GROUPS, GROUPS * CHANNELS, x.shape[1] // CHANNELS)


def _exact(stage: str, x: Array, other: Array, weight: Array, bias: Array) -> list[Array]:
    """In float64; `other` is the residual, or the gradient of the result."""
    import cupy

    if stage == FUSED:
        x = (x.astype("f4") + other.astype("f4")).astype(x.dtype)
    value, w = x.astype("f8"), weight.astype("f8")
    if stage in (LAYER, LAYER_BACKWARD, GROUP):
        value -= value.mean(-1, keepdims=True)
    rstd = 1 / cupy.sqrt((value**2).mean(-1, keepdims=True) + EPS)
    value *= rstd
    if stage == GROUP:
        return [_images(value) * w[:, None] + bias.astype("f8")[:, None]]
    if stage in (LAYER, RMS, FUSED):
        return [value * w + (bias.astype("f8") if stage == LAYER else 0)]
    dy = other.astype("f8")
    upstream = dy * w
    shift = upstream.mean(-1, keepdims=True) if stage == LAYER_BACKWARD else 0
    dx = rstd * (upstream - shift - value * (upstream * value).mean(-1, keepdims=True))
    return [dx, (dy * value).sum(0), *([dy.sum(0)] if stage == LAYER_BACKWARD else [])]


def _peers(stage: str, sets: Sequence[Array], others: Sequence[Array], weight: Array, bias: Array) -> list[Contestant]:
    try:
        import torch
    except ImportError:
        return []
    functional = torch.nn.functional
    w, b = tensor(weight), tensor(bias)
    size = (len(weight),)
    # A fused sum is made in place, each in its own copy.
    pairs = [(tensor(x), tensor(other.copy())) for x, other in zip(sets, others, strict=True)]

    def layer(x: Any) -> Any:
        return functional.layer_norm(x, size, w, b, EPS)

    def rms(x: Any) -> Any:
        return functional.rms_norm(x, size, w, EPS)

    def fused(pair: Any) -> Any:
        torch.add(*pair, out=pair[1])
        return rms(pair[1])

    def group(x: Any) -> Any:
        return functional.group_norm(x, GROUPS, w, b, EPS)

    if stage == FUSED:
        return [peer("torch", fused, pairs)]
    if stage == GROUP:
        images = [tensor(_images(x)) for x in sets]
        return [peer("torch", group, images), peer("torch.compile", compiled(group), images)]
    if stage in (LAYER, RMS):
        call = layer if stage == LAYER else rms
        tensors = [x for x, _ in pairs]
        return [
            peer("torch", call, tensors),
            peer("torch.compile", compiled(call), tensors),
            *_liger(stage, tensors, w, b),
        ]
    w.requires_grad_()
    b.requires_grad_()
    call, wanted = (layer, (w, b)) if stage == LAYER_BACKWARD else (rms, (w,))
    leaves = [(x.requires_grad_(), dy) for x, dy in pairs]
    graphs = [(call(x), (x, *wanted), dy) for x, dy in leaves]

    def gradients(graph: Any) -> Any:
        result, inputs, dy = graph
        return torch.autograd.grad(result, inputs, dy, retain_graph=True)

    return [peer("torch", gradients, graphs)]


def _liger(stage: str, tensors: Sequence[Any], weight: Any, bias: Any) -> list[Contestant]:
    layers, rms = optional("liger_kernel.ops.layer_norm"), optional("liger_kernel.ops.rms_norm")
    if layers is None or rms is None:
        return []
    if stage == LAYER:
        return [peer("liger", lambda x: layers.LigerLayerNormFunction.apply(x, weight, bias, EPS), tensors)]
    return [peer("liger", lambda x: rms.LigerRMSNormFunction.apply(x, weight, EPS), tensors)]
