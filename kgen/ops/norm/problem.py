"""What the kernels of norms are chosen for, told to all of them in one form; and how one of them is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kgen.launch import Run, Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.spec import Spec

ROLES = ("x", "residual", "weight", "bias", "y", "total", "mean", "rstd")
"""In which order kernels take them."""


@dataclass(frozen=True)
class Problem:
    """Rows to be normalised.

    named    the operands by their ROLES, in the order of a call's pointers
    read     the rows of x
    pitches  from row to row, of each array that has such rows
    flags    of kernels: what is asked for, and the types of weights
    floats   what kernels take besides pointers and sizes
    unasked  how many statistics nobody asked for; kernels get null pointers for them
    groups   of a group norm whose weights are those of channels: groups, channels and places
    """

    named: Mapping[str, Operand | None]
    read: Rows
    pitches: tuple[int, ...]
    flags: Mapping[str, bool]
    floats: tuple[float, ...]
    unasked: int
    groups: tuple[int, ...] = ()

    @cached_property
    def x(self) -> Operand:
        """What is normalised."""
        return self._present("x")

    @cached_property
    def y(self) -> Operand:
        """Where the result goes."""
        return self._present("y")

    @cached_property
    def device(self) -> int:
        """Where all of this lies."""
        return self.y.device

    @cached_property
    def vectors(self) -> list[Operand]:
        """Weight and bias, those of them that there are."""
        return [vector for vector in map(self.named.get, ("weight", "bias")) if vector]

    @cached_property
    def wide(self) -> bool:
        """Whether these are float32 beside 16 bits."""
        return bool(self.vectors) and self.vectors[0].dtype.itemsize > self.x.dtype.itemsize

    @cached_property
    def order(self) -> list[int]:
        """Which of a call's pointers a kernel takes."""
        at = {role: index for index, (role, operand) in enumerate(self.named.items()) if operand}
        return [at[role] for role in ROLES if role in at]

    @property
    def pointers(self) -> int:
        """How many a kernel takes, besides its own."""
        return len(self.order) + self.unasked

    @property
    def what(self) -> str:
        """For people."""
        return f"{self.read.rows} rows of {self.read.columns}"

    def _present(self, role: str) -> Operand:
        found = self.named[role]
        assert found is not None
        return found

    def launch(
        self,
        spec: Spec,
        blocks: int,
        why: str,
        *,
        ints: Sequence[int] = (),
        pitches: tuple[int, ...] | None = None,
        claiming: bool = False,
    ) -> Plan:
        """One launch for all rows; `ints`: what follows their size; `claiming`: blocks claim rows, by a counter."""
        size = (self.read.rows, self.read.columns, *ints)
        apart = self.pitches if pitches is None else pitches
        step = Step(spec, blocks, self.pointers + claiming, size, apart, self.floats)
        run: Run = bind([step], self.device)[0]
        if claiming:
            run = rows_ring.taking(run, self.device)
        return Plan(picked(run, self.order, self.unasked), (str(step),), f"{self.what} {why}")
