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
    from kgen.ops.activations import absolute as absolute
    from kgen.ops.activations import add as add
    from kgen.ops.activations import celu as celu
    from kgen.ops.activations import clip as clip
    from kgen.ops.activations import divide as divide
    from kgen.ops.activations import elu as elu
    from kgen.ops.activations import elu_backward as elu_backward
    from kgen.ops.activations import exp as exp
    from kgen.ops.activations import geglu as geglu
    from kgen.ops.activations import gelu as gelu
    from kgen.ops.activations import gelu_backward as gelu_backward
    from kgen.ops.activations import gelu_tanh as gelu_tanh
    from kgen.ops.activations import gelu_tanh_backward as gelu_tanh_backward
    from kgen.ops.activations import glu as glu
    from kgen.ops.activations import hardshrink as hardshrink
    from kgen.ops.activations import hardsigmoid as hardsigmoid
    from kgen.ops.activations import hardsigmoid_backward as hardsigmoid_backward
    from kgen.ops.activations import hardswish as hardswish
    from kgen.ops.activations import hardswish_backward as hardswish_backward
    from kgen.ops.activations import hardtanh as hardtanh
    from kgen.ops.activations import leaky_relu as leaky_relu
    from kgen.ops.activations import leaky_relu_backward as leaky_relu_backward
    from kgen.ops.activations import log as log
    from kgen.ops.activations import logsigmoid as logsigmoid
    from kgen.ops.activations import maximum as maximum
    from kgen.ops.activations import minimum as minimum
    from kgen.ops.activations import mish as mish
    from kgen.ops.activations import multiply as multiply
    from kgen.ops.activations import negative as negative
    from kgen.ops.activations import reglu as reglu
    from kgen.ops.activations import relu as relu
    from kgen.ops.activations import relu6 as relu6
    from kgen.ops.activations import relu_backward as relu_backward
    from kgen.ops.activations import safe_sigmoid as safe_sigmoid
    from kgen.ops.activations import selu as selu
    from kgen.ops.activations import sigmoid as sigmoid
    from kgen.ops.activations import sigmoid_backward as sigmoid_backward
    from kgen.ops.activations import silu as silu
    from kgen.ops.activations import silu_backward as silu_backward
    from kgen.ops.activations import softplus as softplus
    from kgen.ops.activations import softplus_backward as softplus_backward
    from kgen.ops.activations import softshrink as softshrink
    from kgen.ops.activations import softsign as softsign
    from kgen.ops.activations import sqrt as sqrt
    from kgen.ops.activations import square as square
    from kgen.ops.activations import subtract as subtract
    from kgen.ops.activations import swiglu as swiglu
    from kgen.ops.activations import swish as swish
    from kgen.ops.activations import tanh as tanh
    from kgen.ops.activations import tanh_backward as tanh_backward
    from kgen.ops.calls import explain as explain
    from kgen.ops.causal_dot_product import causal_dot_product as causal_dot_product
    from kgen.ops.causal_dot_product import causal_dot_product_backward as causal_dot_product_backward
    from kgen.ops.dot import dot as dot
    from kgen.ops.dot import vdot as vdot
    from kgen.ops.elementwise import elementwise as elementwise
    from kgen.ops.gemv import gemv as gemv
    from kgen.ops.gemv_batched import matvec as matvec
    from kgen.ops.gla import gla as gla
    from kgen.ops.gla import gla_backward as gla_backward
    from kgen.ops.gla import gla_step as gla_step
    from kgen.ops.gla import simple_gla as simple_gla
    from kgen.ops.gla import simple_gla_backward as simple_gla_backward
    from kgen.ops.gla import simple_gla_step as simple_gla_step
    from kgen.ops.histogram import bincount as bincount
    from kgen.ops.histogram import histogram as histogram
    from kgen.ops.linear_attention import linear_attention as linear_attention
    from kgen.ops.linear_attention import linear_attention_backward as linear_attention_backward
    from kgen.ops.linear_attention import linear_attention_step as linear_attention_step
    from kgen.ops.linear_state import linear_state as linear_state
    from kgen.ops.linear_state import query_state as query_state
    from kgen.ops.nms import batched_nms as batched_nms
    from kgen.ops.nms import nms as nms
    from kgen.ops.norm import fused_add_rms_norm as fused_add_rms_norm
    from kgen.ops.norm import group_norm as group_norm
    from kgen.ops.norm import layer_norm as layer_norm
    from kgen.ops.norm import rms_norm as rms_norm
    from kgen.ops.norm_backward import layer_norm_backward as layer_norm_backward
    from kgen.ops.norm_backward import rms_norm_backward as rms_norm_backward
    from kgen.ops.quantize import cast as cast
    from kgen.ops.quantize import dequantize as dequantize
    from kgen.ops.quantize import quantize as quantize
    from kgen.ops.reduce import argmax as argmax
    from kgen.ops.reduce import argmin as argmin
    from kgen.ops.reduce import max as max
    from kgen.ops.reduce import mean as mean
    from kgen.ops.reduce import min as min
    from kgen.ops.reduce import prod as prod
    from kgen.ops.reduce import reduce as reduce
    from kgen.ops.reduce import sum as sum
    from kgen.ops.rope import rope as rope
    from kgen.ops.rwkv6 import rwkv6 as rwkv6
    from kgen.ops.rwkv6 import rwkv6_backward as rwkv6_backward
    from kgen.ops.rwkv6 import rwkv6_step as rwkv6_step
    from kgen.ops.softmax import log_softmax as log_softmax
    from kgen.ops.softmax import logsumexp as logsumexp
    from kgen.ops.softmax import softmax as softmax
    from kgen.ops.softmax_backward import log_softmax_backward as log_softmax_backward
    from kgen.ops.softmax_backward import softmax_backward as softmax_backward
    from kgen.ops.take import embedding as embedding
    from kgen.ops.take import take as take
    from kgen.ops.transpose import transpose as transpose
    from kgen.registry import register as register
    from kgen.render import render as render
    from kgen.spec import Axis as Axis
    from kgen.spec import Flag as Flag
    from kgen.spec import Kernel as Kernel
    from kgen.spec import Spec as Spec

