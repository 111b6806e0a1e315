"""How a matrix whose columns are contiguous is cut: tiles of columns, and parts of their sums."""

from __future__ import annotations

import math

from kgen.operand import power_of_two
from kgen.ops.gemv.kernels import COLUMNS, COLUMNS_QUANTIZED, PACK, WARP
from kgen.ops.gemv.product import Product, column_tiles, flags_of
from kgen.ops.gemv.types import QUANTIZED
from kgen.spec import Spec

ALONE = 128 << 20
"""Bytes of a matrix up to which tiles as tall as it are faster than short ones, whose sums meet."""
NARROW = 16 << 20
"""The same for tiles of fewer lanes than LINE_LANES, which read parts of lines."""
LINE_LANES = 8
SMALL, SHALLOW = 2 << 20, 4096
"""Bytes of a matrix, and products of a sum, up to which it costs more to meet than SMs with nothing to do."""
WAVES = 4
"""Of blocks of `gemv_columns`, at most, where the sums are cut into parts; as few as keep all SMs busy to the end."""
TURNS = 4
"""Of a thread's loads, at least, in a part of an odd matrix: a shorter one takes less time than to meet."""


def cut_columns(product: Product, sms: int, spec: Spec | None = None) -> tuple[Spec, int]:
    """The specialization of `gemv_columns`, the given one or the one that suits, and the number of parts."""
    nbytes = product.rows * product.depth * product.batches * product.a.dtype.itemsize
    chosen = spec is None
    small = chosen and nbytes <= SMALL and product.depth <= SHALLOW
    if spec is None:
        vec, ragged = column_vec(product)
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
        threads = min(threads, 512) if product.a.dtype in QUANTIZED else threads
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
            **flags_of(product),
            dtype=product.a.dtype,
        )
    tiles = column_tiles(product, spec) * product.batches
    if small or (2 * tiles >= sms and nbytes <= ALONE and not spec["ragged"]):
        return spec, 1
    deep = spec["THREADS"] // spec["LANES"] * spec["UNROLL"] * (TURNS if chosen and spec["ragged"] else 1)
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


def column_vec(product: Product) -> tuple[int, bool]:
    """How many elements of a row a thread loads at once, and whether rows need their ends taken apart for that."""
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
