"""Calls of linear attention: rounds of a few time steps, infinities early and late."""

from __future__ import annotations

from typing import Any

import numpy as np

import kgen
from kgen import reference
from kgen.ops.causal import chunk
from kgen.samples.case import Case, Shape, between_poison, numbers, wide
from kgen.spec import Spec

Scale = tuple[float, float]
"""Of keys and of values."""


def _scan(
    spec: Spec,
    length: int,
    e: int,
    m: int,
    *,
    batch: int = 1,
    heads: int = 2,
    algorithm: str = "",
    scale: Scale = (0, 0),
    at_the_end: bool = False,
    **more: Any,
) -> Case:
    """Some columns are infinite, throughout, or from an early or a late value on, as queries and keys are above zero.

    The early one is among the first columns of the first head, the late one among the last. The last head has the
    columns that are infinite throughout, or, of more than two that are not to have them `at_the_end`, the second one.
    With a `scale` nothing is infinite, and all keys and values are that large.
    """
    q, k, v = numbers(spec, *2 * [(batch, heads, length, e)], (batch, heads, length, m))
    q, k = between_poison(abs(q)), between_poison(abs(k))
    reverse = "reverse" in spec.flags
    infinite = [(0, 2, 3, m // 4), (0, length - 2, length - 1, m - 2)]
    infinite.append((heads - 1 if heads < 3 or at_the_end else 1, 0, length, m - 1))
    if scale != (0, 0):
        k *= np.asarray(scale[0], k.dtype)
        v *= np.asarray(scale[1], v.dtype)
        infinite.clear()
    expected = reference.causal_dot_product(*wide(q, k, v), reverse=reverse)
    for head, first, end, column in infinite:
        v[0, head, first:end, column] = np.inf
        expected[0, head, slice(end) if reverse else slice(first, None), column] = np.inf
    options = {"reverse": reverse, "algorithm": algorithm or spec.name}
    return Case(kgen.causal_dot_product, (q, k, v), options, expected, **more)


def _of_shape(spec: Spec, shape: Shape, algorithm: str = "") -> Case:
    """A shape is B, H, T, E, M."""
    batch, heads, length, e, m = shape
    return _scan(spec, length, e, m, batch=batch, heads=heads, algorithm=algorithm, scale=(1, 1))


def lmha(spec: Spec, shape: Shape | None = None) -> Case:
    """Three fetches of STEPS tokens and a part of one; a second tile of columns."""
    if shape:
        return _of_shape(spec, shape)
    return _scan(spec, 3 * spec["STEPS"] + 2, spec["E"] - 7, spec["COLUMNS"] + 3)


def lmha_low_occupancy(spec: Spec, shape: Shape | None = None) -> Case:
    """Three rounds of the block's time steps and a part of one."""
    if shape:
        return _of_shape(spec, shape)
    return _scan(spec, 3 * spec["WARPS"] * spec["COLS_PER_THREAD"] + 7, spec["E"] - 3 * spec["VEC"], 3 * spec["VEC"])


def lmha_chunk(spec: Spec, shape: Shape | None = None) -> Case | tuple[Case, ...]:
    """Four chunks and a part of one; the two stages are filled twice, and a second tile of columns is begun.

    With up to 64 features also the same of numbers too large for the tensor cores, by themselves or added up.
    """
    e, m, size = spec["E"], spec["MB"], spec["C"]
    at_once = max(e // 32, m // 32, 2)
    length = 4 * size + 7
    made: list[Any]
    if shape:
        helps = any(spec[flag] for flag in ("outer", "adds", "partial"))  # only a part of a call
        return _of_shape(spec, shape, "lmha_chunk" if helps else "")
    if spec["outer"] and not spec["packed"]:
        k, v = numbers(spec, (1, 2, length, e - at_once), (1, 2, length, m - at_once))
        endless = v.copy()
        endless[..., m // 2] = np.inf
        made = [(k, v), (k, v * np.float32(2.0**100)), (abs(k), endless)]
        if e <= 64:  # and in two parts
            made.append(numbers(spec, (1, 1, 8 * size + 7, e - at_once), (1, 1, 8 * size + 7, m - at_once)))
        return tuple(Case(kgen.linear_state, pair, {}, reference.linear_state(*wide(*pair))) for pair in made)
    scales: tuple[Scale, ...] = (
        ((0, 0),) if spec.dtype.name == "f16" or e > 64 else ((0, 0), (2.0**45, 2.0**45), (1, 2.0**100))
    )
    finite: Scale = (1, 1)
    if spec["outer"]:  # the states of the first of two segments, for the second one
        main = spec.kernel.spec(E=e, MB=m, C=size, segmented=True, dtype=spec.dtype)
        about: dict[str, Any] = {"heads": 1, "algorithm": main.name}
        odd = (e - at_once, m - at_once)
        return tuple(_scan(spec, 8 * size + 7, *odd, scale=scale, **about) for scale in (finite, *scales))
    if spec["adds"] or spec["partial"]:  # features in two slices
        about = {"heads": 4, "algorithm": "lmha_chunk"}
        made = [_scan(spec, length, 256 - at_once, m - at_once, scale=scale, **about) for scale in scales]
        return (*made, _scan(spec, size + 7, 256 - at_once, m - at_once, at_the_end=True, **about))
    odd = (e - 1, m + 3) if spec["unaligned"] else (e - at_once, m + at_once)
    if spec["segmented"]:  # two of them
        return tuple(_scan(spec, 8 * size + 7, *odd, heads=1, scale=scale) for scale in (finite, *scales))
    return tuple(_scan(spec, length, *odd, scale=scale) for scale in scales)


def lmha_prefix(spec: Spec, shape: Shape | None = None) -> Case:
    """Four segments, whose states are added up by a launch of their own, as it is with many."""
    settings = ((chunk, "FEW", 0),)
    if shape:
        return _of_shape(spec, shape, "lmha_chunk")._replace(settings=settings)
    return _scan(
        spec,
        16 * 32 + 7,
        30,
        30,
        heads=1,
        algorithm="lmha_chunk_e32_m32_segmented_f32",
        scale=(1, 1),
        settings=settings,
    )


def lmha_total(spec: Spec, shape: Shape | None = None) -> Case:
    """Two states of an odd number of elements; the first one has two parts, the last one only one."""
    batch, heads, length, e, m = shape or (1, 1, 357, 19, 29)
    k, v = numbers(spec, (batch, heads, length, e), (batch, heads, length, m))
    expected = reference.linear_state(*wide(k, v), segment=256)
    return Case(kgen.linear_state, (k, v), {"segment": 256}, expected, dtype=np.float32)


def lmha_query(spec: Spec, shape: Shape | None = None) -> Case:
    """Features and tokens end within a tile; there are enough heads for large tiles where the kernel has those."""
    heads, pad = 4 if spec["TOKENS"] == 128 else 1, 4 if spec["VEC"] == 4 else 1
    batch, heads, length, e, m = shape or (1, heads, 197, 64 - pad, 64 - pad)
    (q,) = numbers(spec, (batch, heads, length, e))
    (state,) = numbers(spec, (batch, heads, e, m), dtype=np.float32)
    return Case(kgen.query_state, (q, state), {}, reference.query_state(*wide(q, state)))


CASES = {
    "lmha": lmha,
    "lmha_low_occupancy": lmha_low_occupancy,
    "lmha_chunk": lmha_chunk,
    "lmha_prefix": lmha_prefix,
    "lmha_total": lmha_total,
    "lmha_query": lmha_query,
}
