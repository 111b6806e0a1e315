"""One token of linear attention with gates, for decoding: each state is read once, updated in place, read by the query.

States and sums of keys are results that exist before the call, so their shapes travel as options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kgen.backend import HOST
from kgen.device import multiprocessors
from kgen.dtypes import F32, FLOATS, I32
from kgen.launch import Run, Step, bind
from kgen.operand import Operand, aligned
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.composed import Call, calling
from kgen.ops.gated import features as maps
from kgen.ops.gated.checks import Form, check_factors
from kgen.ops.gated.kernels import WIDEST
from kgen.ops.gated.mapped import mapped
from kgen.ops.gated.step_kernels import steps_with
from kgen.scratch import scratch

_OPTIONS = ("scale", "feature_map", "epsilon", "state_shape", "normal_shape")
Shape = tuple[int, ...]


def step_operator(form: Form, function: Callable[..., Any]) -> Operator:
    """The operator behind a form's public step, which calls `step`."""
    name = function.__name__
    arguments = (*form.arrays, "indices")
    operator = Operator(
        name,
        arguments,
        _OPTIONS,
        partial(_results, form),
        partial(_prepare, form),
        takes={argument: (I32,) if argument == "indices" else FLOATS for argument in arguments},
        optional=("indices",),
        mixed=True,
        rows=False,
        outs=("out", "state", "normalizer"),
        examine=partial(_examine, form),
    )

    def calls(*args: Any, **kwargs: Any) -> list[Call]:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        options = _options(name, **{x: given[x] for x in _FROM_CALLER if x in given})
        return [Call(operator, tuple(given[x] for x in arguments), options)]

    calling(calls)(function)  # kgen.explain and kgen.workspace cannot tell: not all options are parameters
    return operator


_FROM_CALLER = ("scale", "feature_map", "epsilon", "state", "normalizer")


def step(
    operator: Operator,
    arrays: tuple[Any, ...],
    state: Any,
    scale: Any,
    out: Any,
    stream: Any,
    feature_map: Any = None,
    normalizer: Any = None,
    epsilon: float = 0.0,
) -> Any:
    """Call it: o, with the states updated, and the sums of keys, where there are any."""
    options = _options(operator.name, scale, state, feature_map, normalizer, epsilon)
    outs = (out, state) if normalizer is None else (out, state, normalizer)
    return operator(arrays, outs, options, stream)[0]


def _options(
    op: str, scale: Any, state: Any, feature_map: Any = None, normalizer: Any = None, epsilon: float = 0.0
) -> tuple[Any, ...]:
    _check_float(op, "state", state, "[N, H, K, V]")
    if normalizer is None:
        return scale, feature_map, 0.0, tuple(state.shape), None
    _check_float(op, "normalizer", normalizer, "[N, H, K]")
    return scale, feature_map, epsilon, tuple(state.shape), tuple(normalizer.shape)


def _check_float(op: str, argument: str, x: Any, axes: str) -> None:
    dtype = getattr(x, "dtype", None)
    if dtype != "float32" and not str(dtype).endswith("float32"):
        what = type(x).__name__ if dtype is None else str(dtype)
        raise TypeError(f"{op}: {argument} is {what}; it takes an array {axes} of float32")


def _split(form: Form, given: Sequence[Operand | None]) -> list[Operand | None]:
    """q, k, v, g, u, indices."""
    q, k, v, *rest, indices = given
    g = rest.pop(0) if form.gate else None
    u = rest.pop(0) if form.bonus else None
    return [q, k, v, g, u, indices]


def _examine(form: Form, op: str, given: Sequence[Operand | None], *options: Any) -> None:
    from kgen.ops.gated import examine

    *_, g, _, indices = _split(form, given)
    if g:
        examine.gates(op, g)
    if indices:
        examine.slots(op, indices, options[_OPTIONS.index("state_shape")][0])


