"""An array as a kernel sees it, and what can be told from its addresses alone: alignment, extent, overlap.

Nothing here touches the memory, or needs a GPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kgen.dtypes import DType

Kind = Literal["cupy", "torch", "jax", "dlpack", "cai", "numpy"]
Ints = tuple[int, ...]

# Deciding overlap exactly is NP-hard in the number of axes; real arrays take a handful of steps. Beyond this many the
# answer is "perhaps", which counts as yes.
OVERLAP_STEPS = 10_000


INT_MAX = 2**31 - 1
"""The most that a kernel counts in an int."""


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


class Operand:
    """An array as a kernel sees it. Strides are in elements; `ptr` may be 0 where the array is empty."""

    __slots__ = (
        "argument",  # what the caller calls it, for messages
        "array",  # what the caller holds, or is to get; None for a result that is yet to be converted
        "device",
        "dtype",
        "home",  # the operand that a staged result must be copied to, or None
        "kind",
        "owner",  # keeps the memory at `ptr` alive
        "ptr",
        "readonly",
        "ready",  # the stream on which the contents become ready, or None where the caller's own stream does
        "shape",
        "strides",
    )

    def __init__(
        self,
        ptr: int,
        shape: Ints,
        strides: Ints,
        dtype: DType,
        device: int,
        kind: Kind,
        argument: str,
        array: Any,
        owner: Any,
        readonly: bool = False,
        ready: int | None = None,
        home: Operand | None = None,
    ) -> None:
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.kind = kind
        self.argument = argument
        self.array = array
        self.owner = owner
        self.readonly = readonly
        self.ready = ready
        self.home = home

    def view(self, shape: Ints, strides: Ints, ptr: int | None = None) -> Operand:
        """The same elements, or others like them at `ptr`, in another layout: for plans, and keeping nothing alive."""
        at = self.ptr if ptr is None else ptr
        return Operand(at, shape, strides, self.dtype, self.device, self.kind, self.argument, None, None)

    def __repr__(self) -> str:
        place = "host" if self.device < 0 else f"cuda:{self.device}"
        return f"<{self.argument}: {self.kind} {self.dtype}{list(self.shape)} strides {list(self.strides)} on {place}>"


def common_kind(op: str, operands: Sequence[Operand], *, mixed_dtypes: bool = False) -> Kind:
    """The kind of array to give back, the first operand's; raises where the operands cannot meet in one kernel."""
    first = operands[0]
    for other in operands:
        if other.kind != first.kind:
            _check_mixture(op, first, other)
        if other.device != first.device:
            raise ValueError(
                f"{op}: {first.argument} is on cuda:{first.device} and {other.argument} on cuda:{other.device}; "
                "all arrays must be on one device"
            )
        if other.dtype is not first.dtype and not mixed_dtypes:
            raise TypeError(
                f"{op}: {first.argument} is {first.dtype.numpy_name} and {other.argument} {other.dtype.numpy_name}; "
                "all arrays must have one dtype"
            )
    return first.kind


def _check_mixture(op: str, a: Operand, b: Operand) -> None:
    """GPU arrays of different libraries may meet, but for JAX: it must be told of every use of its memory."""
    for alone, name in (("numpy", "a NumPy array"), ("jax", "a JAX array")):
        if alone in (a.kind, b.kind):
            odd, other = (a, b) if a.kind == alone else (b, a)
            raise TypeError(
                f"{op}: {odd.argument} is {name} and {other.argument} is not; convert one, "
                "so that the result is of the kind you expect"
            )


def aligned(operand: Operand, nbytes: int) -> bool:
    """Whether every row starts at a multiple of `nbytes`, so that a kernel may load rows in words that wide."""
    return not (operand.ptr % nbytes or pitch(operand.shape, operand.strides) * operand.dtype.itemsize % nbytes)


