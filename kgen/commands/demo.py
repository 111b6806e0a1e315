"""kgen demo: a real causal linear attention on real arrays, checked against float64."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import click

from kgen.commands.common import json_option, print_json

_SHAPE = (1, 8, 2048, 64)
_BAR = 2e-6


@click.command()
@json_option
def demo(as_json: bool) -> None:
    """Run a linear attention and compare it with NumPy.

    The attention is causal, and compared in float64. It runs on the GPU if there is one, otherwise on the CPU executor,
    with the same kernel, and says which.
    """
    import numpy as np

    from kgen import reference

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(_SHAPE).astype("f") for _ in range(3)]
    device, result, seconds = _computed(arrays)
    expected = reference.causal_dot_product(*arrays)
    rms = float(np.sqrt(np.mean((result - expected) ** 2) / np.mean(expected**2)))
    right = rms <= _BAR
    facts = {"device": device, "shape": _SHAPE, "dtype": "f32", "rms_error": rms, "seconds": seconds, "right": right}
    if as_json:
        print_json(facts)
    else:
        verdict = "right" if right else "WRONG"
        took = f"{seconds * 1e3:.3g} ms"
        click.echo(f"causal_dot_product of {_SHAPE} in float32 on {device}: {verdict}, RMS error {rms:.1e}, {took}")
    if not right:
        raise click.exceptions.Exit(1)


def _computed(arrays: list[Any]) -> tuple[str, Any, float]:
    """Where it ran, the result on the host, and how long the second call took, with nothing left to compile."""
    from kgen.backend import HOST, backend, device_for_numpy
    from kgen.ops.causal.causal_dot_product import causal_dot_product

    with backend("auto"):
        device = device_for_numpy(quiet=True)
    if device == HOST:
        with backend("cpu"):
            causal_dot_product(*arrays)
            start = perf_counter()
            result = causal_dot_product(*arrays)
        return "the CPU executor, since no GPU is usable here", result, perf_counter() - start
    import cupy

    q, k, v = (cupy.asarray(array) for array in arrays)
    causal_dot_product(q, k, v)
    cupy.cuda.runtime.deviceSynchronize()
    start = perf_counter()
    result = causal_dot_product(q, k, v)
    cupy.cuda.runtime.deviceSynchronize()
    seconds = perf_counter() - start
    name = cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
    return name, cupy.asnumpy(result), seconds
