"""What the template of elementwise kernels is told: operands, where they lie, and the function applied to them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kgen.dtypes import BF16, F16, FP8, INTEGERS, SIGNED, DType
from kgen.ops.elementwise.expression import Function
from kgen.ops.elementwise.functions import NEEDS
from kgen.ops.elementwise.signature import Signature, program
from kgen.ops.elementwise.terms import safe
from kgen.spec import Spec

RESULT = "out"
NARROW = (F16, BF16, *FP8)
"""What is widened to float and back."""


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


def text_of(function: Function, signature: Signature, spec: Spec) -> dict[str, Any]:
    made = program(function, signature)
    *inputs, result = _operands(function, signature, spec, "")
    types = [t for t, array in zip(signature.types, signature.arrays) if array]
    halves = {t.header for t in (*types, made.result) if t in NARROW}
    reals = [(c, suffix) for c, suffix in (("float", "f"), ("double", "")) if c in made.computed]
    wholes = sorted(made.computed & {t.c for t in INTEGERS})
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
