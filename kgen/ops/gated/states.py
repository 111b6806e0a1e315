"""The states on the way: S after every so many time steps, from which a request with the same beginning may go on.

One time step after another, they are where one launch ends and the next begins. In chunks the stretches between them
are added up side by side, as the segments of a scan are, beside the scan itself, whose result stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.device import multiprocessors
from kgen.dtypes import BF16, F32, DType
from kgen.launch import Step
from kgen.ops.gated import chunk_cut, chunk_scan, chunk_vector_walks
from kgen.ops.gated.chunk_kernels import STATE, SUM_THREADS
from kgen.ops.gated.plan import NOTHING, Problem, Program, Rows
from kgen.ops.gated.prefix_kernels import PREFIX, PREFIX_THREADS, UNPACK
from kgen.ops.gated.scan import add_scan
from kgen.ops.gated.tiles import Tile

STATES = "states on the way"
"""The result [sequences, heads, count, K, V], whose i-th is the state after i * every time steps,"""
NORMALIZERS = "normalizers on the way"
"""and [sequences, heads, count, K]."""
Ends = tuple[str, str]
"""The names of a state and a normalizer."""


def add_walk(
    program: Program, problem: Problem, rows: tuple[Rows, Rows, Rows, Rows], every: int, first: Ends, last: Ends
) -> Tile:
    """Queue scans of q, k, v into o, from state to state: from the `first` by those on the way to the `last`."""
    count, rest = problem.length // every, problem.length % every
    stops = [(0, 0)] + [(every, place) for place in range(1, count + 1)]
    ends = [
        (steps, (_stop(program, problem, STATES, at), _stop(program, problem, NORMALIZERS, at))) for steps, at in stops
    ]
    if rest or last[0] != NOTHING:
        ends.append((rest, last))
    walked, before = 0, first
    for steps, after in ends:
        part, (q, k, v, o) = _part(program, problem, walked, steps, *rows)
        normals = (before[1], after[1])
        tile = add_scan(program, part, q, k, v, o, initial=before[0], last=after[0], normals=normals)
        walked, before = walked + steps, after
    return tile


def _stop(program: Program, problem: Problem, name: str, place: int) -> str:
    """One of the states on the way, for a scan to end and another to begin with; nothing, where they are not wanted."""
    if name not in problem.states:
        return NOTHING
    sequence, head, step, *others = problem.states[name]
    part = program.part(name, place * step * F32.itemsize)
    problem.states[part] = (sequence, head, *others)
    return part


def _part(program: Program, problem: Problem, walked: int, steps: int, *rows: Rows) -> tuple[Problem, tuple[Rows, ...]]:
    """So many time steps of a problem behind the first `walked` of its walk, as one of its own, and their rows."""
    start = problem.length - walked - steps if problem.reverse else walked

    def moved(x: Rows, dtype: DType) -> Rows:
        return x._replace(name=program.part(x.name, start * x.strides[2] * dtype.itemsize))

    gates = problem.gate_rows and moved(problem.gate_rows, problem.gate_type)
    part = replace(problem, length=steps, gate_rows=gates)
    return part, tuple(moved(x, problem.dtype) for x in rows)


def add_in_chunks(program: Program, problem: Problem, k: Rows, v: Rows, every: int, initial: str) -> str:
    """Queue what finds the states on the way from an `initial` one. Returns how."""
    count = problem.length // every + 1
    # As if there were one more whole stretch, of which nothing is read: the slots of its pieces hold the last state.
    part, (k, v) = _part(program, problem, 0, count * every, k, v)
    add = _add_by_step_gates if problem.gate < 2 else _add_by_vector_gates
    add(program, part, k, v, count, initial)
    return f"{count} states on the way are sums of stretches of {every}"


def _add_by_step_gates(program: Program, problem: Problem, k: Rows, v: Rows, count: int, initial: str) -> None:
    p, every = problem, problem.length // count
    cut = chunk_cut.cut_of(p, p.features, p.values)
    blocks = p.shared * -(-p.values // cut.columns) * (count - 1)
    share = 1  # pieces of a stretch
    while 0 < 2 * share * blocks <= multiprocessors(p.device) and every % (2 * share * cut.chunk) == 0:
        share *= 2
    cut = cut._replace(pieces=count * share, segments=count * share)
    fours = chunk_cut.fours_of(cut, p.values)
    packed = program.room(f"{STATES}, packed", p.shared * cut.pieces * fours * 4)
    rows = p.features if initial != NOTHING else 0  # a state without rows is zero
    chunk_scan.add_state(program, p, cut, rows, p.values, initial, packed, cut.pieces, turned=False, unpack=False)
    if count > 1:
        fine = p.dtype is BF16
        chunk_scan.add_pieces(program, p, cut, k, v, packed, cut.pieces - share, begun=True, fine=fine)
    # The states of all sequences and heads follow one another: to the kernel, those on the way are a sequence's heads.
    counts = (count, share, cut.room // 8, -(-p.values // 16), p.features, p.values)
    blocks = p.shared * count * (fours // SUM_THREADS)
    program.add(Step(STATE.spec(unpack=True), blocks, 2, counts, p.states[STATES][1:]), (packed, STATES))


def _add_by_vector_gates(program: Program, problem: Problem, k: Rows, v: Rows, count: int, initial: str) -> None:
    p = problem
    cut = chunk_vector_walks.cut_of(p)._replace(segments=count, slots=count)
    size = cut.size
    whole = (p.features, p.values) == (cut.parts * cut.features, cut.values)  # in tiles, they lie as they are wanted
    states = STATES if whole else program.room(f"{STATES}, in tiles", p.shared * count * size)
    decays = program.room(f"{STATES}: decays", p.shared * count * cut.parts * cut.features)
    if count > 1:
        chunk_vector_walks.add_ends(program, p, cut, [chunk_vector_walks.Way(k, v)], [states], [decays])
    sizes = (p.heads, p.features, p.values, count, count)
    prefix = PREFIX.spec(K=cut.features, V=cut.values)
    strides = p.states.get(initial, (0, 0, 0, 0))
    program.add(Step(prefix, p.shared * size // (4 * PREFIX_THREADS), 3, sizes, strides), (initial, states, decays))
    if not whole:
        unpack = UNPACK.spec(K=cut.features, V=cut.values)
        blocks, counts = p.shared * count * size // (4 * PREFIX_THREADS), (count, p.features, p.values)
        program.add(Step(unpack, blocks, 2, counts, p.states[STATES][1:]), (states, STATES))
