"""One time step after another: a scan forward, three scans and some sums backward."""

from __future__ import annotations

import functools
from typing import NamedTuple

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32
from kgen.launch import Step
from kgen.operand import Ints
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.ops.gated.scan_kernels import KEY_SCAN, QUERY_SCAN, SCAN, in_groups, posts, scan_with
from kgen.ops.gated.tiles import Tile, tile_for


class Gradients(NamedTuple):
    """Where a scan of gradients leaves what gates' gradients are made of, and what it takes for them."""

    own: Rows
    slopes: Rows | None = None  # for the scan of keys: where the gate's gradient goes, ready; None: partial


def add_scan(
    program: Program,
    problem: Problem,
    z: Rows,
    x: Rows,
    y: Rows,
    o: Rows,
    *,
    turned: bool = False,
    adjoint: bool = False,
    wide: bool = False,
    initial: str = NOTHING,
    last: str = NOTHING,
    last_gradient: str = NOTHING,
    normals: tuple[str, str] = (NOTHING, NOTHING),
    inverses: str = NOTHING,
    gradients: Gradients | None = None,
) -> Tile:
    """Queue one `gated_scan`; the arrays' roles are those of kgen.ops.gated.scan_kernels. Returns how it is cut."""
    p = problem
    rows, columns = (p.values + p.normal, p.features) if turned else (p.features, p.values)
    grouped = in_groups(p.normal, turned, p.gate > 0)
    about = (rows, columns, max(p.shared, 1), p.gate > 0, multiprocessors(p.device), grouped)
    tile = tile_for(*about)
    halves = p.dtype is not F32
    signed = bool(gradients) and p.gate > 0
    products, slopes = signed and not adjoint, signed and adjoint
    partial = slopes and (gradients is None or gradients.slopes is None)
    own = gradients.own if gradients and (signed or p.feature) else None
    read = [z, x, y, *([p.gate_rows] if p.gate_rows and p.gate == 2 else []), *([own] if own else [])]
    kernel = SCAN if not turned else KEY_SCAN if adjoint else QUERY_SCAN
    own_flags = {SCAN.name: {"adjoint": adjoint}, KEY_SCAN.name: {"partial": partial}}.get(kernel.name, {})
    spec_of = functools.partial(
        scan_with(kernel, p.mapped).spec,
        GATE=p.gate,
        FEATURE=p.feature,
        OFFSETS=p.offsets,
        VEC=4 if all(x.wide for x in read) else 1,
        **own_flags,
        reverse=p.reverse != adjoint,
        bonus=p.bonus,
        normal=p.normal,
        wide=wide and halves,
        gfloat=p.gate > 0 and p.gate_type is F32 and halves,
        ufloat=p.bonus and p.bonus_type is F32 and halves,
        dtype=p.dtype,
    )
    spec = spec_of(**tile.axes)
    # On an H200 that takes 0.94 of the time forward with a gate for each time step and 0.95 of it for gradients without
    # gates, and 1.15 and 1.01 the other way round.
    pays = (p.gate == 1) != (turned or adjoint)
    if pays and posts(grouped, p.gate, tile.lanes, tile.columns):
        posted = spec_of(**tile.axes, posted=True)
        spec = posted if posted.derived["DYNAMIC_SMEM"] <= shared_memory(p.device) else spec
    if grouped and spec.derived["DYNAMIC_SMEM"] > shared_memory(p.device):
        tile = tile_for(*about, 8)
        spec = spec_of(**tile.axes)
    pointers = [z.name, x.name, y.name]
    groups = [z, x, y]
    strides = [*z.strides, *x.strides, *y.strides]
    if p.gate_rows:
        pointers.append(p.gate_rows.name)
        groups.append(p.gate_rows)
        strides += p.gate_rows.strides if p.gate == 2 else p.gate_rows.strides[:3]
    if p.bonus:
        pointers.append("u")
        strides += p.bonus_strides
    if own:
        pointers.append(own.name)
        groups.append(own)
        strides += own.strides
    states = (initial,) if turned else (initial, last)
    pointers += states
    strides += [stride for state in states for stride in _state(p, state, turned)]
    if p.normal:
        if turned or not adjoint:
            pointers += normals
            strides += [stride for name in normals for stride in p.states.get(name, (0, 0, 0))]
        pointers += [inverses, *(["o of normal"] if turned else [])]
    if p.offsets:
        pointers.append("cu_seqlens")
    if products:
        pointers += [last_gradient, "products", "slope_start"]
        strides += _state(p, last_gradient, turned)
    if slopes:
        pointers += ["products", "slope_start"]
        if partial:
            pointers.append("slopes")
            if p.gate == 1:
                strides.append(p.batch * p.heads * p.length)
        elif gradients and gradients.slopes:
            pointers.append(gradients.slopes.name)
            strides += gradients.slopes.strides
        if p.bonus:
            pointers.append("bonus_slopes")
    pointers.append(o.name)
    strides += o.strides
    blocks = p.shared * -(-columns // tile.width)
    ints = (p.heads, p.length, rows, columns, *(p.heads // x.heads for x in groups))
    floats = (p.scale, p.epsilon) if p.normal and not turned and not adjoint else (p.scale,)
    program.add(Step(spec, blocks, len(pointers), ints, tuple(strides), floats), tuple(pointers))
    return tile


def _state(problem: Problem, name: str, turned: bool) -> Ints:
    sequence, head, feature, value = problem.states.get(name, (0, 0, 0, 0))
    return (sequence, head, value, feature) if turned else (sequence, head, feature, value)
