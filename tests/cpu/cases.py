"""How each default kernel is called: an operator, small odd sizes, and the float64 result.

Sizes go round every pipeline stage at least twice and are multiples of no tile, so that each wait and each bounds test
decides something: without it the result is wrong, or a check speaks. `tests.cpu.mutants` holds the sizes to that.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import kgen
from kgen import reference
from kgen.dtypes import dtype_of
from kgen.ops import chunk, norm, norm_backward, norm_plans, reduce, rows, softmax_backward, softmax_online
from kgen.ops import softmax as softmaxes
from kgen.ops.activations import NAMED
from kgen.ops.dot import dot as kgen_dot
from kgen.ops.gemv import gemv as kgen_gemv
from kgen.ops.histogram import bincount
from kgen.ops.histogram import histogram as kgen_histogram
from kgen.ops.nms import nms as kgen_nms
from kgen.ops.quantize import quantize as kgen_quantize
from kgen.ops.rope import rope as kgen_rope
from kgen.ops.take import take as kgen_take
from kgen.ops.transpose import transpose as kgen_transpose
from kgen.spec import Spec
from tests.gpu.numerics import RMS_BAR, rms_bar, rms_error

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """One call, and what it must give.

    expected  float64, or whole numbers, which must be met exactly; one or several results
    bar       the largest relative RMS error; None: what the inputs' dtype allows; 0: none
    dtype     of the results, None: of the first input, or of `expected` where that is of whole numbers
    settings  attributes of modules for the time of the call
    """

    operator: Callable[..., Any]
    inputs: tuple[Array, ...]
    options: Mapping[str, Any]
    expected: Array | tuple[Array, ...]
    bar: float | None = None
    dtype: Any = None
    settings: tuple[tuple[Any, str, Any], ...] = ()


def cases_of(spec: Spec) -> tuple[Case, ...]:
    """The calls that run a specialization; raises LookupError, which names it, where this file has none."""
    make = CASES.get(spec.kernel.name) or CASES.get(spec.kernel.stem)
    if make is None:
        raise LookupError(f"{spec.name} has no case: say in tests/cpu/cases.py how {spec.kernel.name} is called")
    made = make(spec)
    return (made,) if isinstance(made, Case) else made


def call(case: Case) -> tuple[Array, ...]:
    """The results of a case, in poisoned arrays where the operator takes some."""
    expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    options = dict(case.options)
    if len(expected) == 1 and "out" in inspect.signature(case.operator).parameters:
        options["out"] = _poisoned(expected[0].shape, _result_dtype(case, expected[0]))
    with ExitStack() as stack:
        for owner, name, value in case.settings:
            stack.enter_context(mock.patch.object(owner, name, value))
        result = case.operator(*case.inputs, **options)
    return result if isinstance(result, tuple) else (result,)


def verify(case: Case, results: tuple[Array, ...]) -> None:
    """Raise AssertionError for results that are wrong."""
    expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    assert len(results) == len(expected)
    for result, right in zip(results, expected):
        assert result.shape == right.shape, f"the result has shape {result.shape}, not {right.shape}"
        dtype = case.inputs[0].dtype
        if case.bar == 0 or right.dtype.kind in "iub":
            wrong = np.argwhere(np.asarray(result, right.dtype) != right)
            assert not len(wrong), f"{len(wrong)} of {right.size} elements differ, the first at {tuple(wrong[0])}"
            continue
        off = ~np.isfinite(right)
        assert np.array_equal(np.isfinite(result), ~off), "not finite elsewhere than expected"
        assert np.array_equal(np.asarray(result, np.float64)[off], right[off], equal_nan=True), (
            "not finite, and another"
        )
        result, right = np.where(off, 0, result), np.where(off, 0, right)
        name = dtype_of(result.dtype if result.dtype.itemsize < dtype.itemsize else dtype).name
        error, bar = rms_error(result, right), case.bar or (RMS_BAR[name] if right.size > 16 else rms_bar(name, 1))
        assert error <= bar, f"the relative RMS error is {error:.2g}, and {bar:.2g} is allowed"


def _result_dtype(case: Case, expected: Array) -> Any:
    return case.dtype or (case.inputs[0].dtype if expected.dtype == np.float64 else expected.dtype)


def _poisoned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Every bit is set: NaN, -1, or the largest number."""
    count = int(np.prod(shape))
    made: Array = np.full(count * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)
    return made


