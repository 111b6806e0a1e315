"""What the operators of linear attention with gates share: how they are made, and the plans of both passes.

A plan imports what it is made of, since of the ways to compute a problem it takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kgen.dtypes import F32, FLOATS, I32, I64, DType
from kgen.operand import Operand
from kgen.ops.calls import Operator, Plan
from kgen.ops.gated.checks import (
    Form,
    Options,
    arrays_of,
    backward_results,
    forward_results,
    gradients_of,
)
from kgen.ops.gated.modes import in_chunks
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows, rows_of, scratch_rows
from kgen.ops.gated.problem import input_names, problem_of
from kgen.ops.gated.scan import Gradients, add_scan
from kgen.ops.gated.sums import add_gradient, add_sum
from kgen.ops.gated.tiles import Tile
from kgen.ops.options import whole


def forward_operator(name: str, form: Form, *options: str) -> Operator:
    arguments = (*form.arrays, *form.states)
    return Operator(
        name,
        arguments,
        options,
        partial(forward_results, form, options),
        partial(_prepare_forward, form, options),
        takes=_takes(arguments),
        optional=form.states,
        mixed=True,
        rows=False,
        examine=partial(_examine, "sequences", form, options),
    )


def backward_operator(name: str, form: Form, *options: str) -> Operator:
    arguments = ("do", *form.arrays, *form.states, *form.gradients)
    return Operator(
        name,
        arguments,
        options,
        partial(backward_results, form, options),
        partial(_prepare_backward, form, options),
        takes=_takes(arguments),
        optional=(*form.states, *form.gradients),
        mixed=True,
        rows=False,
        examine=partial(_examine, "gradients", form, options),
    )


def _examine(function: str, *about: Any) -> None:
    from kgen.ops.gated import examine

    getattr(examine, function)(*about)


def _takes(arguments: Sequence[str]) -> dict[str, tuple[DType, ...]]:
    states = ("initial_state", "initial_normalizer", "dstate", "dnormalizer")
    special = dict.fromkeys(states, (F32,)) | {"cu_seqlens": (I32, I64)}
    return {name: special.get(name, FLOATS) for name in arguments}


def _prepare_forward(
    form: Form,
    names: tuple[str, ...],
    op: str,
    given: Sequence[Operand | None],
    results: Sequence[Operand],
    *values: Any,
) -> Plan:
    options = Options(**dict(zip(names, values, strict=True)))
    arrays = arrays_of(form, given)
    problem = problem_of(form, arrays, options)
    o, *state = results
    ends = ["state", *(["normalizer"] if options.normalize else [])] if options.return_state else []
    every = options.states_every and whole(op, "states_every", options.states_every)
    kept: list[str] = []
    if every:
        from kgen.ops.gated import states

        kept = [states.STATES, *([states.NORMALIZERS] if options.normalize else [])]
    program = Program([*input_names(form), "o", *ends, *kept], problem.device)
    q, k, v = (rows_of(name, x, options.layout) for name, x in zip("qkv", arrays[:3], strict=True))
    _states(problem, initial_state=arrays.initial, initial_normalizer=arrays.normal)
    _states(problem, **dict(zip([*ends, *kept], state, strict=True)))
    if options.mode == "article":
        from kgen.ops.gated import article

        return article.plan(op, program, problem, arrays, options, q, k, v, rows_of("o", o, options.layout))
    result = rows_of("o", o, options.layout)
    initial, last = "initial_state" if arrays.initial else NOTHING, "state" if ends else NOTHING
    chunks = _chunks(form)
    if in_chunks(op, options.mode, chunks.refusal(problem), chunks.pays(problem)):
        why = chunks.forward(program, problem, q, k, v, result, initial, last)
        if every:
            why += "; " + states.add_in_chunks(program, problem, k, v, every, initial)
        return program.plan(why)
    normals = ("initial_normalizer" if arrays.normal else NOTHING, "normalizer" if len(ends) > 1 else NOTHING)
    if every:
        first, end = zip((initial, last), normals, strict=True)
        tile = states.add_walk(program, problem, (q, k, v, result), every, first, end)
    else:
        tile = add_scan(program, problem, q, k, v, result, initial=initial, last=last, normals=normals)
    return program.plan(_why(problem, tile.width, problem.values))


def _chunks(form: Form, *, backward: bool = False) -> Any:
    """The module of chunks with such gates."""
    if form.gate < 2:
        from kgen.ops.gated import chunk

        return chunk
    from kgen.ops.gated import chunk_vector, chunk_vector_backward

    return chunk_vector_backward if backward else chunk_vector


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
    do, inputs, dstate, dnormal = gradients_of(form, given)
    arrays = arrays_of(form, inputs)
    problem = problem_of(form, arrays, options)
    gradient_names = ["dq", "dk", "dv", *(["dg"] if form.gate else []), *(["du"] if form.bonus else [])]
    gradient_names += ["dinitial"] if arrays.initial else []
    gradient_names += ["dinitial_normal"] if arrays.normal else []
    gradients = dict(zip(gradient_names, results, strict=True))
    program = Program(["do", *input_names(form), *form.gradients, *gradient_names], problem.device)
    _states(problem, initial_state=arrays.initial, dstate=dstate, dinitial=gradients.get("dinitial"))
    _states(problem, initial_normalizer=arrays.normal, dnormalizer=dnormal)
    _states(problem, dinitial_normal=gradients.get("dinitial_normal"))
    initial = "initial_state" if arrays.initial else NOTHING
    from_state = "dstate" if dstate else NOTHING

    q, k, v = (rows_of(name, x, layout) for name, x in zip("qkv", arrays[:3], strict=True))
    upstream = rows_of("do", do, layout)
    if options.mode == "article":
        raise ValueError(f"{op}: mode is 'article'; it takes 'auto', 'recurrent' or 'chunk'")
    chunks = _chunks(form, backward=True)
    refused = chunks.refusal(problem) if form.gate < 2 else chunks.refusal(problem, q, k, v)
    if in_chunks(op, options.mode, refused, chunks.pays(problem)):
        rows = (upstream, q, k, v)
        return program.plan(chunks.backward(program, problem, rows, gradients, layout, initial, from_state))
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
        inverses = "inverses" if problem.normal else NOTHING
        queue = partial(add_scan, program, problem, z, x, y, inverses=inverses, **more)
        return add_gradient(program, problem, name, gradients[name], layout, queue)

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
