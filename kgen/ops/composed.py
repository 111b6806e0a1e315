"""Functions that call several operators: what they would do is what those would, one after another.

`kgen.explain` and `kgen.workspace` ask a function itself where it has an answer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Called(Protocol):
    """An operator, or what says as much of what it does."""

    def explain(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> str:
        """The launches of a call, and why those."""

    def workspace(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> int:
        """The bytes that a call allocates beside its results."""


class Call(NamedTuple):
    """A call of an operator that a function makes.

    note     when it is made, or why again, where that depends on what arrays hold
    nbytes   of arrays besides inputs and results that the function holds meanwhile
    """

    operator: Called
    inputs: tuple[Any, ...]
    options: tuple[Any, ...]
    note: str = ""
    nbytes: int = 0


def calling(calls: Callable[..., Iterable[Call]]) -> Callable[[Function], Function]:
    """Marks a function with the calls that it makes of operators, told from its own arguments and computing nothing."""

    def explain(*args: Any, **kwargs: Any) -> str:
        parts = calls(*args, **kwargs)
        return "\n".join(part.operator.explain(part.inputs, part.options) + part.note for part in parts)

    def workspace(*args: Any, **kwargs: Any) -> int:
        parts = calls(*args, **kwargs)
        return max(part.operator.workspace(part.inputs, part.options) + part.nbytes for part in parts)

    def mark(function: Function) -> Function:
        function.__dict__.update(explain=explain, workspace=workspace)
        return function

    return mark