def numbers(spec: Spec, *shapes: tuple[int, ...], dtype: Any = None) -> tuple[Array, ...]:
    """Normal numbers of the specialization's dtype; the same at each call.

    Each array lies between numbers of set bits, so that whatever is read before or behind it shows.
    """
    rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
    return tuple(between_poison(rng.standard_normal(shape).astype(dtype or spec.dtype.numpy)) for shape in shapes)


def between_poison(x: Array, margin: int = 256) -> Array:
    """The same array in the middle of a larger one that is poisoned; aligned alike, if the margin is."""
    around = _poisoned((x.size + 2 * margin,), x.dtype)
    around[margin : margin + x.size] = x.ravel()
    return around[margin : margin + x.size].reshape(x.shape)


def wide(*arrays: Array) -> tuple[Array, ...]:
    return tuple(x.astype(np.float64) for x in arrays)


# Linear attention.


Scale = tuple[float, float]
"""Of keys and of values."""


def _scan(
    spec: Spec, length: int, e: int, m: int, *, heads: int = 2, algorithm: str = "", scale: Scale = (0, 0), **more: Any
) -> Case:
    """An early and a late value are infinite: with queries and keys above zero their columns are, and nothing else.

    With a `scale` nothing is infinite, and all keys and values are that large.
    """
    q, k, v = numbers(spec, (1, heads, length, e), (1, heads, length, e), (1, heads, length, m))
    q, k = between_poison(abs(q)), between_poison(abs(k))
    reverse = "reverse" in spec.flags
    infinite = [(0, 2, m // 2), (heads - 1, length - 2, m // 3)]
    if scale != (0, 0):
        k *= np.asarray(scale[0], k.dtype)
        v *= np.asarray(scale[1], v.dtype)
        infinite = []
    expected = reference.causal_dot_product(*wide(q, k, v), reverse=reverse)
    for head, time, column in infinite:
        v[0, head, time, column] = np.inf
        expected[0, head, slice(time + 1) if reverse else slice(time, None), column] = np.inf
    options = {"reverse": reverse, "algorithm": algorithm or spec.name}
    return Case(kgen.causal_dot_product, (q, k, v), options, expected, **more)


def lmha(spec: Spec) -> Case:
    """Three fetches of STEPS tokens and a part of one; a second tile of columns."""
    return _scan(spec, 3 * spec["STEPS"] + 2, spec["E"] - 7, spec["COLUMNS"] + 3)


def lmha_low_occupancy(spec: Spec) -> Case:
    """Three rounds of the block's time steps and a part of one."""
    return _scan(spec, 3 * spec["WARPS"] * spec["COLS_PER_THREAD"] + 7, spec["E"] - 3 * spec["VEC"], 3 * spec["VEC"])


def lmha_chunk(spec: Spec) -> tuple[Case, ...]:
    """Four chunks and a part of one; the two stages are filled twice, and a second tile of columns is begun.

    With up to 64 features also the same of numbers too large for the tensor cores, by themselves or added up.
    """
    e, m, size = spec["E"], spec["MB"], spec["C"]
    at_once = max(e // 32, m // 32, 2)
    length = 4 * size + 7
    made: list[Any]
    if spec["outer"] and not spec["packed"]:
        k, v = numbers(spec, (1, 2, length, e - at_once), (1, 2, length, m - at_once))
        made = [
            (k * np.float32(of_k), v * np.float32(of_v)) for of_k, of_v in ((1, 1), (2.0**45, 2.0**45), (1, 2.0**62))
        ]
        return tuple(Case(kgen.linear_state, pair, {}, reference.linear_state(*wide(*pair))) for pair in made)
    scales: tuple[Scale, ...] = (
        ((0, 0),) if spec.dtype.name == "f16" or e > 64 else ((0, 0), (2.0**45, 2.0**45), (1, 2.0**62))
    )
    if spec["outer"]:  # the states of the first of two segments, for the second one
        main = spec.kernel.spec(E=e, MB=m, C=size, dtype=spec.dtype)
        about: dict[str, Any] = {"heads": 1, "algorithm": main.name}
        return tuple(_scan(spec, 8 * size + 7, e - at_once, m - at_once, scale=scale, **about) for scale in scales)
    if spec["adds"] or spec["partial"]:  # features in two slices
        about = {"heads": 4, "algorithm": "lmha_chunk"}
        return tuple(_scan(spec, length, 256 - at_once, m - at_once, scale=scale, **about) for scale in scales)
    odd = (e - 1, m + 3) if spec["unaligned"] else (e - at_once, m + at_once)
    made = [_scan(spec, length, *odd, scale=scale) for scale in scales]
    if e <= 64:  # and in two segments
        made.append(_scan(spec, 8 * size + 7, e - at_once, m - at_once, heads=1))
    return tuple(made)


def lmha_prefix(spec: Spec) -> Case:
    """Four segments, whose states are added up by a launch of their own, as it is with many."""
    settings = ((chunk, "FEW", 0),)
    return _scan(spec, 16 * 32 + 7, 30, 30, heads=1, algorithm="lmha_chunk_e32_m32_f32", settings=settings)


def lmha_total(spec: Spec) -> Case:
    """Two states of an odd number of elements; the first one has two parts, the last one only one."""
    k, v = numbers(spec, (1, 1, 357, 19), (1, 1, 357, 29))
    expected = reference.linear_state(*wide(k, v), segment=256)
    return Case(kgen.linear_state, (k, v), {"segment": 256}, expected, dtype=np.float32)


def lmha_query(spec: Spec) -> Case:
    """Features and tokens end within a tile; there are enough heads for large tiles where the kernel has those."""
    heads, pad = 4 if spec["TOKENS"] == 128 else 1, 4 if spec["VEC"] == 4 else 1
    (q,) = numbers(spec, (1, heads, 197, 64 - pad))
    (state,) = numbers(spec, (1, heads, 64 - pad, 64 - pad), dtype=np.float32)
    return Case(kgen.query_state, (q, state), {}, reference.query_state(*wide(q, state)))


# Reductions.


def reduce_rows(spec: Spec) -> Case:
    """A row for several blocks, or rows for fewer threads than a warp has; loads that do not fill the last round."""
    group, load = spec["GROUP"], spec["VEC"] * spec["ITEMS"]
    shape = (3, 5 * group * load + 11) if spec["split"] else (303, group * load + 11)
    return _reduction(spec, shape, -1)


def reduce_columns(spec: Spec) -> Case:
    """A second tile of columns, and rows for several blocks."""
    return _reduction(spec, (9 * 32 * spec["ITEMS"] + 5, spec["LANES"] * spec["VEC"] + spec["VEC"]), 0)


def _reduction(spec: Spec, shape: tuple[int, int], axis: int) -> Case:
    name = spec.kernel.name.partition("_")[0]
    (x,) = numbers(spec, shape)
    if name == "prod":  # of numbers near 1, so that it stays a number
        x = between_poison((1 + x / 256).astype(x.dtype))
    if name[-3:] in ("max", "min"):
        x = between_poison(_with_extremes(x, axis) * (1 if name[-3:] == "max" else -1))
    expected = getattr(np, name)(x.astype(np.float64), axis=axis)
    return Case(getattr(reduce, name), (x,), {"axis": axis}, expected, 0 if name[-3:] in ("max", "min") else None)


def _with_extremes(x: Array, axis: int) -> Array:
    """Numbers below zero, many of them equal, with a maximum in turn at several places, at the end, and before it."""
    x = (-1 - np.rint(abs(x) * 4)).astype(x.dtype)
    lines = np.moveaxis(x, axis, -1)
    lines[0::3, 5::37] = lines[1::3, -1] = lines[2::3, -8] = -0.5
    return x


def dot(spec: Spec) -> tuple[Case, ...]:
    """Several blocks, the last of them with part of a round, and elements that fill no load; two elements only."""
    made = []
    for count, margin in ((5 * 512 * spec["VEC"] * spec["ITEMS"] + 11, 256), (2, 257)):
        a, b = (between_poison(abs(x), margin) for x in numbers(spec, (count,), (count,)))
        made.append(Case(kgen_dot, (a, b), {}, np.dot(*wide(a, b)).reshape(())))
    return tuple(made)


# Counts.


def histogram(spec: Spec) -> tuple[Case, ...]:
    """Several blocks, the last with part of a round; elements that fill no load, or fall into no bin; two elements.

    16-bit counters are asked for more bins than a pass has.
    """
    made = []
    for count, margin in ((3 * spec.threads * spec["VEC"] * 8 + 11, 256), (2, 257)):
        if spec["uniform"]:
            x = between_poison(_about_edges(numbers(spec, (count,))[0]), margin)
            options: dict[str, Any] = {"bins": 701, "range": (-2.5, 2.5)}
            made.append(Case(kgen_histogram, (x,), options, np.histogram(x, **options)))
        else:
            bins = 120001 if spec["packed"] else 701
            x = np.random.default_rng(1).integers(-99, bins + 99, count).astype(spec.dtype.numpy)
            counted = np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
            made.append(Case(bincount, (between_poison(x, margin),), {"length": bins}, counted))
    return tuple(made)


def _about_edges(x: Array) -> Array:
    """The same with the edges of bins, and what is just below them, in front."""
    edges = np.linspace(-2.5, 2.5, 702, dtype=x.dtype)
    special = np.concatenate([edges, np.nextafter(edges, x.dtype.type(-9))])
    x[: len(special)] = special[: len(x)]
    return x


def weighted_histogram(spec: Spec) -> Case:
    """Several blocks; more bins than a block has threads."""
    count = 9 * 256 + 11
    (x,), (weights,) = numbers(spec, (count,), dtype=np.float32), numbers(spec, (count,), dtype=np.float64)
    x = between_poison(_about_edges(x))
    options: dict[str, Any] = {"bins": 701, "range": (-2.5, 2.5)}
    if spec.kernel.name == "histogram_density":
        options |= {"bins": 2501, "density": True}
    else:
        options["weights"] = weights
    return Case(kgen_histogram, (x,), options, np.histogram(x, **options), 1e-12)


# A matrix times a vector.


def gemv(spec: Spec) -> Case:
    """Two rounds and a part of one for each row, in as many rows as keep the sums in one piece."""
    rows = 4096 // spec["LANES"] * spec["ROWS"] + 3
    depth = (2 * spec["LANES"] * spec["UNROLL"] + 5) * spec["VEC"] + (3 if spec["ragged"] or spec["VEC"] == 1 else 0)
    return _product(spec, rows, depth, algorithm=spec.name)


def gemv_columns(spec: Spec) -> Case:
    """A second tile of columns, in a round and nearly another one; or part of a tile, in sums of five pieces."""
    whole = spec.kernel.spec(**{axis.name: spec[axis.name] for axis in spec.kernel.axes}, dtype=spec.dtype)
    round_ = spec.threads // spec["LANES"] * spec["UNROLL"]
    depth = 5 * round_ + 3 if spec["partial"] else 2 * round_ - 1
    packs = spec["LANES"] + (-1 if spec["partial"] else 1)
    return _product(spec, packs * spec["VEC"], depth, algorithm=whole.name, trans=True)


def gemv_sum(spec: Spec) -> Case:
    """Sums in a few pieces."""
    return _product(spec, 13, 7 * 32 * 4 + 12, algorithm=f"gemv_v4_l32_r1_u1_{spec.dtype}")


def _product(spec: Spec, rows: int, depth: int, *, algorithm: str, trans: bool = False) -> Case:
    shape = (depth, rows) if trans else (rows, depth)
    options: dict[str, Any] = {"alpha": 1.5, "beta": -0.5, "trans": trans, "algorithm": algorithm}
    values = np.float16 if "half" in spec.flags else spec.dtype.numpy
    x, y = numbers(spec, (depth,), (rows,), dtype=values)
    if spec.dtype.numpy.kind == "i":
        a = between_poison(np.random.default_rng(1).integers(-99, 99, shape).astype(spec.dtype.numpy))
        (scale,) = numbers(spec, (rows,), dtype=np.float32)
        options["scale"] = scale / 1024
        weights = a * options["scale"].astype(np.float64)[:, None]
    else:
        (a,) = numbers(spec, shape)
        a[..., :9] *= 8  # what stands at the ends counts for more
        a[..., -9:] *= 8
        weights = a.astype(np.float64)
    expected = 1.5 * (weights.T if trans else weights) @ x.astype(np.float64) - 0.5 * y.astype(np.float64)
    return Case(kgen_gemv, (a, x, y), options, expected, rms_bar(dtype_of(values).name, rows), values)


# What moves data, and what takes each element by itself.


def transpose(spec: Spec) -> Case:
    """Tiles that the array does not fill in both of its directions; elements one by one where they lie apart."""
    if spec["BATCH"] == 2:
        return _permutation(spec, (3, 72, 5, 88), (2, 0, 3, 1))
    return _permutation(spec, (140, 76), (1, 0)) if spec["LOAD"] > 1 else _permutation(spec, (141, 77), (1, 0), 2)


def transpose_ragged(spec: Spec) -> Case:
    """Several tiles in both directions."""
    return _permutation(spec, (2 * spec["ROWS"] + 13, 33 * 16 // spec.dtype.itemsize + 1), (1, 0))


def transpose_rows(spec: Spec) -> Case:
    """Rows of words; those of the last block do not exist."""
    return _permutation(spec, (3, 5, 7, (spec["LANES"] - 5) * spec["BYTES"]), (2, 1, 0, 3))


def _permutation(spec: Spec, shape: tuple[int, ...], axes: tuple[int, ...], step: int = 1) -> Case:
    shape = (*shape[:-1], shape[-1] * step)
    numbered = np.arange(int(np.prod(shape)), dtype=np.uint64) * 40503 % 65521
    x = between_poison(numbered.astype(spec.dtype.numpy).reshape(shape))[..., ::step]
    return Case(kgen_transpose, (x,), {"axes": axes}, x.transpose(axes))


def take(spec: Spec) -> tuple[Case, ...]:
    """Rows that end within a tile of words; indices that count from the end, and some beyond it."""
    width = (spec["LANES"] * spec["ACROSS"] - 5) * spec["BYTES"] // 4
    rows = 71 if spec["ACROSS"] == 1 else 5
    rng = np.random.default_rng(1)
    table = between_poison(rng.integers(0, 1 << 30, (23, width), np.int32))
    checked = "checked" in spec.flags
    indices = rng.integers(-23 if checked else -29, 23 if checked else 29, rows).astype(spec.dtype.numpy)
    indices[-1] = 22
    inside = (indices >= -23) & (indices < 23)
    expected = np.where(inside[:, None], table[np.where(inside, indices, 0)], -1).astype(np.int32)
    options = {"mode": "raise" if checked else "fill"}
    good = Case(kgen_take, (table, between_poison(indices)), options, expected)
    if not checked:
        return (good,)
    beyond = [np.array([3, bad, 2, bad], spec.dtype.numpy) for bad in (23, -24)]
    return good, *(Case(_first_beyond, (table, between_poison(one)), {}, np.array(1)) for one in beyond)


def _first_beyond(table: Array, indices: Array) -> Array:
    """The number of the first index that is out of bounds, as the operator tells it."""
    try:
        kgen_take(table, indices)
    except IndexError as error:
        return np.array(int(str(error).partition("number ")[2].partition(",")[0]))
    return np.array(-1)


def rope(spec: Spec) -> Case:
    """Several blocks for the pairs of all tokens, heads that do not share out evenly, features that are not turned."""
    pairs = spec["PAIRS"]
    (x,) = numbers(spec, (1, 7, 101, 12 * pairs))
    turned, kept = wide(x[..., : 8 * pairs], x[..., 8 * pairs :])
    frequencies = 10000.0 ** (-np.arange(4 * pairs) / (4 * pairs))
    positions = np.arange(101)
    options: dict[str, Any] = {"interleaved": "interleaved" in spec.flags, "rotary_dim": 8 * pairs}
    if spec["INDEX_BYTES"]:
        positions = positions[::-1] * 3
        options["positions"] = between_poison(positions.astype(f"i{spec['INDEX_BYTES']}"))
    if "tables" in spec.flags:
        angles = np.arange(301)[:, None] * frequencies
        options |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    halves = turned.reshape(*turned.shape[:-1], *((-1, 2) if options["interleaved"] else (2, -1)))
    axis = -1 if options["interleaved"] else -2
    first, second = np.moveaxis(halves, axis, 0)
    cos, sin = (f(positions[:, None] * frequencies) for f in (np.cos, np.sin))
    expected = np.stack([first * cos - second * sin, first * sin + second * cos], axis).reshape(turned.shape)
    return Case(kgen_rope, (x,), options, np.concatenate([expected, kept], -1))


def nms(spec: Spec) -> Case:
    """Many tiles and a part of one; equal scores among the boxes; room for nearly all that stay."""
    rng = np.random.default_rng(1)
    count = 34 * 64 + 5
    corners = rng.random((count, 2), np.float32) * 20
    boxes = between_poison(np.concatenate([corners, corners + rng.random((count, 2), np.float32) * 3], 1))
    scores = between_poison(rng.integers(0, 999, count).astype(np.float32))
    kept = _non_maximum_suppression(boxes, scores, np.float32(0.3))
    most = len(kept) - 7
    options = {"iou_threshold": 0.3, "padded": True, "max_output": most}
    return Case(kgen_nms, (boxes, scores), options, (np.array(kept[:most]), np.array(most)))


def _non_maximum_suppression(boxes: Array, scores: Array, threshold: np.float32) -> list[int]:
    """Greedily by score; all in the type of the boxes."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    stays = np.ones(len(boxes), bool)
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if stays[i]:
            kept.append(int(i))
            width = np.maximum(np.minimum(right, right[i]) - np.maximum(left, left[i]), 0)
            height = np.maximum(np.minimum(bottom, bottom[i]) - np.maximum(top, top[i]), 0)
            both = width * height
            stays &= ~(both / (areas[i] + areas - both) > threshold)
    return kept


def elementwise(spec: Spec) -> Case:
    """Two blocks and a part of one; elements at the end that fill no vector."""
    operator = NAMED[spec.kernel.name]
    count = 2 * spec.threads * spec["ITEMS"] * spec["VEC"] + 1
    arrays = 2 if spec.kernel.name in ("add", "swiglu") else 1
    inputs = list(numbers(spec, *arrays * [(count,)]))
    if spec["INDEXED"]:  # the second one is the same for all rows
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


def quantize(spec: Spec) -> Case:
    """Rows of several groups, the last one of each with fewer elements; groups that do not fill a block."""
    group = spec["LANES"] * spec["VEC"] - spec["VEC"]
    (x,) = numbers(spec, (7, 4 * group - 3 * spec["VEC"]))
    wide_x = x.astype(np.float32)
    starts = np.arange(0, x.shape[1], group)
    scales = np.maximum.reduceat(abs(wide_x), starts, axis=1) / np.float32(448)
    code = dtype_of(spec.kernel.name.removeprefix("quantize_"))
    codes = (wide_x / np.repeat(scales, group, axis=1)[:, : x.shape[1]]).astype(code.numpy)
    options = {"dtype": code.name, "axis": -1, "block": group}
    return Case(kgen_quantize, (x,), options, (codes.astype(np.float64), scales), 1e-6)


# Rows: softmax and normalisation.


def _softmax(x: Array, axis: int) -> Array:
    x = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True))
    result: Array = x / x.sum(axis, keepdims=True)
    return result


def _row(spec: Spec, count: int) -> tuple[int, int]:
    """So many rows, each with all but one or two of the packs for which a specialization has room."""
    return count, (spec["LANES"] * spec["PACKS"] * spec["CLUSTER"] - 3) * spec["VEC"]


def _taking(spec: Spec) -> tuple[tuple[Any, str, Any], ...]:
    """For operators that choose a specialization by themselves: this one."""
    return ((rows, "cut", lambda *about: rows.Cut.of(spec)),)


def softmax(spec: Spec) -> Case:
    """More rows than a block takes at once."""
    (x,) = numbers(spec, _row(spec, 11 if spec["LANES"] <= 32 else 3))
    return Case(softmaxes.softmax, (x,), {"axis": -1, "algorithm": spec.name}, _softmax(x, -1))


def softmax_of_long_rows(spec: Spec) -> Case:
    """Two rounds and a part of one for each block, of which a row has one or two."""
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    whole = not (spec["partial"] or spec["apply"])
    (x,) = numbers(spec, (2, 2 * tile + 3 * spec["VEC"]) if whole else (1, 3 * tile + 5 * spec["VEC"]))
    settings = ((softmax_online, "multiprocessors", lambda device: 1),)
    options = {"axis": -1, "algorithm": "softmax_online"}
    return Case(softmaxes.softmax, (x,), options, _softmax(x, -1), settings=settings)


def softmax_columns(spec: Spec) -> Case:
    """A second strip of columns; columns of nearly as many numbers as there is room for, or of twice as many."""
    room = spec["DEPTH"] * spec["HELD"]
    length = 2 * room + 99 if spec["online"] else room - 5
    (x,) = numbers(spec, (length, (spec["LANES"] + 3) * spec["VEC"]))
    algorithm = "softmax_columns" if spec["online"] else spec.name
    return Case(softmaxes.softmax, (x,), {"axis": 0, "algorithm": algorithm}, _softmax(x, 0))


def backward_of_softmax(spec: Spec) -> Case:
    """Rows that nearly fill the registers."""
    dy, x = numbers(spec, *2 * [_row(spec, 3)])
    y = between_poison(_softmax(x, -1).astype(x.dtype))
    wide_dy, wide_y = wide(dy, y)
    expected = wide_y * (wide_dy - (wide_dy * wide_y).sum(-1, keepdims=True))
    return Case(softmax_backward.softmax_backward, (dy, y), {"axis": -1}, expected, settings=_taking(spec))


def normalisation(spec: Spec) -> Case:
    """Rows that nearly fill the registers."""
    shape = _row(spec, 3)
    x, residual, weight, bias = numbers(spec, shape, shape, shape[-1:], shape[-1:])
    if spec["residual"]:
        total = (x.astype(np.float32) + residual.astype(np.float32)).astype(x.dtype)
        expected = _normal(total, weight, None, rms=True)
        options = {"residual": residual}
        return Case(norm.rms_norm, (x, weight), options, (expected, *wide(total)), settings=_taking(spec))
    if spec["rms"]:
        return Case(norm.rms_norm, (x, weight), {}, _normal(x, weight, None, rms=True), settings=_taking(spec))
    return Case(norm.layer_norm, (x, weight, bias), {}, _normal(x, weight, bias), settings=_taking(spec))


def _normal(x: Array, weight: Array | None, bias: Array | None, *, rms: bool = False) -> Array:
    x = x.astype(np.float64)
    x = x if rms else x - x.mean(-1, keepdims=True)
    y: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + (1e-6 if rms else 1e-5))
    y = y if weight is None else y * weight.astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def normalisation_in_parts(spec: Spec) -> Case:
    """Groups of three channels, each in two parts of two rounds."""
    tile = spec["LANES"] * spec["PACKS"] * spec["VEC"]
    x, weight, bias = numbers(spec, (1, 6, (tile + 5 * spec["VEC"]) // spec["VEC"] * spec["VEC"]), (6,), (6,))
    expected = _normal(x.reshape(1, 2, -1), None, None).reshape(x.shape)
    expected = expected * weight.astype(np.float64)[:, None] + bias.astype(np.float64)[:, None]
    settings = ((rows, "cut", lambda *about: None), (norm_plans, "multiprocessors", lambda device: 1))
    return Case(norm.group_norm, (x, 2, weight, bias), {}, expected, settings=settings)  # type: ignore[arg-type]


def backward_of_normalisation(spec: Spec) -> Case:
    """Rows that nearly fill the registers, more of them than are added up at once."""
    shape = (37, 2036)
    dy, x, weight = numbers(spec, shape, shape, shape[-1:])
    wide_dy, wide_x, wide_weight = wide(dy, x, weight)
    mean = wide_x.mean(-1)
    rstd = 1 / np.sqrt(wide_x.var(-1) + 1e-5)
    mean, rstd = (between_poison(statistic.astype(np.float32)) for statistic in (mean, rstd))
    normal = (wide_x - mean[:, None]) * rstd[:, None].astype(np.float64)
    weighed = wide_dy * wide_weight
    dx = weighed - weighed.mean(-1, keepdims=True) - normal * (weighed * normal).mean(-1, keepdims=True)
    expected = (dx * rstd[:, None], (wide_dy * normal).sum(0), wide_dy.sum(0))
    return Case(norm_backward.layer_norm_backward, (dy, x, mean, rstd, weight), {}, expected)


CASES: dict[str, Callable[[Spec], Case | tuple[Case, ...]]] = {
    "lmha": lmha,
    "lmha_low_occupancy": lmha_low_occupancy,
    "lmha_chunk": lmha_chunk,
    "lmha_prefix": lmha_prefix,
    "lmha_total": lmha_total,
    "lmha_query": lmha_query,
    "reduce_rows": reduce_rows,
    "reduce_columns": reduce_columns,
    "dot": dot,
    "histogram": histogram,
    "histogram_weights": weighted_histogram,
    "histogram_largest": weighted_histogram,
    "histogram_total": weighted_histogram,
    "histogram_density": weighted_histogram,
    "gemv": gemv,
    "gemv_columns": gemv_columns,
    "gemv_sum": gemv_sum,
    "transpose": transpose,
    "transpose_ragged": transpose_ragged,
    "transpose_rows": transpose_rows,
    "take": take,
    "rope": rope,
    "nms_rank": nms,
    "nms_overlap": nms,
    "nms_sweep": nms,
    "elementwise": elementwise,
    "quantize_e4m3": quantize,
    "softmax": softmax,
    "softmax_online": softmax_of_long_rows,
    "softmax_columns": softmax_columns,
    "softmax_backward": backward_of_softmax,
    "norm": normalisation,
    "norm_split": normalisation_in_parts,
    "norm_backward": backward_of_normalisation,
    "norm_weights": backward_of_normalisation,
    "norm_total": backward_of_normalisation,
}
"""By kernel, or by the stem that kernels share: from a specialization, the call that runs it."""
