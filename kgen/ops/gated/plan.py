"""From a problem of linear attention with gates to its launches: a scan forward, three scans and some sums backward."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32, DType
from kgen.launch import Step, bind
from kgen.operand import Ints, Operand, aligned, contiguous_strides
from kgen.ops.calls import Plan
from kgen.ops.gated.kernels import KEY_SCAN, QUERY_SCAN, SCAN, Mapped, in_groups, posts, scan_with
from kgen.ops.gated.tiles import Tile, tile_for
from kgen.ops.reduce.workspace import workspace
from kgen.scratch import Sections

NOTHING = "nothing"
"""The name of the null pointer."""
MEETINGS = "meetings"
"""The name of counters for blocks that meet, zero before and after each launch."""


class Program:
    """Launches in turn, each on some named arrays: operands, parts of them, scratch memory, `NOTHING`."""

    def __init__(self, names: Sequence[str], device: int) -> None:
        self._places = {name: at for at, name in enumerate(names)}
        self._inputs = len(names)
        self._sections: list[int] = []  # bytes
        self._parts: dict[str, tuple[str, int]] = {}
        self._counters = 0
        self._device = device
        self._launches: list[tuple[Step, tuple[str, ...]]] = []

    def room(self, name: str, floats: int) -> str:
        """A piece of scratch memory."""
        self._places[name] = self._inputs + len(self._sections)
        self._sections.append(floats * F32.itemsize)
        return name

    def part(self, name: str, start: int) -> str:
        """The named array, but for so many bytes at its beginning (below zero: as if it began earlier)."""
        own = f"{name}, from {start} on"
        self._parts[own] = (name, start)
        return own

    def meet(self, groups: int) -> None:
        """Blocks of a launch are to meet, in so many groups, each at one of the `MEETINGS`."""
        self._counters = max(self._counters, groups)

    def add(self, step: Step, pointers: tuple[str, ...]) -> None:
        if step.blocks:
            self._launches.append((step, pointers))

    def plan(self, why: str) -> Plan:
        known = self._inputs + len(self._sections)
        places = self._places | {NOTHING: known, MEETINGS: known + 1}
        parts = [(places[name], start) for name, start in self._parts.values()]
        places |= {name: len(places) + at for at, name in enumerate(self._parts)}
        sections, device, counters = Sections(self._sections, self._device), self._device, self._counters
        steps = list(dict.fromkeys(step for step, _ in self._launches))  # on other parts of the arrays, too, bound once
        runs = dict(zip(steps, bind(steps, self._device), strict=True))
        work = [(runs[step], [places[name] for name in names]) for step, names in self._launches]

        def launch(pointers: Sequence[int], stream: int) -> None:
            rooms, _held = sections.take(stream)
            _, meetings, _counted = workspace(0, counters, device, stream) if counters else (0, 0, None)
            every = [*pointers, *rooms, 0, meetings]
            every += [every[at] + start for at, start in parts]
            for run, chosen in work:
                run([every[at] for at in chosen], stream)

        told = ((str(step), len([*same])) for step, same in itertools.groupby(step for step, _ in self._launches))
        return Plan(launch, tuple(f"{step}, {times} times" if times > 1 else step for step, times in told), why)


class Rows(NamedTuple):
    """An array [batch, head, time, feature] as a scan reads or writes it: strides in that order, and its heads."""

    name: str
    strides: Ints
    heads: int
    wide: bool  # whether four neighbours may be moved at once
    word: int = 2  # bytes of the widest words that rows may be moved in, 16 at most


def rows_of(name: str, x: Operand, layout: str) -> Rows:
    """The rows of an operand; one without features has one for all."""
    batch, head, step = (0, 1, 2) if layout == "bhtd" else (0, 2, 1)
    feature = x.strides[3:] or (0,)
    wide = len(x.shape) == 4 and x.strides[3] == 1 and x.shape[3] % 4 == 0 and aligned(x, 4 * x.dtype.itemsize)
    strides = (x.strides[batch], x.strides[head], x.strides[step], *feature)
    return Rows(name, strides, x.shape[head], wide, _word(x) if len(x.shape) == 4 else 2)


def _word(x: Operand) -> int:
    """Bytes of the widest words that the rows of an array consist of."""
    size, columns = x.dtype.itemsize, x.shape[3]
    if columns > 1 and x.strides[3] != 1:
        return size
    return next((word for word in (16, 8, 4) if columns * size % word == 0 and aligned(x, word)), size)


@dataclass
class Problem:
    """What all scans of a call share: sizes, the gate and the bonus as they are read, options, and the device."""

    batch: int
    sequences: int
    heads: int
    length: int
    features: int
    values: int
    dtype: DType
    gate: int  # as the axis GATE
    bonus: bool
    scale: float
    reverse: bool
    feature: int  # as the axis FEATURE
    offsets: int  # as the axis OFFSETS
    device: int
    gate_rows: Rows | None = None
    gate_type: DType = F32
    bonus_strides: Ints = ()
    bonus_type: DType = F32
    normal: bool = False
    epsilon: float = 0.0
    mapped: Mapped | None = None  # the caller's feature map
    states: dict[str, Ints] = field(default_factory=dict)  # strides [sequence, head, feature(, value)] by name

    @property
    def shared(self) -> int:
        """How many states there are."""
        return self.sequences * self.heads

    @property
    def step_gates(self) -> tuple[Rows, ...]:
        """The gates, where there is one per time step."""
        return (self.gate_rows,) if self.gate_rows and self.gate == 1 else ()

    def numbers(self, features: int) -> int:
        """In an array [batch, heads, time, features]."""
        return self.batch * self.heads * self.length * features


class Gradients(NamedTuple):
    """Where a scan of gradients leaves what gates' gradients are made of, and what it takes for them."""

    own: Rows
    slopes: Rows | None = None  # for the scan of keys: where the gate's gradient goes, ready; None: partial


