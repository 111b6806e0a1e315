"""What is drawn for a call: choices, numbers, and shapes in which rows have awkward widths."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from kgen.dtypes import BF16, F16, F32, DType

T = TypeVar("T")
Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]

DTYPES = (F32, F32, F16, BF16, BF16)
"""The element types of most operators, as often as they are drawn."""


class Draw:
    """Draws from one generator; no array is of more than `most` numbers."""

    def __init__(self, rng: np.random.Generator, most: int) -> None:
        self.rng = rng
        self.most = most

    def pick(self, *options: T) -> T:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def dtype(self) -> DType:
        """Of those that most operators take."""
        return self.pick(*DTYPES)

    def normal(self, shape: Shape) -> Array:
        """float32 numbers of mean 0 and variance 1."""
        return self.rng.standard_normal(shape, np.float32)

    def uniform(self, shape: Shape) -> Array:
        """float32 numbers in [0, 1)."""
        return self.rng.random(shape, np.float32)

    def special(self, values: Array) -> Array:
        """The same; now and then some are infinite or NaN, in few places or in many."""
        if self.chance(0.9):
            return values
        result = values.copy()
        for what in (np.nan, np.inf, -np.inf):
            if self.chance(0.6):
                result[self.uniform(values.shape) < self.pick(2 / max(1, values.size), 0.2)] = what
        return result

    def width(self) -> int:
        """Of a row: a few numbers, an odd number, around a power of two, or so many that several blocks share it."""
        kind = self.rng.random()
        if kind < 0.35:
            return self.between(1, 70)
        if kind < 0.7:
            return self.between(65, 3000)
        if kind < 0.9:
            return (1 << self.between(7, 16)) + self.pick(0, 0, -1, 1, 8)
        return self.between(3000, 150_000)

    def shape(self, axes: int | None = None) -> Shape:
        """So many axes, by default up to four. The last one is usually the one that was drawn as a width."""
        axes = axes or self.pick(1, 2, 2, 2, 3, 3, 4)
        room = max(1, self.most // self.pick(1, 1, 4, 30))
        sizes = [min(self.width(), room)]
        while len(sizes) < axes:
            room //= sizes[0]
            size = self.pick(1, 2, 3, 5, 8, 17, 33, 64, 100, 300, 1000, self.between(1, 4000))
            sizes.insert(0, max(1, min(size, room)))
        return self.shuffled(sizes) if self.chance(0.25) else tuple(sizes)

    def broadcasts_to(self, shape: Shape) -> Shape:
        """The same along some axes, now and then without the first ones."""
        sizes = tuple(size if self.chance(0.8) else 1 for size in shape)
        return sizes[self.pick(0, 0, len(sizes) - 1) :]

    def shuffled(self, items: list[int] | range) -> tuple[int, ...]:
        """The same in any order."""
        return tuple(int(item) for item in self.rng.permutation(items))

    def axis(self, axes: int) -> int | tuple[int, ...] | None:
        """Along which to sum and the like: the last one half of the time, any, several, or all."""
        kind = self.rng.random()
        if kind < 0.5:
            return -1
        if kind < 0.65:
            return self.between(-axes, axes - 1)
        if kind < 0.8:
            return None
        return self.shuffled(range(axes))[: self.between(1, axes)]
