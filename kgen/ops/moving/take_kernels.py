"""The kernel that gathers rows."""

from __future__ import annotations

from kgen.dtypes import I32, I64
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 256
WORDS = {1: 16, 2: 16, 4: 8, 8: 4, 16: 4}
"""Words that a thread takes, by their bytes: of small ones more, or too few bytes would be under way."""
NONE = 1 << 63
"""What the host is told where no index is out of bounds; a greater number where it is told nothing."""
FEW = 4096
"""Indices that one block looks through ahead of its rows, so that the host need not wait for rows to move."""
MODES = (
    Flag("sliced", "a table of several slices"),
    Flag("clip", "indices out of bounds become the nearest"),
    Flag("wrap", "indices out of bounds are taken modulo the number of entries"),
    Flag("told", "the host is told the first position whose index is out of bounds, before rows move"),
    Flag("checked", "the first position whose index is out of bounds is written down"),
)


def told_bytes(spec: Spec) -> int:
    """Of shared memory, in which a block looks for the first index that is out of bounds."""
    return 8 if "told" in spec.flags else 0


def one_rule(spec: Spec) -> str | None:
    """What is wrong with the flags, if anything."""
    rules = ("clip", "wrap", "told", "checked")
    return "one rule for indices out of bounds" if sum(spec[rule] for rule in rules) > 1 else None


def _geometry(spec: Spec) -> dict[str, int]:
    down = WORDS[spec["BYTES"]] // spec["ACROSS"]
    return {"THREADS": THREADS, "DOWN": down, "STATIC_SMEM": told_bytes(spec)}


TAKE = register(
    Kernel(
        name="take",
        summary="Rows of a table, by their indices.",
        formula="out[i, :] = table[indices[i], :]",
        axes=(
            Axis("BYTES", "n", (1, 2, 4, 8, 16), "bytes of a word, of which rows are made"),
            Axis("LANES", "l", (1, 2, 4, 8, 16, 32, 64, 128, 256), "threads along a row"),
            Axis("ACROSS", "a", (1, 2, 4), "words of a row that a thread takes"),
        ),
        flags=MODES,
        dtypes=(I32, I64),
        derive=_geometry,
        check=one_rule,
        grid="(ceil(width / (LANES * ACROSS)) * ceil(rows / (THREADS / LANES * DOWN)))",
        origin="a gathering copy",
        defaults=("take_n16_l32_a1_i64", "take_n16_l256_a4_told_i32"),
    )
)
