"""Sums of weights by bin, and densities: three small kernels around the one that adds.

Weights are added in fixed point, relative to the largest: 90 bits below its power of two. Integers add up to the same
in any order, so results are the same at every run, and at least as exact as sums of doubles in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgen.device import multiprocessors
from kgen.dtypes import F32, F64, I64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.histogram.kernels import ELEMENTS, INDICES, MAPS, map_of
from kgen.ops.histogram.memory import Line, clear
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Flag, Kernel, Spec

THREADS = 256
DENSITY_THREADS = 1024
SUMS_BYTES = 32
SPREAD = 1 << 14
"""Sums in memory, at least, so that threads seldom meet; but at most so many copies as there are blocks."""
LONGEST = 1 << 33
"""Elements whose digits of 30 bits cannot make a sum of 64 bits run over."""


def _threads(spec: Spec) -> dict[str, int]:
    return {"THREADS": THREADS}


def _illegal(spec: Spec) -> str | None:
    if spec["uniform"] and spec["edges"]:
        return "bins are uniform or not"
    if not (spec["uniform"] or spec["edges"]) and spec.dtype not in INDICES:
        return f"{spec.dtype.numpy_name} elements are no indices"
    return None


WEIGHTS = register(
    Kernel(
        name="histogram_weights",
        summary="Sums of the weights of the elements that fall into each bin, in fixed point.",
        formula="sums[b] += sum over n with bin(x[n]) = b of weights[n]",
        axes=(),
        flags=(*MAPS, Flag("single", "weights are float32, instead of float64")),
        dtypes=ELEMENTS,
        derive=_threads,
        check=_illegal,
        grid="(resident blocks)",
        origin="fixed-point sums that are the same in any order: Demmel and Nguyen, Reproducible summation, 2013",
        defaults=("histogram_weights_uniform_f32",),
    )
)
LARGEST = register(
    Kernel(
        name="histogram_largest",
        summary="The largest finite magnitude among weights, as the bits of a double.",
        formula="largest = max over n of |weights[n]|",
        axes=(),
        dtypes=(F64, F32),
        derive=_threads,
        grid="(resident blocks)",
        defaults=("histogram_largest_f64",),
    )
)
TOTAL = register(
    Kernel(
        name="histogram_total",
        summary="Sums of weights, from fixed point.",
        formula="out[b] = sums[b]",
        axes=(),
        dtypes=(F64,),
        derive=_threads,
        grid="(ceil(bins / THREADS))",
        defaults=("histogram_total_f64",),
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


def plan_weights(x: Operand, weights: Operand, out: Operand, bins: int, uniform: bool | None) -> Plan:
    """The largest weight, the sums, and their doubles; inputs are x, perhaps a table of edges, and the weights."""
    device = out.device
    mapped = uniform is not None
    line, weight_line = Line(x, in_order=True), Line(weights, in_order=True)
    if line.length > LONGEST:
        raise ValueError(f"histogram: x has {line.length} elements; with weights it takes {LONGEST}")
    blocks = max(1, min(multiprocessors(device) * 8, -(-line.length // THREADS)))
    copies = max(1, min(blocks, SPREAD // bins))
    spec = WEIGHTS.spec(dtype=x.dtype, single=weights.dtype is F32, **map_of(uniform))
    lengths = (line.length, line.step, weight_line.step)
    steps = [
        Step(LARGEST.spec(dtype=weights.dtype), blocks, 2, (), (line.length, weight_line.step)),
        Step(spec, blocks, 5 if mapped else 4, (bins, copies), lengths),
        Step(TOTAL.spec(), -(-bins // THREADS), 3, (bins, copies)),
    ]
    largest, add, total = bind(steps, device)
    nbytes = copies * bins * SUMS_BYTES

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes + 8, device, stream)
        word = memory.ptr + nbytes
        clear(memory.ptr, nbytes + 8, device, stream)
        at_x, held_x = line.ready(pointers[0], stream)
        at_weights, held_weights = weight_line.ready(pointers[-2], stream)
        largest((at_weights, word), stream)
        add((at_x, *pointers[1:-2], at_weights, memory.ptr, word), stream)
        total((memory.ptr, word, pointers[-1]), stream)
        del held_x, held_weights

    return Plan(launch, tuple(map(str, steps)), f"{copies} copies of {bins} bins")


def _bincount_results(op: str, given: Sequence[Operand], bins: int) -> Results:
    x, weights = given
    if len(x.shape) != 1:
        raise ValueError(f"{op}: x has shape {x.shape}; it takes one dimension")
    _check_shape(op, x, weights)
    return [((bins,), F64)]


def _prepare_bincount(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int) -> Plan:
    return plan_weights(given[0], given[1], results[0], bins, None)


def _check_shape(op: str, x: Operand, weights: Operand) -> None:
    if weights.shape != x.shape:
        raise ValueError(f"{op}: weights have shape {weights.shape} and x {x.shape}; it takes one weight an element")


def _histogram_results(op: str, given: Sequence[Operand], bins: int, uniform: bool) -> Results:
    _check_shape(op, given[0], given[2])
    return [((bins,), F64)]


def _prepare_histogram(op: str, given: Sequence[Operand], results: Sequence[Operand], bins: int, uniform: bool) -> Plan:
    return plan_weights(given[0], given[2], results[0], bins, uniform)


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