# The public face: each name and the module that it lives in.
_FACE = {
    "Arch": "arch",
    "Axis": "spec",
    "BF16": "dtypes",
    "F16": "dtypes",
    "F32": "dtypes",
    "Flag": "spec",
    "Kernel": "spec",
    "KgenError": "errors",
    "Spec": "spec",
    "absolute": "ops.activations",
    "add": "ops.activations",
    "argmax": "ops.reduce",
    "argmin": "ops.reduce",
    "backend": "backend",
    "batched_nms": "ops.nms",
    "bincount": "ops.histogram",
    "build": "build",
    "cast": "ops.quantize",
    "causal_dot_product": "ops.causal_dot_product",
    "causal_dot_product_backward": "ops.causal_dot_product",
    "celu": "ops.activations",
    "clip": "ops.activations",
    "dequantize": "ops.quantize",
    "divide": "ops.activations",
    "dot": "ops.dot",
    "elementwise": "ops.elementwise",
    "elu": "ops.activations",
    "elu_backward": "ops.activations",
    "embedding": "ops.take",
    "exp": "ops.activations",
    "explain": "ops.calls",
    "fused_add_rms_norm": "ops.norm",
    "geglu": "ops.activations",
    "gelu": "ops.activations",
    "gelu_backward": "ops.activations",
    "gelu_tanh": "ops.activations",
    "gelu_tanh_backward": "ops.activations",
    "gemv": "ops.gemv",
    "gla": "ops.gla",
    "gla_backward": "ops.gla",
    "gla_step": "ops.gla",
    "glu": "ops.activations",
    "group_norm": "ops.norm",
    "hardshrink": "ops.activations",
    "hardsigmoid": "ops.activations",
    "hardsigmoid_backward": "ops.activations",
    "hardswish": "ops.activations",
    "hardswish_backward": "ops.activations",
    "hardtanh": "ops.activations",
    "histogram": "ops.histogram",
    "kernels": "catalog",
    "layer_norm": "ops.norm",
    "layer_norm_backward": "ops.norm_backward",
    "leaky_relu": "ops.activations",
    "leaky_relu_backward": "ops.activations",
    "linear_attention": "ops.linear_attention",
    "linear_attention_backward": "ops.linear_attention",
    "linear_attention_step": "ops.linear_attention",
    "linear_state": "ops.linear_state",
    "load": "launch",
    "log": "ops.activations",
    "log_softmax": "ops.softmax",
    "log_softmax_backward": "ops.softmax_backward",
    "logsigmoid": "ops.activations",
    "logsumexp": "ops.softmax",
    "matvec": "ops.gemv_batched",
    "max": "ops.reduce",
    "maximum": "ops.activations",
    "mean": "ops.reduce",
    "min": "ops.reduce",
    "minimum": "ops.activations",
    "mish": "ops.activations",
    "multiply": "ops.activations",
    "negative": "ops.activations",
    "nms": "ops.nms",
    "parse": "catalog",
    "prod": "ops.reduce",
    "quantize": "ops.quantize",
    "query_state": "ops.linear_state",
    "reduce": "ops.reduce",
    "register": "registry",
    "reglu": "ops.activations",
    "relu": "ops.activations",
    "relu6": "ops.activations",
    "relu_backward": "ops.activations",
    "render": "render",
    "rms_norm": "ops.norm",
    "rms_norm_backward": "ops.norm_backward",
    "rope": "ops.rope",
    "rwkv6": "ops.rwkv6",
    "rwkv6_backward": "ops.rwkv6",
    "rwkv6_step": "ops.rwkv6",
    "safe_sigmoid": "ops.activations",
    "select": "catalog",
    "selu": "ops.activations",
    "sigmoid": "ops.activations",
    "sigmoid_backward": "ops.activations",
    "silu": "ops.activations",
    "silu_backward": "ops.activations",
    "simple_gla": "ops.gla",
    "simple_gla_backward": "ops.gla",
    "simple_gla_step": "ops.gla",
    "softmax": "ops.softmax",
    "softmax_backward": "ops.softmax_backward",
    "softplus": "ops.activations",
    "softplus_backward": "ops.activations",
    "softshrink": "ops.activations",
    "softsign": "ops.activations",
    "sqrt": "ops.activations",
    "square": "ops.activations",
    "subtract": "ops.activations",
    "sum": "ops.reduce",
    "swiglu": "ops.activations",
    "swish": "ops.activations",
    "take": "ops.take",
    "tanh": "ops.activations",
    "tanh_backward": "ops.activations",
    "transpose": "ops.transpose",
    "vdot": "ops.dot",
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
