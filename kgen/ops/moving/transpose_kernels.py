"""The kernels that move elements to other places: tiles that are turned over, and rows that stay whole."""

from __future__ import annotations

from kgen.dtypes import U8, U16, U32, U64
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS, WARP = 256, 32
PACK = 16
"""Bytes that a thread moves at once where it may."""
MOST_AXES = 4
"""Axes besides those of a tile or row that a kernel walks; the host walks the rest."""

SECTOR = 2
"""Packs that are written to the L2 cache together, so that it need not read what lies beside them."""
RESIDENT = 1024
"""Threads of ragged tiles among which the registers of a multiprocessor are to be divided."""
MOST_NARROW = 8
"""Elements of a row up to which a thread takes such rows whole."""

_SIDES = (4, 8, 16, 32, 64, 128, 256, 512)
_ACROSS = Flag("across", "tiles follow each other along the rows of the input, not along those of the result")
BATCH = Axis("BATCH", "b", tuple(range(MOST_AXES + 1)), "further axes")


def _swizzled(spec: Spec) -> bool:
    """Whether a warp can gather columns into packs of 16 bytes from different banks of an unpadded tile."""
    unit = PACK // spec.dtype.itemsize
    return spec["STORE"] == unit and spec["ROWS"] % (8 * unit) == 0 and spec["COLUMNS"] % (8 * unit) == 0


