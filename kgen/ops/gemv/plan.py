"""Which kernel a matrix times a vector gets, by the matrix's strides, and how it is cut so that every SM has work."""

from __future__ import annotations

import math

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.errors import SpecError
from kgen.operand import INT_MAX, power_of_two
from kgen.ops.calls import Plan
from kgen.ops.gemv.kernels import (
    COLUMNS,
    COLUMNS_QUANTIZED,
    GEMV,
    GEMV_QUANTIZED,
    PACK,
    QUANTIZED,
    WARP,
    value_flags,
    value_of,
)
from kgen.ops.gemv.product import Product, carry_out, column_tiles, row_tiles
from kgen.registry import parse
from kgen.spec import Spec

FULL = 2048
"""Threads that an SM holds."""
ALONE = 128 << 20
"""Bytes of a matrix up to which tiles as tall as it are faster than short ones, whose sums meet."""
NARROW = 16 << 20
"""The same for tiles of fewer lanes than LINE_LANES, which read parts of lines."""
LINE_LANES = 8
SMALL, SHALLOW = 2 << 20, 4096
"""Bytes of a matrix, and products of a sum, up to which it costs more to meet than SMs with nothing to do."""
DEAR = 768
"""Threads of an SM below which rows rather share less of x."""
ENOUGH_LANES = 64
"""Threads along a row of packs of sixteen, where there are two packs for each."""
SPARE, PAIRED = 128, 1024
"""Packs of a row of float32 below which half a warp has less to spare, and up to which two rows share what it takes to
make doubles of x."""
PAST_ENDS = 1.15
"""Packs of a row of float32 and past its end, as a multiple of the row's own, up to which lanes are not halved."""
LONG = 256 << 10
"""Bytes of a row up to which one block reads it faster than several, whose sums are added up after."""
WAVES = 4
"""Of blocks of `gemv_columns`, at most, where the sums are cut into parts; as few as keep all SMs busy to the end."""


def plan(product: Product, algorithm: str | None, op: str) -> Plan:
    """One launch, or two where sums are cut into parts that are added up after."""
    if max(product.rows, product.depth) > INT_MAX:
        raise ValueError(f"{op}: a has shape {product.a.shape}; it takes up to {INT_MAX} rows and columns")
    sms = multiprocessors(product.out.device)
    asked = _asked(product, algorithm, op) if algorithm else None
    made = cut_rows(product, sms, asked) if product.along_rows else cut_columns(product, sms, asked)
    return carry_out(product, *made)


