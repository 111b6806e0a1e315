"""A matrix times a vector as launches: what the kernels are told, once the cut is chosen.

The matrix is seen as `rows` results, each a sum of `depth` products, whatever `trans` and its memory order call them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F64
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops.calls import Plan
from kgen.ops.gemv.kernels import SUM, SUM_COLUMNS
from kgen.ops.gemv.types import QUANTIZED, total_of, value_flags
from kgen.ops.reduce.workspace import COUNTERS, workspace
from kgen.scratch import scratch
from kgen.spec import Spec


@dataclass(frozen=True)
class Scale:
    """Strides over results (or over products, where `inner`) and over blocks of `block` elements; 0: no blocks.

    Blocks are of the products of a sum or, `across`, of results that are neighbours.
    """

    row: int
    step: int
    block: int
    inner: bool
    across: bool = False


@dataclass(frozen=True)
class Product:
    """One product as the kernels see it; strides in elements.

    a, x, out     the operands
    a_strides     over results, over products, over batches
    x_strides     over products, over batches; those of y and out over results, over batches
    a_outer       by multiples of which a and x are moved for further batches, each a launch of its own
    """

    a: Operand
    x: Operand
    out: Operand
    rows: int
    depth: int
    batches: int
    a_strides: tuple[int, int, int]
    x_strides: tuple[int, int]
    y_strides: tuple[int, int]
    out_strides: tuple[int, int]
    alpha: float
    beta: float
    scale: Scale | None = None
    a_outer: int = 0
    x_outer: int = 0

    @property
    def along_rows(self) -> bool:
        """Whether sums run along the contiguous axis of the matrix, or along neither."""
        if self.scale and self.scale.block:
            return not self.scale.across
        over_results, over_products, _ = self.a_strides
        if over_products == 1 and self.depth > 1:
            return True
        return over_results != 1 and self.rows > 1


def flags_of(product: Product) -> dict[str, bool]:
    """What a kernel for a quantized matrix needs to know besides its cut."""
    if product.a.dtype not in QUANTIZED:
        return {}
    scale = product.scale
    return value_flags(product.x.dtype) | {"blocks": bool(scale and scale.block), "inner": bool(scale and scale.inner)}


def row_tiles(product: Product, spec: Spec) -> int:
    """Blocks of `gemv` for one batch: rows of a group may lie further apart than a block is high."""
    groups = spec["THREADS"] // spec["LANES"]
    step = max(groups, spec["VEC"]) if spec["ragged"] else groups
    return -(-product.rows // (step * spec["ROWS"])) * (step // groups)


def own_columns(spec: Spec) -> int:
    """Columns that a block of `gemv_columns` owns."""
    return (spec["PACKS"] * spec["LANES"] - spec["ragged"]) * spec["VEC"]


def column_tiles(product: Product, spec: Spec) -> int:
    """Blocks of `gemv_columns` for one batch, where sums are in one part."""
    return -(-product.rows // own_columns(spec))


def carry_out(product: Product, spec: Spec, splits: int) -> Plan:
    """The launches of a specialization with its sums in so many parts."""
    device = product.out.device
    units = product.depth // spec["VEC"] if product.along_rows else product.depth
    chunk = -(-units // splits)
    if splits > 1 and not product.along_rows:
        whole = spec["THREADS"] // spec["LANES"] * spec["UNROLL"]  # rows that a block has in flight
        chunk = -(-chunk // whole) * whole
    splits = max(1, -(-units // max(1, chunk)))
    where = f"{product.batches * product.rows} sums of {product.depth} products on {multiprocessors(device)} SMs"
    total = product.rows * product.batches
    factors = (product.alpha, product.beta)
    finish = _Finish((*product.y_strides, *product.out_strides), factors, product.x.dtype is F64)
    quantized = product.a.dtype in QUANTIZED
    tiles = 0 if product.along_rows else column_tiles(product, spec) * product.batches  # whose blocks would meet
    if splits == 1 or tiles > COUNTERS:
        step = finish.of(_step(product, spec, 1, chunk))
        (run,) = bind([step], device)

        def launch(at: Sequence[int], stream: int) -> None:
            a, x, y, scale, out = at
            run((a, x, scale, y or out, out) if quantized else (a, x, y or out, out), stream)

        return Plan(launch, (str(step),), where)

    if not product.along_rows:
        step = finish.of(_step(product, _partial(spec), splits, chunk))
        (run,) = bind([step], device)
        nbytes = tiles * splits * spec["PACKS"] * spec["LANES"] * spec["VEC"] * total_of(spec).itemsize

        def launch_one(at: Sequence[int], stream: int) -> None:
            a, x, y, scale, out = at
            parts, counters, held = workspace(nbytes, tiles, device, stream)
            given = (a, x, scale) if quantized else (a, x)
            run((*given, y or out, out, parts, counters), stream)
            del held

        return Plan(launch_one, (str(step),), f"{where} are cut into {splits} parts")

    first = _step(product, _partial(spec), splits, chunk)
    blocks = -(-total // SUM_COLUMNS)
    second = finish.of(Step(SUM.spec(dtype=product.x.dtype), blocks, 3, (total, product.rows, splits)))
    run_first, run_second = bind([first, second], device)
    nbytes = splits * total * total_of(second.spec).itemsize

    def launch_both(at: Sequence[int], stream: int) -> None:
        a, x, y, scale, out = at
        parts = scratch(nbytes, device, stream)
        run_first((a, x, scale, parts.ptr) if quantized else (a, x, parts.ptr), stream)
        run_second((parts.ptr, y or out, out), stream)

    return Plan(launch_both, (str(first), str(second)), f"{where} are cut into {splits} parts")


class _Finish(NamedTuple):
    """What the last launch needs to know: strides of y and of the result, alpha and beta."""

    strides: tuple[int, ...]
    factors: tuple[float, float]
    double: bool

    def of(self, step: Step) -> Step:
        step = step._replace(longs=(*step.longs, *self.strides))
        return step._replace(doubles=self.factors) if self.double else step._replace(floats=self.factors)


def _step(product: Product, spec: Spec, splits: int, chunk: int) -> Step:
    """The launch that multiplies, but for what `_Finish` adds."""
    over_results, over_products, over_batches = product.a_strides
    if product.along_rows:
        tiles = row_tiles(product, spec)
        longs = [over_results, over_batches, over_products]
    else:
        tiles = column_tiles(product, spec)
        longs = [over_products, over_batches, over_results]
    ints = [product.rows, product.depth, tiles]
    if spec["partial"]:
        ints += [splits, chunk]
    if spec["VEC"] > 1:
        longs.pop()  # the contiguous axis
    quantized = spec.dtype in QUANTIZED
    if not product.along_rows or spec["VEC"] == 1 or (spec["ragged"] and not quantized):
        longs.append(product.x_strides[0])
    pointers = 4
    if quantized:
        scale = product.scale or Scale(0, 0, 0, False)
        pointers = 5
        longs.append(scale.row)
        if "blocks" in spec.flags:
            ints.append(scale.block // spec["VEC"])
            longs.append(scale.step)
    longs.append(product.x_strides[1])
    if spec["partial"] and product.along_rows:
        longs.append(product.rows * product.batches)
        pointers -= 1
    elif spec["partial"]:
        pointers += 2
    return Step(spec, tiles * splits * product.batches, pointers, tuple(ints), tuple(longs))


def _partial(spec: Spec) -> Spec:
    axes = {axis.name: spec[axis.name] for axis in spec.kernel.axes}
    return spec.kernel.spec(**axes, **dict.fromkeys(spec.flags, True), partial=True, dtype=spec.dtype)
