"""One call of an operator: the first of its kind is checked and prepared, the next ones are recognised and launched.

For CuPy arrays and torch tensors of a kind that was met before, every check is skipped but whether it is of that kind
(again.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kgen.arrays import adopt
from kgen.device import on_device
from kgen.dtypes import FLOATS, DType
from kgen.operand import Kind, Operand, common_kind
from kgen.ops.again import ALIGNMENT, Arrays, Call
from kgen.ops.checked import asked, refuse_capture
from kgen.ops.kinds import Key, Kinds, Plan, remember
from kgen.ops.options import check_plain
from kgen.results import allocate, check_out, give_back
from kgen.scratch import idle, listing
from kgen.streams import on, stream_for
from kgen.views import contiguous_inner

__all__ = ["OPERATORS", "Operator", "Plan", "Results"]

OPERATORS: dict[str, Operator] = {}
Results = Sequence[tuple[tuple[int, ...], DType]]


class Operator:
    """The part that every operator on arrays shares.

    arguments   names of the inputs, and
    options     of what else decides: parameters of the public function that bears `name`; their values are hashable
    results     from the input operands and the options, the shape and dtype of each result; raises for inputs that do
                not fit
    prepare     from all operands (inputs, results) and the options, the `Plan`; raises what cannot be done
    takes       the dtypes of every input, or of each by name
    optional    inputs that may be None; they reach `results` and `prepare` as None, and a launch as the pointer 0
    mixed       whether the inputs may differ in dtype; `results` refuses what does not fit
    rows        whether kernels want the last axis contiguous; an array where it is not is copied
    in_place    inputs that a result may be itself, by name, or True for all: kernels read no element of them after the
                one in its place was written
    outs        what callers call the arrays that they bring for results
    examine     from the input operands and the options, whether the numbers in them make sense; raises where not. Asked
                only within `kgen.checked()`
    read        turns the inputs and options of a call into those that all the others here get; by default they stay
    """

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        options: tuple[str, ...],
        results: Callable[..., Results],
        prepare: Callable[..., Plan],
        *,
        takes: tuple[DType, ...] | Mapping[str, tuple[DType, ...]] = FLOATS,
        optional: tuple[str, ...] = (),
        mixed: bool = False,
        rows: bool = True,
        in_place: bool | tuple[str, ...] = False,
        outs: tuple[str, ...] = ("out",),
        examine: Callable[..., None] | None = None,
        read: Callable[[Arrays, Key], tuple[Arrays, Key]] = lambda inputs, options: (inputs, options),
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.options = options
        self.results = results
        self.prepare = prepare
        self.takes = takes if isinstance(takes, Mapping) else dict.fromkeys(arguments, takes)
        self.optional = optional
        self.mixed = mixed
        self.rows = rows
        self.in_place = arguments if in_place is True else in_place or ()
        self.outs = outs
        self.examine = examine
        self.read = read
        self.kinds = Kinds()
        self._last = self.kinds.last
        self._plans: dict[tuple[Any, ...], Plan] = {}  # by what operands have in common, of any library
        OPERATORS[name] = self

    def call(self, inputs: Arrays, outs: Arrays, options: Key, stream: Any) -> Arrays:
        """The results, in the inputs' kind of array; `outs` holds an array or None for each."""
        if self.examine is not None and asked():
            self._examined(inputs, options, stream)
        if stream is None:
            try:
                again = self._last[options]
            except (KeyError, TypeError):  # options that have no hash are refused in a first call
                return self._first(inputs, outs, options, stream)
            results = again(inputs, outs) or self.kinds.searched(inputs, outs, options)
            if results is not None:
                return results
        return self._first(inputs, outs, options, stream)

    __call__ = call  # as a method it is called in half of the time

    def explain(self, inputs: tuple[Any, ...], options: tuple[Any, ...], out: Any = None) -> str:
        """The steps of a call on these inputs, and why those; `out` is for the first result, others are fresh."""
        inputs, options = self.read(inputs, options)
        given, kind, made, stream = self._taken(inputs, options, None)
        outs = [out, *(None for _ in made[1:])]
        results = self._written(outs, given, kind, made, stream)
        if _empty(results):
            return "because there is nothing to compute"
        with on_device(results[0].device), listing():  # what is not to run need not be compiled
            plan = self._plan(given, results, options, stream)
        return "\n".join([*plan.steps, f"because {plan.why}"])

    def workspace(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> int:
        """The bytes that a call allocates beside its results: scratch memory, and copies where rows are wanted."""
        inputs, options = self.read(inputs, options)
        given, kind, made, stream = self._taken(inputs, options, None)
        device = _present(given)[0].device
        with on_device(device):
            results = [allocate(kind, shape, dtype, device, stream) for shape, dtype in made]
            if _empty(results):
                return 0
            taken, written = self._with_rows(given, results, stream)
            with listing() as pieces, on(device, stream):
                plan = self.prepare(self.name, taken, written, *options)
                plan.launch([operand.ptr if operand else 0 for operand in (*taken, *written)], stream)
        copies = [new for new, old in zip((*taken, *written), (*given, *results)) if new is not None and new is not old]
        return sum(pieces) + sum(math.prod(copy.shape) * copy.dtype.itemsize for copy in copies)

    def _examined(self, inputs: Arrays, options: Key, stream: Any) -> None:
        inputs, options = self.read(inputs, options)
        given, _, _, chosen = self._taken(inputs, options, stream)
        device = _present(given)[0].device
        refuse_capture(self.name, device, chosen)
        with on(device, chosen):
            assert self.examine is not None
            self.examine(self.name, given, *options)

    def _taken(
        self, inputs: tuple[Any, ...], options: tuple[Any, ...], stream: Any
    ) -> tuple[list[Operand | None], Kind, Results, int]:
        """The inputs as operands that fit together, the kind and form of the results, the stream to launch on."""
        given = [
            None
            if array is None and argument in self.optional
            else adopt(array, self.name, argument, self.takes[argument])
            for array, argument in zip(inputs, self.arguments, strict=True)
        ]
        present = _present(given)
        kind = common_kind(self.name, present, mixed_dtypes=self.mixed)
        check_plain(self.name, self.options, options)
        made = self.results(self.name, given, *options)
        return given, kind, made, stream_for(kind, present, stream)

    def _first(self, said: Arrays, outs: Arrays, key: Key, stream: Any) -> Arrays:
        inputs, options = self.read(said, key)
        given, kind, made, chosen = self._taken(inputs, options, stream)
        results = self._written(outs, given, kind, made, chosen)
        device = results[0].device
        with on_device(device):
            if not _empty(results):
                taken, written = self._with_rows(given, results, chosen)
                plan = self._plan(taken, written, options, chosen)
                copied = taken != given or written != results  # rows, together
                if stream is None and not copied and not idle():
                    missing = [None] * (len(said) - len(given))
                    operands = (*given, *missing, *results)
                    self.kinds.meet(Call(plan.launch, said, outs, operands, len(given), self.in_place), key)
                plan.launch([operand.ptr if operand else 0 for operand in (*taken, *written)], chosen)
                results = written
            return tuple([give_back(result, chosen) for result in results])

    def _written(
        self, outs: Sequence[Any], given: Sequence[Operand | None], kind: Kind, made: Results, stream: int
    ) -> list[Operand]:
        """The results, each of which has been brought or is made."""
        present = _present(given)
        device = present[0].device
        results: list[Operand] = []
        names = (self.outs + self.outs[-1:] * len(outs))[: len(outs)]
        for name, out, (shape, dtype) in zip(names, outs, made, strict=True):
            if out is None:
                results.append(allocate(kind, shape, dtype, device, stream))
                continue
            about = (out, shape, dtype, present, self.name, stream)
            results.append(check_out(*about, in_place=self.in_place, name=name, apart=results))
        return results

    def _with_rows(
        self, given: list[Operand | None], results: list[Operand], stream: int
    ) -> tuple[list[Operand | None], list[Operand]]:
        """The operands as kernels want them."""
        if not self.rows:
            return given, results
        taken = [operand and contiguous_inner(operand, stream) for operand in given]
        return taken, [contiguous_inner(operand, stream, write=True) for operand in results]

    def _plan(
        self, taken: Sequence[Operand | None], written: Sequence[Operand], options: tuple[Any, ...], stream: int
    ) -> Plan:
        """`prepare`, once for operands of a kind, whatever library they come from."""
        operands = (*taken, *written)
        device = written[0].device
        layout = tuple(
            operand and (operand.shape, operand.strides, operand.dtype.name, operand.ptr % ALIGNMENT)
            for operand in operands
        )
        key = (layout, device, options)
        found = self._plans.get(key)
        if found is None:
            with on(device, stream):  # so that loading a kernel sees whether this stream is being captured
                found = self.prepare(self.name, taken, written, *options)
            if not idle():
                remember(self._plans, key, found)
        return found


def _present(operands: Sequence[Operand | None]) -> list[Operand]:
    return [operand for operand in operands if operand is not None]


def _empty(results: Sequence[Operand]) -> bool:
    """Whether no result has any element: then nothing is launched."""
    return all(0 in result.shape for result in results)
