"""The inner product of two vectors, in one launch: products in the accumulator's type, added in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import BF16, BOOL, F16, F32, F64
from kgen.launch import Step, bind
from kgen.operand import Operand, joined
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.reduce.kernels import ELEMENTS, LOAD_BYTES
from kgen.ops.reduce.text import result_of_bits, text_of_extreme, text_of_sum
from kgen.ops.reduce.workspace import workspace
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Kernel, Spec

THREADS = 512
RESIDENT = 1024
ITEMS = 2
ALGORITHMS = {"naive": (1, 1), "vec4": (4, 1), "vec8": (8, 1)}
"""The ladder: elements of a load, and loads in flight."""


def _geometry(spec: Spec) -> dict[str, int]:
    return {
        "THREADS": THREADS,
        "BLOCKS": RESIDENT // THREADS,
        "STATIC_SMEM": (THREADS // 32 + 1) * _partial_bytes(spec),
    }


def _text(spec: Spec) -> dict[str, Any]:
    """A dot product of truth values is their maximum, all others are sums of the elements' own type."""
    if spec.dtype is BOOL:
        return text_of_extreme("max", BOOL)
    bits = 8 * spec.dtype.itemsize
    own = result_of_bits(spec.dtype, bits, fractional=False, brain=spec.dtype is BF16)
    if spec.dtype is F32:  # a double holds a product of floats exactly, and the loads leave time for it
        return text_of_sum("sum", F32, F64) | {"result": own.c}
    return text_of_sum("sum", spec.dtype, own)


def _partial_bytes(spec: Spec) -> int:
    return 4 if spec.dtype in (F16, BF16, BOOL) else 8


def _illegal(spec: Spec) -> str | None:
    if spec["VEC"] > 1 and spec["VEC"] * spec.dtype.itemsize != LOAD_BYTES:
        return f"loads are of one element or of {LOAD_BYTES} bytes"
    return None


DOT = register(
    Kernel(
        name="dot",
        summary="The inner product of two vectors.",
        formula="out = sum over n of a[n] b[n]",
        axes=(
            Axis("VEC", "v", (1, 2, 4, 8, 16), "elements of a load; 1: vectors of any stride"),
            Axis("ITEMS", "i", (1, 2), "loads of a thread, from each vector, that are in flight together"),
        ),
        dtypes=ELEMENTS,
        derive=_geometry,
        text=_text,
        check=_illegal,
        grid="parts, at most as many as are resident",
        origin="fixed-order trees instead of atomics; the last block's finish as in CUDA's threadFenceReduction sample",
        defaults=("dot_v4_i2_f32", "dot_v8_i2_bf16"),
    )
)


def dot(a: Any, b: Any, out: Any = None, *, algorithm: str | None = None, stream: Any = None) -> Any:
    """The inner product of two vectors of the same dtype, like `numpy.dot` of 1-d arrays; the result is 0-d.

    float16 and bfloat16 are multiplied and added in float32, float32 and float64 in double, and integers wrap around;
    for bool the result says whether both are true anywhere. A float32 result is off by at most half a unit in its last
    place plus 2^-40 of the sum of all magnitudes. The same input gives the same bits. Raises ValueError for lengths
    that differ, and for arrays that are not one-dimensional: those are for `gemv`, or another library's matmul.

    algorithm  None for the fastest; or "naive" (one element per load), "vec4" or "vec8" (16 bytes), for comparison

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     float(kgen.dot(np.arange(4, dtype="f4"), np.ones(4, "f4")))
    6.0
    """
    (result,) = _dot.call((a, b), (out,), (algorithm,), stream)
    return result


def vdot(a: Any, b: Any, out: Any = None, *, stream: Any = None) -> Any:
    """The inner product of all elements of two arrays, like `numpy.vdot`; no array here is complex.

    It is the `dot` of the arrays, each flattened: their shapes may differ, but not their numbers of elements. An array
    whose elements are not evenly spaced is copied first.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     float(kgen.vdot(np.ones((2, 3), "f4"), np.arange(6, dtype="f4")))
    15.0
    """
    (result,) = _vdot.call((a, b), (out,), (), stream)
    return result


