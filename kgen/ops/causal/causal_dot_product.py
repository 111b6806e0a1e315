"""Causal linear attention without a normalizer: the causal dot product and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kgen.fork import side_by_side
from kgen.operand import Operand, aligned
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.causal.algorithms import plan
from kgen.ops.causal.scan import WIDEST, Scan
from kgen.ops.layout import AXES, check_axes, expect, outer_strides

SIDE_BY_SIDE_FROM = 1024
"""Time steps from which the scans of a gradient run beside one another; before, queueing them so would take longer."""


def causal_dot_product(
    q: Any,
    k: Any,
    v: Any,
    *,
    reverse: bool = False,
    layout: str = "bhtd",
    algorithm: str | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """o[t] = sum over s <= t of (q[t] . k[s]) v[s], for every batch and head.

    Parameters
    ----------
    q, k : array [B, H, T, E]
        Queries and keys; float32, float16 or bfloat16, of any strides. CuPy, torch or JAX arrays, or anything with
        `__cuda_array_interface__` or DLPack; NumPy arrays are copied to the GPU and back.
    v : array [B, H, T, M]
        Values, of the same dtype.
    reverse : bool
        Sum over s >= t instead.
    layout : "bhtd" or "bthd"
        The order of the axes, also of the result: "bthd" is [B, T, H, D].
    algorithm : str, optional
        A kernel (`lmha`, `lmha_low_occupancy`, `lmha_chunk`) or the name of one specialization; by default the fastest,
        which `explain` names.
    out : array, optional
        Where to write the result; must not overlap an input.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array [B, H, T, M] of the inputs' kind and dtype. Sums are accumulated in float32 or better.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted.
    SpecError
        A ValueError, for an algorithm that does not exist or cannot compute this problem.
    CaptureError
        At the first call of its kind, if that is made during a CUDA graph capture.

    Notes
    -----
    Katharopoulos et al., "Transformers are RNNs", 2020, equation 12, without the feature map and the normalizer.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> q = k = np.ones((1, 1, 3, 2), "f")
    >>> v = np.array([[[[1], [10], [100]]]], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.causal_dot_product(q, k, v).ravel()
    array([  2.,  22., 222.], dtype=float32)
    """
    result: Any = _forward.call((q, k, v), (out,), (reverse, layout, algorithm), stream)[0]
    return result


def causal_dot_product_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    reverse: bool = False,
    layout: str = "bhtd",
    algorithm: str | None = None,
    out: tuple[Any, Any, Any] | None = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients dq, dk, dv of sum(do * causal_dot_product(q, k, v, reverse=reverse)).

    Parameters
    ----------
    do : array [B, H, T, M]
        The gradient with respect to the result, of the inputs' dtype. The other parameters are those of
        `causal_dot_product`; `out` is a tuple (dq, dk, dv), each an array or None.

    Returns
    -------
    dq, dk [B, H, T, E] and dv [B, H, T, M], the same from call to call, bit for bit. Raises what `causal_dot_product`
    raises.

    Notes
    -----
    Each is a causal scan with the roles exchanged: dq[t] sums (do[t] . v[s]) k[s] over s <= t, dk[t] sums
    (v[t] . do[s]) q[s] and dv[t] sums (k[t] . q[s]) do[s] over s >= t.
    """
    if out is not None and not isinstance(out, tuple | list):
        raise TypeError(f"causal_dot_product_backward: out is a {type(out).__name__}; it takes a tuple (dq, dk, dv)")
    if out is not None and len(out) != 3:
        raise ValueError(
            f"causal_dot_product_backward: out has {len(out)} entries; it takes an array or None for each of dq, dk, dv"
        )
    outs = (None, None, None) if out is None else tuple(out)
    dq, dk, dv = _backward.call((do, q, k, v), outs, (reverse, layout, algorithm), stream)
    return dq, dk, dv


def _forward_results(op: str, given: Sequence[Operand], reverse: bool, layout: str, algorithm: str | None) -> Results:
    q, k, v = given
    check_axes(op, given, layout)
    expect(op, given, k, q.shape)
    expect(op, given, v, (*q.shape[:3], v.shape[3]))
    return [(v.shape, v.dtype)]


def _backward_results(op: str, given: Sequence[Operand], reverse: bool, layout: str, algorithm: str | None) -> Results:
    do, q, k, v = given
    _forward_results(op, (q, k, v), reverse, layout, algorithm)
    check_axes(op, given, layout)
    expect(op, given, do, v.shape)
    return [(x.shape, x.dtype) for x in (q, k, v)]


def _prepare_forward(
    op: str, given: Sequence[Operand], results: Sequence[Operand], reverse: bool, layout: str, algorithm: str | None
) -> Plan:
    q, k, v = given
    return _planned([(q, k, v, results[0], reverse)], (*given, *results), layout, algorithm)


def _prepare_backward(
    op: str, given: Sequence[Operand], results: Sequence[Operand], reverse: bool, layout: str, algorithm: str | None
) -> Plan:
    do, q, k, v = given
    dq, dk, dv = results
    scans = [(do, v, k, dq, reverse), (v, do, q, dk, not reverse), (k, q, do, dv, not reverse)]
    return _planned(scans, (*given, *results), layout, algorithm)


def _planned(
    scans: Sequence[tuple[Operand, Operand, Operand, Operand, bool]],
    operands: Sequence[Operand],
    layout: str,
    algorithm: str | None,
) -> Plan:
    """Scans (q, k, v, o, reverse) that do not depend on one another."""
    plans: list[Plan] = []
    work: list[tuple[Callable[..., None], int, int, int, int]] = []
    for q, k, v, o, reverse in scans:
        at_q, at_k, at_v, at_o = (next(i for i, operand in enumerate(operands) if operand is x) for x in (q, k, v, o))
        plans.append(plan(_describe(q, k, v, o, reverse, layout), algorithm, o.device))
        work.append((plans[-1].launch, at_q, at_k, at_v, at_o))

    if len(plans) == 1:
        return plans[0]  # the pointers come in the order that a scan takes them in

    def in_turn(pointers: Sequence[int], stream: int) -> None:
        for run, q, k, v, o in work:
            run((pointers[q], pointers[k], pointers[v], pointers[o]), stream)

    def at_once(pointers: Sequence[int], stream: int) -> None:
        launches = [partial(run, [pointers[at] for at in places]) for run, *places in work]
        side_by_side(launches, device, stream)

    device, length = operands[0].device, operands[0].shape[AXES[layout][2]]
    # Segments share out their scratch memory in the order of one stream, and fill the device by themselves.
    beside = length >= SIDE_BY_SIDE_FROM and all(len(made.steps) == 1 for made in plans)
    steps = tuple(step for made in plans for step in made.steps)
    why = f"{plans[0].why}{'; the scans run side by side' if beside else ''}"
    return Plan(at_once if beside else in_turn, steps, why)


def _describe(q: Operand, k: Operand, v: Operand, o: Operand, reverse: bool, layout: str) -> Scan:
    batch, head, time = AXES[layout]
    return Scan(
        batch=q.shape[batch],
        heads=q.shape[head],
        length=q.shape[time],
        e=q.shape[3],
        m=v.shape[3],
        dtype=q.dtype,
        q=outer_strides(q, layout),
        k=outer_strides(k, layout),
        v=outer_strides(v, layout),
        o=outer_strides(o, layout),
        align=next(n for n in (WIDEST, 8, 4, 2) if all(aligned(x, n) for x in (q, k, v, o))),
        reverse=reverse,
    )


_OPTIONS = ("reverse", "layout", "algorithm")
_forward = Operator("causal_dot_product", ("q", "k", "v"), _OPTIONS, _forward_results, _prepare_forward)
_backward = Operator(
    "causal_dot_product_backward",
    ("do", "q", "k", "v"),
    _OPTIONS,
    _backward_results,
    _prepare_backward,
    outs=("out[0]", "out[1]", "out[2]"),
)
