"""The ways to carry out a causal scan, by name, and which one is taken when none is named."""

from __future__ import annotations

from collections.abc import Callable

from kgen.device import device_arch
from kgen.errors import SpecError
from kgen.ops.calls import Plan
from kgen.ops.causal import chunk, lmha
from kgen.ops.causal.scan import Scan
from kgen.registry import parse
from kgen.spec import Spec

ALGORITHMS: dict[str, Callable[[Scan, Spec | None, int], Plan]] = {
    "lmha_chunk": chunk.plan,
    "lmha": lmha.plan,
    "lmha_low_occupancy": lmha.plan_low_occupancy,
}
"""From a scan, a specialization or None for the best of the kernel, and a device, the plan."""


_PARTS = (
    ("outer", "states only"),
    ("partial", "a float32 part of the result only"),
    ("adds", "a sum with a part that is not there"),
)


def plan(scan: Scan, algorithm: str | None, device: int) -> Plan:
    """Decide how to carry out a scan; `algorithm` is a kernel's name or a specialization's, None for the fastest.

    Raises SpecError, which lists the algorithms, for a name that is none of them or cannot take this problem.
    """
    name = fastest(device) if algorithm is None else algorithm
    if isinstance(name, str) and name in ALGORITHMS:
        return ALGORITHMS[name](scan, None, device)
    owners = [stem for stem in ALGORITHMS if isinstance(name, str) and name.startswith(f"{stem}_")]
    if not owners:
        raise SpecError(
            f"causal_dot_product: there is no algorithm {algorithm!r}",
            hint=f"one of {', '.join(ALGORITHMS)}, a specialization's whole name, or None for the fastest",
        )
    try:
        spec = parse(name)
    except SpecError as error:
        raise SpecError(f"causal_dot_product: algorithm {name!r}: {error}") from None
    _refuse_mismatch(scan, spec)
    return ALGORITHMS[max(owners, key=len)](scan, spec, device)


def fastest(device: int) -> str:
    """The algorithm that is taken where none is named: chunks on tensor cores where the device has those they need."""
    return "lmha_chunk" if device_arch(device) >= chunk.CHUNK.min_arch else "lmha"


def _refuse_mismatch(scan: Scan, spec: Spec) -> None:
    if spec.dtype is not scan.dtype:
        raise SpecError(f"causal_dot_product: {spec.name} takes {spec.dtype}, and the arrays are {scan.dtype}")
    if spec["E"] < scan.e:
        raise SpecError(f"causal_dot_product: {spec.name} has room for {spec['E']} features, and there are {scan.e}")
    if any(flag.name == "reverse" for flag in spec.kernel.flags) and bool(spec["reverse"]) != scan.reverse:
        raise SpecError(f"causal_dot_product: {spec.name} walks the other way than reverse={scan.reverse}")
    for flag, what in _PARTS:
        if flag in spec.flags:
            raise SpecError(f"causal_dot_product: {spec.name} computes {what}")
