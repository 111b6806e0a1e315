"""What a norm is asked for: what fits together, the results, and the arrays as the kernels see them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kgen.dtypes import F32
from kgen.operand import Operand, contiguous_strides
from kgen.ops.axes import normal_axes, others, with_axes
from kgen.ops.calls import Plan, Results
from kgen.ops.norm.plans import Normal, plan
from kgen.ops.options import check_real, whole

Given = Sequence[Operand | None]


def check_weights(op: str, x: Operand, weights: Given, shape: tuple[int, ...]) -> None:
    """Raise where weight or bias is not of this shape, or the two differ in dtype."""
    present = [weight for weight in weights if weight is not None]
    for weight in present:
        if weight.shape != shape:
            raise ValueError(f"{op}: {weight.argument} has shape {weight.shape}; for x of {x.shape} it takes {shape}")
        if weight.dtype is not present[0].dtype:
            raise TypeError(
                f"{op}: {present[0].argument} is {present[0].dtype.numpy_name} and {weight.argument} "
                f"{weight.dtype.numpy_name}; they must have one dtype"
            )


def normed_axes(op: str, axis: object, x: Operand) -> tuple[int, ...]:
    """The axes along which x is normalised: at least one."""
    axes = normal_axes(op, axis, len(x.shape))
    if not x.shape:
        raise ValueError(f"{op}: {x.argument} has shape (), and so no axis to normalise along")
    if axis is None or not axes:
        raise TypeError(f"{op}: axis is {axis!r}; it takes an integer or a tuple of them")
    return axes


def _normed(
    op: str, x: Operand | None, residual: Operand | None, weights: Given, axis: object
) -> tuple[Operand, tuple[int, ...]]:
    """x and the axes; raises what does not fit."""
    assert x is not None
    axes = normed_axes(op, axis, x)
    shape = tuple(x.shape[a] for a in axes)
    if 0 in shape:
        raise ValueError(f"{op}: x has shape {x.shape}, with nothing along axis {axis} to normalise")
    check_weights(op, x, weights, shape)
    if residual is not None and (residual.shape != x.shape or residual.dtype is not x.dtype):
        raise (ValueError if residual.shape != x.shape else TypeError)(
            f"{op}: residual is {residual.dtype.numpy_name} of shape {residual.shape}; "
            f"it takes those of x, {x.dtype.numpy_name} and {x.shape}"
        )
    return x, axes


def spread(weight: Operand | None, x: Operand, axes: tuple[int, ...]) -> Operand | None:
    """A weight with the axes of x: 1 for those along which it does not vary."""
    if weight is None:
        return None
    steps = dict(zip(axes, weight.strides))
    shape = tuple(size if axis in steps else 1 for axis, size in enumerate(x.shape))
    return weight.view(shape, tuple(steps.get(axis, 0) for axis in range(len(shape))))


def _prepare_rows(
    given: Mapping[str, Operand | None], results: Mapping[str, Operand], axis: object, normal: Normal
) -> Plan:
    x = given["x"]
    assert x is not None
    axes = normal_axes(normal.op, axis, len(x.shape))
    weights = {role: spread(given[role], x, axes) for role in ("weight", "bias") if role in given}
    written = {role: r if role in ("y", "total") else with_axes(r, x, axes) for role, r in results.items()}
    return plan({**given, **weights}, written, axes, normal)


def layer_results(op: str, given: Given, axis: object, eps: float, return_stats: bool) -> Results:
    x, axes = _normed(op, given[0], None, given[1:], axis)
    check_real(op, eps=eps)
    rest = tuple(x.shape[a] for a in others(x, axes))
    return [(x.shape, x.dtype), *([(rest, F32)] * 2 if return_stats else [])]


def prepare_layer(
    op: str, given: Given, results: Sequence[Operand], axis: object, eps: float, return_stats: bool
) -> Plan:
    named = dict(zip(("x", "weight", "bias"), given))
    written = dict(zip(("y", "mean", "rstd"), results))
    return _prepare_rows(named, written, axis, Normal(op, False, float(eps), 0.0, return_stats))


def rms_results(op: str, given: Given, axis: object, eps: float, weight_offset: float, return_rstd: bool) -> Results:
    x, axes = _normed(op, given[0], given[1], given[2:], axis)
    check_real(op, eps=eps, weight_offset=weight_offset)
    rest = tuple(x.shape[a] for a in others(x, axes))
    total = [(x.shape, x.dtype)] if given[1] is not None else []
    return [(x.shape, x.dtype), *total, *([(rest, F32)] if return_rstd else [])]


def prepare_rms(
    op: str,
    given: Given,
    results: Sequence[Operand],
    axis: object,
    eps: float,
    weight_offset: float,
    return_rstd: bool,
) -> Plan:
    named = dict(zip(("x", "residual", "weight"), given))
    written = dict(zip(("y", "total", "rstd") if given[1] else ("y", "rstd"), results))
    return _prepare_rows(named, written, axis, Normal(op, True, float(eps), float(weight_offset), return_rstd))


def fused_results(op: str, given: Given, eps: float, weight_offset: float) -> Results:
    return rms_results(op, given, -1, eps, weight_offset, False)


def prepare_fused(op: str, given: Given, results: Sequence[Operand], eps: float, weight_offset: float) -> Plan:
    return prepare_rms(op, given, results, -1, eps, weight_offset, False)


def group_results(op: str, given: Given, groups: int, eps: float, return_stats: bool) -> Results:
    x = given[0]
    assert x is not None
    check_real(op, eps=eps)
    groups = whole(op, "groups", groups)
    if len(x.shape) < 2:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes at least two axes, [N, C, ...]")
    if 0 in x.shape[1:]:
        raise ValueError(f"{op}: x has shape {x.shape}, with nothing to normalise")
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{op}: {groups} groups cannot be made of the channels of x, {x.shape}")
    check_weights(op, x, given[1:], (x.shape[1],))
    return [(x.shape, x.dtype), *([((x.shape[0], int(groups)), F32)] * 2 if return_stats else [])]


def prepare_group(
    op: str, given: Given, results: Sequence[Operand], groups: int, eps: float, return_stats: bool
) -> Plan:
    x, weight, bias = given
    assert x is not None
    channels, space = x.shape[1] // groups, x.shape[2:]
    ones = (1,) * len(space)

    def grouped(operand: Operand) -> Operand:
        (first, second), rest = operand.strides[:2], operand.strides[2:]
        shape = (x.shape[0], int(groups), channels, *space)
        return operand.view(shape, (first, second * channels, second, *rest))

    def per_channel(vector: Operand | None) -> Operand | None:
        if vector is None:
            return None
        step = vector.strides[0]
        return vector.view((1, int(groups), channels, *ones), (0, step * channels, step, *(0 for _ in space)))

    axes = tuple(range(2, 3 + len(space)))
    rest = [r.view((*r.shape, 1, *ones), (*contiguous_strides(r.shape), 0, *ones)) for r in results[1:]]
    written = dict(zip(("y", "mean", "rstd"), (grouped(results[0]), *rest)))
    named = {"x": grouped(x), "weight": per_channel(weight), "bias": per_channel(bias)}
    return plan(named, written, axes, Normal(op, False, float(eps), 0.0, return_stats, int(groups), math.prod(space)))