def overlaps(a: Operand, b: Operand) -> bool:
    """Whether the two share a byte of the caller's memory; exact, but for layouts too tangled to decide."""
    if a.kind != "numpy":
        a_low, a_high = _byte_range(a)
        b_low, b_high = _byte_range(b)
        if a_low >= b_high or b_low >= a_high:
            return False
    try:
        # NumPy's type stub knows only the two special values of max_work.
        return np.shares_memory(_shadow(a), _shadow(b), max_work=OVERLAP_STEPS)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def same_elements(a: Operand, b: Operand) -> bool:
    """Whether element i of the one is element i of the other, for every i, in the caller's memory."""
    return (a.shape, a.dtype, *_place(a)) == (b.shape, b.dtype, *_place(b))


def _place(operand: Operand) -> tuple[int, Ints]:
    if operand.kind == "numpy" and operand.array is not None:  # `ptr` may be that of a copy
        return operand.array.__array_interface__["data"][0], operand.array.strides
    return operand.ptr, tuple(stride * operand.dtype.itemsize for stride in operand.strides)


def _byte_range(operand: Operand) -> tuple[int, int]:
    low, high = extent(operand.shape, operand.strides)
    itemsize = operand.dtype.itemsize
    return operand.ptr + low * itemsize, operand.ptr + high * itemsize


def _shadow(operand: Operand) -> np.ndarray[Any, Any]:
    """A NumPy array with the addresses of the caller's, for NumPy to reason about and nobody to read."""
    if operand.kind == "numpy":
        array: np.ndarray[Any, Any] = operand.array
        return array
    return np.asarray(_Addresses(operand))


class _Addresses:
    """What `numpy.asarray` needs to make an array, without an array."""

    def __init__(self, operand: Operand) -> None:
        itemsize = operand.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "data": (operand.ptr, True),
            "shape": operand.shape,
            "strides": tuple(stride * itemsize for stride in operand.strides),
            "typestr": f"|V{itemsize}",
        }


# Layouts recur, so what follows is answered from a cache.


@functools.lru_cache(maxsize=4096)
def elements(byte_strides: Ints, itemsize: int) -> Ints:
    """Strides in elements; ValueError where one is not a whole number of them."""
    if any(stride % itemsize for stride in byte_strides):
        raise ValueError(f"strides of {byte_strides} bytes are not multiples of the element size, {itemsize}")
    return tuple(stride // itemsize for stride in byte_strides)


@functools.lru_cache(maxsize=4096)
def contiguous_strides(shape: Ints) -> Ints:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@functools.lru_cache(maxsize=4096)
def extent(shape: Ints, strides: Ints) -> tuple[int, int]:
    """The half-open range of element offsets that an array touches, around its first element."""
    if 0 in shape:
        return 0, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1


def joined(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Ints, ...]:
    """The fewest axes that run through the same elements in the same order, for every operand alike.

    Returns their sizes and each operand's strides. Axes of size 1 vanish; neighbours become one where all operands
    step evenly from the end of a run of the inner one to the next.

    >>> joined((2, 3, 1, 4), (24, 8, 0, 1))
    ((6, 4), (8, 1))
    """
    axes: list[Ints] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(outer == inner * size for outer, inner in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, *steps)
        else:
            axes.append((size, *steps))
    return tuple(zip(*axes, strict=True)) if axes else ((),) * (1 + len(strides))


@functools.lru_cache(maxsize=4096)
def pitch(shape: Ints, strides: Ints) -> int:
    """The greatest number of elements of which every distance between two rows is a multiple; 0 for a single row."""
    return math.gcd(*(stride for size, stride in zip(shape[:-1], strides) if size > 1))


@functools.lru_cache(maxsize=4096)
def one_to_one(shape: Ints, strides: Ints) -> bool:
    """Whether each axis steps over all that the finer ones cover, so that no two elements share an address.

    True for whatever slicing, transposing and reshaping make; False for broadcasts, sliding windows and, to be safe,
    the few hand-made layouts that interleave axes without a clash.
    """
    if 0 in shape:
        return True
    covered = 0
    for step, size in sorted((abs(stride), size) for size, stride in zip(shape, strides) if size > 1):
        if step <= covered:
            return False
        covered += (size - 1) * step
    return True
