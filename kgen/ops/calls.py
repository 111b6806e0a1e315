"""One call of an operator: the first of its kind is checked and prepared, the next ones are recognised and launched.

What a kind is: shapes, strides, dtypes, alignment, options, device. For CuPy arrays on the current device all that is
read in about two microseconds, and a kind that was met before skips every check but whether `out` overlaps an input,
which may change from call to call.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kgen.arrays import adopt, contiguous_inner
from kgen.dtypes import DType
from kgen.launch import on_device
from kgen.operand import Kind, Operand, common_kind, extent
from kgen.results import allocate, check_out, give_back
from kgen.streams import gpu, on, stream_for


class Plan(NamedTuple):
    """What a call, or a part of one, does on one device.

    launch   queues it: pointers of the inputs, then of the results; a stream
    steps    the launches in words, and
    why      those, for people
    """

    launch: Callable[[Sequence[int], int], None]
    steps: tuple[str, ...]
    why: str


class _Met(NamedTuple):
    """What a call of a kind that was met before needs: the plan, the results, the bytes that each array touches."""

    plan: Plan
    results: tuple[tuple[tuple[int, ...], Any], ...]  # shape and NumPy dtype
    spans: tuple[tuple[int, int], ...]  # from each array's pointer on


OPERATORS: dict[str, Operator] = {}


class Operator:
    """The part that every operator on arrays shares.

    arguments   names of the inputs, and
    options     of what else decides: parameters of the public function that bears `name`
    shapes      from the input operands and the options, the results' shapes; raises for inputs that do not fit
    prepare     from all operands (inputs, results) and the options, the `Plan`; raises what cannot be done
    dtype       of the results; None: that of the first input
    mixed       whether the inputs may differ in dtype; `shapes` refuses what does not fit
    """

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        options: tuple[str, ...],
        shapes: Callable[..., Sequence[tuple[int, ...]]],
        prepare: Callable[..., Plan],
        *,
        dtype: DType | None = None,
        mixed: bool = False,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.options = options
        self.shapes = shapes
        self.prepare = prepare
        self.dtype = dtype
        self.mixed = mixed
        self._met: dict[tuple[Any, ...], _Met] = {}  # by what _signature reads off CuPy arrays
        self._plans: dict[tuple[Any, ...], Plan] = {}  # by what operands have in common, of any library
        OPERATORS[name] = self

    def __call__(
        self, inputs: tuple[Any, ...], outs: tuple[Any, ...], options: tuple[Any, ...], stream: Any
    ) -> list[Any]:
        """The results, in the inputs' kind of array; `outs` holds an array or None for each."""
        if stream is None:
            cupy = gpu()
            key, pointers = _signature(cupy, (*inputs, *outs), options)
            met = self._met.get(key)
            if met is not None and _apart(pointers, met.spans, len(inputs)):
                results = list(outs)
                for at, out in enumerate(outs):
                    if out is None:
                        results[at] = cupy.ndarray(*met.results[at])
                        pointers[len(inputs) + at] = results[at].data.ptr
                met.plan.launch(pointers, cupy.cuda.get_current_stream().ptr)
                return results
        else:
            key = ()
        return self._first(inputs, outs, options, stream, key)

    def explain(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> str:
        """The steps of a call on these inputs and fresh results, and why those."""
        given, kind, shapes, stream = self._taken(inputs, options, None)
        device, dtype = given[0].device, self.dtype or given[0].dtype
        with on_device(device):
            results = [allocate(kind, shape, dtype, device, stream) for shape in shapes]
            plan = self._plan(given, results, options, stream)
        return "\n".join([*plan.steps, f"because {plan.why}"])

    def _taken(
        self, inputs: tuple[Any, ...], options: tuple[Any, ...], stream: Any
    ) -> tuple[list[Operand], Kind, Sequence[tuple[int, ...]], int]:
        """The inputs as operands that fit together, the kind and shapes of the results, the stream to launch on."""
        given = [adopt(array, self.name, argument) for array, argument in zip(inputs, self.arguments, strict=True)]
        kind = common_kind(self.name, given, mixed_dtypes=self.mixed)
        shapes = self.shapes(self.name, given, *options)
        return given, kind, shapes, stream_for(kind, given, stream)

    def _first(
        self,
        inputs: tuple[Any, ...],
        outs: tuple[Any, ...],
        options: tuple[Any, ...],
        stream: Any,
        key: tuple[Any, ...],
    ) -> list[Any]:
        given, kind, shapes, chosen = self._taken(inputs, options, stream)
        dtype, device = self.dtype or given[0].dtype, given[0].device
        results: list[Operand] = []
        for out, shape in zip(outs, shapes, strict=True):
            results.append(
                allocate(kind, shape, dtype, device, chosen)
                if out is None
                else check_out(out, shape, dtype, [*given, *results], self.name, chosen)
            )
        with on_device(device):
            if any(0 not in result.shape for result in results):
                taken = [contiguous_inner(operand, chosen) for operand in given]
                written = [contiguous_inner(operand, chosen, write=True) for operand in results]
                plan = self._plan(taken, written, options, chosen)
                if key and taken == given and written == results:  # not where rows had to be copied together
                    made = tuple((operand.shape, operand.dtype.numpy) for operand in results)
                    self._met[key] = _Met(plan, made, tuple(_span(operand) for operand in (*given, *results)))
                plan.launch([operand.ptr for operand in (*taken, *written)], chosen)
                results = written
            return [give_back(result, chosen) for result in results]

    def _plan(
        self, taken: Sequence[Operand], written: Sequence[Operand], options: tuple[Any, ...], stream: int
    ) -> Plan:
        """`prepare`, once for operands of a kind, whatever library they come from."""
        operands = (*taken, *written)
        low = functools.reduce(operator.or_, (operand.ptr for operand in operands))
        layout = tuple((operand.shape, operand.strides, operand.dtype.name) for operand in operands)
        key = (layout, low & 15, operands[0].device, options)
        found = self._plans.get(key)
        if found is None:
            with on(operands[0].device, stream):  # so that loading a kernel sees whether this stream is being captured
                found = self._plans[key] = self.prepare(self.name, taken, written, *options)
        return found


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """How a call would be carried out: the kernels and their grids, and why those. Nothing is computed.

    >>> import cupy, kgen                                                          # doctest: +SKIP
    >>> x = cupy.ones((1, 8, 2048, 64), "f")                                       # doctest: +SKIP
    >>> print(kgen.explain(kgen.causal_dot_product, x, x, x))                      # doctest: +SKIP
    """
    shared = OPERATORS[function.__name__]
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    inputs = tuple(bound.arguments[name] for name in shared.arguments)
    return shared.explain(inputs, tuple(bound.arguments[name] for name in shared.options))


def _signature(cupy: Any, arrays: tuple[Any, ...], options: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """What identifies a kind of call, and the pointers; an empty key unless all arrays are CuPy's on this device."""
    kind = cupy.ndarray
    several = _device_count() > 1
    device = cupy.cuda.runtime.getDevice() if several else 0
    parts: list[Any] = [options, device]
    pointers = []
    low = 0
    for array in arrays:
        if array is None:
            parts.append(None)
            pointers.append(0)
            continue
        if type(array) is not kind or (several and array.data.device_id != device):
            return (), []
        pointer = array.data.ptr
        low |= pointer
        pointers.append(pointer)
        # What flags.c_contiguous reads, at a sixth of its cost; contiguous strides follow from the shape.
        parts += (array.shape, array._c_contiguous or array.strides, array.dtype.num)
    parts.append(low & 15)  # how wide loads may be
    return tuple(parts), pointers


@functools.cache
def _device_count() -> int:
    return int(gpu().cuda.runtime.getDeviceCount())


def _apart(pointers: Sequence[int], spans: Sequence[tuple[int, int]], inputs: int) -> bool:
    """Whether every result that was passed lies wholly before or after every input."""
    for at in range(inputs, len(pointers)):
        pointer = pointers[at]
        if pointer:
            low, high = pointer + spans[at][0], pointer + spans[at][1]
            for other in range(inputs):
                start = pointers[other]
                if low < start + spans[other][1] and start + spans[other][0] < high:
                    return False
    return True


def _span(operand: Operand) -> tuple[int, int]:
    low, high = extent(operand.shape, operand.strides)
    return low * operand.dtype.itemsize, high * operand.dtype.itemsize
