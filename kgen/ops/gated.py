"""What the operators of linear attention with gates share: which arrays fit together, and the plans of both passes.

`linear_attention`, `simple_gla`, `gla` and `rwkv6` differ in their `Form`: what gate there is, and whether a bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kgen.dtypes import F32, FLOATS, I32, I64, DType
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.gated_kernels import WIDEST, Tile
from kgen.ops.gated_plan import (
    NOTHING,
    Gradients,
    Problem,
    Program,
    Rows,
    add_scan,
    add_sum,
    rows_of,
    scratch_rows,
)
from kgen.ops.layout import AXES, check_axes

FEATURES = {None: 0, "identity": 0, "elu": 1, "relu": 2}
"""The feature maps, by the axis FEATURE; "elu" is elu(x) + 1."""
MODES = ("auto", "recurrent", "chunk")


class Form(NamedTuple):
    """One of the operators: its arguments, its gate (0: none, 1: one per step, 2: one per feature), whether a bonus."""

    query: str
    gate: int
    gate_name: str = ""
    bonus: bool = False
    normal: bool = False  # whether the result may be normalized

    @property
    def states(self) -> tuple[str, ...]:
        return ("initial_state", "cu_seqlens", *(("initial_normalizer",) if self.normal else ()))

    @property
    def gradients(self) -> tuple[str, ...]:
        """Of states, as the backward pass takes them."""
        return ("dstate", *(("dnormalizer",) if self.normal else ()))

    @property
    def arrays(self) -> tuple[str, ...]:
        return (self.query, "k", "v", *((self.gate_name,) if self.gate else ()), *(("u",) if self.bonus else ()))


class Options(NamedTuple):
    """What decides beside the arrays, in the order in which operators name it."""

    scale: float | None = None
    reverse: bool = False
    return_state: bool = False
    mode: str = "auto"
    layout: str = "bhtd"
    feature_map: str | None = None
    normalize: bool = False
    epsilon: float = 0.0


class Arrays(NamedTuple):
    """The inputs by role."""

    q: Operand
    k: Operand
    v: Operand
    g: Operand | None
    u: Operand | None
    initial: Operand | None
    offsets: Operand | None
    normal: Operand | None = None


def forward_operator(name: str, form: Form, *options: str) -> Operator:
    arguments = (*form.arrays, *form.states)
    return Operator(
        name,
        arguments,
        options,
        partial(_forward_results, form, options),
        partial(_prepare_forward, form, options),
        takes=_takes(arguments),
        optional=form.states,
        mixed=True,
        rows=False,
    )


def backward_operator(name: str, form: Form, *options: str) -> Operator:
    arguments = ("do", *form.arrays, *form.states, *form.gradients)
    return Operator(
        name,
        arguments,
        options,
        partial(_backward_results, form, options),
        partial(_prepare_backward, form, options),
        takes=_takes(arguments),
        optional=(*form.states, *form.gradients),
        mixed=True,
        rows=False,
    )


def _takes(arguments: Sequence[str]) -> dict[str, tuple[DType, ...]]:
    states = ("initial_state", "initial_normalizer", "dstate", "dnormalizer")
    special = dict.fromkeys(states, (F32,)) | {"cu_seqlens": (I32, I64)}
    return {name: special.get(name, FLOATS) for name in arguments}


def _arrays(form: Form, given: Sequence[Operand | None]) -> Arrays:
    q, k, v, *rest = given
    g = rest.pop(0) if form.gate else None
    u = rest.pop(0) if form.bonus else None
    assert q and k and v
    return Arrays(q, k, v, g, u, *rest)


# What fits together ---------------------------------------------------------------------------------------------------


def _forward_results(
    form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any
) -> Results:
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = _arrays(form, given)
    _check_options(op, options)
    _check_arrays(op, form, arrays, options.layout)
    if options.normalize and arrays.v.shape[3] >= WIDEST:
        raise ValueError(f"{op}: v has {arrays.v.shape[3]} value columns; with normalize it takes fewer than {WIDEST}")
    if arrays.normal and not options.normalize:
        raise ValueError(f"{op}: initial_normalizer goes with normalize=True")
    heads = _heads(arrays, options.layout)
    _, head, _ = AXES[options.layout]
    shape = list(arrays.q.shape[:3])
    shape[head] = heads
    o = ((*shape, arrays.v.shape[3]), arrays.q.dtype)
    state = _state_shape(arrays, options.layout)
    states = [(state, F32), *([(state[:3], F32)] if options.normalize else [])]
    return [o, *(states if options.return_state else [])]


def _backward_results(
    form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any
) -> Results:
    do, inputs, dstate, dnormal = _gradients_of(form, given)
    (o_shape, dtype), *_ = _forward_results(form, names, op, inputs, *values)
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = _arrays(form, inputs)
    if do.shape != o_shape:
        raise ValueError(f"{op}: do has shape {do.shape}; the result has {o_shape}")
    _check_type(op, do, arrays.q, (dtype,))
    if dstate:
        _check_shape(op, dstate, _state_shape(arrays, options.layout), "[sequences, H, K, V]")
    if dnormal:
        _check_shape(op, dnormal, _state_shape(arrays, options.layout)[:3], "[sequences, H, K]")
    made = [arrays.q, arrays.k, arrays.v, arrays.g, arrays.u, arrays.initial, arrays.normal]
    return [(x.shape, x.dtype) for x in made if x]


def _gradients_of(
    form: Form, given: Sequence[Operand | None]
) -> tuple[Operand, Sequence[Operand | None], Operand | None, Operand | None]:
    """What the backward pass takes: do, the inputs of the forward pass, and the gradients of its last states."""
    do, *rest = given
    assert do
    if form.normal:
        *inputs, dstate, dnormal = rest
        return do, inputs, dstate, dnormal
    *inputs, dstate = rest
    return do, inputs, dstate, None


def _check_options(op: str, options: Options) -> None:
    if options.mode not in MODES:
        raise ValueError(f"{op}: mode is {options.mode!r}; it takes 'auto', 'recurrent' or 'chunk'")
    if options.mode == "chunk":
        raise ValueError(f"{op}: mode='chunk' does not exist yet; 'recurrent' and 'auto' compute the same")
    if options.feature_map not in FEATURES:
        raise ValueError(f"{op}: feature_map is {options.feature_map!r}; it takes 'identity', 'elu' or 'relu'")
    if options.scale is not None and not isinstance(options.scale, int | float):
        raise TypeError(f"{op}: scale is a {type(options.scale).__name__}; it takes a number, or None for 1 / sqrt(K)")


def _check_arrays(op: str, form: Form, arrays: Arrays, layout: str) -> None:
    q, k, v, g, u, initial, offsets, normal = arrays
    check_axes(op, (q, k, v), layout)
    batch, head, time = AXES[layout]
    for x in (k, v):
        _check_type(op, x, q, (q.dtype,))
        if (x.shape[batch], x.shape[time]) != (q.shape[batch], q.shape[time]):
            raise ValueError(
                f"{op}: {x.argument} has shape {x.shape} and {q.argument} {q.shape}; batch and time must agree"
            )
    if k.shape[3] != q.shape[3]:
        raise ValueError(f"{op}: {k.argument} has {k.shape[3]} features and {q.argument} {q.shape[3]}; they must agree")
    for x in (q, v):
        if x.shape[3] > WIDEST:
            raise ValueError(f"{op}: {x.argument} has shape {x.shape}; it takes heads of at most {WIDEST} features")
    heads = _heads(arrays, layout)
    for x in (q, k, v, *((g,) if g and len(g.shape) > 2 else ())):
        own = x.shape[head]
        if own == 0 or heads % own:
            if heads == own == 0:
                continue
            raise ValueError(
                f"{op}: {x.argument} has {own} heads where others have {heads}; the largest number must be a multiple"
            )
    if g:
        _check_type(op, g, q, (q.dtype, F32))
        wanted = list(q.shape[: 2 + form.gate])
        wanted[head] = g.shape[head] if len(g.shape) == len(wanted) else heads
        meaning = "a gate for each feature" if form.gate == 2 else "a gate for each head and time step"
        _check_shape(op, g, tuple(wanted), meaning)
    if u:
        _check_type(op, u, q, (q.dtype, F32))
        _check_shape(op, u, (heads, q.shape[3]), "[H, K]")
    if offsets:
        if len(offsets.shape) != 1 or offsets.shape[0] < 1 or (offsets.shape[0] > 1 and offsets.strides != (1,)):
            raise ValueError(
                f"{op}: cu_seqlens has shape {offsets.shape} and strides {offsets.strides}; it takes one contiguous "
                "axis of where each sequence begins, and at last where the last one ends"
            )
        if q.shape[batch] != 1:
            raise ValueError(f"{op}: {q.argument} has shape {q.shape}; with cu_seqlens it takes a batch of 1")
    if initial:
        _check_shape(op, initial, _state_shape(arrays, layout), "[sequences, H, K, V]")
    if normal:
        _check_shape(op, normal, _state_shape(arrays, layout)[:3], "[sequences, H, K]")


def _check_type(op: str, x: Operand, q: Operand, types: tuple[DType, ...]) -> None:
    if x.dtype not in types:
        taken = " or ".join(dict.fromkeys(dtype.numpy_name for dtype in types))
        raise TypeError(
            f"{op}: {x.argument} is {x.dtype.numpy_name} and {q.argument} {q.dtype.numpy_name}; it takes {taken}"
        )


def _check_shape(op: str, x: Operand, shape: tuple[int, ...], meaning: str) -> None:
    if x.shape != shape:
        raise ValueError(f"{op}: {x.argument} has shape {x.shape}; it takes {shape}: {meaning}")


def _heads(arrays: Arrays, layout: str) -> int:
    head = AXES[layout][1]
    return max(x.shape[head] for x in (arrays.q, arrays.k, arrays.v, arrays.g) if x and len(x.shape) > 2)


def _state_shape(arrays: Arrays, layout: str) -> tuple[int, ...]:
    offsets = arrays.offsets
    sequences = offsets.shape[0] - 1 if offsets else arrays.q.shape[AXES[layout][0]]
    return (sequences, _heads(arrays, layout), arrays.q.shape[3], arrays.v.shape[3])


# What is launched -----------------------------------------------------------------------------------------------------


def _problem(form: Form, arrays: Arrays, options: Options) -> Problem:
    q, g, u = arrays.q, arrays.g, arrays.u
    batch, _, time = AXES[options.layout]
    sequences, heads, features, values = _state_shape(arrays, options.layout)
    scale = features**-0.5 if options.scale is None else float(options.scale)
    return Problem(
        batch=q.shape[batch],
        sequences=sequences,
        heads=heads,
        length=q.shape[time],
        features=features,
        values=values,
        dtype=q.dtype,
        gate=form.gate,
        bonus=form.bonus,
        scale=scale,
        reverse=bool(options.reverse),
        feature=FEATURES[options.feature_map],
        offsets=arrays.offsets.dtype.itemsize if arrays.offsets else 0,
        device=q.device,
        normal=bool(options.normalize),
        epsilon=float(options.epsilon),
        gate_rows=rows_of("g", g, options.layout) if g else None,
        gate_type=g.dtype if g else F32,
        bonus_strides=u.strides if u else (),
        bonus_type=u.dtype if u else F32,
    )


def _input_names(form: Form) -> list[str]:
    """The inputs by role, in the order in which the operator takes them."""
    return ["q", "k", "v", *(["g"] if form.gate else []), *(["u"] if form.bonus else []), *form.states]


def _prepare_forward(
    form: Form,
    names: tuple[str, ...],
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    *values: Any,
) -> Plan:
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = _arrays(form, given)
    problem = _problem(form, arrays, options)
    o, *state = results
    program = Program([*_input_names(form), "o", *["state", "normalizer"][: len(state)]], problem.device)
    q, k, v = (rows_of(name, x, options.layout) for name, x in zip("qkv", arrays[:3], strict=True))
    _states(problem, initial_state=arrays.initial, initial_normalizer=arrays.normal)
    _states(problem, **dict(zip(("state", "normalizer"), state, strict=False)))
    tile = add_scan(
        program,
        problem,
        q,
        k,
        v,
        rows_of("o", o, options.layout),
        initial="initial_state" if arrays.initial else NOTHING,
        last="state" if state else NOTHING,
        normals=("initial_normalizer" if arrays.normal else NOTHING, "normalizer" if len(state) > 1 else NOTHING),
    )
    return program.plan(_why(problem, tile.width, problem.values))


def _states(problem: Problem, **states: Operand | None) -> None:
    problem.states.update({name: x.strides for name, x in states.items() if x})


def _why(problem: Problem, width: int, columns: int) -> str:
    blocks = -(-columns // width)
    return f"{problem.shared} states, cut into {blocks} blocks each, walk through {problem.length} time steps"


def _prepare_backward(
    form: Form,
    names: tuple[str, ...],
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    *values: Any,
) -> Plan:
    options = Options(**dict(zip(names, values, strict=True)))
    layout = options.layout
    do, inputs, dstate, dnormal = _gradients_of(form, given)
    arrays = _arrays(form, inputs)
    problem = _problem(form, arrays, options)
    gradient_names = ["dq", "dk", "dv", *(["dg"] if form.gate else []), *(["du"] if form.bonus else [])]
    gradient_names += ["dinitial"] if arrays.initial else []
    gradient_names += ["dinitial_normal"] if arrays.normal else []
    gradients = dict(zip(gradient_names, results, strict=True))
    program = Program(["do", *_input_names(form), *form.gradients, *gradient_names], problem.device)
    _states(problem, initial_state=arrays.initial, dstate=dstate, dinitial=gradients.get("dinitial"))
    _states(problem, initial_normalizer=arrays.normal, dnormalizer=dnormal)
    _states(problem, dinitial_normal=gradients.get("dinitial_normal"))
    initial = "initial_state" if arrays.initial else NOTHING
    from_state = "dstate" if dstate else NOTHING

    q, k, v = (rows_of(name, x, layout) for name, x in zip("qkv", arrays[:3], strict=True))
    upstream = rows_of("do", do, layout)
    if form.gate:
        program.room("products", problem.numbers(problem.features))
        program.room("slope_start", problem.shared * problem.features)
    before = "initial_normalizer" if arrays.normal else NOTHING
    if problem.normal:
        # What was divided by, and the result before it was rounded, once more: cheaper to compute than to keep.
        whole = scratch_rows("o of normal", problem, problem.values)
        program.room(whole.name, problem.numbers(problem.values))
        program.room("inverses", problem.numbers(1))
        add_scan(
            program, problem, q, k, v, whole, wide=True, initial=initial, normals=(before, NOTHING), inverses="inverses"
        )
    slopes = rows_of("dg", gradients["dg"], layout) if form.gate else None
    if slopes and (form.gate == 1 or slopes.heads < problem.heads):
        slopes = None  # parts of it, to be summed

    def scan(name: str, z: Rows, x: Rows, y: Rows, **more: Any) -> Tile:
        """A scan into a gradient; where heads share an input, by way of floats for every head."""
        result = gradients[name]
        final = rows_of(name, result, layout)
        more["inverses"] = "inverses" if problem.normal else NOTHING
        if final.heads == problem.heads:
            return add_scan(program, problem, z, x, y, final, **more)
        whole = scratch_rows(f"{name} of heads", problem, result.shape[3])
        program.room(whole.name, problem.numbers(result.shape[3]))
        tile = add_scan(program, problem, z, x, y, whole, wide=True, **more)
        shape = (problem.batch, final.heads, problem.length, result.shape[3])
        add_sum(program, whole.name, final, shape, result.dtype, problem.heads)
        return tile

    normals = (before, NOTHING)
    queries = Gradients(q)
    scan(
        "dq", upstream, v, k, turned=True, initial=initial, last_gradient=from_state, gradients=queries, normals=normals
    )
    normals = ("dnormalizer" if dnormal else NOTHING, "dinitial_normal" if arrays.normal else NOTHING)
    keys = Gradients(k, slopes)
    tile = scan("dk", v, upstream, q, turned=True, adjoint=True, initial=from_state, gradients=keys, normals=normals)
    scan("dv", k, q, upstream, adjoint=True, initial=from_state, last="dinitial" if arrays.initial else NOTHING)
    if form.gate and not slopes:
        final = rows_of("dg", gradients["dg"], layout)
        width = problem.features if form.gate == 2 else 1
        splits = 1 if form.gate == 2 else -(-problem.features // tile.width) * tile.warps
        program.room("slopes", splits * problem.numbers(width))
        shape = (problem.batch, final.heads, problem.length, width)
        add_sum(program, "slopes", final, shape, gradients["dg"].dtype, problem.heads, splits)
    if form.bonus:
        per_head, per_feature = gradients["du"].strides
        program.room("bonus_slopes", problem.shared * problem.features)
        final = Rows("du", (0, per_head, 0, per_feature), problem.heads, False)
        shape = (1, problem.heads, 1, problem.features)
        add_sum(program, "bonus_slopes", final, shape, gradients["du"].dtype, problem.heads, problem.sequences)
    return program.plan(_why(problem, tile.width, problem.features))
