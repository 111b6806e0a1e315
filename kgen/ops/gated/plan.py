"""What launches of linear attention with gates are made of: a problem, rows of its arrays, a program of launches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kgen.dtypes import F32, DType
from kgen.launch import Step, bind
from kgen.operand import Ints, Operand, aligned, contiguous_strides
from kgen.ops.calls import Plan
from kgen.ops.gated.mapped import Mapped
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


def scratch_rows(name: str, problem: Problem, features: int) -> Rows:
    """Contiguous floats [batch, heads, time, features]."""
    strides = contiguous_strides((problem.batch, problem.heads, problem.length, features))
    return Rows(name, strides, problem.heads, True, next(w for w in (16, 8, 4) if 4 * features % w == 0))
