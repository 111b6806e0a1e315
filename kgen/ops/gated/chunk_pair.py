"""Two scans in chunks in one launch, the state of one the other's turned: the gradients of values and of keys.

Both add up products of the same queries and the same gradients of results. Neighbouring blocks walk through them at the
same time, so that they come from memory once, and where heads are few, two scans fill the device with half as many
segments as one.
"""

from __future__ import annotations

from kgen.launch import Step
from kgen.ops.gated import chunk_scan
from kgen.ops.gated.chunk_cut import Cut, fours_of
from kgen.ops.gated.linear_chunk import CHUNK, ROOM
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows


def pair_cut(problem: Problem, x: Rows, y: Rows, *others: Rows) -> Cut | None:
    """How both scans of x and y are cut, the `others` being what they read and write besides; None where they are not
    cut alike, or not scanned by warpgroups, or by teams."""
    p = problem
    sizes = p.features, p.values
    if p.gate or not all(chunk_scan.in_warpgroups(p, rows, x, y, *others) for rows in sizes):
        return None
    cut, turned = (chunk_scan.cut_of(p, *each, True, 2) for each in (sizes, sizes[::-1]))
    teams = cut.room == ROOM and any(chunk_scan.segments_of(p, columns) for columns in sizes)
    alike = cut == turned and cut.chunk == CHUNK and cut.columns == ROOM
    return cut if alike and not teams else None


def add_pair(
    program: Program,
    problem: Problem,
    cut: Cut,
    x: Rows,
    y: Rows,
    one: tuple[Rows, Rows],
    other: tuple[Rows, Rows],
    *,
    initial: str = NOTHING,
    last: str = NOTHING,
) -> None:
    """Queue the scan of x and y, of features and of values, and that of y and x: each with what it is read by, z, and
    the result. States are those of the first; both are scans of gradients."""
    p = problem
    rows, columns = p.features, p.values
    fours = fours_of(cut, columns)
    begun = initial != NOTHING
    (z, o), (turned_z, turned_o) = one, other
    states = end = NOTHING
    if begun or cut.segments > 1:
        states = program.room(f"{o.name}: states", p.shared * cut.pieces * fours * 4)
    if begun:
        chunk_scan.add_state(program, p, cut, rows, columns, initial, states, cut.pieces, turned=False, unpack=False)
    if cut.segments > 1:
        walked = cut.pieces - cut.pieces // cut.segments
        chunk_scan.add_pieces(program, p, cut, x, y, states, walked, begun=begun, adjoint=True)
    if last != NOTHING:
        end = program.room(f"{o.name}: last state", p.shared * fours * 4)
    offsets = ("cu_seqlens",) if p.offsets else ()
    pointers = (z.name, x.name, y.name, *offsets, states, end, o.name, turned_z.name, turned_o.name)
    groups = tuple(p.heads // each.heads for each in (z, x, y, turned_z))
    ints = (p.heads, p.length, rows, columns, *groups, cut.pieces, cut.segments, int(not p.reverse), int(begun))
    strides = sum((each.strides[:3] for each in (z, x, y, o, turned_z, turned_o)), ())
    blocks = 2 * p.shared * -(-columns // cut.columns) * cut.segments
    spec = chunk_scan.linear(p, cut, adjoint=True, pair=True)
    program.add(Step(spec, blocks, len(pointers), ints, strides, (p.scale, 1.0, p.scale)), pointers)
    if last != NOTHING:
        chunk_scan.add_state(program, p, cut, rows, columns, last, end, 1, turned=False, unpack=True)
