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
    from kgen import autograd as autograd
    from kgen import layers as layers
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
    from kgen.ops.causal.causal_dot_product import causal_dot_product as causal_dot_product
    from kgen.ops.causal.causal_dot_product import causal_dot_product_backward as causal_dot_product_backward
    from kgen.ops.causal.linear_state import linear_state as linear_state
    from kgen.ops.causal.linear_state import query_state as query_state
    from kgen.ops.checked import checked as checked
    from kgen.ops.elementwise.activations import absolute as absolute
    from kgen.ops.elementwise.activations import add as add
    from kgen.ops.elementwise.activations import celu as celu
    from kgen.ops.elementwise.activations import clip as clip
    from kgen.ops.elementwise.activations import divide as divide
    from kgen.ops.elementwise.activations import elu as elu
    from kgen.ops.elementwise.activations import elu_backward as elu_backward
    from kgen.ops.elementwise.activations import exp as exp
    from kgen.ops.elementwise.activations import geglu as geglu
    from kgen.ops.elementwise.activations import gelu as gelu
    from kgen.ops.elementwise.activations import gelu_backward as gelu_backward
    from kgen.ops.elementwise.activations import gelu_tanh as gelu_tanh
    from kgen.ops.elementwise.activations import gelu_tanh_backward as gelu_tanh_backward
    from kgen.ops.elementwise.activations import glu as glu
    from kgen.ops.elementwise.activations import hardshrink as hardshrink
    from kgen.ops.elementwise.activations import hardsigmoid as hardsigmoid
    from kgen.ops.elementwise.activations import hardsigmoid_backward as hardsigmoid_backward
    from kgen.ops.elementwise.activations import hardswish as hardswish
    from kgen.ops.elementwise.activations import hardswish_backward as hardswish_backward
    from kgen.ops.elementwise.activations import hardtanh as hardtanh
    from kgen.ops.elementwise.activations import leaky_relu as leaky_relu
    from kgen.ops.elementwise.activations import leaky_relu_backward as leaky_relu_backward
    from kgen.ops.elementwise.activations import log as log
    from kgen.ops.elementwise.activations import logsigmoid as logsigmoid
    from kgen.ops.elementwise.activations import maximum as maximum
    from kgen.ops.elementwise.activations import minimum as minimum
    from kgen.ops.elementwise.activations import mish as mish
    from kgen.ops.elementwise.activations import multiply as multiply
    from kgen.ops.elementwise.activations import negative as negative
    from kgen.ops.elementwise.activations import reglu as reglu
    from kgen.ops.elementwise.activations import relu as relu
    from kgen.ops.elementwise.activations import relu6 as relu6
    from kgen.ops.elementwise.activations import relu_backward as relu_backward
    from kgen.ops.elementwise.activations import safe_sigmoid as safe_sigmoid
    from kgen.ops.elementwise.activations import selu as selu
    from kgen.ops.elementwise.activations import sigmoid as sigmoid
    from kgen.ops.elementwise.activations import sigmoid_backward as sigmoid_backward
    from kgen.ops.elementwise.activations import silu as silu
    from kgen.ops.elementwise.activations import silu_backward as silu_backward
    from kgen.ops.elementwise.activations import softplus as softplus
    from kgen.ops.elementwise.activations import softplus_backward as softplus_backward
    from kgen.ops.elementwise.activations import softshrink as softshrink
    from kgen.ops.elementwise.activations import softsign as softsign
    from kgen.ops.elementwise.activations import sqrt as sqrt
    from kgen.ops.elementwise.activations import square as square
    from kgen.ops.elementwise.activations import subtract as subtract
    from kgen.ops.elementwise.activations import swiglu as swiglu
    from kgen.ops.elementwise.activations import swish as swish
    from kgen.ops.elementwise.activations import tanh as tanh
    from kgen.ops.elementwise.activations import tanh_backward as tanh_backward
    from kgen.ops.elementwise.elementwise import elementwise as elementwise
    from kgen.ops.gated.gla import gla as gla
    from kgen.ops.gated.gla import gla_backward as gla_backward
    from kgen.ops.gated.gla import simple_gla as simple_gla
    from kgen.ops.gated.gla import simple_gla_backward as simple_gla_backward
    from kgen.ops.gated.linear_attention import linear_attention as linear_attention
    from kgen.ops.gated.linear_attention import linear_attention_backward as linear_attention_backward
    from kgen.ops.gated.rwkv6 import rwkv6 as rwkv6
    from kgen.ops.gated.rwkv6 import rwkv6_backward as rwkv6_backward
    from kgen.ops.gated.steps import gla_step as gla_step
    from kgen.ops.gated.steps import linear_attention_step as linear_attention_step
    from kgen.ops.gated.steps import rwkv6_step as rwkv6_step
    from kgen.ops.gated.steps import simple_gla_step as simple_gla_step
    from kgen.ops.gemv.batched import matvec as matvec
    from kgen.ops.gemv.gemv import gemv as gemv
    from kgen.ops.histogram.histogram import bincount as bincount
    from kgen.ops.histogram.histogram import histogram as histogram
    from kgen.ops.moving.quantize import cast as cast
    from kgen.ops.moving.quantize import dequantize as dequantize
    from kgen.ops.moving.quantize import quantize as quantize
    from kgen.ops.moving.rope import rope as rope
    from kgen.ops.moving.take import embedding as embedding
    from kgen.ops.moving.take import take as take
    from kgen.ops.moving.transpose import transpose as transpose
    from kgen.ops.nms.nms import batched_nms as batched_nms
    from kgen.ops.nms.nms import nms as nms
    from kgen.ops.norm.backward import layer_norm_backward as layer_norm_backward
    from kgen.ops.norm.backward import rms_norm_backward as rms_norm_backward
    from kgen.ops.norm.norm import fused_add_rms_norm as fused_add_rms_norm
    from kgen.ops.norm.norm import group_norm as group_norm
    from kgen.ops.norm.norm import layer_norm as layer_norm
    from kgen.ops.norm.norm import rms_norm as rms_norm
    from kgen.ops.questions import explain as explain
    from kgen.ops.questions import workspace as workspace
    from kgen.ops.reduce.dot import dot as dot
    from kgen.ops.reduce.dot import vdot as vdot
    from kgen.ops.reduce.reduce import argmax as argmax
    from kgen.ops.reduce.reduce import argmin as argmin
    from kgen.ops.reduce.reduce import max as max
    from kgen.ops.reduce.reduce import mean as mean
    from kgen.ops.reduce.reduce import min as min
    from kgen.ops.reduce.reduce import prod as prod
    from kgen.ops.reduce.reduce import reduce as reduce
    from kgen.ops.reduce.reduce import sum as sum
    from kgen.ops.softmax.backward import log_softmax_backward as log_softmax_backward
    from kgen.ops.softmax.backward import softmax_backward as softmax_backward
    from kgen.ops.softmax.softmax import log_softmax as log_softmax
    from kgen.ops.softmax.softmax import logsumexp as logsumexp
    from kgen.ops.softmax.softmax import softmax as softmax
    from kgen.registry import register as register
    from kgen.render import render as render
    from kgen.spec import Axis as Axis
    from kgen.spec import Flag as Flag
    from kgen.spec import Kernel as Kernel
    from kgen.spec import Spec as Spec

