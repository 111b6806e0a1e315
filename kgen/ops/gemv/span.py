"""A matrix of many narrow rows that begin anywhere: spans of them pass through shared memory; and the launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.device import device_arch
from kgen.dtypes import FLOATS
from kgen.launch import Step, bind
from kgen.operand import INT_MAX
from kgen.ops import rows, rows_cut
from kgen.ops.calls import Plan
from kgen.ops.gemv.product import Product, flags_of
from kgen.ops.gemv.row_plans import filled
from kgen.ops.gemv.types import QUANTIZED, VALUE_FLAGS, types_of
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

WORD, CHUNK, WARP = 4, 16, 32
WIDEST = {1: 255, 2: 255, 4: 63}
"""Numbers of a row up to which this pays, by their bytes: of more, lanes that share a row do as well,"""
FILLED = 0.9
"""if they take it in one turn, of which at least so much is the row's."""
ODD = {1: range(48, 192), 2: range(48, 193), 4: range(0)}
"""Bytes of rows of whole chunks of which it does, where their number is no power of two, by the bytes of a number."""
LEAST = 1 << 20
"""Bytes of a matrix from which on it does."""
EACH = 24
"""Words of a thread in a span, at least: of fewer, what a span costs besides them is much."""
MOST_WORDS = 135
"""And at most: so many have room."""
TURNS = {1: 4, 2: 2, 4: 2}
"""Spans of a warp, by the bytes of a number: of short blocks, fast multiprocessors get more."""
STAGES = 2
NUMBERS = rows.LINE // 4
"""Of x, by which spans begin with a line of shared memory: what is copied to amid a sector of one takes longer."""
SMALL_SPAN = 10 << 10
"""Bytes of a span up to which a block has four warps rather than two."""
MOST_RESIDENT = 8
"""Blocks that have registers enough."""

_COLUMNS = Axis("COLUMNS", "k", tuple(range(3, 256)), "numbers of a row")
_TIMES = Axis("TIMES", "t", (1, 2, 4, 8, 16), "that a thread takes a row of a span, or the fewest with whole words")


def together(nbytes: int) -> int:
    """The fewest rows of so many bytes that have whole words."""
    return WORD // math.gcd(nbytes, WORD)


def _words(spec: Spec) -> int:
    """Of a thread's rows."""
    nbytes = spec["COLUMNS"] * spec.dtype.itemsize
    return nbytes * together(nbytes) // WORD


