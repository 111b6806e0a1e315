"""kgen: a generator of specialized, readable CUDA kernels, and the operators built on them.

    kgen.causal_dot_product(q, k, v)      an operator on CuPy, NumPy, torch, JAX arrays
    kgen.parse("lmha_e64_t1_f32")         a specialization by name
    kgen.render(spec).text                its CUDA source
    kgen.build(spec, kgen.Arch.parse("sm_90a"))   its cubin, with no GPU

Nothing is imported before it is used: `import kgen` costs a few milliseconds and never imports CuPy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kgen.arch import Arch as Arch
    from kgen.backend import backend as backend
    from kgen.build import build as build
    from kgen.catalog import kernels as kernels
    from kgen.catalog import parse as parse
    from kgen.catalog import select as select
    from kgen.dtypes import BF16 as BF16
    from kgen.dtypes import F16 as F16
    from kgen.dtypes import F32 as F32
    from kgen.errors import KgenError as KgenError
    from kgen.launch import load as load
    from kgen.ops.calls import explain as explain
    from kgen.ops.causal_dot_product import causal_dot_product as causal_dot_product
    from kgen.ops.causal_dot_product import causal_dot_product_backward as causal_dot_product_backward
    from kgen.ops.linear_state import linear_state as linear_state
    from kgen.ops.linear_state import query_state as query_state
    from kgen.registry import register as register
    from kgen.render import render as render
    from kgen.spec import Axis as Axis
    from kgen.spec import Flag as Flag
    from kgen.spec import Kernel as Kernel
    from kgen.spec import Spec as Spec

# The public face: each name and the module that it lives in.
_FACE = {
    "Arch": "arch",
    "BF16": "dtypes",
    "F16": "dtypes",
    "F32": "dtypes",
    "Axis": "spec",
    "Flag": "spec",
    "Kernel": "spec",
    "KgenError": "errors",
    "Spec": "spec",
    "backend": "backend",
    "build": "build",
    "causal_dot_product": "ops.causal_dot_product",
    "causal_dot_product_backward": "ops.causal_dot_product",
    "explain": "ops.calls",
    "kernels": "catalog",
    "linear_state": "ops.linear_state",
    "load": "launch",
    "parse": "catalog",
    "query_state": "ops.linear_state",
    "register": "registry",
    "render": "render",
    "select": "catalog",
}

__all__ = sorted([*_FACE, "__version__"])  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'kgen' has no attribute {name!r}")
    value = getattr(import_module(f"kgen.{_FACE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Face(ModuleType):
    """`kgen.build` and `kgen.render` are functions, which the import of the modules of those names must not replace."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FACE and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
