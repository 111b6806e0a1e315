"""Which kernels find the gradients of a norm: in one pass over dy and x, or in two where rows are too wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import as_rows, staged
from kgen.ops.calls import Plan
from kgen.ops.norm import backward_ahead, backward_ring, backward_span
from kgen.ops.norm.backward_grid import plan_grid
from kgen.ops.norm.backward_kernels import BACKWARD, HELD, SUMMED, TOTAL, WEIGHTS, sectors
from kgen.ops.norm.backward_ring_kernel import RING
from kgen.ops.norm.backward_split import plan_split
from kgen.ops.norm.plans import rows_of
from kgen.ops.rows_text import WEIGHT_TYPES
from kgen.scratch import scratch
from kgen.spec import Spec

WAVES = 3  # of blocks, at most
IN_WAVES = {4: 512, 2: 128}  # lanes of a row, up to which they do better so, by the bytes of an element
PART = 40  # bytes that are moved for a byte of the parts of sums, at least, if there is more than one wave

Axes = tuple[int, ...]
Operands = Sequence[Operand | None]
Places = Sequence[rows_cut.Pitched]


def plan(operands: Operands, inputs: int, axes: Axes, offset: float) -> Plan:
    """The launches for dy, x, (means,) rstds, weight and dx, (dweight, (dbias)), all with the axes of x."""
    statistics = range(2, inputs - 1)
    fits = [o is None or _fits(o, axes, side_by_side=index in statistics) for index, o in enumerate(operands)]

    def build(operands: Operands, axes: Axes) -> Plan:
        return _plan_rows(operands, inputs, axes, offset)

    return staged(operands, inputs, axes, fits, build)


def _fits(operand: Operand, axes: Axes, *, side_by_side: bool) -> bool:
    """Whether it is rows, whose beginnings may lie apart, unless there is one number a row."""
    taken = as_rows(operand, axes)
    return taken is not None and not (side_by_side and taken.pitch != 1)


def _plan_rows(operands: Operands, inputs: int, axes: Axes, offset: float) -> Plan:
    (dy, x, *known, weight), (dx, *gradients) = operands[:inputs], operands[inputs:]
    assert dy is not None and x is not None and dx is not None
    device, rms, bias = dx.device, len(known) == 1, len(gradients) > 1
    long = [(o, rows_of(o, axes)) for o in (dy, x, dx)]
    count, width = long[0][1][:2]
    pitched = [rows_cut.Pitched(o, r.pitch, o.dtype.itemsize) for o, r in long]
    pitches = tuple(r.pitch for _, r in long)
    taking = [index for index in range(inputs + 1) if operands[index]]  # and dx
    floats = (offset,) if rms and weight else ()
    flags = {"rms": rms, "weight": weight is not None}
    if weight is not None and weight.dtype is not x.dtype:
        flags[WEIGHT_TYPES[weight.dtype]] = True

    taken = _weighed(rows_cut.packs(pitched, width, ragged=True), weight)
    if weight is not None and (summed := _summed(pitched, taken, (count, width), flags, bias=bias, offset=offset != 0)):
        spec, blocks, parts, wave, apart, cut = summed
        added = () if spec.kernel is RING and not spec["offset"] else floats
        first = Step(spec, blocks, len(taking) + 1 + bias, (count, width, *wave), apart, added)
        made = f"{parts} part{'s' if parts != 1 else ''}"
        why = f"{count} rows of {width} for {cut}; their weights' gradients are sums of {made}"
        if parts == 1 and weight.dtype is F32:  # the only part is the weights' gradients
            (run,) = bind([first], device)
            return Plan(picked(run, (*taking, *range(inputs + 1, len(operands)))), (str(first),), why)
        steps = (first, _total(weight, parts, width, bias=bias))
        one_pass, finish = bind(steps, device)
        nbytes = 4 * parts * width

        def launch(pointers: Sequence[int], stream: int) -> None:
            memory = scratch(nbytes * (1 + bias), device, stream)
            sums = [memory.ptr, memory.ptr + nbytes][: 1 + bias]
            one_pass([*(pointers[i] for i in taking), *sums], stream)
            finish([*sums, *pointers[inputs + 1 :]], stream)

        return Plan(launch, tuple(map(str, steps)), why)

    held = rows_cut.cut(count, width, taken, HELD, device, looped=0 if weight else 2)
    if held is None and weight is not None:
        shared = plan_grid(weight, taken, (count, width), pitches, flags, floats, taking, inputs, x, bias=bias)
        if shared:
            return shared
    if held:
        spec = BACKWARD.spec(**held.values(), **flags, **taken.flags(), dtype=x.dtype)
        first = Step(spec, rows.grid(spec, count, device), len(taking), (count, width), pitches, floats)
        run = bind([first], device)[0]
        of_rows = Plan(picked(run, taking), (str(first),), f"{count} rows of {width} for {held}")
    else:
        of_rows = plan_split(pitched, (count, width), flags, weight, floats, taking)
    if weight is None:
        return of_rows
    vec = rows_cut.packs(pitched[:2], width).vec
    columns = WEIGHTS.spec(VEC=vec, rms=rms, bias=bias, dtype=x.dtype)
    return _two_passes(of_rows, columns, weight, (count, width), pitches[:2], inputs, device)


class _Summed(NamedTuple):
    """One pass that also adds up the weights' gradients."""

    spec: Spec
    blocks: int
    parts: int
    """Of the sums."""
    wave: tuple[int, ...]
    """Blocks, where they start in waves."""
    pitches: tuple[int, ...]
    """Of rows that need not lie side by side."""
    cut: object


