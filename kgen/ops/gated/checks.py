"""Which arrays fit together in linear attention with gates, and what their results look like.

`linear_attention`, `simple_gla`, `gla` and `rwkv6` differ in their `Form`: what gate there is, and whether a bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kgen.dtypes import F32, DType
from kgen.operand import Operand
from kgen.ops.calls import Results
from kgen.ops.gated import features
from kgen.ops.gated.kernels import WIDEST
from kgen.ops.layout import AXES, check_axes
from kgen.ops.options import check_real, whole

MODES = ("auto", "recurrent", "chunk", "article")
STRETCH = 64
"""Time steps of which those from one state that is returned to the next are a multiple: they are whole chunks."""


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
    feature_slope: str | None = None
    states_every: int | None = None


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


def arrays_of(form: Form, given: Sequence[Operand | None]) -> Arrays:
    q, k, v, *rest = given
    g = rest.pop(0) if form.gate else None
    u = rest.pop(0) if form.bonus else None
    assert q and k and v
    return Arrays(q, k, v, g, u, *rest)


def forward_results(
    form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any
) -> Results:
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = arrays_of(form, given)
    _check_options(op, options)
    features.check(op, options.feature_map, options.feature_slope, backward="feature_slope" in names)
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
    state = state_shape(arrays, options.layout)
    made: list[tuple[tuple[int, ...], DType]] = [o]
    if options.return_state:
        made += [(state, F32), *([(state[:3], F32)] if options.normalize else [])]
    if options.states_every is not None:
        every = whole(op, "states_every", options.states_every)
        _check_every(op, every, options.mode, arrays)
        count = arrays.q.shape[AXES[options.layout][2]] // every + 1
        states = (*state[:2], count, *state[2:])
        made += [(states, F32), *([(states[:4], F32)] if options.normalize else [])]
    return made


def backward_results(
    form: Form, names: tuple[str, ...], op: str, given: Sequence[Operand | None], *values: Any
) -> Results:
    do, inputs, dstate, dnormal = gradients_of(form, given)
    (o_shape, dtype), *_ = forward_results(form, names, op, inputs, *values)
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = arrays_of(form, inputs)
    if do.shape != o_shape:
        raise ValueError(f"{op}: do has shape {do.shape}; the result has {o_shape}")
    _check_type(op, do, arrays.q, (dtype,))
    if dstate:
        _check_shape(op, dstate, state_shape(arrays, options.layout), "[sequences, H, K, V]")
    if dnormal and not options.normalize:
        raise ValueError(f"{op}: dnormalizer goes with normalize=True")
    if dnormal:
        _check_shape(op, dnormal, state_shape(arrays, options.layout)[:3], "[sequences, H, K]")
    made = [arrays.q, arrays.k, arrays.v, arrays.g, arrays.u, arrays.initial, arrays.normal]
    return [(x.shape, x.dtype) for x in made if x]


def gradients_of(
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
        raise ValueError(f"{op}: mode is {options.mode!r}; it takes 'auto', 'recurrent', 'chunk' or 'article'")
    check_factors(op, options.scale, options.epsilon)


def check_factors(op: str, scale: object, epsilon: object) -> None:
    """Raise TypeError, or OverflowError, for what is no real number; a scale of None is 1 / sqrt(K)."""
    check_real(op, scale=1 if scale is None else scale, epsilon=epsilon)


def _check_every(op: str, every: int, mode: str, arrays: Arrays) -> None:
    if every < 1 or every % STRETCH:
        raise ValueError(f"{op}: states_every is {every}; it takes a multiple of {STRETCH} time steps")
    if mode == "article":
        raise ValueError(f"{op}: mode is 'article'; with states_every it takes 'auto', 'recurrent' or 'chunk'")
    if arrays.offsets:
        raise ValueError(
            f"{op}: states_every is {every} beside cu_seqlens; it takes one of them, as only the device would know how "
            "many states a sequence has: sequences of one length may be a batch, others take a call each"
        )


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
        if not 1 <= x.shape[3] <= WIDEST:
            raise ValueError(f"{op}: {x.argument} has shape {x.shape}; it takes heads of 1 to {WIDEST} features")
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
        _check_shape(op, initial, state_shape(arrays, layout), "[sequences, H, K, V]")
    if normal:
        _check_shape(op, normal, state_shape(arrays, layout)[:3], "[sequences, H, K]")


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


def state_shape(arrays: Arrays, layout: str) -> tuple[int, ...]:
    offsets = arrays.offsets
    sequences = offsets.shape[0] - 1 if offsets else arrays.q.shape[AXES[layout][0]]
    return (sequences, _heads(arrays, layout), arrays.q.shape[3], arrays.v.shape[3])
