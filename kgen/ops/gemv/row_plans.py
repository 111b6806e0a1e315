"""How a matrix whose rows are contiguous is cut: rows and lanes of a block, and parts where rows are few."""

from __future__ import annotations

import math

from kgen.dtypes import F32, I8
from kgen.operand import power_of_two
from kgen.ops.gemv.kernels import GEMV, GEMV_QUANTIZED, PACK, WARP
from kgen.ops.gemv.product import Product, flags_of, row_tiles
from kgen.ops.gemv.types import QUANTIZED
from kgen.spec import Spec

FULL = 2048
"""Threads that an SM holds."""
DEAR = 768
"""Threads of an SM below which rows rather share less of x."""
ENOUGH_LANES = 64
"""Threads along a row of packs of sixteen, where there are two packs for each."""
SPARE, PAIRED = 128, 1024
"""Packs of a row of float32 below which half a warp has less to spare, and up to which two rows share what it takes to
make doubles of x."""
PAST_ENDS = 1.15
"""Packs of a row and past its end, as a multiple of the row's own, up to which lanes are not halved."""
LANES = (4, 8, 16, 32, 64, 128, 256)
ONE_TURN = 16
"""Packs of a row up to which its lanes take one turn."""
MOST_LOADS = {False: 1.25, True: 1.15}
"""Loads of a row, as a multiple of those that the best number of lanes makes, by whether lanes always take several
turns."""
MANY_WAVES, MOST_WAVES = 3, 4
"""Waves of blocks from which on rows are whole, and up to which they are cut."""
SECOND = 1
"""What it costs to add the parts of rows, in tiles of a wave."""
PAIRED_16 = 256
"""Packs of a row of 16 bits up to which four rows have each number of x in common."""
FEW_PACKS, MANY_PACKS = 8, 256
"""Packs of a row of bytes, from and up to which four rows have few lanes, for four packs each or eight; of int8 that
begin anywhere, of more as well."""
LONG = 256 << 10
"""Bytes of a row up to which one block reads it faster than several, whose sums are added up after."""


def cut_rows(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv`, the given one or the one that suits, and the number of parts."""
    if spec is None:
        vec, ragged = row_vec(product)
        flags = flags_of(product)
        packs = max(1, product.depth // vec)
        few = product.rows * product.batches < sms and product.depth * product.a.dtype.itemsize <= LONG
        if few and packs >= 8 * 512 and product.a.dtype not in QUANTIZED and not ragged:
            return GEMV.spec(VEC=vec, LANES=512, ROWS=1, UNROLL=8, THREADS=512, dtype=product.a.dtype), 1
        # Several rows share what it takes to widen x, where that is much beside the matrix's own bytes.
        quantized = product.a.dtype in QUANTIZED
        dear = quantized or ragged
        in_flight = 8 if ragged and not quantized else 4
        shared = PAIRED_16 if product.a.dtype.itemsize == 2 else 2 * WARP
        if not quantized and (ragged or packs <= shared):
            lanes, rows, in_flight = filled(packs, 2, ragged=ragged), 4, 8
        elif packs <= WARP:
            lanes = max(power_of_two(packs) // 4, min(power_of_two(packs), 2))
            rows = 4 // min(4, power_of_two(-(-packs // lanes)))
        else:
            share = 16 if vec == 16 else 8 if vec == 8 else 4  # packs of a thread, before it has turns
            lanes = min(max(WARP, power_of_two(packs) // share), 256)
            if vec == 16 and packs >= 2 * ENOUGH_LANES and not ragged:
                lanes = max(lanes, ENOUGH_LANES)
            rows = (4 if product.a.dtype.itemsize < 8 else 2) if dear else 1
            if product.a.dtype is F32 and packs < SPARE:
                lanes, rows, in_flight = WARP // 2, 4, 8
            elif product.a.dtype is F32 and packs <= PAIRED:
                rows = 2
            if not quantized:
                threads = product.rows * product.batches * lanes // rows
                lanes = _fewer_lanes(lanes, packs, in_flight // rows, threads // (sms * FULL // 2))
        many = packs > MANY_PACKS and not (ragged and product.a.dtype is I8)
        if vec == 16 and packs >= FEW_PACKS and not (many or flags["blocks"] or flags["inner"]):
            # Where there are rows enough to share what it takes to widen x, few lanes for each are past the rows' ends.
            fewer = min(max(4, power_of_two(packs // (4 if packs <= 2 * WARP else 8))), max(LANES))
            if product.rows * product.batches * fewer >= 4 * sms * DEAR:
                lanes, rows = fewer, 4
        while rows > 1 and product.rows * product.batches * lanes < rows * sms * (WARP if ragged else DEAR):
            rows //= 2
        unroll = min(in_flight // rows, 4, power_of_two(-(-packs // lanes)))
        kernel = GEMV_QUANTIZED if quantized else GEMV
        spec = kernel.spec(
            VEC=vec, LANES=lanes, ROWS=rows, UNROLL=unroll, ragged=ragged, **flags, dtype=product.a.dtype
        )
    blocks = row_tiles(product, spec) * product.batches
    tiles = product.depth // spec["VEC"] // (spec["LANES"] * spec["UNROLL"])
    return spec, _splits(blocks, tiles, sms * spec.derived["BLOCKS"])


def filled(packs: int, each: int, *, ragged: bool) -> int:
    """Lanes for rows of so many packs, of which each lane has `each` in flight.

    The most of whose loads few are past the rows' ends; rows of many packs take two turns at least.
    """
    if packs <= (ONE_TURN if ragged else WARP):
        return max(1, power_of_two(packs) // (2 if packs >= ONE_TURN else 1))
    least, turns = (WARP // 2, 2) if packs > 2 * WARP else (WARP // 8, 1)
    loads = {lanes: -(-packs // (lanes * each)) * lanes * each for lanes in LANES if lanes >= least}
    fit = [lanes for lanes in loads if -(-packs // (lanes * each)) >= turns and lanes * each <= packs]
    most = MOST_LOADS[turns > 1] * min(loads[n] for n in fit)
    return max(lanes for lanes in fit if loads[lanes] <= most)


def _fewer_lanes(lanes: int, packs: int, each: int, spare: int) -> int:
    """Lanes for rows of so many packs, of which each lane has `each` in flight, so that few are past the rows' ends.

    `spare` is by how much fewer they may be at most.
    """
    while lanes > WARP and spare >= 2 and -(-packs // (lanes * each)) * lanes * each > PAST_ENDS * packs:
        lanes, spare = lanes // 2, spare // 2
    return lanes


def _splits(blocks: int, tiles: int, wave: int) -> int:
    """In how many parts rows of so many tiles are cut, so that the last wave of blocks leaves little of it idle."""
    if blocks >= MANY_WAVES * wave:
        return 1

    def cost(parts: int) -> int:
        return -(-tiles // parts) * -(-blocks * parts // wave) + (SECOND if parts > 1 else 0)

    return min(range(1, max(1, min(tiles, MOST_WAVES * wave // blocks)) + 1), key=cost)


def row_vec(product: Product) -> tuple[int, bool]:
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
    least = (FEW_PACKS if quantized else 16) * widest  # numbers of a row that leave enough between its ends
    return (widest, True) if vec < widest and product.depth >= least else (vec, False)