def _derive(spec: Spec) -> dict[str, int]:
    nbytes = spec["COLUMNS"] * spec.dtype.itemsize
    length = together(nbytes) * nbytes
    span = WARP * spec["TIMES"] * length
    warps = 4 if span <= SMALL_SPAN else 2
    stages = warps * STAGES * span
    numbers = -(-spec["COLUMNS"] // NUMBERS) * NUMBERS
    shared = stages + 4 * numbers + rows.RESERVED
    return {
        **{name: int(name in spec.flags) for name in ("half", "brain")},
        "THREADS": warps * WARP,
        "RESIDENT": max(1, min((rows.SHARED + rows.RESERVED) // shared, MOST_RESIDENT)),
        "TOGETHER": together(nbytes),
        "VEC": math.gcd(length, CHUNK) // spec.dtype.itemsize,
        "STAGES": STAGES,
        "HEIGHT": WARP * spec["TIMES"] * together(nbytes),
        "NUMBERS": numbers,
        "STATIC_SMEM": 4 * numbers,
        "DYNAMIC_SMEM": stages,
    }


def _check(spec: Spec) -> str | None:
    if spec["TIMES"] * _words(spec) > MOST_WORDS:
        return "a span has no room for so many rows"
    if {"half", "brain"} <= spec.flags:
        return "the vectors are of one type"
    return None


_SUMMARY = "A matrix times a vector, for narrow rows that begin anywhere: spans of them pass through shared memory."
_GRID = "a block for many spans of rows: as many blocks as all multiprocessors have room for"
_ORIGIN = "the transposition of arrays of structures through shared memory"

SPAN = register(
    Kernel(
        name="gemv_span",
        summary=_SUMMARY,
        formula="y[m] = alpha (sum over k of a[m][k] x[k]) + beta y[m]",
        axes=(_COLUMNS, _TIMES),
        dtypes=FLOATS,
        derive=_derive,
        text=lambda spec: types_of(spec, spec.derived["VEC"]) | {"spans": True},
        check=_check,
        min_arch=rows_cut.COPIES,
        grid=_GRID,
        origin=_ORIGIN,
        defaults=("gemv_span_k33_t1_f32", "gemv_span_k33_t1_bf16"),
    )
)
SPAN_QUANTIZED = register(
    Kernel(
        name="gemv_span_quantized",
        stem="gemv_span",
        summary=_SUMMARY,
        formula="y[m] = alpha s[m] (sum over k of a[m][k] x[k]) + beta y[m]",
        axes=(_COLUMNS, _TIMES),
        flags=VALUE_FLAGS,
        dtypes=QUANTIZED,
        derive=_derive,
        text=lambda spec: types_of(spec, spec.derived["VEC"]) | {"spans": True},
        check=_check,
        min_arch=rows_cut.COPIES,
        grid=_GRID,
        origin=_ORIGIN,
        defaults=("gemv_span_quantized_k33_t1_i8",),
    )
)


def cut(product: Product) -> Spec | None:
    """The specialization for rows so wide; None where other kernels do better, or this one cannot do it."""
    a, columns = product.a, product.depth
    over_results, over_products, _ = product.a_strides
    kernel = SPAN_QUANTIZED if a.dtype in QUANTIZED else SPAN
    flags = flags_of(product)
    scaled_otherwise = flags.pop("blocks", False) or flags.pop("inner", False)
    dense = over_products == 1 and over_results == columns and product.batches == 1
    if a.dtype not in kernel.dtypes or scaled_otherwise or not dense:
        return None
    nbytes = columns * a.dtype.itemsize
    if not _COLUMNS.values[0] <= columns <= _COLUMNS.values[-1] or product.rows * nbytes < LEAST:
        return None
    if columns > WIDEST[a.dtype.itemsize] and _suits_lanes(columns // (CHUNK // a.dtype.itemsize)):
        return None
    chunks = nbytes // CHUNK
    if nbytes % CHUNK == 0 and not (nbytes in ODD[a.dtype.itemsize] and chunks & (chunks - 1)):
        return None
    words = nbytes * together(nbytes) // WORD
    if words > MOST_WORDS:
        return None
    times = next(times for times in _TIMES.values if times * words >= EACH or times == _TIMES.values[-1])
    spec = kernel.spec(COLUMNS=columns, TIMES=times, **flags, dtype=a.dtype)
    return spec if product.rows <= INT_MAX - spec.derived["HEIGHT"] else None


def _suits_lanes(packs: int) -> bool:
    """Whether lanes that share rows of so many packs take them in one turn that is nearly full."""
    loads = 2 * filled(packs, 2, ragged=True)
    return FILLED * loads <= packs <= loads


def head_of(product: Product) -> int | None:
    """Rows before the first that begins with a chunk; None where there is none."""
    nbytes = product.depth * product.a.dtype.itemsize
    return next((row for row in range(CHUNK) if (product.a.ptr + row * nbytes) % CHUNK == 0), None)


def plan_span(product: Product, why: str) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do it."""
    device = product.out.device
    spec, head = cut(product), head_of(product)
    if spec is None or head is None or device_arch(device) < rows_cut.COPIES:
        return None
    step = _step(product, spec, head)
    (run,) = bind([step], device)
    quantized = product.a.dtype in QUANTIZED

    def launch(at: Sequence[int], stream: int) -> None:
        a, x, y, scale, out = at
        run((a, x, scale, y or out, out) if quantized else (a, x, y or out, out), stream)

    return Plan(launch, (str(step),), f"{why}: spans of narrow rows pass through shared memory")


def _step(product: Product, spec: Spec, head: int) -> Step:
    """The launch."""
    turns = TURNS[spec.dtype.itemsize]
    spans = -(-(product.rows - head) // spec.derived["HEIGHT"])
    blocks = -(-spans // (spec.threads // WARP * turns))
    quantized = product.a.dtype in QUANTIZED
    scale = (product.scale.row if product.scale else 0,) if quantized else ()
    return Step(
        spec,
        blocks,
        5 if quantized else 4,
        (product.rows, head, turns),
        (product.x_strides[0], *scale, product.y_strides[0], product.out_strides[0]),
        floats=(product.alpha, product.beta),
    )
