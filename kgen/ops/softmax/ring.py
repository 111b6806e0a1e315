"""The softmax of rows that clusters take in turn: the kernel, and its launch."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand
from kgen.ops import rows_cut, rows_ring
from kgen.ops.axes import Rows
from kgen.ops.calls import Plan
from kgen.ops.rows import PACKS as HELD_PACKS
from kgen.ops.rows import WIDEST, shared_for
from kgen.ops.rows_grid import RAGGED
from kgen.ops.rows_ring import THREADS
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax import formulas
from kgen.ops.softmax.along_rows import HELD, pitched
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.masks import Masks
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

TURNS = 16
"""Rows of a cluster from which on it pays: on an H200 528 rows of 65536 floats took as long as without it."""

HALF = THREADS // 2  # threads of a block of which two share a multiprocessor: while one waits, the other goes on
LANES = Axis("LANES", "t", (HALF, THREADS), "threads of a block", default=THREADS)
PACKS = Axis("PACKS", "n", tuple(range(2, 13)), "packs of a thread in its block's part of a row")
MANY = 10  # packs of such a thread, up to which it does better than more blocks of a cluster
HALVES = {1: ((2, rows_ring.MOST),), 4: ((4, MANY), (8, rows_ring.MOST)), 8: ((8, 12),), 16: ((16, 12),)}
"""Blocks of a cluster of half as many threads, and packs of these, at most, that take the place of so many blocks.

