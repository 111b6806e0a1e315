"""Kernels of elementwise operators: one template, a function, and how its operands lie in memory."""

from __future__ import annotations

import functools
import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kgen.dtypes import BF16, F16, F64, FP8, INTEGERS, SIGNED, DType
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.functions import NEEDS
from kgen.ops.elementwise.program import Program, write
from kgen.ops.elementwise.promotion import Type, Weak, arithmetic
from kgen.ops.elementwise.terms import safe
from kgen.spec import Axis, Flag, Kernel, Spec

WORD = 16  # bytes of the widest load
PART = 4  # bytes that are shifted at once
MAX_RANK = 4
RESULT = "out"
NARROW = (F16, BF16, *FP8)
"""What is widened to float and back."""


@dataclass(frozen=True)
class Signature:
    """How a function is called: the type of each parameter, whether it is an array or one number, and of the result.

    dtype   what the arrays become first, and the result in the end; None: what NumPy's rules give
    cast    what the result becomes in the end, and nothing before
    """

    types: tuple[Type, ...]
    arrays: tuple[bool, ...]
    dtype: DType | None = None
    cast: DType | None = None


@functools.lru_cache(maxsize=4096)
def program(function: Function, signature: Signature) -> Program:
    """The C++ of a function as it is called."""
    return write(function, signature.types, signature.dtype, signature.cast)


def uniform(function: Function, defaults: Mapping[str, float], dtype: DType) -> Signature:
    """All operands are arrays of one type, parameters with defaults are numbers."""
    arrays = tuple(p not in defaults for p in function.parameters)
    return Signature(tuple(dtype if array else Weak("float") for array in arrays), arrays)


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
    signature: Any,
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
            Axis("VEC", "v", (1, 2, 4, 8, 16), "neighbours that a thread takes at once"),
            Axis("ITEMS", "i", (1, 2, 4), "such vectors of a thread", default=1),
            Axis("THREADS", "t", (128, 256), "per block", default=128),
            Axis("RANK", "r", tuple(range(1, MAX_RANK + 1)), "axes of the arrays with strides", default=1),
            Axis("INDEXED", "x", tuple(range(2 ** (arrays + 1))), "which arrays have strides, as bits", default=0),
        ),
        flags=(
            Flag("unaligned", "arrays may start anywhere"),
            Flag("wide", "there are more than 2^31 elements"),
        ),
        derive=lambda spec: {"THREADS": spec["THREADS"]},
        dtypes=dtypes,
        check=check,
        grid="one block for each THREADS * ITEMS vectors, and one for the elements that fill none",
        origin="the vectorised loops of every array library",
        defaults=built,
        stem="elementwise",
        text=lambda spec: _text(function, signature(spec.dtype), spec),
    )


def _formula(function: Function) -> str:
    lines = [line.strip() for line in function.expression.replace("\n", ";").split(";")]
    return "\n".join([*lines[:-1], f"{RESULT} = {lines[-1]}"])


def _operands(function: Function, signature: Signature, spec: Spec, size: str) -> list[dict[str, Any]]:
    """What the template is told of each parameter, and last of the result; `size` is the C++ type of sizes."""
    made = program(function, signature)
    told: list[dict[str, Any]] = []
    array = 0
    for name, kind, is_array, c in zip(function.parameters, signature.types, signature.arrays, made.types):
        if is_array and isinstance(kind, DType):
            told.append(_array(safe(name), kind, bool(spec["INDEXED"] >> array & 1), spec))
            array += 1
        else:
            told.append({"name": safe(name), "pointer": False, "half": False, "size": 0, "c": passed(c)})
    result = _array(RESULT, made.result, bool(spec["INDEXED"] >> array & 1), spec)
    pointers = [x for x in told if x["pointer"]]
    for x in told:
        x["size"] = x["size"] or result["size"]
    assert pointers
    return [*told, result]


def passed(c: str) -> str:
    """The C++ type in which a number is passed for a parameter of another."""
    return c if c in ("float", "double") else "long long"


def _array(name: str, dtype: DType, indexed: bool, spec: Spec) -> dict[str, Any]:
    rank = spec["RANK"]
    inner = ""
    terms: list[str] = []
    for axis in reversed(range(rank)):
        index = f"i{inner}" + (f" % size_{axis}" if axis else "")
        terms.insert(0, f"static_cast<long long>({index}) * {name}_{axis}" if rank > 1 else f"i * {name}_0")
        inner += f" / size_{axis}"
    return {
        "name": name,
        "pointer": True,
        "half": dtype in NARROW,
        "size": dtype.itemsize,
        "c": dtype.c,
        "indexed": indexed,
        "one": f"*{name}_at(i)" if indexed else f"{name}[i]",
        "place": ("\n" + 15 * " " + "+ ").join([name, *terms]) if rank > 1 else f"{name} + {terms[0]}",
    }


