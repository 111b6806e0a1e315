"""What a wheel brings compiled for the usual GPUs: the default set, and the kernels that a model's usual calls take.

    python -m kgen.usual sm_90a        their names, one a line; no GPU is asked

The latter are those that take long to compile: causal dot products, and linear attention and its kin in bfloat16, all
with their gradients, for heads of 64 and 128 features, from few sequences to many.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import kgen
from kgen.arch import Arch
from kgen.device import Facts, stand_for
from kgen.dtypes import BF16, F16, F32, DType
from kgen.launch import listing_steps

GPUS = (
    Facts(108, 163 * 1024, "sm_80"),  # A100
    Facts(84, 99 * 1024, "sm_86"),  # A40, RTX 3090
    Facts(142, 99 * 1024, "sm_89"),  # L40
    Facts(132, 227 * 1024, "sm_90a"),  # H100, H200
    Facts(148, 227 * 1024, "sm_100a"),  # B200
    Facts(170, 99 * 1024, "sm_120a"),  # RTX 5090
)
"""The model with the most multiprocessors of each architecture, more or less: others take many of the same kernels."""

SHAPES = ((8, 16, 2048), (4, 16, 8192), (1, 16, 2048), (1, 8, 2048))  # sequences, heads, time steps
FEATURES = (64, 128)


def calls() -> Iterator[tuple[Any, ...]]:
    """Functions with what they are called on: arrays that nobody fills, so that they take no memory."""
    import numpy as np

    def array(dtype: DType, *shape: int) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype.numpy)

    for sequences, heads, steps in SHAPES:
        for features in FEATURES:
            for dtype in (F32, F16, BF16):
                x = array(dtype, sequences, heads, steps, features)
                yield kgen.causal_dot_product, x, x, x
                yield kgen.causal_dot_product_backward, x, x, x, x
                if dtype != BF16:
                    continue
                gate, bonus = array(dtype, sequences, heads, steps), array(dtype, heads, features)
                yield kgen.linear_attention, x, x, x
                yield kgen.linear_attention_backward, x, x, x, x
                yield kgen.simple_gla, x, x, x, gate
                yield kgen.simple_gla_backward, x, x, x, x, gate
                yield kgen.gla, x, x, x, x
                yield kgen.gla_backward, x, x, x, x, x
                yield kgen.rwkv6, x, x, x, x, bonus
                yield kgen.rwkv6_backward, x, x, x, x, x, bonus


def names(facts: Facts) -> list[str]:
    """The default specializations, and those that the calls launch on a device, in the order of their names."""
    stand_for(facts)
    with kgen.backend("cpu"), listing_steps() as steps:
        for function, *arrays in calls():
            kgen.explain(function, *arrays)
            if "return_state" in inspect.signature(function).parameters:  # as before decoding
                kgen.explain(function, *arrays, return_state=True)
    default = {spec.name for spec in kgen.select() if spec.kernel.min_arch <= Arch.parse(facts.arch)}
    return sorted(default | {step.spec.name for step in steps})


def main(archs: list[str]) -> None:
    known = {facts.arch: facts for facts in GPUS}
    if len(archs) != 1 or archs[0] not in known:
        raise SystemExit(f"python -m kgen.usual ARCH, which is one of {', '.join(known)}")
    print("\n".join(names(known[archs[0]])))


if __name__ == "__main__":
    main(sys.argv[1:])