For each row a thread does as much again as for five packs: more packs of fewer threads take less time, and two blocks
wait in turn. Of sixteen blocks for eight, and of four for two, there are too few clusters at once."""

FEW = 4  # packs of a thread, of twice as many blocks, that do better where a row fills them
FILLED = 15 / 16  # of these, at least: for a row a thread does as much besides, however many they are
REACHING = 8  # blocks of a cluster, up to which they do: of larger ones there are too few at once

MARGIN = 4  # elements of a row before and behind its packs at least, so that the mask's words lie in it
FULL = 6  # packs of a thread of 16 bits, at most, where there is a mask and results are moved
CAUSAL = 1920
"""Packs of a row of 16 bits, up to which a block does better with one at a time where queries see less: beyond, it has
512 threads, which all wait."""
MASKED = 2048  # the same of float32 with a mask, where rows begin anywhere

SHIFTED = Flag("shifted", "what is written begins at other places in its packs than what is read")
FLAGS = tuple(flag for flag in softmax_flags.FLAGS if flag.name in ("log", "scaled", "causal", "mask"))


def _derive(spec: Spec) -> dict[str, int]:
    lanes = spec["LANES"]
    resident = THREADS // lanes
    shifted = bool(spec["shifted"])
    room, enough = shared_for(resident), rows_ring.ENOUGH // resident
    derived = rows_ring.derive(spec, found=8, threads=lanes, room=room, shifted=shifted, enough=enough)
    return {**derived, "RESIDENT": resident}


def _raised(spec: Spec) -> bool:
    """Whether a row's exponentials stay in registers, and shared memory is free for another row: float32 takes longer
    that way, and does so where there is no room otherwise."""
    return not spec["log"] and (spec.dtype is not F32 or spec.derived["STAGES"] < rows_ring.STAGES)


def _text(spec: Spec) -> dict[str, Any]:
    ring = rows_ring.text(spec, "float2", lined=True)
    number = softmax_flags.scaled(spec, "float_of(taken, i)")
    spread = spec.flags == {RAGGED.name, SHIFTED.name}
    raised = _raised(spec)
    paired = spread and not raised
    edge = softmax_flags.scaled(
        spec, f"to_float({'edge.number' if spec['mask'] else 'edge.own' if paired else 'edge'})"
    )
    last = "seen_of(row)" if spec["causal"] else "columns"
    edge_there = f"edge_column(head) < {last}"
    if spec["mask"]:  # which chooses nothing where a thread has no edge
        edge_there = f"edge.chosen && {edge_there}" if spec["causal"] else "edge.chosen"
    edge_here = "edge_value" if spec["causal"] or spec["mask"] else edge
    return {
        **ring,
        "shifted": bool(spec["shifted"]),
        # Plain rows are read from their places word by word; others are put in their places by whole packs first.
        "spread": spread,
        "paired": paired,  # what is found of a row is that of packs of memory, wherever those of the result begin
        "margin": spec["VEC"] if spec["shifted"] else MARGIN if spec["mask"] else 0,
        "joined": True,
        "filled": True,
        "carried": spec.dtype is F32,
        "raised": raised,
        "merges": {"Max": "fmaxf(a, b)", "Sum": "a + b"},
        **softmax_flags.text(spec),
        "outside": "outside" if spec["scaled"] else "-INF",
        "asked": f"{ring['there']} && pack * STRIDE < reach" if spec["causal"] else ring["there"],
        "needed": "needed(pack, head) && pack * STRIDE < reach + VEC" if spec["causal"] else "needed(pack, head)",
        "number": number,
        "answer": softmax_flags.answer(spec, softmax_flags.below(spec, number, "top")),
        "raised_number": softmax_flags.below(spec, number, "below"),
        "raised_edge": softmax_flags.below(spec, edge, "below"),
        "edge_there": edge_there,
        "edge_number": edge,
        "edge_answer": softmax_flags.answer(spec, softmax_flags.below(spec, edge_here, "top")),
    }


def _check(spec: Spec) -> str | None:
    if spec["shifted"] and not spec[RAGGED.name]:
        return "what is read elsewhere than at packs leaves elements to its edge"
    if spec["LANES"] == THREADS and spec["PACKS"] > rows_ring.MOST:
        return "a thread has no registers for so many packs"
    return rows_ring.check(spec, rows_ring.STAGES - _raised(spec))


RING = register(
    Kernel(
        name="softmax_ring",
        summary="Softmax of wide rows, which blocks, or clusters of them, take in turn.",
        formula=formulas.along,
        axes=(LANES, PACKS, rows_ring.VEC, rows_ring.CLUSTER),
        flags=(*FLAGS, RAGGED, SHIFTED),
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a block, or a cluster, for many rows: as many as all multiprocessors have room for",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=(
            "softmax_ring_n8_v4_c4_f32",
            "softmax_ring_n6_v8_c1_bf16",
            "softmax_ring_n8_v8_c2_bf16",
            "softmax_ring_n7_v4_c4_ragged_f32",
            "softmax_ring_n8_v8_c2_causal_bf16",
            "softmax_ring_n7_v4_c4_mask_ragged_f32",
            "softmax_ring_n8_v8_c2_mask_bf16",
            "softmax_ring_n7_v8_c2_ragged_shifted_bf16",
            "softmax_ring_t256_n6_v8_c2_bf16",
            "softmax_ring_t256_n10_v4_c4_ragged_shifted_f32",
        ),
    )
)


def _wide(wanted: Wanted, taken: rows_cut.Packs) -> int:
    """Packs of a row, up to which a block does better; where something is left out, or moved, as many as its registers
    hold."""
    if not (wanted.mask or wanted.causal or taken.shifted):
        return rows_ring.WIDE if taken.vec == 4 else rows_cut.ALONE
    if taken.vec == 4 and wanted.mask and taken.ragged:
        return MASKED
    if taken.vec == 8 and wanted.causal:
        return CAUSAL
    held = WIDEST * max(packs for packs in HELD_PACKS.values if packs * taken.vec <= HELD)
    return min(held, rows_ring.WIDE - wanted.mask)  # with a mask, rows of just so many take less time in turn


def _held(wanted: Wanted, taken: rows_cut.Packs) -> int:
    """Packs of a thread, at most: of a logarithm, three rows must lie in shared memory, where those to be moved take
    more slots; for exponentials of 16 bits there are fewer registers, and beside a mask and what is to be moved few."""
    if taken.vec == 8 and wanted.mask:
        return FULL if taken.shifted else rows_ring.MOST
    if wanted.op == "log_softmax":
        return MANY - 1 - taken.shifted
    return PACKS.values[-1] - (taken.vec == 8)


def _cut(read: Rows, taken: rows_cut.Packs, device: int, **about: Any) -> rows_ring.Cut | None:
    """As `rows_ring.cut`, of rows whose packs begin with a line."""
    edge = rows_ring.EDGE_OF_LINES
    return rows_ring.cut(read.rows, read.columns, taken, device, turns=TURNS, edge=edge, anywhere=True, **about)


def _halved(cut: rows_ring.Cut, wanted: Wanted, read: Rows, taken: rows_cut.Packs, device: int) -> rows_ring.Cut | None:
    """The same rows for blocks of half as many threads, of which two share a multiprocessor, where that pays."""
    sizes = HALVES.get(cut.cluster, ((cut.cluster, MANY),) if taken.shifted else ())
    for cluster, most in sizes:
        about = {"most": min(most, _held(wanted, taken)), "threads": HALF, "resident": THREADS // HALF}
        found = _cut(read, taken, device, wide=0, clusters=(cluster,), **about)
        if found:
            return found
    return None


def _spread(cut: rows_ring.Cut, wanted: Wanted, read: Rows, taken: rows_cut.Packs, device: int) -> rows_ring.Cut | None:
    """The same rows for twice as many blocks, where these are full: when nothing is left to be read, half as much is on
    chip that must still be written."""
    if taken.shifted or taken.vec == 4 or wanted.op != "softmax" or 2 * cut.cluster > REACHING:
        return None
    found = _cut(read, taken, device, wide=0, most=FEW, clusters=(2 * cut.cluster,))
    room = found.packs * found.cluster * found.threads if found else 0
    return found if found and found.packs == FEW and read.columns // taken.vec >= FILLED * room else None


def plan_ring(
    x: Operand, mask: Operand | None, y: Operand, axes: tuple[int, ...], read: Rows, written: Rows, wanted: Wanted
) -> Plan | None:
    """One launch, or None where another kernel does better, or this one cannot do what is wanted."""
    if y.dtype is not x.dtype or wanted.scale == 0:
        return None
    masks = Masks.of(mask, axes)
    both = pitched(x, y, read, written)
    taken = rows_cut.packs(both, read.columns, ragged=True, beside=masks.pitched)
    taken = taken._replace(ragged=taken.ragged or taken.shifted)
    wide = _wide(wanted, taken)
    if not taken.shifted:
        taken = rows_ring.by_sectors(taken, read.columns, read.pitch, rows_ring.EDGE_OF_LINES)
    cut = _cut(read, taken, y.device, wide=wide, most=min(rows_ring.MOST, _held(wanted, taken)))
    if cut is None:
        return None
    cut = _spread(cut, wanted, read, taken, y.device) or _halved(cut, wanted, read, taken, y.device) or cut
    flags = {flag.name: wanted.flags(wide=False)[flag.name] for flag in FLAGS}
    spec = RING.spec(LANES=cut.threads, **cut.values(), **flags, shifted=taken.shifted, dtype=x.dtype)
    queries = (x.shape[-2],) if wanted.causal else ()
    step = Step(
        spec,
        cut.blocks,
        3 + len(masks.pitched),
        (read.rows, read.columns, *queries, *masks.inner),
        (read.pitch, written.pitch, *masks.steps),
        wanted.floats,
    )
    run = rows_ring.taking(bind([step], y.device)[0], y.device)
    why = f"{read.rows} rows of {read.columns} for {cut}"
    return Plan(masks.given(run), (str(step),), why)
