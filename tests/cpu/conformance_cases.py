"""Whole kernels on small odd problems: the same launch on a GPU and on the executor, from the same seed.

A case is a `Step` and what its pointers point at. Inputs are drawn from raw words, so they are the same everywhere;
every output begins poisoned. On a machine with a GPU, `python -m tests.cpu.conformance_cases FILE` records them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from kgen import launch
from kgen.backend import HOST
from kgen.catalog import parse
from kgen.launch import Step
from kgen.spec import Spec

Array = np.ndarray[Any, Any]
_NUMPY = {"f32": np.dtype("f4"), "f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}


class Case(NamedTuple):
    """A launch and its arrays.

    arrays  for each pointer the shape, the dtype's short name and whether it is an input ("in") or an output ("out");
            None for a null pointer
    """

    name: str
    step: Step
    arrays: tuple[tuple[tuple[int, ...], str, str] | None, ...]


def cases() -> list[Case]:
    """One or more for each kernel of linear attention."""
    return [
        _scan("lmha_low_occupancy_e64_w4_c4_f32", 1, 2, 37, 60, 5),
        _scan("lmha_low_occupancy_e64_w4_c4_v2_pipelined_f32", 1, 1, 33, 64, 3),
        _scan("lmha_low_occupancy_e128_w4_c4_f16", 1, 1, 35, 100, 4),
        _scan("lmha_low_occupancy_e128_w8_c4_bf16", 1, 1, 50, 128, 3),
        _scan("lmha_low_occupancy_e128_w16_c4_reverse_f32", 1, 1, 70, 101, 2),
        _scan("lmha_e64_t1_f32", 1, 2, 21, 50, 70),
        _scan("lmha_e64_t1_s1_f32", 1, 1, 19, 64, 64),
        _scan("lmha_e128_t2_reverse_f32", 1, 1, 17, 120, 65),
        _scan("lmha_e128_t2_f16", 1, 1, 18, 128, 33),
        _scan("lmha_chunk_e32_m32_f32", 1, 2, 67, 32, 32),
        _scan("lmha_chunk_e64_m64_f32", 1, 1, 97, 64, 64),
        _scan("lmha_chunk_e64_m64_bf16", 1, 2, 75, 64, 64),
        _scan("lmha_chunk_e128_m128_f16", 1, 1, 45, 128, 128),
        _scan("lmha_chunk_e128_m128_unaligned_f32", 1, 1, 41, 77, 99),
        _outer("lmha_chunk_e64_m64_outer_f32", 1, 2, 83, 60, 64),
        _query("lmha_query_t128_m64_f32", 1, 1, 131, 40, 68),
        _query("lmha_query_t64_m64_bf16", 2, 1, 50, 36, 64),
        _total(1, 2, 3, 7, 11, 13),
    ]


def _scan(name: str, batch: int, heads: int, length: int, e: int, m: int) -> Case:
    """Forward or reverse linear attention, one segment."""
    spec = parse(name)
    shapes = [(batch, heads, length, width) for width in (e, e, m, m)]
    strides = tuple(stride for shape in shapes for stride in _strides(shape))
    kind = spec.dtype.name
    arrays: list[Any] = [(shape, kind, "in") for shape in shapes[:3]] + [(shapes[3], kind, "out")]
    if spec.kernel.name == "lmha_chunk":
        blocks = batch * heads * -(-m // spec["MB"])
        return Case(name, Step(spec, blocks, 4, (heads, length, e, m), strides), tuple(arrays))
    columns = 1 if spec.kernel.name == "lmha_low_occupancy" else spec["COLUMNS"]
    step = Step(spec, batch * heads * -(-m // columns), 4, (heads, length, e, m), strides)
    return Case(name, step, tuple(arrays))


def _outer(name: str, batch: int, heads: int, length: int, e: int, m: int) -> Case:
    """States of the whole sequence."""
    spec = parse(name)
    k, v = (batch, heads, length, e), (batch, heads, length, m)
    blocks = batch * heads * -(-m // spec["MB"])
    step = Step(spec, blocks, 3, (heads, length, e, m, 1, length, 1), (*_strides(k), *_strides(v)))
    kind = spec.dtype.name
    return Case(name, step, ((k, kind, "in"), (v, kind, "in"), ((batch, heads, e, m), "f32", "out")))


def _query(name: str, batch: int, heads: int, length: int, e: int, m: int) -> Case:
    spec = parse(name)
    q, state, o = (batch, heads, length, e), (batch, heads, e, m), (batch, heads, length, m)
    blocks = batch * heads * -(-length // spec["TOKENS"]) * -(-m // spec["COLUMNS"])
    strides = (*_strides(q), *_strides(state), *_strides(o))
    kind = spec.dtype.name
    step = Step(spec, blocks, 3, (heads, length, e, m), strides)
    return Case(name, step, ((q, kind, "in"), (state, "f32", "in"), (o, kind, "out")))


def _total(batch: int, heads: int, slots: int, parts: int, e: int, m: int) -> Case:
    spec: Spec = parse("lmha_total_f32")
    states = (batch, heads, slots, e, m)
    blocks = batch * heads * slots * -(-e * m // spec.threads)
    counts = (heads, slots, slots * parts, parts, e * m, m)
    step = Step(spec, blocks, 2, counts, _strides(states))
    given = (batch * heads, slots * parts, e * m)
    return Case(spec.name, step, ((given, "f32", "in"), (states, "f32", "out")))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """In elements, of all axes but the last, which is contiguous."""
    sizes = np.cumprod([1, *shape[:0:-1]])[::-1]
    return tuple(int(size) for size in sizes[:-1])


def arrays_of(case: Case) -> list[Array | None]:
    """What the pointers point at: inputs evenly in [-1, 1), outputs full of NaN."""
    made: list[Array | None] = []
    for at, array in enumerate(case.arrays):
        if array is None:
            made.append(None)
            continue
        shape, kind, role = array
        if role == "out":
            made.append(np.full(shape, np.nan, _NUMPY[kind]))
            continue
        count = int(np.prod(shape))
        words = np.random.PCG64([zlib.crc32(case.name.encode()), at]).random_raw(count) >> np.uint64(41)
        made.append((words.astype(np.float32) / np.float32(1 << 22) - 1).astype(_NUMPY[kind]).reshape(shape))
    return made


def run_on_gpu(case: Case) -> list[Array]:
    """The outputs, from the current device."""
    import cupy

    arrays = arrays_of(case)
    given = [None if array is None else cupy.asarray(array.view(f"u{array.itemsize}")) for array in arrays]
    pointers = [0 if array is None else array.data.ptr for array in given]
    launch.bind([case.step], 0)[0](pointers, cupy.cuda.get_current_stream().ptr)
    return [cupy.asnumpy(given[at]).view(_NUMPY[kind]) for at, kind in _outputs(case)]


def run_on_executor(case: Case) -> list[Array]:
    """The outputs, from the CPU."""
    arrays = arrays_of(case)
    pointers = [0 if array is None else array.ctypes.data for array in arrays]
    launch.bind([case.step], HOST)[0](pointers, 0)
    return [found for at, _ in _outputs(case) if (found := arrays[at]) is not None]


def _outputs(case: Case) -> list[tuple[int, str]]:
    return [(at, array[1]) for at, array in enumerate(case.arrays) if array is not None and array[2] == "out"]


def packed(results: Mapping[str, Sequence[Array]]) -> dict[str, Any]:
    """As arrays of plain words, for a file."""
    return {
        f"{name}/{at}": out.view(f"u{out.itemsize}") for name, outs in results.items() for at, out in enumerate(outs)
    }


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **packed({case.name: run_on_gpu(case) for case in cases()}))
    print(f"{len(cases())} kernels recorded in {sys.argv[1]}")