def _results(op: str, given: Sequence[Operand], algorithm: str | None = None) -> Results:
    a, b = given
    for x in given:
        if len(x.shape) != 1:
            raise ValueError(
                f"{op}: {x.argument} has shape {x.shape}; it takes vectors; matrices are for gemv, or matmul"
            )
    if a.shape != b.shape:
        raise ValueError(f"{op}: a has {a.shape[0]} elements and b {b.shape[0]}; it takes as many of each")
    if algorithm is not None and (
        algorithm not in ALGORITHMS or ALGORITHMS[algorithm][0] not in (1, LOAD_BYTES // a.dtype.itemsize)
    ):
        raise ValueError(f"{op}: algorithm is {algorithm!r}; it takes None, 'naive', or a load of 16 bytes: 'vec4' of "
                         "float32, 'vec8' of 16 bits")  # fmt: skip
    return [((), a.dtype)]


def _prepare(op: str, given: Sequence[Operand], results: Sequence[Operand], algorithm: str | None = None) -> Plan:
    (a, b), (out,) = given, results
    device, sms = out.device, multiprocessors(out.device)
    (length,), (a_step,), (b_step,) = a.shape, a.strides, b.strides
    wide = a_step == b_step == 1 or length <= 1
    vec, items = ALGORITHMS.get(algorithm or "", (LOAD_BYTES // a.dtype.itemsize, ITEMS))
    spec = DOT.spec(VEC=vec if wide else 1, ITEMS=items, dtype=a.dtype)
    tiles = -(-length // (spec["VEC"] * items * THREADS))
    parts = max(1, min(tiles, 1 << 20 if algorithm else sms * RESIDENT // THREADS))
    step = Step(spec, parts, 5, (parts,), (length, a_step, b_step))
    (run,) = bind([step], device)
    nbytes = parts * _partial_bytes(spec)

    def launch(pointers: Sequence[int], stream: int) -> None:
        partials, counters, held = workspace(nbytes, 1, device, stream)
        run((*pointers, partials, counters), stream)
        del held

    return Plan(launch, (str(step),), f"{length} products in {parts} parts")


def _results_flat(op: str, given: Sequence[Operand]) -> Results:
    a, b = given
    if math.prod(a.shape) != math.prod(b.shape):
        raise ValueError(f"{op}: a has shape {a.shape} and b {b.shape}; it takes as many elements of each")
    return [((), a.dtype)]


def _prepare_flat(op: str, given: Sequence[Operand], results: Sequence[Operand]) -> Plan:
    vectors = list(map(_vector, given))
    if None not in vectors:
        return _prepare(op, [vector for vector in vectors if vector], results)
    from kgen.ops.moving.transpose import contiguous_copy  # which few calls need

    at = vectors.index(None)
    copy, copying = contiguous_copy(given[at])
    plan = _prepare_flat(op, [copy if i == at else x for i, x in enumerate(given)], results)
    nbytes = math.prod(copy.shape) * copy.dtype.itemsize

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes, copy.device, stream)
        copying.launch((pointers[at], memory.ptr), stream)
        plan.launch([memory.ptr if i == at else pointer for i, pointer in enumerate(pointers)], stream)

    return Plan(launch, (*copying.steps, *plan.steps), plan.why)


def _vector(x: Operand) -> Operand | None:
    """The elements of an array in order, as a vector; None where no single stride leads from each to the next."""
    sizes, strides = joined(x.shape, x.strides)
    if 0 in x.shape or not sizes:
        return x.view((math.prod(x.shape),), (1,))
    return x.view(sizes, strides) if len(sizes) == 1 else None


_dot = Operator("dot", ("a", "b"), ("algorithm",), _results, _prepare, takes=ELEMENTS, rows=False)
_vdot = Operator("vdot", ("a", "b"), (), _results_flat, _prepare_flat, takes=ELEMENTS, rows=False)
