"""The gradients of softmax and log_softmax, from their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import as_rows, normal_axes, staged
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.options import check_real
from kgen.ops.rows_text import text_of_rows
from kgen.ops.softmax import formulas
from kgen.ops.softmax.backward_ring import plan_ring
from kgen.ops.softmax.backward_split import plan_split
from kgen.ops.softmax.backward_text import FLAGS, gradient
from kgen.registry import register
from kgen.spec import Spec

HELD = 32  # numbers of each row in a thread's registers


def _derive(spec: Spec) -> dict[str, int]:
    derived = rows.derive(spec, fetched=2)
    if not spec["looped"] and spec["PACKS"] * spec["VEC"] * spec.dtype.itemsize > 4 * HELD // 2:
        derived["RESIDENT"] = 0  # two rows leave no registers for a second block of so many threads
    return derived


def _text(spec: Spec) -> dict[str, Any]:
    return {**text_of_rows(spec, "Sum", carried=spec.dtype is F32), "gradient": gradient(spec), "divides": False}


BACKWARD = register(
    rows.RowKernel(
        name="softmax_backward",
        summary="The gradient of a softmax along rows that stay in registers.",
        formula=formulas.backward,
        axes=rows.AXES,
        flags=(*FLAGS, *rows.FLAGS),
        derive=_derive,
        text=_text,
        check=lambda spec: rows.check(spec, HELD),
        grid="a row for each block, for each cluster of blocks, or for LANES neighbouring threads",
        origin="the chain rule",
        defaults=("softmax_backward_t128_n4_v4_f32",),
    )
)


def softmax_backward(
    dy: Any,
    y: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    scale: float = 1,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The gradient dx of y = softmax(scale x), given dy: scale y (dy - sum(dy y)), summed along the axis.

    Elements that a mask or causality left out have y = 0 and so the gradient 0; neither has to be passed.

    Parameters
    ----------
    dy, y : array
        The gradient with respect to the result, and the result; of the same shape and dtype, float32, float16 or
        bfloat16.
    axis, scale, stream
        As in `softmax`.
    out : array, optional
        Where to write dx; it may be dy or y.

    Returns
    -------
    array of the shape, dtype and kind of dy. The same from call to call, bit for bit.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, CaptureError
        As `softmax`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.softmax_backward(np.array([1, 0], "f"), np.array([0.5, 0.5], "f"))
    array([ 0.25, -0.25], dtype=float32)
    """
    result: Any = _softmax_backward.call((dy, y), (out,), (axis, scale), stream)[0]
    return result


def log_softmax_backward(
    dy: Any,
    y: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    scale: float = 1,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The gradient dx of y = log_softmax(scale x), given dy: scale (dy - exp(y) sum(dy)), summed along the axis.

    Parameters, result and errors are those of `softmax_backward`.

    >>> import numpy as np, kgen
    >>> with kgen.backend("cpu"):
    ...     kgen.log_softmax_backward(np.array([1, 0], "f"), np.log(np.array([0.5, 0.5], "f")))
    array([ 0.5, -0.5], dtype=float32)
    """
    result: Any = _log_softmax_backward.call((dy, y), (out,), (axis, scale), stream)[0]
    return result


def _results(op: str, given: Sequence[Operand], axis: object, scale: float) -> Results:
    dy, y = given
    normal_axes(op, axis, len(dy.shape))
    check_real(op, scale=scale)
    if y.shape != dy.shape:
        raise ValueError(f"{op}: y has shape {y.shape} and dy {dy.shape}; they must have one shape")
    return [(dy.shape, dy.dtype)]


def _prepare(op: str, given: Sequence[Operand], results: Sequence[Operand], axis: object, scale: float) -> Plan:
    operands = (*given, *results)
    axes = normal_axes(op, axis, len(operands[0].shape))

    def build(operands: Sequence[Operand | None], axes: tuple[int, ...]) -> Plan:
        seen = [(operand, found) for operand in operands if operand and (found := as_rows(operand, axes))]
        read, (dx, _) = seen[0][1], seen[-1]
        pitched = [rows_cut.Pitched(o, r.pitch, o.dtype.itemsize) for o, r in seen]
        taken = rows_cut.packs(pitched, read.columns, ragged=True)
        own = {"log": op.startswith("log"), "scaled": scale != 1}
        floats = (float(scale),) if scale != 1 else ()
        pitches = tuple(found.pitch for _, found in seen)
        in_turn = plan_ring(read, pitches, taken, own, floats, dx)
        if in_turn is not None:
            return in_turn
        cut = rows_cut.cut(read.rows, read.columns, taken, HELD, dx.device, looped=2)
        if cut is None:
            return plan_split(read, pitched, own, floats, dx)
        spec = BACKWARD.spec(**cut.values(), **own, **taken.flags(), dtype=dx.dtype)
        step = Step(spec, rows.grid(spec, read.rows, dx.device), 3, (read.rows, read.columns), pitches, floats)
        why = f"{read.rows} rows of {read.columns} for {cut}"
        return Plan(bind([step], dx.device)[0], (str(step),), why)

    return staged(operands, 2, axes, [as_rows(operand, axes) is not None for operand in operands], build)


def _operator(name: str) -> Operator:
    return Operator(name, ("dy", "y"), ("axis", "scale"), _results, _prepare, rows=False, in_place=True)


_softmax_backward = _operator("softmax_backward")
_log_softmax_backward = _operator("log_softmax_backward")