def add_scan(
    program: Program,
    problem: Problem,
    z: Rows,
    x: Rows,
    y: Rows,
    o: Rows,
    *,
    turned: bool = False,
    adjoint: bool = False,
    wide: bool = False,
    initial: str = NOTHING,
    last: str = NOTHING,
    last_gradient: str = NOTHING,
    normals: tuple[str, str] = (NOTHING, NOTHING),
    inverses: str = NOTHING,
    gradients: Gradients | None = None,
) -> Tile:
    """Queue one `gated_scan`; the arrays' roles are those of kgen.ops.gated.kernels. Returns how it is cut."""
    p = problem
    rows, columns = (p.values + p.normal, p.features) if turned else (p.features, p.values)
    grouped = in_groups(p.normal, turned, p.gate > 0)
    about = (rows, columns, p.shared, p.gate > 0, multiprocessors(p.device), grouped)
    tile = tile_for(*about)
    halves = p.dtype is not F32
    signed = bool(gradients) and p.gate > 0
    products, slopes = signed and not adjoint, signed and adjoint
    partial = slopes and (gradients is None or gradients.slopes is None)
    own = gradients.own if gradients and (signed or p.feature) else None
    read = [z, x, y, *([p.gate_rows] if p.gate_rows and p.gate == 2 else []), *([own] if own else [])]
    kernel = SCAN if not turned else KEY_SCAN if adjoint else QUERY_SCAN
    own_flags = {SCAN.name: {"adjoint": adjoint}, KEY_SCAN.name: {"partial": partial}}.get(kernel.name, {})
    spec_of = functools.partial(
        scan_with(kernel, p.mapped).spec,
        GATE=p.gate,
        FEATURE=p.feature,
        OFFSETS=p.offsets,
        VEC=4 if all(x.wide for x in read) else 1,
        **own_flags,
        reverse=p.reverse != adjoint,
        bonus=p.bonus,
        normal=p.normal,
        wide=wide and halves,
        gfloat=p.gate > 0 and p.gate_type is F32 and halves,
        ufloat=p.bonus and p.bonus_type is F32 and halves,
        dtype=p.dtype,
    )
    spec = spec_of(**tile.axes)
    # On an H200 that takes 0.94 of the time forward with a gate for each time step and 0.95 of it for gradients without
    # gates, and 1.15 and 1.01 the other way round.
    pays = (p.gate == 1) != (turned or adjoint)
    if pays and posts(grouped, p.gate, tile.lanes, tile.columns):
        posted = spec_of(**tile.axes, posted=True)
        spec = posted if posted.derived["DYNAMIC_SMEM"] <= shared_memory(p.device) else spec
    if grouped and spec.derived["DYNAMIC_SMEM"] > shared_memory(p.device):
        tile = tile_for(*about, 8)
        spec = spec_of(**tile.axes)
    pointers = [z.name, x.name, y.name]
    groups = [z, x, y]
    strides = [*z.strides, *x.strides, *y.strides]
    if p.gate_rows:
        pointers.append(p.gate_rows.name)
        groups.append(p.gate_rows)
        strides += p.gate_rows.strides if p.gate == 2 else p.gate_rows.strides[:3]
    if p.bonus:
        pointers.append("u")
        strides += p.bonus_strides
    if own:
        pointers.append(own.name)
        groups.append(own)
        strides += own.strides
    states = (initial,) if turned else (initial, last)
    pointers += states
    strides += [stride for state in states for stride in _state(p, state, turned)]
    if p.normal:
        if turned or not adjoint:
            pointers += normals
            strides += [stride for name in normals for stride in p.states.get(name, (0, 0, 0))]
        pointers += [inverses, *(["o of normal"] if turned else [])]
    if p.offsets:
        pointers.append("cu_seqlens")
    if products:
        pointers += [last_gradient, "products", "slope_start"]
        strides += _state(p, last_gradient, turned)
    if slopes:
        pointers += ["products", "slope_start"]
        if partial:
            pointers.append("slopes")
            if p.gate == 1:
                strides.append(p.batch * p.heads * p.length)
        elif gradients and gradients.slopes:
            pointers.append(gradients.slopes.name)
            strides += gradients.slopes.strides
        if p.bonus:
            pointers.append("bonus_slopes")
    pointers.append(o.name)
    strides += o.strides
    blocks = p.shared * -(-columns // tile.width)
    ints = (p.heads, p.length, rows, columns, *(p.heads // x.heads for x in groups))
    floats = (p.scale, p.epsilon) if p.normal and not turned and not adjoint else (p.scale,)
    program.add(Step(spec, blocks, len(pointers), ints, tuple(strides), floats), tuple(pointers))
    return tile


def _state(problem: Problem, name: str, turned: bool) -> Ints:
    sequence, head, feature, value = problem.states.get(name, (0, 0, 0, 0))
    return (sequence, head, value, feature) if turned else (sequence, head, feature, value)


def scratch_rows(name: str, problem: Problem, features: int) -> Rows:
    """Contiguous floats [batch, heads, time, features]."""
    strides = contiguous_strides((problem.batch, problem.heads, problem.length, features))
    return Rows(name, strides, problem.heads, True, next(w for w in (16, 8, 4) if 4 * features % w == 0))