def _geometry(spec: Spec) -> dict[str, int]:
    itemsize = spec.dtype.itemsize
    pitch = spec["COLUMNS"]
    if not _swizzled(spec):
        word = max(4, itemsize)
        pitch = (-(-pitch * itemsize // word) | 1) * word // itemsize  # an odd number of words
    return {
        "THREADS": THREADS,
        "swizzled": int(_swizzled(spec)),
        "PITCH": pitch,
        "STATIC_SMEM": spec["ROWS"] * pitch * itemsize,
    }


def _problem(spec: Spec) -> str | None:
    elements = spec["ROWS"] * spec["COLUMNS"]
    word = max(1, 4 // spec.dtype.itemsize) if _swizzled(spec) else 1
    for side, at_once in ((spec["COLUMNS"], spec["LOAD"]), (spec["ROWS"], spec["STORE"])):
        if at_once * spec.dtype.itemsize > PACK:
            return f"{at_once} elements are more than the {PACK} bytes that a thread can move at once"
        if side % at_once or elements % (THREADS * at_once * word):
            return f"{THREADS} threads cannot share a tile of {elements} elements in packs of {at_once}"
    if elements * spec.dtype.itemsize > 44 * 1024:
        return "the tile would not fit in 48 KiB of shared memory"
    return None


TRANSPOSE = register(
    Kernel(
        name="transpose",
        summary="A permutation of axes that moves the last one, for elements of one size: tiles turned over.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("ROWS", "r", _SIDES, "rows of the input in a tile"),
            Axis("COLUMNS", "c", _SIDES, "columns of the input in a tile"),
            Axis("LOAD", "i", (1, 2, 4, 8, 16), "neighbours that are loaded at once"),
            Axis("STORE", "o", (1, 2, 4, 8, 16), "neighbours that are stored at once"),
            BATCH._replace(default=0),
        ),
        flags=(_ACROSS,),
        dtypes=(U8, U16, U32, U64),
        derive=_geometry,
        check=_problem,
        grid="(ceil(rows / ROWS) * ceil(columns / COLUMNS) * further axes): one block per tile",
        origin="Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA (2009), with wide loads and stores",
        defaults=(
            "transpose_r64_c64_i1_o1_u32",
            "transpose_r64_c64_i4_o4_u32",
            "transpose_r64_c128_i8_o8_b2_u16",
            "transpose_r64_c64_i4_o4_across_u32",
        ),
    )
)


def _ragged_geometry(spec: Spec) -> dict[str, int]:
    unit, word = PACK // spec.dtype.itemsize, max(4, spec.dtype.itemsize)
    pitch = (spec["COLUMNS"] // unit + 1) * (PACK // word) | 1
    nbytes = (spec["ROWS"] // unit + SECTOR) * (unit * pitch + 1) * word
    step = 4 * spec["THREADS"] // WARP // (spec["COLUMNS"] // unit // 8 + 1)  # from a row of a thread to its next
    return {
        "THREADS": spec["THREADS"],
        "spare": (spec["ROWS"] + SECTOR * unit) % step,
        "BLOCKS": RESIDENT // spec["THREADS"],
        "STATIC_SMEM": 0,
        "DYNAMIC_SMEM": nbytes,
    }


def _ragged_problem(spec: Spec) -> str | None:
    unit, warps = PACK // spec.dtype.itemsize, spec["THREADS"] // WARP
    lines, across = spec["ROWS"] // unit // 8, spec["COLUMNS"] // unit // 8 + 1
    if lines == 0 or spec["COLUMNS"] % (8 * unit) or warps % across or 4 * warps // across % unit:
        return f"rows of a thread would not begin alike in a tile of {spec['ROWS']} x {spec['COLUMNS']} elements"
    if warps % lines or warps // lines % unit or 2 * unit * lines % warps:
        return f"columns of a thread would not begin alike in a tile of {spec['ROWS']} x {spec['COLUMNS']} elements"
    return None


RAGGED = register(
    Kernel(
        name="transpose_ragged",
        summary="A permutation of axes that moves the last one, for rows that start anywhere and are of any length.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("ROWS", "r", (64, 128), "rows of the input in a tile"),
            Axis("COLUMNS", "c", (48, 96, 192, 224, 384, 448), "columns of the input in a tile"),
            Axis("THREADS", "t", (256, 512), "threads of a block", default=512),
            BATCH._replace(default=0),
        ),
        flags=(_ACROSS,),
        dtypes=(U8, U16, U32, U64),
        derive=_ragged_geometry,
        check=_ragged_problem,
        grid="(ceil((rows + 2 * UNIT - 1) / ROWS) * ceil(columns / COLUMNS) * further axes): one block per tile",
        origin="the tiled transpose, with tiles whose edges follow the memory's",
        defaults=(
            "transpose_ragged_r64_c96_t256_u32",
            "transpose_ragged_r64_c192_t256_u16",
            "transpose_ragged_r128_c192_across_u16",
        ),
    )
)


NARROW = register(
    Kernel(
        name="transpose_narrow",
        summary="A permutation of axes that moves a short one, of a few elements, to or from the last place.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("WIDTH", "w", tuple(range(2, MOST_NARROW + 1)), "elements of a short row"),
            BATCH._replace(default=0),
        ),
        flags=(Flag("split", "rows of the input are short; without it, those of the result"),),
        dtypes=(U8, U16, U32, U64),
        derive=lambda spec: {"THREADS": THREADS, "STATIC_SMEM": THREADS * spec["WIDTH"] * PACK},
        grid="(ceil(packs / THREADS) * further axes): one block per THREADS packs of a long row",
        origin="arrays of structures and structures of arrays",
        defaults=("transpose_narrow_w3_b1_u16", "transpose_narrow_w2_split_u32"),
    )
)

RAGGED_ROOM = 48 << 10
"""Bytes of short rows that a block of 256 threads takes where long rows start anywhere."""
LINES = (1, 2, 4, 8, 16, 32, 64)
"""Lines of each such long row that it takes."""
STEP_KIB, MOST_KIB = 4, 112
"""KiB in which room for short rows is counted; and the most, with which two blocks of 512 threads share a
multiprocessor."""


def _short_geometry(spec: Spec) -> dict[str, int]:
    turns = 4 if spec.dtype is U8 else 3  # packs of a thread that are under way together, as measured
    return {"THREADS": THREADS, "TURNS": turns, "ROOM": RAGGED_ROOM, "STATIC_SMEM": RAGGED_ROOM}


def ragged_threads(nbytes: int, *, split: bool) -> int:
    """Of a block with so much room: twice as many where that is large, and always where short rows are split."""
    return 2 * THREADS if split or nbytes > RAGGED_ROOM else THREADS


def _ragged_short_geometry(spec: Spec) -> dict[str, int]:
    nbytes = spec["KIB"] << 10
    threads = ragged_threads(nbytes, split=bool(spec["split"]))
    return {**_short_geometry(spec), "THREADS": threads, "STATIC_SMEM": 0, "DYNAMIC_SMEM": nbytes}


def _ragged_short_problem(spec: Spec) -> str | None:
    return "short rows that are merged lie one behind the other" if spec["WITHIN"] > 1 and not spec["split"] else None


RAGGED_SHORT = register(
    Kernel(
        name="transpose_ragged_short",
        summary="A permutation of axes that moves a short one to or from the last place; long rows start anywhere.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("LINES", "n", LINES, "lines of 128 bytes of each long row that a block takes"),
            Axis(
                "KIB",
                "k",
                tuple(range(STEP_KIB, MOST_KIB + 1, STEP_KIB)),
                "KiB of short rows for which a block has room",
            ),
            Axis("WITHIN", "g", (1, 2), "lines at multiples of which parts of split rows are written", default=1),
            BATCH._replace(default=0),
        ),
        flags=(Flag("split", "rows of the input are short; without it, those of the result"),),
        dtypes=(U8, U16, U32, U64),
        derive=_ragged_short_geometry,
        check=_ragged_short_problem,
        grid="(ceil(length / LENGTH) * further axes): one block per LENGTH elements of the long rows",
        origin="arrays of structures and structures of arrays, in tiles whose edges follow the memory's",
        defaults=("transpose_ragged_short_n2_k16_u16", "transpose_ragged_short_n4_k80_g2_b1_split_u32"),
    )
)


def _padded_problem(spec: Spec) -> str | None:
    return "elements of 8 bytes are merged as fast without" if spec.dtype is U64 and not spec["split"] else None


PADDED_SHORT = register(
    Kernel(
        name="transpose_padded_short",
        summary="A permutation of axes that moves a short one, of an even size, to or from the last place.",
        formula="out[..., c, ..., r] = x[..., r, ..., c]",
        axes=(
            Axis("LINES", "n", LINES[:6], "lines of 128 bytes of each long row that a block takes"),
            BATCH._replace(default=0),
        ),
        flags=(Flag("split", "rows of the input are short; without it, those of the result"),),
        dtypes=(U8, U16, U32, U64),
        derive=_short_geometry,
        check=_padded_problem,
        grid="(ceil(length / LENGTH) * further axes): one block per LENGTH elements of the long rows",
        origin="arrays of structures and structures of arrays, with room in shared memory against its banks",
        defaults=("transpose_padded_short_n4_u8", "transpose_padded_short_n2_b1_split_u8"),
    )
)


def _rows_geometry(spec: Spec) -> dict[str, int]:
    return {"THREADS": THREADS, "DOWN": 4 // spec["ACROSS"]}


ROWS = register(
    Kernel(
        name="transpose_rows",
        summary="A permutation of axes that leaves the last one in its place: rows move as they are.",
        formula="out[..., j, ..., i, ..., :] = x[..., i, ..., j, ..., :]",
        axes=(
            Axis("BYTES", "n", (1, 2, 4, 8, 16), "bytes of a word, of which rows are made"),
            Axis("LANES", "l", (1, 2, 4, 8, 16, 32, 64, 128, 256), "threads along a row"),
            Axis("ACROSS", "a", (1, 4), "words of a row that a thread takes; it takes four in all"),
            Axis("BATCH", "b", tuple(range(1, MOST_AXES + 1)), "axes besides the last", default=1),
        ),
        dtypes=(U8,),
        derive=_rows_geometry,
        grid="(ceil(width / (LANES * ACROSS)) * ceil(rows / (THREADS / LANES * DOWN)))",
        origin="a strided copy",
        defaults=("transpose_rows_n16_l16_a1_b3_u8",),
    )
)
