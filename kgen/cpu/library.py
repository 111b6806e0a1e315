"""CUDA source or PTX -> Library: translated to lists, kept in the store, and loaded into this process.

The key holds all that decides the library: the text or the recipe it is rendered from, both compilers, their options,
and the executor's own sources.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple

from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.build import store
from kgen.config import config
from kgen.cpu import compiler
from kgen.cpu.load import address, loaded
from kgen.cpu.shapes import functions as shapes_of
from kgen.cpu.translate.listing import Listing, listing
from kgen.cpu.translate.parse import parse
from kgen.cpu.translate.program import Program
from kgen.cpu.translate.shape import Shape
from kgen.errors import JitDisabledError
from kgen.recipe import recipe
from kgen.render import render_recipe
from kgen.spec import Spec
from kgen.store import content_key

ARCH = Arch.parse("sm_90a")
"""What kernels are compiled for: the executor runs Hopper's code."""
_APART = 256
"""Bytes: variables in global memory begin at multiples of as many."""


class Library(NamedTuple):
    """Kernels in this process: what a launch must know of each, by name, and where their variables lie.

    `text` is the CUDA source, or the PTX.
    """

    title: str
    text: str
    programs: dict[str, Program]
    lists: dict[str, List]
    variables: dict[str, int]
    checked: bool


def library_of(spec: Spec, arch: Arch = ARCH, *, check: bool = False) -> Library:
    """The library of one specialization; nothing is rendered where the store has it."""
    return _library_of(spec, arch, check, str(store().root))


@functools.lru_cache(maxsize=1024)
def _library_of(spec: Spec, arch: Arch, check: bool, _root: str) -> Library:
    made = recipe(spec)
    headers = toolkit.header_digest(made.toolkit_headers)
    return _library(spec.name, arch, check, lambda: render_recipe(made).text, recipe=made.identity, headers=headers)


def library_of_text(text: str, arch: Arch = ARCH, *, check: bool = False, title: str = "source") -> Library:
    """The library of CUDA source, or of PTX, which begins with `.version` after its comments."""
    return _library(title, arch, check, lambda: text, text=text)


def is_ptx(text: str) -> bool:
    """Whether a text is PTX and not CUDA."""
    return any(line.startswith(".version") for line in text.splitlines()[:40])


def _library(title: str, arch: Arch, check: bool, text_of: Callable[[], str], **identity: str) -> Library:
    ours = ("checked" if check else "plain", *compiler.identity())
    key = content_key(arch=str(arch), compiler=nvrtc.compiler_id(), executor=ours, **identity)
    host = compiler.host()
    entry = store().load(title, host, key)
    if entry is None:
        if not config().jit:
            raise JitDisabledError(
                f"{title} for the CPU executor is not in {store().root}, and compiling is off (KGEN_JIT=off)"
            )
        text = text_of()
        with ThreadPoolExecutor(1) as beside:
            beside.submit(runtime)
            ptx = text if is_ptx(text) else nvrtc.compile_ptx(text, title, arch)
            made = listing(parse(ptx))
            beside.map(_product, *zip(*made.products.items()))
            shapes_of(made.shapes, made.includes, check)
        entry = store().publish(title, host, key, text, b"".join(made.lists.values()), _facts(made))
    facts = entry.meta
    functions = shapes_of([Shape(text, lane) for text, lane in facts["shapes"]], facts["includes"], check)
    products = [address(_product(*item), "kg_product") for item in facts["products"].items()]
    programs = {fields["name"]: _program(fields) for fields in facts["programs"]}
    data = {name: bytes.fromhex(text) for name, text in facts["variables"].items()}
    room = ctypes.create_string_buffer(sum(map(_room, data.values())) + _APART)
    ends = itertools.accumulate(map(_room, data.values()), initial=-(-ctypes.addressof(room) // _APART) * _APART)
    variables = dict(zip(data, ends))
    for name, at in variables.items():
        ctypes.memmove(at, data[name], len(data[name]))
    lists = {
        name: List(entry.cubin[at : at + size], functions, products, variables.values(), room)
        for name, (at, size) in facts["lists"].items()
    }
    return Library(title, entry.source, programs, lists, variables, check)


def _room(data: bytes) -> int:
    """What a variable takes, with some room behind it that is nobody's."""
    return (len(data) // _APART + 2) * _APART


def _facts(made: Listing) -> dict[str, Any]:
    ends = itertools.accumulate(map(len, made.lists.values()))
    return {
        "programs": [asdict(program) for program in made.programs],
        "lists": {name: (end - len(data), len(data)) for (name, data), end in zip(made.lists.items(), ends)},
        "shapes": made.shapes,
        "includes": made.includes,
        "products": made.products,
        "variables": {name: data.hex() for name, data in made.variables.items()},
    }


class List(ctypes.Structure):
    """`kg::List` of runtime/listed.h; it holds what it points to, and the variables."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("numbers", "shapes", "products", "variables"))

    def __init__(
        self, numbers: bytes, shapes: Collection[int], products: Collection[int], variables: Collection[int], held: Any
    ) -> None:
        arrays = [(ctypes.c_size_t * len(found))(*found) for found in (shapes, products, variables)]
        self._held = (ctypes.create_string_buffer(numbers, len(numbers)), *arrays, held)
        super().__init__(*[ctypes.addressof(part) for part in self._held[:-1]])


@functools.cache
def runtime() -> ctypes.CDLL:
    """The machine that runs kernels."""
    return _part("kgen_runtime", '#include "runtime.cpp"')


def _product(opcode: str, text: str) -> ctypes.CDLL:
    """A product of fragments, which many kernels share."""
    return _part("kg_" + re.sub(r"\W+", "_", opcode), text)


@functools.lru_cache(maxsize=256)
def _part(name: str, text: str) -> ctypes.CDLL:
    """A library that all kernels share: compiled once, and kept like a kernel."""
    key = content_key(runtime=compiler.identity(runtime=True), text=text)
    entry = store().load(name, compiler.host(), key)
    if entry is None:
        entry = store().publish(name, compiler.host(), key, text, compiler.build(text, "-O2"), {})
    return loaded(entry)


def _program(fields: dict[str, Any]) -> Program:
    lists = {name: tuple(tuple(item) for item in fields[name]) for name in ("params", "areas", "globals", "sites")}
    return Program(**{**fields, **lists, "cluster": tuple(fields["cluster"])})