def cut_rows(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv`, the given one or the one that suits, and the number of parts."""
    if spec is None:
        vec, ragged = _row_vec(product)
        packs = max(1, product.depth // vec)
        few = product.rows * product.batches < sms and product.depth * product.a.dtype.itemsize <= LONG
        if few and packs >= 8 * 512 and product.a.dtype not in QUANTIZED and not ragged:
            return GEMV.spec(VEC=vec, LANES=512, ROWS=1, UNROLL=8, THREADS=512, dtype=product.a.dtype), 1
        # Several rows share what it takes to widen x, where that is much beside the matrix's own bytes.
        quantized = product.a.dtype in QUANTIZED
        dear = quantized or ragged
        short = packs <= 2 * WARP and not quantized  # rows of which a thread has two packs at most
        in_flight = 8 if (ragged or short) and not quantized else 4
        if short:
            lanes, rows = power_of_two(packs) // (2 if packs >= WARP // 2 else 1), 4
        elif packs <= WARP:
            lanes = max(power_of_two(packs) // 4, min(power_of_two(packs), 2))
            rows = 4 // min(4, power_of_two(-(-packs // lanes)))
        else:
            share = 16 if vec == 16 else 8 if vec == 8 and not ragged else 4  # packs of a thread, before it has turns
            lanes = min(max(WARP, power_of_two(packs) // share), 256)
            if vec == 16 and packs >= 2 * ENOUGH_LANES and not ragged:
                lanes = max(lanes, ENOUGH_LANES)
            rows = (4 if product.a.dtype.itemsize < 8 else 2) if dear else 1
            if product.a.dtype is F32 and not ragged and packs < SPARE:
                lanes, rows, in_flight = WARP // 2, 4, 8
            elif product.a.dtype is F32 and not ragged and packs <= PAIRED:
                rows = 2
            if product.a.dtype is F32 and not ragged:
                threads = product.rows * product.batches * lanes // rows
                lanes = _fewer_lanes(lanes, packs, in_flight // rows, threads // (sms * FULL // 2))
        while rows > 1 and product.rows * product.batches * lanes < rows * sms * (WARP if ragged else DEAR):
            rows //= 2
        unroll = min(in_flight // rows, 4, power_of_two(-(-packs // lanes)))
        kernel = GEMV_QUANTIZED if quantized else GEMV
        spec = kernel.spec(
            VEC=vec, LANES=lanes, ROWS=rows, UNROLL=unroll, ragged=ragged, **_flags(product), dtype=product.a.dtype
        )
    packs = product.depth // spec["VEC"]
    blocks = row_tiles(product, spec) * product.batches
    splits = 1
    if blocks * spec["THREADS"] < sms * FULL // 2:
        splits = max(1, min(4 * sms // blocks, packs // (spec["LANES"] * spec["UNROLL"])))
    return spec, splits


def _fewer_lanes(lanes: int, packs: int, each: int, spare: int) -> int:
    """Lanes for rows of so many packs, of which each lane has `each` in flight, so that few are past the rows' ends.

    `spare` is by how much fewer they may be at most.
    """
    while lanes > WARP and spare >= 2 and -(-packs // (lanes * each)) * lanes * each > PAST_ENDS * packs:
        lanes, spare = lanes // 2, spare // 2
    return lanes


def cut_columns(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv_columns`, the given one or the one that suits, and the number of parts."""
    nbytes = product.rows * product.depth * product.batches * product.a.dtype.itemsize
    small = spec is None and nbytes <= SMALL and product.depth <= SHALLOW
    if spec is None:
        vec, ragged = _column_vec(product)
        packs = -(-product.rows // vec)
        threads = 256
        wide = WARP if ragged and vec < 16 else WARP // 2
        if vec == 16 and not ragged and nbytes > ALONE:
            wide = LINE_LANES
        lanes = min(wide, max(4, power_of_two(packs) // (4 if ragged else 8)), power_of_two(packs))
        if lanes < LINE_LANES and nbytes > NARROW and vec < 16 and not ragged:
            # Whole lines, and half of each row at least.
            lanes = min(power_of_two(packs), max(LINE_LANES, power_of_two(packs) // 2))
            threads = 512
        # Narrow tiles that are as tall as the matrix, where they occupy every SM: they need not meet.
        narrowest = 2 if nbytes <= NARROW else LINE_LANES
        tall = [lanes for lanes in (32, 16, 8, 4, 2) if lanes >= narrowest]
        alone = [lanes for lanes in tall if packs * product.batches >= 0.9 * sms * lanes]
        if not alone and small:
            alone = [min(2, power_of_two(packs))]
        if alone and not ragged and nbytes <= ALONE:
            lanes = alone[0]
            threads = max(256, min(1024, power_of_two(product.depth * lanes // 8)))
        threads = min(threads, 512) if vec == 16 else threads
        unroll = 8 if (vec == 16 and not ragged) or vec < 4 else 4
        wide_tiles = ragged and _wide_tiles(packs, vec, nbytes)
        if wide_tiles:
            lanes = min(wide, max(LINE_LANES, power_of_two(packs) // 8))
            threads, unroll = 256 if vec == 16 or product.depth <= SHALLOW else 512, 2
        kernel = COLUMNS_QUANTIZED if product.a.dtype in QUANTIZED else COLUMNS
        spec = kernel.spec(
            VEC=vec,
            LANES=lanes,
            PACKS=2 if wide_tiles else 1,
            UNROLL=unroll,
            THREADS=threads,
            ragged=ragged,
            **_flags(product),
            dtype=product.a.dtype,
        )
    tiles = column_tiles(product, spec) * product.batches
    if small or (2 * tiles >= sms and nbytes <= ALONE and not spec["ragged"]):
        return spec, 1
    deep = spec["THREADS"] // spec["LANES"] * spec["UNROLL"]
    resident = sms * spec.derived["BLOCKS"]
    parts = resident // tiles if spec["ragged"] else _parts(tiles, resident)
    return spec, max(1, min(parts, product.depth // deep))


def _wide_tiles(packs: int, vec: int, nbytes: int) -> bool:
    """Whether threads take two packs of rows that begin anywhere.

    Neighbouring tiles both read the lines at which they meet: less of the matrix if they are wide. But then there are
    fewer of them, whose sums are in more parts, which costs a small matrix more than it saves; and of rows of bytes,
    whose numbers take a thread longer than to load them, few threads should have none.
    """
    short = packs <= 4 * WARP
    return nbytes > ALONE and not short if vec == 16 else nbytes > (NARROW if short else ALONE)


def _parts(tiles: int, resident: int) -> int:
    """Parts of each sum, with which the blocks of all tiles fill waves of as many as are resident, the last one too."""
    parts = 1
    for waves in range(1, WAVES + 1):
        parts = max(1, waves * resident // tiles)
        if tiles * parts >= 0.95 * waves * resident:
            break
    return parts


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
    if widest == 16:
        vec = {2: 1, 8: 4}.get(vec, vec)
    if product.scale and product.scale.block:
        return vec, False
    quantized = a.dtype in QUANTIZED
    if quantized and (product.x_strides[0] != 1 or (product.scale and product.scale.inner)):
        return vec, False
    return (widest, True) if vec < widest and product.depth >= 16 * widest else (vec, False)


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
    if widest == 16:
        vec = {2: 1, 8: 4}.get(vec, vec)
    if vec < widest and product.rows >= 8 * widest and not blocks:
        return widest, True
    return vec, False


def _flags(product: Product) -> dict[str, bool]:
    """What a kernel for a quantized matrix needs to know besides its cut."""
    if product.a.dtype not in QUANTIZED:
        return {}
    scale = product.scale
    return value_flags(product.x.dtype) | {"blocks": bool(scale and scale.block), "inner": bool(scale and scale.inner)}


def _asked(product: Product, algorithm: str, op: str) -> Spec:
    """The specialization of that name; SpecError where it does not take this problem."""
    rows, columns = (GEMV_QUANTIZED, COLUMNS_QUANTIZED) if product.a.dtype in QUANTIZED else (GEMV, COLUMNS)
    kernel = rows if product.along_rows else columns
    try:
        spec = parse(algorithm)
    except SpecError as error:
        raise SpecError(f"{op}: algorithm {algorithm!r}: {error}") from None
    if spec.kernel is not kernel:
        raise SpecError(f"{op}: this matrix's memory order takes {kernel.name}, not {spec.kernel.name}")
    if spec.dtype is not product.a.dtype or value_of(spec) is not product.x.dtype:
        raise SpecError(f"{op}: {spec.name} is for other dtypes than {product.a.dtype} and {product.x.dtype}")
    if any((name in spec.flags) != wanted for name, wanted in _flags(product).items()) or spec["partial"]:
        raise SpecError(f"{op}: {spec.name} takes other scales than these, or computes parts only")
    vec, ragged = _row_vec(product) if product.along_rows else _column_vec(product)
    if spec["VEC"] > vec or (ragged and spec["VEC"] > 1 and not spec["ragged"]):
        raise SpecError(f"{op}: {spec.name} loads {spec['VEC']} elements at once, and this layout allows {vec}")
    return spec
