"""The problem that a call of linear attention with gates poses."""

from __future__ import annotations

from kgen.dtypes import F32
from kgen.ops.gated import features as maps
from kgen.ops.gated.checks import Arrays, Form, Options, state_shape
from kgen.ops.gated.mapped import mapped
from kgen.ops.gated.plan import Problem, rows_of
from kgen.ops.layout import AXES


def problem_of(form: Form, arrays: Arrays, options: Options) -> Problem:
    q, g, u = arrays.q, arrays.g, arrays.u
    batch, _, time = AXES[options.layout]
    sequences, heads, features, values = state_shape(arrays, options.layout)
    scale = features**-0.5 if options.scale is None else float(options.scale)
    return Problem(
        batch=q.shape[batch],
        sequences=sequences,
        heads=heads,
        length=q.shape[time] if sequences else 0,  # no block is to look for time steps that belong to nothing
        features=features,
        values=values,
        dtype=q.dtype,
        gate=form.gate,
        bonus=form.bonus,
        scale=scale,
        reverse=bool(options.reverse),
        feature=maps.number(options.feature_map),
        mapped=mapped(options.feature_map, options.feature_slope),
        offsets=arrays.offsets.dtype.itemsize if arrays.offsets else 0,
        device=q.device,
        normal=bool(options.normalize),
        epsilon=float(options.epsilon),
        gate_rows=rows_of("g", g, options.layout) if g else None,
        gate_type=g.dtype if g else F32,
        bonus_strides=u.strides if u else (),
        bonus_type=u.dtype if u else F32,
    )


def input_names(form: Form) -> list[str]:
    """The inputs by role, in the order in which the operator takes them."""
    return ["q", "k", "v", *(["g"] if form.gate else []), *(["u"] if form.bonus else []), *form.states]
