"""Every kernel there is: those of kgen/ops, found by being there, and those of the user's file.

Importing a module of an operator registers its kernels, so adding an operator adds files and changes none.
"""

from __future__ import annotations

import functools
import importlib.util
import pkgutil
from pathlib import Path

from kgen import ops, registry
from kgen.config import config
from kgen.errors import SpecError
from kgen.spec import Kernel, Spec


def kernels() -> dict[str, Kernel]:
    """Every known kernel by name: kgen's own, those of the file KGEN_KERNELS, and any that were registered by hand."""
    _import_ops()
    declared = config().kernels
    if declared is not None:
        _import_file(declared.resolve())
    return dict(sorted(registry.registered().items()))  # whatever was imported first


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
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
