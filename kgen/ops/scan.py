"""One causal scan, and how it is carried out: which kernels, in which order, and why those.

Everything of the family comes down to `Scan`: the operator itself, its mirror image in time, and the three scans of its
gradient, which are the same scan with the operands' roles exchanged. A `Plan` is made once for a shape class and
launched at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kgen.dtypes import DType
from kgen.errors import SpecError
from kgen.launch import load
from kgen.ops import lmha
from kgen.registry import parse
from kgen.spec import Spec

Strides = tuple[int, int, int]

WIDE = 16
"""Bytes of the widest load; rows that start at multiples of it may be read so."""


@dataclass(frozen=True)
class Scan:
    """o[t] = sum over s <= t of (q[t] . k[s]) v[s] for each head; strides in elements over batch, head, time."""

    batch: int
    heads: int
    length: int
    e: int
    m: int
    dtype: DType
    q: Strides
    k: Strides
    v: Strides
    o: Strides
    wide: bool
    reverse: bool

    @property
    def strides(self) -> tuple[int, ...]:
        return (*self.q, *self.k, *self.v, *self.o)


class Plan:
    """What one scan does on one device: `launch((q, k, v, o), stream)` with pointers; `steps` and `why` for people."""

    __slots__ = ("launch", "steps", "why")

    def __init__(
        self, launch: Callable[[tuple[int, int, int, int], int], None], steps: tuple[str, ...], why: str
    ) -> None:
        self.launch = launch
        self.steps = steps
        self.why = why


def plan(scan: Scan, algorithm: str | None, device: int) -> Plan:
    """Decide how to carry out a scan; `algorithm` is a kernel's name or a whole specialization's, None for the fastest.

    Raises SpecError, which lists the algorithms, for a name that is none of them or cannot take this problem.
    """
    stem = (algorithm or "lmha").partition("_e")[0]
    if stem not in ALGORITHMS:
        raise SpecError(
            f"causal_dot_product: there is no algorithm {algorithm!r}",
            hint=f"one of {', '.join(ALGORITHMS)}, a specialization's whole name, or None for the fastest",
        )
    chosen = parse(algorithm) if algorithm and algorithm != stem else None
    if chosen is not None:
        _refuse_mismatch(scan, chosen)
    return ALGORITHMS[stem](scan, chosen, device)


def _refuse_mismatch(scan: Scan, spec: Spec) -> None:
    if spec.dtype is not scan.dtype:
        raise SpecError(f"causal_dot_product: {spec.name} takes {spec.dtype}, and the arrays are {scan.dtype}")
    if spec["E"] < scan.e:
        raise SpecError(f"causal_dot_product: {spec.name} has room for {spec['E']} features, and q has {scan.e}")
    if any(flag.name == "reverse" for flag in spec.kernel.flags) and bool(spec["reverse"]) != scan.reverse:
        raise SpecError(f"causal_dot_product: {spec.name} walks the other way than reverse={scan.reverse}")


def _single(scan: Scan, spec: Spec, blocks: int, device: int, why: str) -> Plan:
    """A plan of one launch with the parameters that both of fast-transformers' kernels share."""
    bound = load(spec, device).bind(blocks, 4, (scan.heads, scan.length, scan.e, scan.m), scan.strides)
    return Plan(bound, (f"{spec.name} on {blocks} blocks",), why)


def _plan_low_occupancy(scan: Scan, chosen: Spec | None, device: int) -> Plan:
    vec = _elements_per_load(scan)
    spec = chosen or lmha.pick_low_occupancy(
        scan.batch * scan.heads, scan.e, scan.m, vec, dtype=scan.dtype, reverse=scan.reverse
    )
    if spec is None:
        raise _too_wide("lmha_low_occupancy", scan)
    if spec["VEC"] > vec:
        raise SpecError(
            f"causal_dot_product: {spec.name} loads {spec['VEC']} features at once, and these rows allow {vec}",
            hint="E and all strides of q and k must be multiples of VEC, and the arrays aligned",
        )
    return _single(scan, spec, scan.m * scan.heads * scan.batch, device, f"asked for by name: {spec.kernel.name}")


def _plan_lmha(scan: Scan, chosen: Spec | None, device: int) -> Plan:
    spec = chosen or lmha.pick_lmha(scan.e, scan.m, dtype=scan.dtype, reverse=scan.reverse)
    if spec is None:
        raise _too_wide("lmha", scan)
    tiles = -(-scan.m // spec["COLUMNS"])
    return _single(scan, spec, tiles * scan.heads * scan.batch, device, f"asked for by name: {spec.kernel.name}")


def _elements_per_load(scan: Scan) -> int:
    """How many features a lane may load at once: 4, 2 or 1."""
    if not scan.wide:
        return 1
    strides = (*scan.q, *scan.k, scan.e)
    return next(vec for vec in (4, 2, 1) if all(stride % vec == 0 for stride in strides))


def _too_wide(algorithm: str, scan: Scan) -> SpecError:
    return SpecError(
        f"causal_dot_product: {algorithm} takes at most 256 features, and q has {scan.e}",
        hint="leave out algorithm= for one that takes any number",
    )


ALGORITHMS: dict[str, Callable[[Scan, Spec | None, int], Plan]] = {
    "lmha": _plan_lmha,
    "lmha_low_occupancy": _plan_low_occupancy,
}
