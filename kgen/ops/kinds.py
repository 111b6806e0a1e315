"""The kinds of calls that an operator has met, each with the function that launches the next one (again.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

from kgen.launch import Run
from kgen.ops.again import Again, Arrays, Call, written
from kgen.ops.libraries import library

REMEMBERED = 4096
"""How many kinds an operator remembers; it then starts afresh, so that a server may meet new shapes for ever."""

ALIKE = 16
"""How many of them may have the same options and the same shapes of inputs."""

Key = tuple[Any, ...]


class Plan(NamedTuple):
    """What a call, or a part of one, does on one device.

    launch   queues it: pointers of the inputs, then of the results; a stream
    steps    the launches in words, and
    why      those, for people
    """

    launch: Run
    steps: tuple[str, ...]
    why: str


class Kinds:
    """What one operator has met.

    last   by options, the function of the kind that was called last, which the next call tries first
    """

    def __init__(self) -> None:
        self.last: dict[Key, Again] = {}
        self._alike: dict[Key, tuple[Again, ...]] = {}  # by options and the inputs' shapes, or numbers

    def searched(self, inputs: Arrays, outs: Arrays, options: Key) -> Arrays | None:
        """The results of a call, launched, if it is of another kind that was met; else None."""
        try:
            alike = self._alike.get(_key(inputs, options), ())
        except TypeError:  # somebody's array with a list for a shape
            return None
        for again in alike:
            results = again(inputs, outs)
            if results is not None:
                self.last[options] = again
                return results
        return None

    def clear(self) -> None:
        """Forget all of them."""
        self.last.clear()
        self._alike.clear()

    def meet(self, call: Call, options: Key) -> None:
        """Remember the kind of a call, if its arrays are of one library that has a short way."""
        given = [x for x, operand in zip(call.inputs, call.operands) if operand is not None]
        read = library(given[0].__class__)
        if read is None or any(x is not None and type(x) not in read.kinds for x in (*given, *call.outs)):
            return
        again, key = written(call, read), _key(call.inputs, options)
        remember(self._alike, key, (again, *self._alike.get(key, ()))[:ALIKE])
        remember(self.last, options, again)


def _key(inputs: Arrays, options: Key) -> Key:
    return options, *[getattr(x, "shape", x) for x in inputs]  # a number stands for itself


def remember(kept: dict[Key, Any], key: Key, value: Any) -> None:
    """Keep a value, and not too many."""
    if len(kept) >= REMEMBERED:
        kept.clear()
    kept[key] = value
