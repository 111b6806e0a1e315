"""What is asked about a call without making it: which kernels it takes and why, how much memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kgen.ops.calls import OPERATORS, Operator


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """How a call would be carried out: the kernels and their grids, and why those. Nothing is computed or compiled.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     print(kgen.explain(kgen.sum, np.ones((4, 1000), "f"), axis=1))
    sum_rows_g128_v4_i4_o32_f32 on 4 blocks
    because 4 results of 1000 elements each

    Raises TypeError for what is no operator of kgen's, and what the call would.
    """
    own: Callable[..., str] | None = getattr(function, "explain", None)
    if own is not None:  # a function that is an object, as elementwise ones are
        return own(*args, **kwargs)
    shared, inputs, options, out = _called(function, args, kwargs)
    return shared.explain(inputs, options, out)


def workspace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """How many bytes of device memory a call takes beside its inputs and results, and gives back. Nothing is computed.

    It depends on shapes, strides and options alone, not on what the arrays hold. A call in a CUDA graph's capture keeps
    them, with the graph. Not counted are copies of NumPy arrays on their way to the GPU, and what blocks that meet keep
    for the next call, 256 KiB and more for each stream. Raises as `explain`.

    >>> import numpy as np, kgen
    >>> x = np.ones((1, 2, 64, 32), "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.workspace(kgen.gla, x, x, x, -x), kgen.workspace(kgen.gla_backward, x, x, x, x, -x)
    (0, 16640)
    """
    own: Callable[..., int] | None = getattr(function, "workspace", None)
    if own is not None:
        return own(*args, **kwargs)
    shared, inputs, options, _ = _called(function, args, kwargs)
    return shared.workspace(inputs, options)


def _called(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Operator, tuple[Any, ...], tuple[Any, ...], Any]:
    """The operator behind a public function, what it would be called with, and where its result would go."""
    name = getattr(function, "__name__", "")
    shared = OPERATORS.get(name)
    if shared is None or not function.__module__.startswith("kgen."):
        raise TypeError(f"{function!r} is no operator of kgen's")
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    bound.apply_defaults()
    given = bound.arguments
    if missing := [name for name in (*shared.arguments, *shared.options) if name not in given]:
        raise TypeError(f"{name}: a call has more than one part, and {missing[0]} is no parameter of it")
    inputs, options = (tuple(given[name] for name in names) for names in (shared.arguments, shared.options))
    return shared, inputs, options, given.get("out")
