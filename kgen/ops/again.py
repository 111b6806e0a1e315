"""A kind of call, written down as the function that recognises the next call of its kind and launches it.

Within a kind only the arrays' places differ, not their shapes, strides, dtypes, alignment or device. For torch tensors
and `add(x1, x2, out=out)` the function is

    def again(inputs, outs):
        try:
            (x0, x1), (x2,) = inputs, outs
        except ValueError:
            return None
        if not alike(x0, x1, x2):
            return None
        p0, p1, p2 = x0.data_ptr(), x1.data_ptr(), x2.data_ptr()
        if (p0 | p1 | p2) % 16 != 0:
            return None
        if low2_0 < p2 - p0 < high2_0 and p2 != p0:
            return None
        if low2_1 < p2 - p1 < high2_1 and p2 != p1:
            return None
        try:
            frame = frames.pop()
        except IndexError:
            frame = make()
        slots, queue, start = frame
        slots[0] = p0
        slots[1] = p1
        slots[2] = p2
        queue.value = stream(0)
        if start() != 0:
            launch((p0, p1, p2), stream(0))
        frames.append(frame)
        return (x2,)

with what else is constant among its globals. It is `kgen.launch.Launcher.bind` once more, written out: loops over the
arrays would take twice as long, and calls of Python's functions a tenth of it. Whatever the driver refuses goes the
plain way, which tells what to do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any, NamedTuple

from kgen.operand import Operand, extent
from kgen.ops.libraries import Library
from kgen.step import Run, parts

ALIGNMENT = 16
"""Bytes of the widest load. Each array's place among them is part of a kind: each may be loaded in its own way."""

Arrays = tuple[Any, ...]
Again = Callable[[Arrays, Arrays], Arrays | None]
"""From inputs and outs, the results of a call that was recognised and launched, or None."""


class Call(NamedTuple):
    """A call that was carried out.

    launch         queues it: pointers of the inputs, but for numbers behind the first `given`, then of the results; a
                   stream
    inputs, outs   what the caller brought; None for an input that is missing and a result that was made
    operands       of the inputs and of all results; None for an input that is a number
    given          how many inputs the launch has pointers of
    in_place       names of the inputs that a result may be itself
    """

    launch: Run
    inputs: Arrays
    outs: Arrays
    operands: tuple[Operand | None, ...]
    given: int
    in_place: Collection[str]


class Form(NamedTuple):
    """What decides the text of a kind's function. Arrays are counted through, the inputs first.

    inputs    how many arrays are inputs, and
    given     how many of these the launch has pointers of
    roles     of each array: the place of the first that is the same (its own, for most), "new" for a result that the
              call makes, None for what is missing; "number", or "text" for one that is told by its text
    alike     the library's test of the arrays that are passed
    offsets   their places among ALIGNMENT bytes
    pairs     results that are passed, each with an array before it, and whether they may be one and the same
    pointer   what gives where an array begins, with {} for its name
    stream    what gives the stream
    device    where; None if there is but one device, else it must be the current one
    places    of the pointers that the launch takes, None for a null pointer; None if it is not one launch
    """

    inputs: int
    given: int
    roles: tuple[int | str | None, ...]
    alike: str
    offsets: tuple[int, ...]
    pairs: tuple[tuple[int, int, bool], ...]
    pointer: str
    stream: str
    device: int | None
    places: tuple[int | None, ...] | None


def written(call: Call, read: Library) -> Again:
    """The function of a call's kind."""
    inputs = len(call.inputs)
    passed: dict[int, Operand] = {}
    fresh: dict[int, Operand] = {}
    first: dict[int, int] = {}  # of the arrays that are one and the same: torch's test passes none twice
    numbers: dict[str, Any] = {}
    roles: list[int | str | None] = []
    for i, (array, operand) in enumerate(zip(call.inputs + call.outs, call.operands, strict=True)):
        if operand is not None:
            (fresh if array is None else passed)[i] = operand
            roles.append("new" if array is None else first.setdefault(id(array), i))
        elif array is None:
            roles.append(None)
        else:
            exact = isinstance(array, int) or (array == array and array != 0)  # 0.0 and -0.0 are equal, too
            roles.append("number" if exact else "text")
            numbers |= {f"kind{i}": array.__class__, f"number{i}": array if exact else repr(array)}
    alike, known = read.alike({f"x{i}": passed[i].array for i in first.values()})
    single = parts(call.launch)
    known |= numbers | (single._asdict() if single else {})
    known |= {"launch": call.launch, "stream": read.stream, "current": read.current}
    for i, x in fresh.items():
        known[f"new{i}"] = read.maker(x.shape, x.array.dtype, x.device)
    pairs = []
    for i, j in [(i, j) for i in passed if i >= inputs for j in passed if j < i]:
        known[f"low{i}_{j}"], known[f"high{i}_{j}"] = _between(passed[i], passed[j])
        itself = j < inputs and passed[j].argument in call.in_place
        pairs.append((i, j, itself and _layout(passed[i]) == _layout(passed[j])))
    offsets = tuple(x.ptr % ALIGNMENT for x in passed.values())
    device = next(iter(passed.values())).device
    terms = alike, offsets, tuple(pairs), read.pointer, read.queue.format(device)
    places = tuple(single.places) if single else None
    form = Form(inputs, call.given, tuple(roles), *terms, device=device if read.current else None, places=places)
    exec(_compiled(form), known)
    again: Again = known["again"]
    return again


