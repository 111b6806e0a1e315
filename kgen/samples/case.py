"""A call of an operator on arrays in the midst of poison, and how its results are judged."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from kgen.dtypes import dtype_of
from kgen.samples.accuracy import RMS_BAR, rms_bar, rms_error
from kgen.spec import Spec

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Case(NamedTuple):
    """One call, and what it must give.

    expected  float64, or whole numbers, which must be met exactly; one or several results
    bar       the largest relative RMS error; None: what the inputs' dtype allows; 0: none
    dtype     of the results, None: of the first input, or of `expected` where that is of whole numbers
    settings  attributes of modules for the time of the call
    begin     elements between a multiple of a vector and where the results begin
    """

    operator: Callable[..., Any]
    inputs: tuple[Array, ...]
    options: Mapping[str, Any]
    expected: Array | tuple[Array, ...]
    bar: float | None = None
    dtype: Any = None
    settings: tuple[tuple[Any, str, Any], ...] = ()
    begin: int = 0


def call(case: Case) -> tuple[Array, ...]:
    """The results of a case, in poisoned arrays where the operator takes some; its inputs must not be written to."""
    options = options_of(case)
    with ExitStack() as stack:
        for owner, name, value in case.settings:
            stack.enter_context(mock.patch.object(owner, name, value))
        for given in case.inputs:
            if isinstance(given, np.ndarray) and given.flags.writeable:
                given.flags.writeable = False
                stack.callback(given.setflags, write=True)
        result = case.operator(*case.inputs, **options)
    return result if isinstance(result, tuple) else (result,)


def options_of(case: Case) -> dict[str, Any]:
    """The options of a call, with a poisoned array for its result where the operator takes one."""
    expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    options = dict(case.options)
    if len(expected) == 1 and "out" in inspect.signature(case.operator).parameters:
        out = _poisoned(expected[0].shape, _result_dtype(case, expected[0]))
        options["out"] = between_poison(out, 256 + case.begin)
    return options


def complaint(case: Case, results: tuple[Array, ...]) -> str:
    """What is wrong with the results; nothing, where they are right."""
    expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    if len(results) != len(expected):
        return f"{len(results)} results, not {len(expected)}"
    return next(filter(None, (_wrong(case, result, right) for result, right in zip(results, expected))), "")


def verify(case: Case, results: tuple[Array, ...]) -> None:
    """Raise AssertionError for results that are wrong."""
    if wrong := complaint(case, results):
        raise AssertionError(wrong)


def _wrong(case: Case, result: Array, right: Array) -> str:
    if result.shape != right.shape:
        return f"the result has shape {result.shape}, not {right.shape}"
    dtype = case.inputs[0].dtype
    if case.bar == 0 or right.dtype.kind in "iub" or result.dtype.kind in "iub":
        differ = np.argwhere(np.asarray(result, right.dtype) != right)
        return f"{len(differ)} of {right.size} elements differ, the first at {tuple(differ[0])}" if len(differ) else ""
    off = ~np.isfinite(right)
    if not np.array_equal(np.isfinite(result), ~off):
        return "not finite elsewhere than expected"
    if not np.array_equal(np.asarray(result, np.float64)[off], right[off], equal_nan=True):
        return "not finite, and another"
    coarser = result.dtype.itemsize < dtype.itemsize or dtype.kind in "iub"
    name = dtype_of(result.dtype if coarser else dtype).name
    result, right = (np.where(off, x.dtype.type(0), x) for x in (result, right))
    error = rms_error(_but_for_underflow(result, right), right)
    bar = case.bar or (RMS_BAR[name] if right.size > 16 else rms_bar(name, 1))
    return "" if error <= bar else f"the relative RMS error is {error:.2g}, and {bar:.2g} is allowed"


def _but_for_underflow(result: Array, right: Array) -> Array:
    """The results in float64, and where float16 has no more digits, without what was rounded off for that reason."""
    wide_result = result.astype(np.float64)
    if result.dtype != np.float16:
        return wide_result
    limits = np.finfo(np.float16)
    half_a_step = float(limits.smallest_subnormal) / 2
    rounded_off = np.clip(wide_result - right, -half_a_step, half_a_step)
    return np.where(abs(right) < limits.smallest_normal, wide_result - rounded_off, wide_result)


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
