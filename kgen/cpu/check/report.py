"""What the runtime found, told with the lines of the CUDA source and the templates that they come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgen.nvrtc import origin

if TYPE_CHECKING:
    from kgen.cpu.library import Library
    from kgen.cpu.translate.program import Program

_WORDS = {
    "bounds": "out of bounds",
    "input": "write to an input",
    "uninitialised": "uninitialised read",
    "misaligned": "misaligned access",
    "unwaited": "copy that nobody waits for",
    "stopped": "stopped",
}


class Finding(NamedTuple):
    """One thing that is wrong: its kind (`race`, `bounds`, ..), its line in the source or 0, and all in words."""

    kind: str
    line: int
    text: str

    def __str__(self) -> str:
        return self.text


class Report:
    """What was found of one launch or of several; empty where nothing is wrong."""

    findings: Sequence[Finding]

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing to report"


def finding(message: str, library: Library, program: Program) -> Finding:
    """What the runtime says, for people.

    It says `kind site block warp text`; in the text `@site`, or `@site:block:warp`, or `@site:lanes`, names a place.
    """
    kind, site, block, warp, text = (message.split(" ", 4) + [""] * 5)[:5]

    def line(found: re.Match[str]) -> str:
        rest = (found[2] or "").lstrip(":").split(":")
        who = f" (block {rest[0]}, warp {rest[1]})" if len(rest) == 2 else f" (lanes {rest[0]})" if rest[0] else ""
        return f"\n    {place(int(found[1]), library, program)}{who}"

    body = re.sub(r"@(-?\d+)((?::[0-9a-f]+)*)", line, text)
    number = program.sites[int(site)][0] if 0 <= int(site) < len(program.sites) else 0
    if kind in ("deadlock", "stopped"):
        return Finding(kind, number, f"{program.name}: {_WORDS.get(kind, kind)}: {body}")
    where = f"  at {place(int(site), library, program)}"
    head = f"{program.name}: {_WORDS.get(kind, kind)} in block {block}, warp {warp}"
    return Finding(kind, number, f"{head}\n{where}\n    {body.lstrip()}")


def place(site: int, library: Library, program: Program) -> str:
    """A site in words: the line, its text, the template's line, and the instruction."""
    if not 0 <= site < len(program.sites):
        return "an unknown place"
    number, caller, instruction = program.sites[site]
    lines = library.text.splitlines()
    if not 0 < number <= len(lines):
        return f"`{instruction}`"
    shown = lines[number - 1].strip()
    called = f", called in line {caller}: {lines[caller - 1].strip()}" if 0 < caller <= len(lines) else ""
    return f"{library.title}.cu:{number}{origin(library.title, shown)}: {shown}   [{instruction}]{called}"