def _text(function: Function, signature: Signature, spec: Spec) -> dict[str, Any]:
    made = program(function, signature)
    *inputs, result = _operands(function, signature, spec, "")
    types = [t for t, array in zip(signature.types, signature.arrays) if array]
    halves = {t.header for t in (*types, made.result) if t in NARROW}
    computed = {t for t in (*signature.types, signature.dtype, made.result) if isinstance(t, DType)}
    reals = [("float", "f")] + ([("double", "")] if computed & {F64, *INTEGERS} else [])
    wholes = sorted({arithmetic(t) for t in computed if t in INTEGERS})
    arrays = [x for x in inputs if x["pointer"]]
    several, vectors = spec["ITEMS"] > 1, spec["VEC"] > 1
    across = [x for x in arrays if spec["unaligned"] and not x["indexed"]]
    of = "[item]" if several else ""

    def at(x: dict[str, Any]) -> str:
        """Element j of a thread's vector."""
        return "" if not vectors else ", j" if x["c"] == BF16.c else ".at[j]"

    return {
        "inputs": inputs,
        "result": result,
        "arrays": arrays,
        "across": across,
        "gathered": [x for x in (*arrays, result) if x["indexed"]],
        "of": of,
        "tile": "(ITEMS * THREADS)" if several else "THREADS",
        "start": "vector" if not vectors else f"{'lead + ' if spec['unaligned'] else ''}vector * VEC",
        "one_applied": _applied(inputs, result, {x["name"]: x["one"] for x in arrays}),
        "vector_applied": _applied(
            inputs, result, {x["name"]: f"{x['name']}_of{'' if x in across else of}{at(x)}" for x in arrays}
        ),
        "widened": any(x["c"] == BF16.c for x in arrays),
        "parameters": _parameters(inputs, result, spec),
        "functions": list(made.functions),
        "primitives": sorted(needed(made.primitives)),
        "fast": made.fast,
        "narrow": made.result.c,
        "reals": reals,
        "wholes": wholes,
        "signed": [t.c for t in SIGNED],
        "headers": sorted(header for header in halves if header),
    }


def _applied(inputs: Sequence[dict[str, Any]], result: dict[str, Any], places: Mapping[str, str]) -> str:
    """The function of one element, whose operands lie in these places; numbers have only their name."""
    values = []
    for x in inputs:
        place = places.get(x["name"], x["name"])
        values.append(f"widen({place})" if x["half"] else place)
    text = f"apply({', '.join(values)})"
    return f"narrow({text})" if result["half"] else text


def needed(primitives: frozenset[str]) -> set[str]:
    """The hand-written functions with those that they call."""
    found = set(primitives)
    while more := {NEEDS[name] for name in found if name in NEEDS} - found:
        found |= more
    return found


def _parameters(inputs: Sequence[dict[str, Any]], result: dict[str, Any], spec: Spec) -> list[str]:
    """The kernel's parameters, in the order in which a Step packs them: pointers, ints, floats, longs, doubles."""
    arrays = [x for x in inputs if x["pointer"]]
    gathered = [x for x in (*arrays, result) if x["indexed"]]
    sizes = [f"size_{axis}" for axis in range(1, spec["RANK"])]
    size = "long long" if spec["wide"] else "unsigned"

    def numbers(c: str) -> list[str]:
        return [f"{c} {x['name']}" for x in inputs if not x["pointer"] and x["c"] == c]

    groups = [
        [*(f"const {x['c']}* {x['name']}" for x in arrays), f"{result['c']}* {result['name']}"],
        [] if spec["wide"] else [f"{size} {name}" for name in sizes],
        numbers("float"),
        ["long long n", *(f"{size} {name}" for name in sizes if spec["wide"])],
        *([f"long long {x['name']}_{axis}" for axis in range(spec["RANK"])] for x in gathered),
        numbers("long long"),
        numbers("double"),
    ]
    text = ", ".join(parameter.replace(" ", "~") for group in groups for parameter in group) + ")"
    return [line.replace("~", " ") for line in textwrap.wrap(text, 116, break_long_words=False)]
