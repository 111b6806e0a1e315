"""The kernels behind the gradients of a norm: of x row by row, of the weights column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Rows, as_rows, staged
from kgen.ops.calls import Plan
from kgen.ops.norm.plans import RMS
from kgen.ops.rows_text import ALIGNED, WEIGHT_TYPES, centred, text_of_rows, text_of_weights
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Flag, Kernel, Spec

HELD = 24  # numbers of each row in a thread's registers
TOTAL_THREADS = 128
BIAS = Flag("bias", "the gradient of a bias, too")
OWN = tuple(Flag(word, f"the weights are {dtype.c}") for dtype, word in WEIGHT_TYPES.items())


def _check(spec: Spec) -> str | None:
    own = [dtype for dtype, word in WEIGHT_TYPES.items() if spec[word]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if own and not spec["weight"]:
        return "there are no weights"
    if spec["looped"]:
        return "two rows"
    return rows.check_stream(spec) or rows.check(spec, HELD)


def _text(spec: Spec) -> dict[str, Any]:
    upstream = "dy"
    if spec["weight"]:
        upstream += " * (weight_offset + weight)" if spec["rms"] else " * weight"
    mean = "" if spec["rms"] else " - sum"
    return {
        **text_of_rows(spec, "Sum", weights=bool(spec["weight"])),
        **text_of_weights(spec),
        "channels": False,
        "normal": centred(spec, "number") + " * rstd",
        "upstream": upstream,
        "gradient": f"rstd * (upstream{mean} - normal(number) * product)",
    }


BACKWARD = register(
    rows.RowKernel(
        name="norm_backward",
        summary="The gradient of the input of a norm along rows that stay in registers.",
        formula="n[i] = (x[i] - mean) rstd,  g[i] = dy[i] weight[i]\ndx[i] = rstd (g[i] - mean(g) - n[i] mean(g n))",
        axes=rows.AXES,
        flags=(
            RMS,
            Flag("weight", "the result was multiplied by a vector"),
            *OWN,
            *rows.FLAGS,
            rows.STREAM,
        ),
        derive=lambda spec: {**rows.derive(spec), "RESIDENT": 0},
        text=_text,
        check=_check,
        grid="a row for each block, for each cluster of blocks, or for LANES neighbouring threads",
        origin="the chain rule",
        defaults=("norm_backward_t128_n4_v4_weight_f32",),
    )
)

WEIGHTS = register(
    Kernel(
        name="norm_weights",
        summary="The gradients of the weights of a norm: sums over parts of the rows.",
        formula="dweight[i] = sum over rows of dy[i] (x[i] - mean) rstd,  dbias[i] = sum over rows of dy[i]",
        axes=(
            Axis("LANES", "t", (8, 16, 32), "threads side by side", default=16),
            Axis("DEPTH", "d", (8, 16, 32), "threads that share a column", default=16),
            rows.VEC,
        ),
        flags=(RMS, BIAS),
        derive=lambda spec: {
            "THREADS": spec["LANES"] * spec["DEPTH"],
            "STATIC_SMEM": 4 * (1 + spec["bias"]) * spec["DEPTH"] * spec["LANES"] * spec["VEC"],
        },
        text=lambda spec: {**ALIGNED, "centred": centred(spec, "to_float(value.at[i])")},
        check=lambda spec: (
            "no load is wider than 16 bytes" if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR else None
        ),
        grid="a block for each strip of columns and part of the rows",
        origin="the chain rule",
        defaults=("norm_weights_v4_bias_f32",),
    )
)

TOTAL = register(
    Kernel(
        name="norm_total",
        summary="The gradients of the weights of a norm, from those of the parts of its rows.",
        formula="dweight[i] = sum over the parts",
        axes=(),
        flags=(BIAS,),
        derive=lambda spec: {"THREADS": TOTAL_THREADS},
        grid="one thread for each column",
        origin="the second pass of a segmented sum",
        defaults=("norm_total_bias_f32",),
    )
)


def plan(operands: Sequence[Operand | None], inputs: int, axes: tuple[int, ...], offset: float) -> Plan:
    """The launches for dy, x, (means,) rstds, weight and dx, (dweight, (dbias)), all with the axes of x."""
    fits = [operand is None or as_rows(operand, axes) is not None for operand in operands]

    def build(operands: Sequence[Operand | None], axes: tuple[int, ...]) -> Plan:
        return _plan_rows(operands, inputs, axes, offset)

    return staged(operands, inputs, axes, fits, build)


def _plan_rows(operands: Sequence[Operand | None], inputs: int, axes: tuple[int, ...], offset: float) -> Plan:
    (dy, x, *known, weight), (dx, *gradients) = operands[:inputs], operands[inputs:]
    assert dy is not None and x is not None and dx is not None
    device, rms = dx.device, len(known) == 1
    long = [(o, _rows(o, axes)) for o in (dy, x, dx)]
    read = long[0][1]
    pitched = [rows_cut.Pitched(o, r.pitch, o.dtype.itemsize) for o, r in long]
    taken = _weighed(rows_cut.packs(pitched, read.columns, ragged=True), weight)
    plain = rows_cut.packs(pitched[:2], read.columns).vec
    cut = rows_cut.cut(read.rows, read.columns, taken, HELD, device)
    flags = {"rms": rms, "weight": weight is not None, "stream": cut is None}
    if cut is None:
        taken = _weighed(rows_cut.packs(pitched, read.columns), weight)
        cut = rows_cut.streaming(taken, HELD)
    flags |= taken.flags()
    if weight is not None and weight.dtype is not x.dtype:
        flags[WEIGHT_TYPES[weight.dtype]] = True
    spec = BACKWARD.spec(**cut.values(), **flags, dtype=x.dtype)
    taking = [index for index in range(inputs + 1) if operands[index]]  # and dx
    pitches = tuple(r.pitch for _, r in long)
    floats = (offset,) if rms and weight else ()
    first = Step(spec, rows.grid(spec, read.rows, device), len(taking), (read.rows, read.columns), pitches, floats)
    why = f"{read.rows} rows of {read.columns} for {cut} each"
    if weight is None:
        run = bind([first], device)[0]
        return Plan(lambda pointers, stream: run([pointers[i] for i in taking], stream), (str(first),), why)

    bias = len(gradients) > 1
    columns = WEIGHTS.spec(VEC=plain, rms=rms, bias=bias, dtype=x.dtype)
    tiles = -(-read.columns // (columns["LANES"] * plain))
    parts = max(1, min(-(-read.rows // (4 * columns["DEPTH"])), -(-8 * multiprocessors(device) // tiles)))
    height = -(-read.rows // parts)
    parts = -(-read.rows // height)
    reading = range(2 + len(known))
    sizes = (read.rows, read.columns, height)
    second = Step(columns, tiles * parts, len(reading) + 1 + bias, sizes, pitches[:2])
    total = TOTAL.spec(bias=bias, dtype=weight.dtype)
    third = Step(total, -(-read.columns // TOTAL_THREADS), 2 + 2 * bias, (parts, read.columns))
    steps = (first, second, third)
    by_row, by_column, finish = bind(steps, device)
    nbytes = 4 * parts * read.columns

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes * (1 + bias), device, stream)
        sums = [memory.ptr, memory.ptr + nbytes][: 1 + bias]
        by_row([pointers[i] for i in taking], stream)
        by_column([*(pointers[i] for i in reading), *sums], stream)
        finish([*sums, *pointers[inputs + 1 :]], stream)

    return Plan(launch, tuple(map(str, steps)), f"{why}; their weights' gradients are sums of {parts} parts")


def _weighed(taken: rows_cut.Packs, weight: Operand | None) -> rows_cut.Packs:
    """The packs that weights can be read in, too."""
    if weight is None or taken.ragged or not weight.ptr % min(rows.VECTOR, taken.vec * weight.dtype.itemsize):
        return taken
    return rows_cut.Packs(1)


def _rows(operand: Operand, axes: tuple[int, ...]) -> Rows:
    found = as_rows(operand, axes)
    assert found is not None
    return found
