"""How columns are cut for the softmax along them: strips for blocks, and parts where there are few strips."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.device import device_arch, multiprocessors
from kgen.dtypes import F32, DType
from kgen.errors import SpecError
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows
from kgen.ops.axes import Planes
from kgen.ops.calls import Plan
from kgen.ops.reduce.workspace import workspace
from kgen.ops.rows_cut import COPIES
from kgen.ops.softmax.columns import CHUNK, COLUMNS, DEPTH, HELD, LEAST, THREADS, WORDS, known_bytes, width
from kgen.ops.softmax.flags import Wanted
from kgen.spec import Spec

WIDE = 256  # bytes of a row in a strip: the memory does less well with shorter ones
WAVES = {False: 32, True: 8}
"""Blocks of a multiprocessor, at most, for parts of columns that are read twice, or once for their sums alone."""
ROUNDS = 1  # likewise of those that are staged, for each that there is room for: to sum parts of columns
APPLIED = 64  # likewise of those that are staged: for what is computed from the sums
SUMMED = 496  # columns for each multiprocessor, from which on sums of float32 are of full packs wherever rows begin
RESIDENT = 3  # likewise for sums alone of packs of 16 bytes, which do best where all blocks are there at once
AT_ONCE = 96  # parts that are put together by one block; more of them in groups
TOTAL = 8  # bytes of what a part finds of a column
_AXES = tuple(axis.name for axis in COLUMNS.axes)


def _lanes(vec: int, dtype: DType) -> int:
    """Threads side by side that take a strip of WIDE bytes, or what 64 of them take."""
    return min(WIDE // (vec * dtype.itemsize), 64)


def ragged(x: Operand, y: Operand, read: Planes, written: Planes) -> bool:
    """Whether rows of both begin at the same places in packs of 16 bytes, and are long enough for these."""
    size = x.dtype.itemsize
    apart = (x.ptr - y.ptr, (read.step - written.step) * size, (read.plane - written.plane) * size)
    return x.dtype is y.dtype and not any(distance % rows.VECTOR for distance in apart) and begins_anywhere(x, read)


def begins_anywhere(x: Operand, read: Planes) -> bool:
    """Whether rows are long enough to be taken in packs of 16 bytes wherever they begin."""
    return read.columns * x.dtype.itemsize >= 8 * rows.VECTOR and x.ptr % x.dtype.itemsize == 0


def held(read: Planes, vec: int, dtype: DType, device: int, *, ragged: bool = False) -> dict[str, int] | None:
    """The axes of a specialization that holds such columns in registers, or None."""
    words = max(1, vec * dtype.itemsize // 4)
    least = 2 * vec if ragged else 1  # of threads for a column, of which every `vec`th begins at the same place
    depth = next((d for d in DEPTH.values if d >= least and d * (WORDS // words) >= read.length), THREADS)
    lanes = max(_lanes(vec, dtype), THREADS // 2 // depth)
    if lanes * depth > THREADS:
        return None
    sms = multiprocessors(device)
    narrowest = max(8, 32 * vec // depth if ragged else 0)
    while lanes > narrowest and 2 * read.planes * -(-read.columns // (lanes * vec)) < sms and lanes * depth > 32:
        lanes //= 2  # since multiprocessors without work cost more
    packs = next(h for h in HELD.values if h * depth >= read.length)
    return {"LANES": lanes, "DEPTH": depth, "HELD": packs, "VEC": vec}


def _streamed(vec: int, dtype: DType) -> dict[str, int]:
    """The axes of one for columns of any length."""
    lanes = _lanes(vec, dtype)
    packs = WORDS // max(1, vec * dtype.itemsize // 4)
    return {"LANES": lanes, "DEPTH": THREADS // lanes, "HELD": min(12, packs), "VEC": vec}


def _streamed_anywhere(columns: int, dtype: DType) -> dict[str, int]:
    """Those of one for rows that begin anywhere: of the two widths the one with fewer lanes beside the columns."""
    vec = rows.VECTOR // dtype.itemsize
    lanes = min((32, 8), key=lambda lanes: -(-columns // ((lanes - 1) * vec)) * lanes)
    return {"LANES": lanes, "DEPTH": THREADS // lanes, "HELD": 7 if lanes == 32 else 5, "VEC": vec}


def plan_columns(
    x: Operand, y: Operand, read: Planes, written: Planes, vec: int, wanted: Wanted, spec: Spec | None
) -> Plan:
    """One launch, with a strip of columns for each block, or with parts of one, and another for the result of these."""
    device = y.device
    whole = wanted.op == "logsumexp"
    flags = {name: on for name, on in wanted.flags(wide=y.dtype is not x.dtype).items() if on} | {"lse": whole}
    if spec is None:
        values, anywhere = _cut(x, y, read, written, vec, whole)
    else:
        values, anywhere = {name: spec[name] for name in (*_AXES, "online", "staged")}, bool(spec["ragged"])
    if spec and (
        (spec["VEC"] > vec and not anywhere) or (not spec["online"] and spec["DEPTH"] * spec["HELD"] < read.length)
    ):
        raise SpecError(
            f"{wanted.op}: {spec.name} does not take columns of {read.length} in packs of {vec} at most neighbours"
        )
    tile = values["DEPTH"] * values["HELD"]
    across = values["VEC"] * (values["LANES"] - anywhere)
    strips = -(-read.columns // across) * read.planes
    known = {name: on for name, on in flags.items() if whole or name != "wide"}
    partial = {**values, **known, "partial": values["online"], "ragged": anywhere}
    waves = WAVES[whole]
    if values["staged"]:
        waves = ROUNDS * COLUMNS.spec(**partial, dtype=x.dtype).derived["RESIDENT"]
    elif whole and values["VEC"] * x.dtype.itemsize == rows.VECTOR:
        waves = RESIDENT
    parts, height = _parts(read.length, tile, waves * multiprocessors(device) // strips)
    sizes = f"{read.planes} x {read.columns} columns of {read.length}"
    if not values["online"] or (parts == 1 and (whole or not (anywhere or values["staged"]))):
        spec = COLUMNS.spec(**values, **flags, ragged=anywhere, dtype=x.dtype)
        steps = (read.plane, read.step, written.plane, *(() if whole else (written.step,)))
        step = Step(spec, strips, 2, (read.length, read.columns), steps, wanted.floats)
        run = bind([step], device)[0]
        return Plan(picked(run, (0, -1)), (str(step),), f"{sizes}, {strips} strips")  # no mask

    together = parts if parts <= AT_ONCE else math.isqrt(parts - 1) + 1
    groups = -(-parts // together)
    ints = (read.length, read.columns, parts, height, together)
    steps = (read.plane, read.step, *((written.plane,) if whole else ()))
    first = Step(COLUMNS.spec(**partial, dtype=x.dtype), strips * parts, 4, ints, steps, wanted.floats)
    why = f"{sizes}, {strips} strips in {parts} parts each"
    found = strips * (parts + groups) * across * TOTAL
    counters = strips * (1 + groups)
    if whole:
        find = bind((first,), device)[0]

        def launch_one(pointers: Sequence[int], stream: int) -> None:
            memory, zeros, held = workspace(found, counters, device, stream)
            find((pointers[0], pointers[-1], memory, zeros), stream)
            del held  # once the launch is queued

        return Plan(launch_one, (str(first),), why)

    apply = COLUMNS.spec(**values, **flags, apply=True, ragged=anywhere, dtype=x.dtype)
    strips = -(-(read.columns + (values["DEPTH"] - 1 if anywhere else 0)) // width(apply)) * read.planes
    if values["staged"]:
        parts, height = _parts(read.length, tile, APPLIED * multiprocessors(device) // strips)
    steps = (read.plane, read.step, written.plane, written.step)
    second = Step(apply, strips * parts, 3, (read.length, read.columns, parts, height), steps, wanted.floats)
    find, finish = bind((first, second), device)

    def launch(pointers: Sequence[int], stream: int) -> None:
        size = found + read.planes * read.columns * known_bytes(apply)
        memory, zeros, held = workspace(size, counters, device, stream)
        find((pointers[0], memory + found, memory, zeros), stream)
        finish((pointers[0], memory + found, pointers[-1]), stream)
        del held  # once the launches are queued

    return Plan(launch, (str(first), str(second)), why)


def _parts(length: int, tile: int, most: int) -> tuple[int, int]:
    """How many parts columns are cut into, of two tiles or more, and how many rows each has."""
    parts = max(1, min(most, length // (2 * tile)))
    height = -(-length // (parts * tile)) * tile
    return -(-length // height), height


def _cut(x: Operand, y: Operand, read: Planes, written: Planes, vec: int, whole: bool) -> tuple[dict[str, int], bool]:
    """The axes, and whether columns are read twice; whether packs are full wherever rows begin."""
    full = rows.VECTOR // x.dtype.itemsize
    narrow = x.dtype is F32 and read.columns < SUMMED * multiprocessors(y.device)
    begin = begins_anywhere(x, read) and not narrow if whole else ragged(x, y, read, written)
    anywhere = vec < full and begin
    packed = anywhere and whole and x.dtype is not F32  # of which threads hold columns as well in narrower packs
    values = held(read, full if packed else vec, x.dtype, y.device, ragged=packed)
    if values is not None:
        return {**values, "online": False, "staged": False}, packed
    values = _streamed_anywhere(read.columns, x.dtype) if anywhere else _streamed(vec, x.dtype)
    return {**_staged(values, x.dtype, y.device), "online": True}, anywhere


def _staged(values: dict[str, int], dtype: DType, device: int) -> dict[str, int]:
    """With packs that come to shared memory, fewer of them at once, if their size and the device allow."""
    if values["VEC"] * dtype.itemsize < LEAST or device_arch(device) < COPIES:
        return {**values, "staged": False}
    return {**values, "HELD": CHUNK, "staged": True}
