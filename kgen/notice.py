"""Host memory that operators use, told to whoever watches launches there: a launch has pointers only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Noticed:
    """Host memory that operators were given or took: `arrays`, those among them that nobody has written yet, and
    counters, which every launch finds and leaves zero."""

    arrays: list[Any] = field(default_factory=list)
    fresh: list[Any] = field(default_factory=list)
    counters: list[Any] = field(default_factory=list)


_noticed: ContextVar[Noticed | None] = ContextVar("kgen_noticed", default=None)


@contextmanager
def noticing() -> Iterator[Noticed]:
    """Inside the block the memory that operators use is listed, for who watches launches on the host."""
    token = _noticed.set(noticed := Noticed())
    try:
        yield noticed
    finally:
        _noticed.reset(token)


def notice(array: Any, *, fresh: bool = False, counters: bool = False) -> Any:
    """Say of a NumPy array that a launch on the host may use it; a fresh one is filled with NaNs for who watches."""
    noticed = _noticed.get()
    if noticed is not None:
        noticed.arrays.append(array)
        if fresh and array.size:
            array.reshape(-1).view("u1")[...] = 0xFF  # an array of no axes has no other type
            noticed.fresh.append(array)
        if counters:
            noticed.counters.append(array)
    return array


def notice_written(address: int) -> None:
    """Say that the host wrote to the memory at an address, which no longer counts as fresh then."""
    noticed = _noticed.get()
    if noticed is not None:
        noticed.fresh[:] = [x for x in noticed.fresh if not x.ctypes.data <= address < x.ctypes.data + x.nbytes]
