"""What the runtime found, told with the lines of the CUDA source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgen.cpu.library import Library
    from kgen.cpu.translate import Program


def explain(message: str, library: Library, program: Program) -> str:
    """The text of one report, `kind site block warp text`; a site within the text is written `@number`.

    Each site becomes its line in the CUDA source, with that line.
    """
    kind, site, block, warp, text = (message.split(" ", 4) + [""] * 5)[:5]
    where = place(int(site), library, program)
    lines: dict[str, str] = {}

    def line(found: re.Match[str]) -> str:
        number = int(found[1])
        rest = found[2] or ""
        at = place(number, library, program)
        lines[at] = at
        who = (
            f" (block {rest[1:].replace(':', ', warp ')})"
            if rest.count(":") == 2
            else f" (lanes {rest[1:]})"
            if rest
            else ""
        )
        return f"\n    {at}{who}"

    body = re.sub(r"@(-?\d+)((?::[0-9a-f]+)*)", line, text)
    if kind == "deadlock":
        return f"{program.name}: {kind}: {body}"
    return f"{program.name}: {kind} in block {block}, warp {warp}: {body}\n  at {where}"


def place(site: int, library: Library, program: Program) -> str:
    """A site in words: the line, its text, and the instruction."""
    if not 0 <= site < len(program.sites):
        return "an unknown place"
    number, instruction = program.sites[site]
    lines = library.text.splitlines()
    shown = f": {lines[number - 1].strip()}" if 0 < number <= len(lines) else ""
    return f"{library.title}.cu:{number}{shown}   [{instruction}]"
