"""What `kgen.checked()` asks of linear attention's arrays: numbers that nobody looks at in a plain call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.backend import HOST
from kgen.operand import Operand
from kgen.ops.elementwise.elementwise import elementwise
from kgen.ops.gated.checks import Arrays, Form, arrays_of, gradients_of
from kgen.ops.layout import AXES
from kgen.ops.reduce.reduce import max as maximum
from kgen.views import device_view


def sequences(form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any) -> None:
    """The arrays of a forward pass; raises ValueError."""
    _examine(op, arrays_of(form, given), dict(zip(names, values, strict=True))["layout"])


def gradients(form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any) -> None:
    """And those of a backward pass."""
    sequences(form, names, op, gradients_of(form, given)[1], *values)


def slots(op: str, indices: Operand, count: int) -> None:
    """Indices into a pool of so many states; those below zero are padding."""
    found = _host(indices)
    there = np.flatnonzero(found >= 0)
    wild = there[found[there] >= count]
    if len(wild):
        raise ValueError(f"{op}: indices has {found[wild[0]]} at {wild[0]}; the pool has {count} states")
    order = there[np.argsort(found[there], kind="stable")]
    twice = np.flatnonzero(found[order][1:] == found[order][:-1])
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise ValueError(f"{op}: indices has {found[first]} at {first} and at {second}; each state is one token's")


def gates(op: str, g: Operand) -> None:
    """Gates are logarithms of decays. NaN passes, as in a plain call."""
    if 0 not in g.shape:
        numbers = device_view(g)
        highest = float(maximum(numbers))
        if math.isnan(highest):  # which hides what the others reach
            highest = float(maximum(elementwise("where(isnan(g), 0, g)", g=numbers)))
        if highest > 0:
            raise ValueError(
                f"{op}: {g.argument} reaches {highest:g}; it takes gates of at most 0, the logarithms of decays"
            )


def _examine(op: str, arrays: Arrays, layout: str) -> None:
    if arrays.g:
        gates(op, arrays.g)
    if arrays.offsets:
        _offsets(op, arrays.offsets, arrays.q.shape[AXES[layout][2]])


def _offsets(op: str, offsets: Operand, length: int) -> None:
    found = _host(offsets)
    if found[0] != 0 or found[-1] != length:
        raise ValueError(
            f"{op}: cu_seqlens leads from {found[0]} to {found[-1]}; it takes 0 to {length}, all time steps"
        )
    falls = np.flatnonzero(found[1:] < found[:-1])
    if len(falls):
        at = falls[0]
        raise ValueError(
            f"{op}: cu_seqlens falls from {found[at]} at {at} to {found[at + 1]}; it takes ascending offsets"
        )


def _host(x: Operand) -> np.ndarray[Any, Any]:
    view = device_view(x)
    found: np.ndarray[Any, Any] = view if x.device == HOST else view.get()
    return found