def _summed(
    places: Places, taken: rows_cut.Packs, size: tuple[int, int], flags: dict[str, bool], *, bias: bool, offset: bool
) -> _Summed | None:
    """Such a pass, if there is one, for so many rows and columns of dy, x and dx at their `places`."""
    (count, width), x, pitches = size, places[1].operand, tuple(place.pitch for place in places)
    own = {name: on for name, on in flags.items() if name != "weight"}
    ahead = backward_ahead.cut(count, width, taken, x.device, bias=bias)
    if not ahead and (spanning := backward_span.cut(places, size, bias=bias)):
        spec = backward_span.SPAN.spec(**spanning.values(), **own, bias=bias, dtype=x.dtype)
        blocks = backward_span.blocks(spec, count, x.device)
        return _Summed(spec, blocks, blocks, (), (), spanning)
    fours = None if ahead else rows_cut.fours(width, taken, pairs=bias)
    whole = backward_ring.by_sectors(taken, width, pitches[-1])
    if not fours and not ahead and (turning := backward_ring.cut(count, width, whole, x.device, bias=bias)):
        flags = {**own, "bias": bias, "offset": offset, "ragged": whole.ragged}
        spec = RING.spec(**turning.values(), **flags, dtype=x.dtype)
        return _Summed(spec, turning.blocks, turning.teams, (), pitches, turning)
    if cut := ahead or fours or rows_cut.summing(count, width, taken, SUMMED, x.device, pairs=bias):
        own = {**flags, "sums": True, "bias": bias, **taken.flags()}
        spec = BACKWARD.spec(**cut.values(), **own, dtype=x.dtype)
        blocks = rows.grid(spec, count, x.device, period=2 * cut.vec if sectors(spec) else cut.vec)
        waves = waves_of(count / blocks, spec)
        return _Summed(spec, waves * blocks, waves * blocks // cut.cluster, (blocks,), pitches, cut)
    return None


def waves_of(height: float, spec: Spec) -> int:
    """In how many waves blocks start, those that start later for fewer rows; `height`: rows for each block of a wave.

    As many as leave the parts of the sums small beside the rows. Where blocks are as busy without, there is one: at its
    beginning and its end, a wave has little on its way.
    """
    lanes, itemsize, bias = spec["LANES"], spec.dtype.itemsize, bool(spec["bias"])
    alone, ahead = lanes == spec.threads, spec["STAGES"] > 1
    busy = (itemsize == 2 and not ahead) or (bias and (itemsize == 2 or alone)) or (alone and not ahead)
    if busy or lanes > IN_WAVES[itemsize]:
        return 1
    moved, part = 3 * height * itemsize, 4 * (1 + bias)  # bytes of each column
    return max(1, min(WAVES, int(moved / part / PART)))


def _two_passes(
    of_rows: Plan,
    columns: Spec,
    weight: Operand,
    size: tuple[int, int],
    pitches: tuple[int, ...],
    inputs: int,
    device: int,
) -> Plan:
    """The gradient of x, and then those of the weights in parts of the rows, so many that the device is full."""
    count, width = size
    bias = columns["bias"]
    tiles = -(-width // (columns["LANES"] * columns["VEC"]))
    parts = max(1, min(-(-count // (4 * columns["DEPTH"])), -(-8 * multiprocessors(device) // tiles)))
    height = -(-count // parts)
    parts = -(-count // height)
    reading = range(inputs - 1)
    second = Step(columns, tiles * parts, len(reading) + 1 + bias, (count, width, height), pitches)
    why = f"{of_rows.why}; their weights' gradients are sums of {parts} part{'s' if parts != 1 else ''}"
    if parts == 1 and weight.dtype is F32:  # the only part is the weights' gradients
        (whole,) = bind([second], device)

        def launch_two(pointers: Sequence[int], stream: int) -> None:
            of_rows.launch(pointers, stream)
            whole([*(pointers[i] for i in reading), *pointers[inputs + 1 :]], stream)

        return Plan(launch_two, (*of_rows.steps, str(second)), why)
    steps = (second, _total(weight, parts, width, bias=bool(bias)))
    by_column, finish = bind(steps, device)
    nbytes = 4 * parts * width

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(nbytes * (1 + bias), device, stream)
        sums = [memory.ptr, memory.ptr + nbytes][: 1 + bias]
        of_rows.launch(pointers, stream)
        by_column([*(pointers[i] for i in reading), *sums], stream)
        finish([*sums, *pointers[inputs + 1 :]], stream)

    return Plan(launch, (*of_rows.steps, *map(str, steps)), why)


def lanes_of(sums: int) -> int:
    """How many columns a block adds up that has so many: where they are few, more threads for each."""
    lanes = TOTAL.axes[0].values
    return max([lanes[0], *(some for some in lanes if some <= sums)])


def _total(weight: Operand, parts: int, columns: int, *, bias: bool) -> Step:
    """The launch that adds up the parts."""
    lanes = lanes_of(columns * (1 + bias) // multiprocessors(weight.device))
    spec = TOTAL.spec(LANES=lanes, bias=bias, dtype=weight.dtype)
    return Step(spec, -(-columns // lanes) * (1 + bias), 2 + 2 * bias, (parts, columns))


def _weighed(taken: rows_cut.Packs, weight: Operand | None) -> rows_cut.Packs:
    """The packs that weights can be read in, too."""
    if weight is None or taken.ragged or not weight.ptr % min(rows.VECTOR, taken.vec * weight.dtype.itemsize):
        return taken
    return taken._replace(ragged=True) if taken.shifted else rows_cut.Packs(1)