# The public face: each module with the names that live in it.
_MODULES = {
    "arch": "Arch",
    "backend": "backend",
    "build": "build",
    "catalog": "kernels parse select",
    "dtypes": "BF16 F16 F32",
    "errors": "KgenError",
    "launch": "load",
    "ops.causal.causal_dot_product": "causal_dot_product causal_dot_product_backward",
    "ops.causal.linear_state": "linear_state query_state",
    "ops.checked": "checked",
    "ops.elementwise.activations": """
        absolute add celu clip divide elu elu_backward exp geglu gelu gelu_backward gelu_tanh gelu_tanh_backward glu
        hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh leaky_relu leaky_relu_backward
        log logsigmoid maximum minimum mish multiply negative reglu relu relu6 relu_backward safe_sigmoid selu sigmoid
        sigmoid_backward silu silu_backward softplus softplus_backward softshrink softsign sqrt square subtract swiglu
        swish tanh tanh_backward
    """,
    "ops.elementwise.elementwise": "elementwise",
    "ops.gated.gla": "gla gla_backward simple_gla simple_gla_backward",
    "ops.gated.linear_attention": "linear_attention linear_attention_backward",
    "ops.gated.rwkv6": "rwkv6 rwkv6_backward",
    "ops.gated.steps": "gla_step linear_attention_step rwkv6_step simple_gla_step",
    "ops.gemv.batched": "matvec",
    "ops.gemv.gemv": "gemv",
    "ops.histogram.histogram": "bincount histogram",
    "ops.moving.quantize": "cast dequantize quantize",
    "ops.moving.rope": "rope",
    "ops.moving.take": "embedding take",
    "ops.moving.transpose": "transpose",
    "ops.nms.nms": "batched_nms nms",
    "ops.norm.backward": "layer_norm_backward rms_norm_backward",
    "ops.norm.norm": "fused_add_rms_norm group_norm layer_norm rms_norm",
    "ops.questions": "explain workspace",
    "ops.reduce.dot": "dot vdot",
    "ops.reduce.reduce": "argmax argmin max mean min prod reduce sum",
    "ops.softmax.backward": "log_softmax_backward softmax_backward",
    "ops.softmax.softmax": "log_softmax logsumexp softmax",
    "registry": "register",
    "render": "render",
    "spec": "Axis Flag Kernel Spec",
}
_FACE = {name: module for module, names in _MODULES.items() for name in names.split()}
_SUBMODULES = ("autograd", "layers")

__all__ = sorted([*_FACE, *_SUBMODULES, "__version__"])  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"kgen.{name}")
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
