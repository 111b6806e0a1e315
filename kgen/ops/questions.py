"""What is asked about a call without making it: which kernels it takes and why, how much memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kgen.ops.calls import OPERATORS, Operator


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """How a call would be carried out: which kernels, on which grids, and why. Nothing is computed or compiled.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     print(kgen.explain(kgen.sum, np.ones((4, 1000), "f"), axis=1))
    sum_rows_g128_v4_i4_o32_f32 on 4 blocks
    because 4 results of 1000 elements each

    Raises TypeError for anything but an operator of kgen's, and whatever the call itself would raise.
    """
    own: Callable[..., str] | None = getattr(function, "explain", None)
    if own is not None:  # a function that is an object, as elementwise ones are
        return own(*args, **kwargs)
    shared, inputs, options, out = _called(function, args, kwargs)
    return shared.explain(inputs, options, out)


def workspace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """How many bytes of temporary device memory a call needs besides its inputs and results. Nothing is computed.

    It depends only on shapes, strides and options, not on the contents of the arrays. During a CUDA graph capture the
    memory is kept, with the graph. Copies of NumPy arrays on the GPU are not counted, nor is what blocks that
    synchronise keep for later calls (256 KiB or more per stream). Raises what `explain` raises.

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
