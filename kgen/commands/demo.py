"""kgen demo: a real causal linear attention on real arrays, checked against float64."""

from __future__ import annotations

import click

from kgen.commands.common import json_option, print_json
from kgen.errors import DeviceError

_SHAPE = (1, 8, 2048, 64)
_BAR = 2e-6


@click.command()
@json_option
def demo(as_json: bool) -> None:
    """Run a causal linear attention on this machine's GPU and compare it with NumPy in float64.

    Where there is no GPU it says so, and what was possible without one.
    """
    from kgen.streams import gpu

    try:
        cupy = gpu()
    except DeviceError as error:
        facts = {"ran": False, "why": str(error).splitlines()[0]}
        if as_json:
            print_json(facts)
        else:
            click.echo(f"Not run: causal_dot_product. {facts['why']}.")
            click.echo("What needs no GPU was done: the kernels above were generated and compiled.")
        return

    import numpy as np

    from kgen import reference
    from kgen.ops.causal_dot_product import causal_dot_product

    rng = np.random.default_rng(0)
    q, k, v = (cupy.asarray(rng.standard_normal(_SHAPE).astype("f")) for _ in range(3))
    result = cupy.asnumpy(causal_dot_product(q, k, v))
    expected = reference.causal_dot_product(*(cupy.asnumpy(x) for x in (q, k, v)))
    rms = float(np.sqrt(np.mean((result - expected) ** 2) / np.mean(expected**2)))
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode()
    facts = {"ran": True, "device": name, "shape": _SHAPE, "dtype": "f32", "rms_error": rms, "right": rms <= _BAR}
    if as_json:
        print_json(facts)
    else:
        verdict = "right" if rms <= _BAR else "WRONG"
        click.echo(f"causal_dot_product of {_SHAPE} in float32 on {name}: {verdict}, RMS error {rms:.1e}")
    if rms > _BAR:
        raise click.exceptions.Exit(1)
