"""Calls of what takes each element, or each group of neighbours, by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kgen.dtypes import dtype_of
from kgen.ops.elementwise.activations import NAMED
from kgen.ops.moving.quantize import quantize as kgen_quantize
from kgen.samples.case import Array, Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec


def elementwise(spec: Spec, shape: Shape | None = None) -> Case:
    """Two blocks and a part of one; elements at the end that fill no vector; an array out of place, where it may be."""
    operator = NAMED[spec.kernel.name]
    count = (2 * spec.threads * spec["ITEMS"] + 37) * spec["VEC"] + 1
    arrays = 2 if spec.kernel.name in ("add", "swiglu") else 1
    inputs = list(numbers(spec, *arrays * [shape or (count,)]))
    if spec["unaligned"]:
        inputs[0] = between_poison(np.append(inputs[0], inputs[0][:1]))[1:]
    if spec["INDEXED"] and not shape:  # the second one is the same for all rows
        inputs = [inputs[0][: count // 9 * 9].reshape(9, -1), inputs[1][: count // 9]]
    expected = _FUNCTIONS[spec.kernel.name](*wide(*inputs))
    return Case(operator, tuple(inputs), {"algorithm": spec.name}, expected)


def _normal_cdf(x: Array) -> Array:
    from math import erfc, sqrt

    cdf: Array = np.vectorize(lambda one: erfc(-one / sqrt(2)) / 2)(x)
    return cdf


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x * _normal_cdf(x),
    "swiglu": lambda gate, up: gate / (1 + np.exp(-gate)) * up,
}


def quantize(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """Rows of several groups, the last one of each with fewer elements; groups that do not fill a block.

    And the same with rows of tiny and of huge numbers.
    """
    group = (spec["LANES"] * (spec["ITEMS"] or 32) - 1) * spec["VEC"]
    rows, columns = shape or (7, 4 * group - 3 * spec["VEC"])
    code = dtype_of(spec.kernel.name.removeprefix("quantize_"))

    def case(x: Array) -> Case:
        wide_x = x.astype(np.float32)
        starts = np.arange(0, x.shape[1], group)
        scales = np.maximum.reduceat(abs(wide_x), starts, axis=1) / np.float32(448)
        codes = (wide_x / np.repeat(scales, group, axis=1)[:, : x.shape[1]]).astype(code.numpy)
        options = {"dtype": code.name, "axis": -1, "block": group}
        return Case(kgen_quantize, (x,), options, (codes.astype(np.float64), scales), 0)

    (x,) = numbers(spec, (rows, columns))
    return case(x), case(_of_all_sizes(x, 0))


def _of_all_sizes(x: Array, axis: int) -> Array:
    """The same, every third as it is, tiny or huge, where the type has such numbers."""
    if x.dtype == np.float16:
        return x
    factors = np.array([1, 2.0**-118, 2.0**100])[np.arange(x.shape[axis]) % 3]
    shape = [-1 if at == axis % x.ndim else 1 for at in range(x.ndim)]
    return between_poison((x.astype(np.float64) * factors.reshape(shape)).astype(x.dtype))


def quantize_with_one_scale(spec: Spec, shape: Shape | None = None) -> Case:
    """Several parts, the last of them shorter."""
    (x,) = numbers(spec, shape or (3, 4 * spec.threads * spec["VEC"] + 37))
    x[(-1,) * x.ndim] = -9
    wide_x = x.astype(np.float32)
    scale = abs(wide_x).max() / np.float32(448)
    codes = (wide_x / scale).astype(dtype_of("e4m3").numpy).astype(np.float64)
    return Case(kgen_quantize, (x,), {}, (codes, np.asarray(scale, np.float64)), 1e-6)


def quantize_columns(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """A second tile of columns, and several pieces of rows; and the same with columns of tiny and of huge numbers."""
    matrices, rows, columns = shape or (2, 9 * 4 * spec.threads // spec["LANES"] + 5, (spec["LANES"] + 1) * spec["VEC"])

    def case(x: Array) -> Case:
        wide_x = x.astype(np.float32)
        scales = abs(wide_x).max(axis=1, keepdims=True) / np.float32(448)
        codes = (wide_x / scales).astype(dtype_of("e4m3").numpy).astype(np.float64)
        return Case(kgen_quantize, (x,), {"axis": 1}, (codes, scales), 0)

    (x,) = numbers(spec, (matrices, rows, columns))
    return case(x), case(_of_all_sizes(x, 2))


CASES = {
    "elementwise": elementwise,
    "quantize_columns_e4m3": quantize_columns,
    "quantize_e4m3": quantize,
    "quantize_largest": quantize_with_one_scale,
}
