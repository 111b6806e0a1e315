"""Sums of weights by bin, and densities: small kernels around the one that adds.

Weights are added in fixed point, relative to the largest: 93 bits below its power of two. Integers add up to the same
in any order, so results are the same at every run, and at least as exact as sums of doubles in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32, F64, I64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.histogram.fixed import DIGIT_BYTES, FRACTION, LARGEST, LONGEST, SUM_BYTES, THREADS, TOTAL
from kgen.ops.histogram.kernels import COPIES, ELEMENTS, INDICES, MAPS, illegal_map, map_of
from kgen.ops.histogram.memory import Line
from kgen.ops.histogram.parts import plan_parts, sorting_pays
from kgen.registry import register
from kgen.scratch import fill, scratch
from kgen.spec import Axis, Flag, Kernel, Spec

DENSITY_THREADS = 1024
ITEMS = 4
LANE_COPIES = (32, *COPIES)
"""Sums for each bin, up to one for each lane."""


def _geometry(spec: Spec) -> dict[str, int]:
    big = spec["SMEM"] > 112
    return {
        "THREADS": 1024 if big else 512,
        "BLOCKS": 1 if big else 2,
        "ITEMS": ITEMS,
        "FRACTION": FRACTION,
        "STATIC_SMEM": 0,
        "DYNAMIC_SMEM": 1024 * spec["SMEM"],
    }


def _illegal(spec: Spec) -> str | None:
    copied = spec["COPIES"] > 1 and not spec["SMEM"]
    return illegal_map(spec) or ("copies are in shared memory" if copied else None)


def _in_digits(spec: Spec) -> bool:
    """Whether lanes add the digits of a weight: float32 ones have so few that one addition in two is saved anyhow."""
    return not spec["SMEM"] and not spec["single"]


WEIGHTS = register(
    Kernel(
        name="histogram_weights",
        summary="Sums of the weights of the elements that fall into each bin, in fixed point.",
        formula="sums[b] += sum over n with bin(x[n]) = b of weights[n]",
        axes=(
            Axis("SMEM", "k", (48, 112, 224, 0), "KiB of shared memory for sums; 0: they are in global memory"),
            Axis("COPIES", "c", LANE_COPIES, "sums for each bin"),
        ),
        flags=(*MAPS, Flag("single", "weights are float32, instead of float64")),
        dtypes=ELEMENTS,
        derive=_geometry,
        text=lambda spec: {"digits": _in_digits(spec)},
        check=_illegal,
        grid="(resident blocks)",
        origin="fixed-point sums that are the same in any order: Demmel and Nguyen, Reproducible summation, 2013",
        defaults=("histogram_weights_k112_c8_uniform_f32",),
    )
)
DENSITY = register(
    Kernel(
        name="histogram_density",
        summary="Counts as a density, whose integral is 1.",
        formula="out[b] = counts[b] / (edges[b + 1] - edges[b]) / sum over bins of counts",
        axes=(),
        dtypes=(I64, F64),
        derive=lambda spec: {"THREADS": DENSITY_THREADS, "STATIC_SMEM": DENSITY_THREADS // 32 * 8},
        grid="(1)",
        defaults=("histogram_density_i64",),
    )
)


def _cut_for(bins: int, device: int) -> tuple[int, int]:
    """KiB of shared memory and sums for each bin: the most that leave room for two blocks, else what holds one each."""
    sizes = [kib for kib in (112, 224, 48) if 1024 * kib <= shared_memory(device)]
    room = {kib: 1024 * kib // SUM_BYTES for kib in sizes}
    for copies in LANE_COPIES:
        if bins * copies <= room[sizes[0]]:
            return sizes[0], copies
    large = max(sizes)
    return (large, 1) if bins <= room[large] else (0, 1)


def plan_weights(op: str, x: Operand, weights: Operand, out: Operand, bins: int, uniform: bool | None) -> Plan:
    """The largest weight, the sums, and their doubles; inputs are x, perhaps a table of edges, and the weights."""
    device = out.device
    line, weight_line = Line(x, in_order=True), Line(weights, in_order=True)
    if line.length > LONGEST:
        raise ValueError(f"{op}: x has {line.length} elements; with weights it takes up to {LONGEST}")
    kib, copies = _cut_for(bins, device)
    if not kib and sorting_pays(line.length, bins, device):
        return plan_parts(x, weights, line, weight_line, bins, uniform)
    spec = WEIGHTS.spec(SMEM=kib, COPIES=copies, dtype=x.dtype, single=weights.dtype is F32, **map_of(uniform))
    sms = multiprocessors(device)
    blocks = max(1, min(sms * spec.derived["BLOCKS"], -(-line.length // (spec.threads * ITEMS))))
    readers = max(1, min(8 * sms, -(-line.length // (THREADS * ITEMS))))
    lengths = (line.length, line.step, weight_line.step)
    steps = [
        Step(LARGEST.spec(dtype=weights.dtype), readers, 2, (), (line.length, weight_line.step)),
        Step(spec, blocks, 5 + (uniform is not None), (bins,), lengths),
        Step(TOTAL.spec(digits=_in_digits(spec)), -(-bins // THREADS), 4, (bins,)),
    ]
    find, add, total = bind(steps, device)
    # Behind the sums: what is not finite, and the largest weight.
    met = bins * (DIGIT_BYTES if _in_digits(spec) else SUM_BYTES)
    largest = met + -(-4 * bins // 8) * 8
    nbytes = largest + 8

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes, device, stream)
        sums = (memory.ptr, memory.ptr + met, memory.ptr + largest)
        fill(memory.ptr, 0, nbytes, device, stream)
        at_x, held_x = line.ready(pointers[0], stream)
        at_weights, held_weights = weight_line.ready(pointers[-2], stream)
        find((at_weights, sums[2]), stream)
        add((at_x, *pointers[1:-2], at_weights, *sums), stream)
        total((*sums, pointers[-1]), stream)
        del held_x, held_weights

    why = f"{bins} bins of {copies} sums each in {kib} KiB of a block" if kib else f"{bins} bins in global memory"
    return Plan(launch, tuple(map(str, steps)), why)


def _bincount_results(op: str, given: Sequence[Operand], bins: int) -> Results:
    x, weights = given
    if len(x.shape) != 1:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes one dimension")
    _check_shape(op, x, weights)
    return [((bins,), F64)]


def _prepare_bincount(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int) -> Plan:
    return plan_weights(op, given[0], given[1], results[0], bins, None)


def _check_shape(op: str, x: Operand, weights: Operand) -> None:
    if weights.shape != x.shape:
        raise ValueError(f"{op}: weights have shape {weights.shape} and x {x.shape}; it takes one weight an element")


def _histogram_results(op: str, given: Sequence[Operand], bins: int, uniform: bool) -> Results:
    _check_shape(op, given[0], given[2])
    return [((bins,), F64)]


def _prepare_histogram(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int, uniform: bool) -> Plan:
    return plan_weights(op, given[0], given[2], results[0], bins, uniform)


def _density_results(op: str, given: Sequence[Operand]) -> Results:
    return [(given[0].shape, F64)]


def _prepare_density(op: str, given: Sequence[Operand], results: Sequence[Operand]) -> Plan:
    step = Step(DENSITY.spec(dtype=given[0].dtype), 1, 3, (results[0].shape[0],))
    return Plan(bind([step], results[0].device)[0], (str(step),), "bins are few")


_BINCOUNT_TAKES = {"x": INDICES, "weights": (F64, F32)}
_HISTOGRAM_TAKES = {"x": ELEMENTS, "table": (F64,), "weights": (F64, F32)}

weighted_bincount = Operator(
    "bincount", ("x", "weights"), ("bins",), _bincount_results, _prepare_bincount, takes=_BINCOUNT_TAKES, mixed=True
)
weighted_histogram = Operator(
    "histogram",
    ("x", "table", "weights"),
    ("bins", "uniform"),
    _histogram_results,
    _prepare_histogram,
    takes=_HISTOGRAM_TAKES,
    mixed=True,
    rows=False,
)
density = Operator(
    "histogram",
    ("counts", "table"),
    (),
    _density_results,
    _prepare_density,
    takes={"counts": (I64, F64), "table": (F64,)},
    mixed=True,
)