@functools.lru_cache(maxsize=1024)
def _compiled(form: Form) -> CodeType:
    return compile(text(form), "<a kind of call>", "exec")


def text(form: Form) -> str:
    """The function, as Python.

    >>> terms = "alike(x0)", (0,), (), "{}.data_ptr()", "stream(0)"
    >>> form = Form(2, 2, (0, None, "new"), *terms, device=None, places=None)
    >>> print(text(form))
    def again(inputs, outs):
        try:
            (x0, x1), (x2,) = inputs, outs
        except ValueError:
            return None
        if x1 is not None or x2 is not None or not alike(x0):
            return None
        p0 = x0.data_ptr()
        if p0 % 16 != 0:
            return None
        x2 = new2()
        launch((p0, 0, x2.data_ptr()), stream(0))
        return (x2,)
    """
    x = [f"x{i}" for i in range(len(form.roles))]
    passed = [i for i, role in enumerate(form.roles) if isinstance(role, int)]
    fresh = [i for i, role in enumerate(form.roles) if role == "new"]
    read = {i: form.pointer.format(f"x{i}") for i in (*passed, *fresh)}
    taken = (*range(form.given), *range(form.inputs, len(x)))
    pointers = [read[i] if i in fresh else f"p{i}" if i in passed else "0" for i in taken]
    other = [_other(i, role) for i, role in enumerate(form.roles) if i not in passed]
    other += [f"x{i} is not x{form.roles[i]}" for i in passed if form.roles[i] != i]
    other += [] if form.device is None else [f"current() != {form.device}"]
    places = dict(zip(passed, form.offsets, strict=True))
    aligned = " | ".join(f"p{i}" for i in passed if not places[i])
    shifted = [f"{f'({aligned})' if ' ' in aligned else aligned} % {ALIGNMENT} != 0"] if aligned else []
    shifted += [f"p{i} % {ALIGNMENT} != {offset}" for i, offset in places.items() if offset]
    overlaps = [
        f"low{i}_{j} < p{i} - p{j} < high{i}_{j}" + (f" and p{i} != p{j}" if twins else "")
        for i, j, twins in form.pairs
    ]
    launch = f"launch({_tuple(pointers)}, {form.stream})"
    lines = [
        "def again(inputs, outs):",
        "    try:",  # the number of results may depend on which inputs there are
        f"        {_tuple(x[: form.inputs])}, {_tuple(x[form.inputs :])} = inputs, outs",
        "    except ValueError:",
        "        return None",
        *_where(" or ".join([*other, f"not {form.alike}"])),
        f"    {', '.join(f'p{i}' for i in passed)} = {', '.join(read[i] for i in passed)}",
        *_where(" or ".join(shifted)),
        *(line for overlap in overlaps for line in _where(overlap)),
        *(f"    x{i} = new{i}()" for i in fresh),
        *([f"    {launch}"] if form.places is None else _started(form, pointers, launch)),
        f"    return {_tuple(x[form.inputs :])}",
    ]
    return "\n".join(lines)


def _other(i: int, role: Any) -> str:
    """What holds if an argument that is no array, or none yet, is not what it was."""
    if role in ("number", "text"):
        value = f"x{i}" if role == "number" else f"repr(x{i})"
        return f"x{i}.__class__ is not kind{i} or {value} != number{i}"
    return f"x{i} is not None"


def _started(form: Form, pointers: Sequence[str], launch: str) -> list[str]:
    """Lines of a launch that is written out."""
    assert form.places is not None
    return [
        "    try:",
        "        frame = frames.pop()",
        "    except IndexError:",
        "        frame = make()",
        "    slots, queue, start = frame",
        *(f"    slots[{i}] = {0 if at is None else pointers[at]}" for i, at in enumerate(form.places)),
        f"    queue.value = {form.stream}",
        "    if start() != 0:",
        f"        {launch}",
        "    frames.append(frame)",
    ]


def _where(condition: str) -> list[str]:
    return [f"    if {condition}:", "        return None"]


def _tuple(terms: Sequence[str]) -> str:
    return f"({', '.join(terms)}{',' if len(terms) == 1 else ''})"


def _layout(operand: Operand) -> Any:
    return operand.shape, operand.strides, operand.dtype


def _between(a: Operand, b: Operand) -> tuple[int, int]:
    """Between which distances of a's pointer from b's, in bytes, a touches bytes that b spans."""
    (first, end), (other, other_end) = _span(a), _span(b)
    return other - end, other_end - first


def _span(operand: Operand) -> tuple[int, int]:
    """The bytes that an array touches, counted from its pointer."""
    low, high = extent(operand.shape, operand.strides)
    return low * operand.dtype.itemsize, high * operand.dtype.itemsize
