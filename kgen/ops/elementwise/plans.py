"""How an elementwise call is cut: which specialization its operands' layout asks for, and on how many blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.errors import SpecError
from kgen.launch import Run, Step, bind, picked
from kgen.operand import Operand
from kgen.ops.calls import Plan
from kgen.ops.elementwise.broadcast import Layout, layout
from kgen.ops.elementwise.kernels import MAX_RANK, PART, WORD
from kgen.ops.elementwise.text import passed
from kgen.registry import parse
from kgen.spec import Kernel, Spec

RESIDENT = 2048  # threads of a multiprocessor
_INT = 2**31  # elements, from which 32-bit indices no longer do


class Call(NamedTuple):
    """A call of a kernel: operands in order, None where a number stands, and the numbers with their C++ types; and
    whether its function is all operators, so that nothing is gained by several vectors in a thread."""

    op: str
    kernel: Kernel
    given: Sequence[Operand | None]
    result: Operand
    numbers: Sequence[tuple[str, int | float]]
    algorithm: str | None
    light: bool = False


def plan(call: Call) -> Plan:
    """One launch; more of them only for arrays of more axes than a kernel takes."""
    arrays = [x for x in call.given if x is not None]
    whole = layout(call.result, arrays)
    pointers = [x.ptr for x in (*arrays, call.result)]
    steps: list[Step] = []
    shifts: list[list[int]] = []
    sizes = [x.dtype.itemsize for x in (*arrays, call.result)]
    for part, starts in _parts(whole):
        shift = [start * size for start, size in zip(starts, sizes)]
        steps.append(_step(call, part, [pointer + offset for pointer, offset in zip(pointers, shift)], sizes))
        shifts.append(shift)
    ready = bind(steps, call.result.device)
    at = [i for i, x in enumerate((*call.given, call.result)) if x is not None]
    why = f"with adjacent axes merged, the arrays have {' x '.join(map(str, whole.sizes))} elements"
    if len(ready) == 1:
        return Plan(ready[0] if len(arrays) == len(call.given) else picked(ready[0], at), (str(steps[0]),), why)

    def launch(pointers: Sequence[int], stream: int) -> None:
        for run, shift in zip(ready, shifts):
            run([pointers[i] + offset for i, offset in zip(at, shift)], stream)

    return Plan(launch, tuple(map(str, steps)), why)


def _parts(whole: Layout) -> list[tuple[Layout, list[int]]]:
    """The problem in pieces of at most MAX_RANK axes, and where each operand's piece starts."""
    extra = max(0, len(whole.sizes) - MAX_RANK)
    part = Layout(whole.sizes[extra:], tuple(strides[extra:] for strides in whole.strides))
    return [
        (part, [sum(i * stride for i, stride in zip(place, strides)) for strides in whole.strides])
        for place in itertools.product(*map(range, whole.sizes[:extra]))
    ]


def _step(call: Call, part: Layout, pointers: Sequence[int], sizes: Sequence[int]) -> Step:
    n, device = part.size, call.result.device
    straight = [part.straight(i) for i in range(len(sizes))]
    indexed = sum(1 << i for i, flat in enumerate(straight) if not flat)
    vec = min(WORD // min(sizes), 2 * WORD // max(sizes))
    # Few elements are spread over all multiprocessors before a thread takes more than one vector.
    threads = multiprocessors(device) * RESIDENT
    items = 2
    wide = bool(indexed) and n >= _INT
    vec = 1 if wide else vec
    if call.algorithm is not None:
        chosen = _chosen(call)
        vec, items, block = 1 if wide else chosen["VEC"], chosen["ITEMS"], chosen["THREADS"]
    else:
        block = 128
        while vec > 1 and n < threads * vec // 32:
            vec //= 2
        if n < 8 * threads * vec * items:
            items = 1
    unaligned = _unaligned(vec, pointers, straight, sizes)
    if unaligned and vec * min(sizes) < PART:
        vec, unaligned = 1, False
    if unaligned or indexed:
        block = 128
    if indexed or (call.light and call.algorithm is None and not unaligned):
        items = 1
    rank = len(part.sizes) if indexed else 1
    # Codes may be held as bytes; the kernel knows what they are.
    dtype = call.result.dtype if call.result.dtype in call.kernel.dtypes else call.kernel.dtypes[0]
    spec = call.kernel.spec(
        VEC=vec, ITEMS=items, THREADS=block, RANK=rank, INDEXED=indexed, unaligned=unaligned, wide=wide,
        dtype=dtype,
    )  # fmt: skip
    strides = [stride for flat, walked in zip(straight, part.strides) if not flat for stride in walked]
    axes = part.sizes[1:] if indexed else ()
    blocks = -(-(n // vec) // (items * block)) + (1 if unaligned or n % vec else 0)
    numbers: dict[str, list[int | float]] = {"float": [], "double": [], "long long": []}
    for c, value in call.numbers:
        number = float(value) if passed(c) != "long long" else int(value)
        numbers[passed(c)].append(number)
    longs = [n, *(axes if wide else ()), *strides, *(_signed(int(v)) for v in numbers["long long"])]
    return Step(
        spec,
        blocks,
        len(sizes),
        () if wide else tuple(axes),
        tuple(longs),
        tuple(numbers["float"]),
        tuple(numbers["double"]),
    )


def _unaligned(vec: int, pointers: Sequence[int], straight: Sequence[bool], sizes: Sequence[int]) -> bool:
    """Whether some array may begin where no word of a vector does."""
    words = [min(WORD, vec * size) for size in sizes]
    return vec > 1 and any(straight) and any(pointer % max(words) for pointer in pointers)


def _chosen(call: Call) -> Spec:
    """The specialization that the caller names; its VEC, ITEMS and THREADS are taken."""
    assert call.algorithm is not None
    try:
        spec = parse(call.algorithm)
    except SpecError as error:
        raise SpecError(f"{call.op}: algorithm {call.algorithm!r}: {error}") from None
    if spec.kernel is not call.kernel or spec.dtype is not call.result.dtype:
        raise SpecError(
            f"{call.op}: {spec.name} does not compute this call",
            hint=f"it takes a specialization of {call.kernel.name} for {call.result.dtype}",
        )
    return spec


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


__all__ = ["Call", "Plan", "Run", "plan"]
