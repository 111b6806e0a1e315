"""Every kernel there is: those of kgen/ops, found by being there, and those of the user's file.

Importing a module of an operator registers its kernels, so adding an operator adds files and changes none.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import pkgutil
import traceback
from pathlib import Path

from kgen import hints, ops, registry
from kgen.config import config
from kgen.errors import KgenError, SpecError
from kgen.spec import Kernel, Spec


def kernels() -> dict[str, Kernel]:
    """Every known kernel by name: kgen's own, those of the file KGEN_KERNELS, and any that were registered by hand."""
    _import_ops()
    declared = config().kernels
    if declared is not None:
        _import_file(declared.resolve())
    return dict(sorted(registry.registered().items()))  # whatever was imported first


def named(*words: str) -> list[Kernel]:
    """Kernels by name or glob, all of them where there is no word; SpecError for a word that names none.

    >>> [kernel.name for kernel in named("lmha", "lmha_low*")]
    ['lmha', 'lmha_low_occupancy']
    """
    known = kernels()
    found = {word: fnmatch.filter(known, word) for word in words or "*"}
    for word, names in found.items():
        if not names:
            raise SpecError(f"no kernel is called {word!r}", hint=hints.owners(word, known))
    chosen = {name for names in found.values() for name in names}
    return [kernel for name, kernel in known.items() if name in chosen]


def parse(name: str) -> Spec:
    """The specialization that a name stands for.

    >>> parse("lmha_low_occupancy_e128_w4_c4_f16")["WARPS"]
    4
    """
    kernels()
    return registry.parse(name)


def select(*words: str) -> list[Spec]:
    """Specializations by exact name, kernel name, glob, or `axis=value` pairs; with no word, the default build.

    >>> [spec.name for spec in select("lmha_low_occupancy", "e=64", "w=4", "c=4", "dtype=f16", "reverse=no", "v=1")][0]
    'lmha_low_occupancy_e64_w4_c4_f16'
    """
    known = kernels()
    if words:
        return registry.select(words, known.values())
    return [_default(kernel, name) for kernel in known.values() for name in kernel.defaults]


def _default(kernel: Kernel, name: str) -> Spec:
    try:
        return registry.parse(name)
    except SpecError as error:
        raise SpecError(f"{kernel.name} has a default {name!r}: {error}") from None


@functools.cache
def _import_ops() -> None:
    for module in pkgutil.walk_packages(ops.__path__, "kgen.ops."):
        importlib.import_module(module.name)


@functools.cache
def _import_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SpecError(f"KGEN_KERNELS names {path}, which is no Python file")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except KgenError:  # which says what of the declaration is wrong
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        at = f", line {lines[-1]}" if lines else ""  # none where its syntax is wrong, which the message tells
        what = f"{type(error).__name__}: {error}"
        raise SpecError(f"KGEN_KERNELS names {path}, which fails{at}: {what}") from error
