"""One token of linear attention with gates, for decoding: each state is read once, updated in place, read by the query.

The states are a result that exists before the call, so their shape travels as an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kgen.backend import HOST
from kgen.device import multiprocessors
from kgen.dtypes import F32, FLOATS, I32
from kgen.launch import Step, bind
from kgen.operand import Operand, aligned
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.gated.checks import FEATURES, Form
from kgen.ops.gated.kernels import STEP, WIDEST

_OPTIONS = ("scale", "feature_map", "state_shape")


def step_operator(name: str, form: Form) -> Operator:
    """The operator of a form's step; called by `step`."""
    arguments = (*form.arrays, "indices")
    return Operator(
        name,
        arguments,
        _OPTIONS,
        partial(_results, form),
        partial(_prepare, form),
        takes={argument: (I32,) if argument == "indices" else FLOATS for argument in arguments},
        optional=("indices",),
        mixed=True,
        rows=False,
    )


def step(
    operator: Operator, arrays: tuple[Any, ...], state: Any, scale: Any, feature_map: Any, out: Any, stream: Any
) -> Any:
    """Call it: o, with the states updated."""
    dtype = getattr(state, "dtype", None)
    if dtype != "float32" and not str(dtype).endswith("float32"):
        what = type(state).__name__ if dtype is None else str(dtype)
        raise TypeError(f"{operator.name}: state is {what}; it takes an array [N, H, K, V] of float32")
    return operator(arrays, (out, state), (scale, feature_map, tuple(state.shape)), stream)[0]


def _split(form: Form, given: Sequence[Operand | None]) -> list[Operand | None]:
    """q, k, v, g, u, indices."""
    q, k, v, *rest, indices = given
    g = rest.pop(0) if form.gate else None
    u = rest.pop(0) if form.bonus else None
    return [q, k, v, g, u, indices]


def _results(
    form: Form, op: str, given: Sequence[Operand | None], scale: Any, feature_map: Any, shape: tuple[int, ...]
) -> Results:
    q, k, v, g, u, indices = _split(form, given)
    assert q and k and v
    if q.kind == "numpy" and q.device != HOST:
        raise TypeError(f"{op}: {q.argument} is a NumPy array; states on the host cannot be updated in place on a GPU")
    if feature_map not in FEATURES:
        raise ValueError(f"{op}: feature_map is {feature_map!r}; it takes 'identity', 'elu' or 'relu'")
    if scale is not None and not isinstance(scale, int | float):
        raise TypeError(f"{op}: scale is a {type(scale).__name__}; it takes a number, or None for 1 / sqrt(K)")
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
    return [((batch, heads, values), q.dtype), (shape, F32)]


def _prepare(
    form: Form,
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    scale: float | None,
    feature_map: str | None,
    shape: tuple[int, ...],
) -> Plan:
    q, k, v, g, u, indices = _split(form, given)
    o, state = results
    assert q and k and v
    slots, heads, features, values = shape
    batch, sms = q.shape[0], multiprocessors(q.device)
    if not batch:
        return Plan(lambda pointers, stream: None, (), "there is no token")
    # The widest tiles that give every multiprocessor two blocks; narrow ones where there are few states.
    tiles = [width for width in (128, 64, 32) if width == 32 or width // 2 < values]
    width = next((w for w in tiles if batch * heads * -(-values // w) >= 2 * sms), tiles[-1])
    halves = q.dtype is not F32
    spec = STEP.spec(
        COLUMNS=width,
        ROOM=next(room for room in (64, 128, 256, 512) if room >= features),
        GATE=form.gate,
        FEATURE=FEATURES[feature_map],
        bonus=form.bonus,
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
        len(rows) + bool(u) + bool(indices) + 2,
        ints,
        tuple(longs),
        (factor,),
    )
    run = bind([launch], q.device)[0]
    if indices:
        return Plan(run, (str(launch),), f"{batch} tokens of {heads} heads, states of a pool of {slots}")

    def without_indices(pointers: Sequence[int], stream: int) -> None:
        *inputs, _, at_o, at_state = pointers
        run((*inputs, at_o, at_state), stream)

    return Plan(without_indices, (str(launch),), f"{batch} tokens of {heads} heads")
