"""A layer's parameters, arrays of one library and of the shapes that the layer names, and products with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

LIBRARIES = ("numpy", "cupy", "torch")

Array = Any
Parameters = Mapping[str, Array]


def library(layer: str, parameters: Parameters) -> Any:
    """The module that made all of the arrays; raises TypeError for another, or for several."""
    found = {type(array).__module__.partition(".")[0]: name for name, array in parameters.items()}
    if len(found) != 1 or not found.keys() <= set(LIBRARIES):
        came = ", ".join(f"{name} of {module}" for module, name in sorted(found.items()))
        raise TypeError(f"{layer}: parameters are arrays of one library, numpy, cupy or torch; there are {came}")
    return import_module(next(iter(found)))


def check_names(layer: str, parameters: Parameters, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Raise TypeError for parameters that are missing or unknown."""
    for name in needed:
        if name not in parameters:
            raise TypeError(f"{layer}: the parameter {name!r} is missing; it takes {', '.join((*needed, *optional))}")
    for name in parameters:
        if name not in (*needed, *optional):
            raise TypeError(f"{layer}: there is no parameter {name!r}; it takes {', '.join((*needed, *optional))}")


def check_shape(layer: str, name: str, array: Array, *shape: int) -> None:
    """Raise ValueError for an array of another shape, TypeError for what has none; -1 stands for any size."""
    if not hasattr(array, "shape"):
        raise TypeError(f"{layer}: {name} is a {type(array).__name__}; it takes an array")
    came = tuple(array.shape)
    if len(came) != len(shape) or any(want not in (-1, have) for want, have in zip(shape, came, strict=True)):
        wanted = ", ".join("any" if size == -1 else str(size) for size in shape)
        raise ValueError(f"{layer}: {name} has shape {came}; it takes ({wanted})")


def multiple(layer: str, name: str, size: int, of: int) -> int:
    """How many times `of` goes into `size`, which it must."""
    if of < 1 or size < of or size % of:
        raise ValueError(f"{layer}: {name} has {size} columns; it takes a multiple of {of}")
    return size // of


def product(x: Array, weight: Array) -> Array:
    """x [..., N] times weight [N, M], in the type of x.

    As two matrices: CuPy 14 does not multiply batches of bfloat16, and NumPy gives float32 for bfloat16.
    """
    *lead, rows = x.shape
    made = x.reshape(math.prod(lead), rows) @ weight
    made = made if made.dtype == x.dtype else made.astype(x.dtype)
    return made.reshape(*lead, weight.shape[1])


def by_head(x: Array, width: int) -> Array:
    """[..., H width] as [..., H, width]; the heads are counted, since of an empty array no library tells them."""
    *lead, columns = x.shape
    return x.reshape(*lead, columns // width, width)
