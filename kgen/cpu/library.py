"""CUDA source or PTX -> Library: translated, compiled, kept in the store, and loaded into this process.

The key holds all that decides the library: the text or the recipe it is rendered from, both compilers, their options,
and the executor's own sources.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.build import store
from kgen.config import config
from kgen.cpu import compiler
from kgen.cpu.translate.kernel import translate
from kgen.cpu.translate.parse import parse
from kgen.cpu.translate.program import Program
from kgen.errors import JitDisabledError
from kgen.recipe import recipe
from kgen.render import render_recipe
from kgen.spec import Spec
from kgen.store import Entry, content_key

ARCH = Arch.parse("sm_90a")
"""What kernels are compiled for: the executor runs Hopper's code."""

_loading = threading.Lock()
_loaded: dict[str, ctypes.CDLL] = {}


class Library(NamedTuple):
    """Kernels in this process: what a launch must know of each, by name; `text` is the CUDA source, or the PTX."""

    title: str
    text: str
    programs: dict[str, Program]
    functions: dict[str, int]
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
            made = translate(parse(ptx), units=compiler.cores())
            beside.map(_product, *zip(*made.products.items()))
            binary = compiler.build(made.units, defines=("KG_CHECKED",) if check else (), system=False)
        facts = {"programs": [asdict(program) for program in made.programs], "products": made.products}
        entry = store().publish(title, host, key, text, binary, facts)
    programs = {fields["name"]: _program(fields) for fields in entry.meta["programs"]}
    loaded = _load(entry)
    products = (ctypes.c_size_t * len(entry.meta["products"])).in_dll(loaded, "kg_products")
    for number, item in enumerate(entry.meta["products"].items()):
        products[number] = _address(_product(*item), "kg_product")
    functions = {name: _address(loaded, name) for name in programs}
    variables = {symbol: _address(loaded, symbol) for program in programs.values() for symbol, _ in program.globals}
    return Library(title, entry.source, programs, functions, variables, check)


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
        entry = store().publish(name, compiler.host(), key, text, compiler.build([text], extra=("-O2",)), {})
    return _load(entry)


def _program(fields: dict[str, Any]) -> Program:
    lists = {name: tuple(tuple(item) for item in fields[name]) for name in ("params", "areas", "globals", "sites")}
    return Program(**{**fields, **lists, "cluster": tuple(fields["cluster"])})


def _load(entry: Entry) -> ctypes.CDLL:
    with _loading:
        if entry.key not in _loaded:
            if entry.path is not None:
                _loaded[entry.key] = ctypes.CDLL(str(entry.path / "kernel.cubin"), mode=os.RTLD_LOCAL | os.RTLD_NOW)
            else:
                with tempfile.NamedTemporaryFile(suffix=".so") as file:
                    Path(file.name).write_bytes(entry.cubin)
                    _loaded[entry.key] = ctypes.CDLL(file.name, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        return _loaded[entry.key]


def _address(loaded: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value
    assert address is not None
    return address
