"""How a matrix times a vector is carried out: which kernel by the matrix's strides, cut so that every SM has work.

The matrix is seen as `rows` results, each a sum of `depth` products, whatever `trans` and its memory order call them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kgen.dtypes import F64
from kgen.errors import SpecError
from kgen.launch import Step, bind, multiprocessors
from kgen.operand import Operand
from kgen.ops.calls import Plan
from kgen.ops.gemv_kernels import COLUMNS, GEMV, PACK, QUANTIZED, SUM, SUM_COLUMNS, WARP, value_flags, value_of
from kgen.registry import parse
from kgen.scratch import scratch
from kgen.spec import Spec

_INT_MAX = 2**31 - 1
FULL = 2048
"""Threads that an SM holds."""
ALONE = 128 << 20
"""Bytes of a matrix up to which one launch of tall tiles is faster than short ones and the sum of their results."""
BLOCK_BYTES = 128 << 10
"""What a block of `gemv_columns` reads, where the sums are cut into parts."""


@dataclass(frozen=True)
class Scale:
    """Strides over results (or over products, where `inner`) and over blocks of `block` elements; 0: no blocks."""

    row: int
    step: int
    block: int
    inner: bool


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
        over_results, over_products, _ = self.a_strides
        if over_products == 1 and self.depth > 1:
            return True
        return over_results != 1 and self.rows > 1


def plan(product: Product, algorithm: str | None, op: str) -> Plan:
    """One launch, or two where sums are cut into parts that are added up after."""
    if max(product.rows, product.depth) > _INT_MAX:
        raise ValueError(f"{op}: a has shape {product.a.shape}; it takes up to {_INT_MAX} rows and columns")
    sms = multiprocessors(product.out.device)
    asked = _asked(product, algorithm, op) if algorithm else None
    made = cut_rows(product, sms, asked) if product.along_rows else cut_columns(product, sms, asked)
    return carry_out(product, *made)


def carry_out(product: Product, spec: Spec, splits: int) -> Plan:
    """The launches of a specialization with its sums in so many parts."""
    device = product.out.device
    units = product.depth // spec["VEC"] if product.along_rows else product.depth
    chunk = -(-units // splits)
    splits = max(1, -(-units // max(1, chunk)))
    where = f"{product.batches * product.rows} sums of {product.depth} products on {multiprocessors(device)} SMs"
    total = product.rows * product.batches
    factors = (product.alpha, product.beta)
    finish = _Finish((*product.y_strides, *product.out_strides), factors, product.x.dtype is F64)
    quantized = product.a.dtype in QUANTIZED
    if splits == 1:
        step = finish.of(_step(product, spec, 1, chunk))
        (run,) = bind([step], device)

        def launch(at: Sequence[int], stream: int) -> None:
            a, x, y, scale, out = at
            run((a, x, scale, y or out, out) if quantized else (a, x, y or out, out), stream)

        return Plan(launch, (str(step),), where)

    first = _step(product, _partial(spec), splits, chunk)
    blocks = -(-total // SUM_COLUMNS)
    second = finish.of(Step(SUM.spec(dtype=product.x.dtype), blocks, 3, (total, product.rows, splits)))
    run_first, run_second = bind([first, second], device)
    nbytes = splits * total * (8 if product.x.dtype is F64 else 4)

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
        tiles = _tiles(product, spec)
        longs = [over_results, over_batches, over_products]
    else:
        tiles = -(-product.rows // _own_columns(spec))
        longs = [over_products, over_batches, over_results]
    ints = [product.rows, product.depth, tiles, splits, chunk]
    if spec["VEC"] > 1:
        longs.pop()  # the contiguous axis
    if not product.along_rows or spec["VEC"] == 1 or spec["ragged"]:
        longs.append(product.x_strides[0])
    pointers = 4
    if spec.dtype in QUANTIZED:
        scale = product.scale or Scale(0, 0, 0, False)
        pointers = 5
        longs.append(scale.row)
        if spec["blocks"]:
            ints.append(scale.block // spec["VEC"])
            longs.append(scale.step)
    longs.append(product.x_strides[1])
    if spec["partial"]:
        longs.append(product.rows * product.batches)
        pointers -= 1
    return Step(spec, tiles * splits * product.batches, pointers, tuple(ints), tuple(longs))


def _partial(spec: Spec) -> Spec:
    axes = {axis.name: spec[axis.name] for axis in spec.kernel.axes}
    return spec.kernel.spec(**axes, **dict.fromkeys(spec.flags, True), partial=True, dtype=spec.dtype)


def cut_rows(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv`, the given one or the one that suits, and the number of parts."""
    if spec is None:
        vec, ragged = _row_vec(product)
        packs = max(1, product.depth // vec)
        # Several rows share what it takes to widen x, where that is much beside the matrix's own bytes.
        dear = product.a.dtype in QUANTIZED or ragged
        if packs <= WARP:
            lanes = max(_power(packs) // 4, min(_power(packs), 2))
            rows = 4 // min(4, _power(-(-packs // lanes)))
        else:
            lanes = min(max(WARP, _power(packs) // (16 if vec == 16 else 4)), 256)
            rows = (4 if product.a.dtype.itemsize < 4 else 2) if dear else 1
        while rows > 1 and product.rows * product.batches * lanes < rows * sms * WARP:
            rows //= 2
        unroll = min(4 // rows * (2 if ragged else 1), 4, _power(-(-packs // lanes)))
        spec = GEMV.spec(
            VEC=vec, LANES=lanes, ROWS=rows, UNROLL=unroll, ragged=ragged, **_flags(product), dtype=product.a.dtype
        )
    packs = product.depth // spec["VEC"]
    blocks = _tiles(product, spec) * product.batches
    splits = 1
    if blocks * spec["THREADS"] < sms * FULL // 2:
        splits = max(1, min(4 * sms // blocks, packs // (spec["LANES"] * spec["UNROLL"])))
    return spec, splits


def cut_columns(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv_columns`, the given one or the one that suits, and the number of parts."""
    nbytes = product.rows * product.depth * product.batches * product.a.dtype.itemsize
    if spec is None:
        vec, ragged = _column_vec(product)
        packs = -(-product.rows // vec)
        threads = 256
        lanes = min(WARP // 2 if ragged and vec == 16 else WARP, max(4, _power(packs) // 4), _power(packs))
        # One launch, where narrow tiles that are as tall as the matrix occupy every SM: they need no sum after.
        alone = [lanes for lanes in (32, 16, 8, 4, 2) if packs * product.batches >= 0.9 * sms * lanes]
        if alone and not ragged and nbytes <= ALONE:
            lanes = alone[0]
            threads = max(256, min(1024, _power(product.depth * lanes // 8)))
        threads = min(threads, 512) if vec == 16 else threads
        unroll = 4 if ragged and vec > 4 else 8
        spec = COLUMNS.spec(
            VEC=vec,
            LANES=lanes,
            UNROLL=unroll,
            THREADS=threads,
            ragged=ragged,
            **_flags(product),
            dtype=product.a.dtype,
        )
    tiles = -(-product.rows // _own_columns(spec)) * product.batches
    if 2 * tiles >= sms and nbytes <= ALONE:
        return spec, 1
    deep = spec["THREADS"] // spec["LANES"] * spec["UNROLL"]
    return spec, max(1, min(max(nbytes // BLOCK_BYTES, 2 * sms) // tiles, product.depth // deep))


def _tiles(product: Product, spec: Spec) -> int:
    """Blocks of `gemv` for one batch: rows of a group may lie further apart than a block is high."""
    groups = spec["THREADS"] // spec["LANES"]
    step = max(groups, spec["VEC"]) if spec["ragged"] else groups
    return -(-product.rows // (step * spec["ROWS"])) * (step // groups)


def _row_vec(product: Product) -> tuple[int, bool]:
    """How many elements of a row a thread loads at once, and whether rows need their ends taken apart for that."""
    a, x, (over_results, over_products, over_batches) = product.a, product.x, product.a_strides
    if over_products != 1:
        return 1, False
    widest = PACK // a.dtype.itemsize
    vec = widest
    over_results = over_results if product.rows > 1 else 0
    pitch = math.gcd(product.depth, over_results, over_batches, product.a_outer, a.ptr // a.dtype.itemsize)
    x_pitch = math.gcd(product.x_strides[1], product.x_outer, x.ptr // x.dtype.itemsize)
    if product.x_strides[0] != 1:
        x_pitch = 1
    x_pack = PACK // x.dtype.itemsize
    while vec > 1 and (pitch % vec or x_pitch % min(vec, x_pack)):
        vec //= 2
    if product.scale and product.scale.block:
        vec = math.gcd(vec, product.scale.block)
    elif vec < widest and product.depth >= 16 * widest and not (product.scale and product.scale.inner):
        return widest, True
    return vec, False


def _column_vec(product: Product) -> tuple[int, bool]:
    """The same for `gemv_columns`."""
    a, (over_results, over_products, over_batches) = product.a, product.a_strides
    if over_results != 1 and product.rows > 1:
        return 1, False
    widest = PACK // a.dtype.itemsize
    over_products = over_products if product.depth > 1 else 0
    pitch = math.gcd(product.rows, over_products, over_batches, product.a_outer, a.ptr // a.dtype.itemsize)
    blocks = product.scale and product.scale.block
    vec = math.gcd(pitch, widest, product.scale.block if product.scale else 0)
    if vec < widest and product.rows >= 8 * widest and not blocks:
        return widest, True
    return vec, False


def _own_columns(spec: Spec) -> int:
    return (spec["LANES"] - spec["ragged"]) * spec["VEC"]


def _flags(product: Product) -> dict[str, bool]:
    scale = product.scale
    flags = value_flags(product.a.dtype, product.x.dtype)
    return flags | {"blocks": bool(scale and scale.block), "inner": bool(scale and scale.inner)}


def _asked(product: Product, algorithm: str, op: str) -> Spec:
    """The specialization of that name; SpecError where it does not take this problem."""
    kernel = GEMV if product.along_rows else COLUMNS
    try:
        spec = parse(algorithm)
    except SpecError as error:
        raise SpecError(f"{op}: algorithm {algorithm!r}: {error}") from None
    if spec.kernel is not kernel:
        raise SpecError(f"{op}: this matrix's memory order takes {kernel.name}, not {spec.kernel.name}")
    if spec.dtype is not product.a.dtype or value_of(spec) is not product.x.dtype:
        raise SpecError(f"{op}: {spec.name} is for other dtypes than {product.a.dtype} and {product.x.dtype}")
    wanted = _flags(product)
    if any(bool(spec[name]) != wanted[name] for name in ("blocks", "inner")) or spec["partial"]:
        raise SpecError(f"{op}: {spec.name} takes other scales than these, or computes parts only")
    vec, ragged = _row_vec(product) if product.along_rows else _column_vec(product)
    if spec["VEC"] > vec or (ragged and spec["VEC"] > 1 and not spec["ragged"]):
        raise SpecError(f"{op}: {spec.name} loads {spec['VEC']} elements at once, and this layout allows {vec}")
    return spec


def _power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()