def _results(
    form: Form,
    op: str,
    given: Sequence[Operand | None],
    scale: Any,
    feature_map: Any,
    epsilon: float,
    shape: Shape,
    normal: Shape | None,
) -> Results:
    q, k, v, g, u, indices = _split(form, given)
    assert q and k and v
    if q.kind == "numpy" and q.device != HOST:
        raise TypeError(f"{op}: {q.argument} is a NumPy array; states on the host cannot be updated in place on a GPU")
    maps.check(op, feature_map)
    check_factors(op, scale, epsilon)
    if len(shape) != 4 or 0 in shape[1:] or max(shape[2:]) > WIDEST:
        raise ValueError(
            f"{op}: state has shape {shape}; it takes [N, H, K, V] of at least one and at most {WIDEST} features"
        )
    slots, heads, features, values = shape
    batch = q.shape[0] if q.shape else 0
    for x, wanted in ((q, (features,)), (k, (features,)), (v, (values,)), (g, (features,)[: form.gate - 1])):
        if x is None:
            continue
        own = x.shape[1] if len(x.shape) > 1 else 0
        if x.shape != (batch, own, *wanted) or own == 0 or heads % own:
            raise ValueError(
                f"{op}: {x.argument} has shape {x.shape}; with state {shape} it takes {(batch, heads, *wanted)}, "
                "or a divisor of the heads"
            )
    for x in (k, v, g, u):
        types = (q.dtype,) if x in (k, v) else (q.dtype, F32)
        if x and x.dtype not in types:
            taken = " or ".join(dict.fromkeys(t.numpy_name for t in types))
            raise TypeError(
                f"{op}: {x.argument} is {x.dtype.numpy_name} and {q.argument} {q.dtype.numpy_name}; it takes {taken}"
            )
    if u and u.shape != (heads, features):
        raise ValueError(f"{op}: u has shape {u.shape}; with state {shape} it takes {(heads, features)}")
    if indices and indices.shape != (batch,):
        raise ValueError(f"{op}: indices has shape {indices.shape}; it takes {(batch,)}, a slot for each sequence")
    if not indices and slots != batch:
        raise ValueError(f"{op}: state has shape {shape}; without indices it takes {batch} states")
    if normal is not None and normal != shape[:3]:
        raise ValueError(f"{op}: normalizer has shape {normal}; with state {shape} it takes {shape[:3]}")
    return [((batch, heads, values), q.dtype), (shape, F32), *([(normal, F32)] if normal else [])]


def _prepare(
    form: Form,
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    scale: float | None,
    feature_map: str | None,
    epsilon: float,
    shape: Shape,
    normal: Shape | None,
) -> Plan:
    q, k, v, g, u, indices = _split(form, given)
    o, state = results[:2]
    assert q and k and v
    slots, heads, features, values = shape
    batch, sms = q.shape[0], multiprocessors(q.device)
    if not batch:
        return Plan(lambda pointers, stream: None, (), "there is no token")
    # The widest tiles that give every multiprocessor two blocks; narrow ones where there are few states.
    tiles = [width for width in (128, 64, 32) if width == 32 or width // 2 < values]
    width = next((w for w in tiles if batch * heads * -(-values // w) >= 2 * sms), tiles[-1])
    halves = q.dtype is not F32
    kernel, normal_kernel = steps_with(mapped(feature_map, None))
    spec = kernel.spec(
        COLUMNS=width,
        ROOM=next(room for room in (64, 128, 256, 512) if room >= features),
        GATE=form.gate,
        FEATURE=maps.number(feature_map),
        bonus=form.bonus,
        normal=normal is not None,
        indexed=indices is not None,
        packed=state.strides[3] == 1 and values % 4 == 0 and aligned(state, 16),
        gfloat=halves and g is not None and g.dtype is F32,
        ufloat=halves and u is not None and u.dtype is F32,
        dtype=q.dtype,
    )
    rows = [x for x in (q, k, v, g) if x]
    ints = (heads, features, values, slots, *(heads // x.shape[1] for x in rows))
    longs = [stride for x in (*rows, u, indices, o, state) if x for stride in x.strides]
    factor = features**-0.5 if scale is None else float(scale)
    launch = Step(
        spec,
        batch * heads * -(-values // width),
        len(rows) + bool(u) + bool(indices) + bool(normal) + 2,
        ints,
        tuple(longs),
        (factor,),
    )
    why = f"{batch} tokens of {heads} heads" + (f", states of a pool of {slots}" if indices else "")
    if normal is None:
        run = bind([launch], q.device)[0]
        return Plan(run if indices else _without_indices(run), (str(launch),), why)
    first = Step(
        normal_kernel.spec(FEATURE=maps.number(feature_map), indexed=indices is not None, dtype=q.dtype),
        batch * heads,
        4 + bool(indices),
        (heads, features, slots, heads // q.shape[1], heads // k.shape[1]),
        tuple(stride for x in (q, k, indices, results[2]) if x for stride in x.strides),
        (factor, float(epsilon)),
    )
    divide, run = bind([first, launch], q.device)

    def normalized(pointers: Sequence[int], stream: int) -> None:
        at_q, at_k, at_v, at_indices, at_o, at_state, at_normal = pointers
        memory = scratch(batch * heads * F32.itemsize, q.device, stream)
        chosen = (at_indices,) if indices else ()
        divide((at_q, at_k, *chosen, at_normal, memory.ptr), stream)
        run((at_q, at_k, at_v, *chosen, memory.ptr, at_o, at_state), stream)

    return Plan(normalized, (str(first), str(launch)), why)


def _without_indices(run: Run) -> Run:
    def launch(pointers: Sequence[int], stream: int) -> None:
        *inputs, _, at_o, at_state = pointers
        run((*inputs, at_o, at_state), stream)

    return launch
