"""One call: the arrays it is given, the operator, and what it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import kgen
from kgen.dtypes import DType
from tests.random_calls.compare import Wrong
from tests.random_calls.draw import Array, Draw, Shape
from tests.random_calls.views import Device, Layout, View, behind, layout, plain, poison, repeated

AGAIN = 0.1
"""How many calls are made twice, to see whether the same bits come."""

REPEATED = 0.03
"""How many inputs of several axes have a stride of 0."""

Result = Any
"""An array on the host, or a tuple of such."""


class Call(Draw):
    """Makes the arrays of a call, makes the call, and sees to it that nothing else was written.

    told  what was called, as a failure reports it
    """

    def __init__(self, rng: np.random.Generator, device: Device) -> None:
        super().__init__(rng, device.most)
        self.device = device
        self.told = ""

    def array(self, values: Array, dtype: DType, *, plainly: float = 0.45) -> View:
        """An input; contiguous and by itself with that probability, now and then the same all along an axis."""
        where = plain(values.shape) if self.chance(plainly) else self._layout(values.shape)
        if values.ndim > 1 and self.chance(REPEATED):
            where = repeated(where, self.between(0, values.ndim - 1))
        return View(self.device, self._rounded(values, dtype), where)

    def in_place(self, values: Array, dtype: DType) -> View:
        """What the operator reads and overwrites."""
        return View(self.device, self._rounded(values, dtype), self._layout(values.shape), writable=True)

    def out(self, shape: Shape, dtype: DType, *, contiguous: bool = False) -> View:
        """Where a result goes; what is not written of it stays poison."""
        where = behind(plain(shape), self.pick(0, 1, 3, 64)) if contiguous else self._layout(shape)
        return View(self.device, np.full(shape, poison(dtype), dtype.numpy), where, writable=True)

    def maybe_out(self, shape: Shape, dtype: DType, *, contiguous: bool = False) -> dict[str, View]:
        """`out=`, half of the time."""
        return {"out": self.out(shape, dtype, contiguous=contiguous)} if self.chance(0.5) else {}

    def results(self, x: View, dtype: DType) -> dict[str, View]:
        """`out=`, which may be x itself where that may be written, or nothing."""
        return {"out": x} if x.writable else self.maybe_out(x.values.shape, dtype)

    def _layout(self, shape: Shape) -> Layout:
        return layout(self, shape, reverses=self.device.reverses)

    @staticmethod
    def _rounded(values: Array, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return values.astype(dtype.numpy)

    def __call__(self, operator: str, *args: Any, **options: Any) -> Result:
        """The operator's result on the host. It is looked up in kgen by name, and takes `View`s as arrays."""
        self.told = _told(operator, args, options)
        function = getattr(kgen, operator)
        given = [_given(x) for x in args]
        how = {name: _given(x) for name, x in options.items()}
        result = self._fetched(function(*given, **how))
        named = {f"argument {number}": x for number, x in enumerate(args)} | options
        views = {name: x for name, x in named.items() if isinstance(x, View)}
        for name, view in views.items():
            view.check(name)
        overwritten = [name for name, view in views.items() if view.writable and name != "out"]
        if not overwritten and self.chance(AGAIN):
            _check_same_bits(result, self._fetched(function(*given, **how)))
        return result

    def _fetched(self, result: Any) -> Result:
        """Copies, since a second call may write to the same `out`."""
        if isinstance(result, tuple | list):
            return tuple(self.device.fetch(x).copy() for x in result)
        return self.device.fetch(result).copy()


Making = Callable[[Call, str], None]


class Family(NamedTuple):
    """Operators that are called and checked by one function, and how often they are drawn together."""

    operators: Sequence[str]
    make: Making
    weight: float


FAMILIES: list[Family] = []


def calls(*operators: str, weight: float = 1) -> Callable[[Making], Making]:
    """Declares the function that makes and checks a call of one of these operators."""

    def declare(make: Making) -> Making:
        FAMILIES.append(Family(operators, make, weight))
        return make

    return declare


def _given(x: Any) -> Any:
    return x.given if isinstance(x, View) else x


def _told(operator: str, args: Sequence[Any], options: dict[str, Any]) -> str:
    words = [str(x) if isinstance(x, View) else repr(x) for x in args]
    words += [f"{name}={x if isinstance(x, View) else repr(x)}" for name, x in options.items()]
    return f"{operator}({', '.join(words)})"


def _check_same_bits(first: Result, second: Result) -> None:
    if not isinstance(first, tuple):
        first, second = (first,), (second,)
    for one, other in zip(first, second, strict=True):
        if one.tobytes() != other.tobytes():
            raise Wrong("a second call gave other bits")
