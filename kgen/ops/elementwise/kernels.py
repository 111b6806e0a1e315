"""Kernels of elementwise operators: one template, a function, and how its operands lie in memory."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping

from kgen.dtypes import DType
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.signature import Signature, program, uniform
from kgen.ops.elementwise.text import RESULT, text_of
from kgen.spec import Axis, Flag, Kernel, Spec

WORD = 16  # bytes of the widest load
PART = 4  # bytes that are shifted at once
MAX_RANK = 4


def named_kernel(
    function: Function, defaults: Mapping[str, float], dtypes: tuple[DType, ...], summary: str, built: tuple[str, ...]
) -> Kernel:
    """The kernel of a function whose arrays have one type, which is also the result's."""
    arrays = len(function.parameters) - len(defaults)
    return _kernel(function.name, function, arrays, dtypes, summary, lambda t: uniform(function, defaults, t), built)


def mixed_kernel(function: Function, signature: Signature) -> Kernel:
    """The kernel of any other call; its name carries a digest of the function and of the types."""
    result = program(function, signature).result
    told = f"{function.parameters} {function.expression} {signature}"
    name = f"{function.name}_{hashlib.sha256(told.encode()).hexdigest()[:8]}"
    return _kernel(name, function, sum(signature.arrays), (result,), "", lambda t: signature, ())


def _kernel(
    name: str,
    function: Function,
    arrays: int,
    dtypes: tuple[DType, ...],
    summary: str,
    signature: Callable[[DType], Signature],
    built: tuple[str, ...],
) -> Kernel:
    @functools.cache
    def sizes(dtype: DType) -> tuple[int, int]:
        called = signature(dtype)
        arrays_of = [t for t, array in zip(called.types, called.arrays) if array and isinstance(t, DType)]
        found = [t.itemsize for t in (*arrays_of, program(function, called).result)]
        return min(found), max(found)

    def check(spec: Spec) -> str | None:
        vec, items, threads, rank, indexed = spec.values
        unaligned, wide = "unaligned" in spec.flags, "wide" in spec.flags
        if not indexed and (rank > 1 or wide):
            return "strides over axes serve an indexed operand"
        if (indexed and items > 1) or ((indexed or unaligned) and threads != 128):
            return "only plain kernels are cut in other ways"
        if wide and vec > 1:
            return "64-bit divisions for several neighbours would take the compiler many seconds"
        if unaligned and (vec == 1 or indexed == 2 ** (arrays + 1) - 1):
            return "single elements are always aligned, and indexed operands ask for nothing"
        narrow, broad = sizes(spec.dtype)
        if unaligned and vec * narrow < PART:
            return f"{vec} neighbours of {narrow} bytes are no whole part of what is shifted"
        if vec * narrow > WORD or vec * broad > 2 * WORD:
            return f"VEC={vec} neighbours of {broad} bytes are more than a thread should take at once"
        return None

    return Kernel(
        name=name,
        summary=summary or "A function of each element.",
        formula=_formula(function),
        axes=(
            Axis("VEC", "v", (1, 2, 4, 8, 16), "adjacent elements that a thread handles at once"),
            Axis("ITEMS", "i", (1, 2, 4), "such vectors per thread", default=1),
            Axis("THREADS", "t", (128, 256), "per block", default=128),
            Axis("RANK", "r", tuple(range(1, MAX_RANK + 1)), "axes of the strided arrays", default=1),
            Axis("INDEXED", "x", tuple(range(2 ** (arrays + 1))), "which arrays are strided, as a bit mask", default=0),
        ),
        flags=(
            Flag("unaligned", "arrays may start anywhere"),
            Flag("wide", "there are more than 2^31 elements"),
        ),
        derive=lambda spec: {"THREADS": spec["THREADS"]},
        dtypes=dtypes,
        check=check,
        grid="one block per THREADS * ITEMS vectors, and one for the elements left over",
        origin="the vectorised loops common to array libraries",
        defaults=built,
        stem="elementwise",
        text=lambda spec: text_of(function, signature(spec.dtype), spec),
    )


def _formula(function: Function) -> str:
    lines = [line.strip() for line in function.expression.replace("\n", ";").split(";")]
    return "\n".join([*lines[:-1], f"{RESULT} = {lines[-1]}"])
