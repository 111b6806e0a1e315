"""The rows of a benchmark as plain text, fit to be pasted where people read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
"""One contestant on one row: its place, the verdict on its result, and its figures."""

_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("shape", "shape", str),
    ("dtype", "dtype", str),
    ("pass", "pass", str),
    ("floor ms", "floor_ms", lambda value: _figures(value)),
    ("contestant", "contestant", str),
    ("ms", "ms", lambda value: _figures(value)),
    ("spread", "spread", lambda value: f"{value:.1%}"),
    ("x floor", "times_floor", lambda value: f"{value:.2f}"),
    ("x kgen", "times_kgen", lambda value: f"{value:.2f}"),
    ("rms error", "rms", lambda value: f"{value:.1e}"),
    ("max rel", "max_rel", lambda value: f"{value:.1e}"),
    ("result", "status", str),
)
_LEFT = {"shape", "dtype", "pass", "contestant", "result"}
_GROUP = 4


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned plain text under a heading that says when, where, and what the columns mean."""
    if not rows:
        return "nothing was timed"
    cells = [[_cell(row.get(key), form) for _, key, form in _COLUMNS] for row in rows]
    lines = [[title for title, _, _ in _COLUMNS], *_ungrouped(cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    notes = ["", *(f"  {row['note']}" if row.get("note") else "" for row in rows)]
    body = [
        "  ".join(
            cell.ljust(width) if title in _LEFT else cell.rjust(width)
            for cell, width, (title, _, _) in zip(line, widths, _COLUMNS, strict=True)
        )
        + note
        for line, note in zip(lines, notes, strict=True)
    ]
    return "\n".join(line.rstrip() for line in [*_heading(rows[0]), "", *body])


def _ungrouped(cells: Sequence[list[str]]) -> list[list[str]]:
    """The same cells with what a line shares with the line above it (shape, dtype, pass, floor) left blank."""
    before = [None, *(line[:_GROUP] for line in cells)]
    return [[""] * _GROUP + line[_GROUP:] if line[:_GROUP] == above else line for line, above in zip(cells, before)]


def _heading(row: Row) -> list[str]:
    facts = row["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [
        f"{row['operator']}, {facts['date']}",
        f"{facts['device']}, driver {facts['driver']}, CUDA {facts['cuda']}; {versions}",
        f"ms: median per call, all contestants in turn; spread: quartile distance; floor: the fewest bytes at "
        f"{facts['copy_gb_s']:.0f} GB/s, this run's copy; x kgen: how many times kgen's time",
    ]


def _cell(value: Any, form: Callable[[Any], str]) -> str:
    return "-" if value is None else form(value)


def _figures(value: float) -> str:
    """Four significant figures, and never an exponent: 0.003911, 0.1220, 54.01."""
    if value <= 0 or not math.isfinite(value):
        return str(value)
    return f"{value:.{max(0, 3 - math.floor(math.log10(value)))}f}"
