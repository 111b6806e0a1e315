"""What there is to know of a kernel, fit for reading: tables, resource cards, the assembler's code."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgen.arch import Arch
from kgen.build import Built
from kgen.errors import ToolchainError
from kgen.occupancy import occupancy
from kgen.spec import Spec

_ORIGIN = {"disk": "cache"}  # people call it the cache


@dataclass(frozen=True)
class Card:
    """What one kernel takes on one architecture; what only a compiler can say is None until one did.

    threads, static_smem, dynamic_smem   of a block, in bytes
    registers, spills, stack             of a thread; spills are the bytes stored and loaded
    blocks, occupancy                    that a multiprocessor holds at once, and the share of its warps that they fill
    origin                               "compiled", "cache" or "not built"
    """

    name: str
    arch: str
    threads: int
    static_smem: int
    dynamic_smem: int
    registers: int | None = None
    spills: int | None = None
    stack: int | None = None
    blocks: int | None = None
    occupancy: float | None = None
    milliseconds: float | None = None
    origin: str = "not built"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def unbuilt_card(spec: Spec, arch: Arch) -> Card:
    """The card of a kernel that was not compiled: what its axes decide."""
    return Card(spec.name, str(arch), spec.threads, spec.static_smem, spec.dynamic_smem)


def card(built: Built) -> Card:
    """The card of a compiled kernel."""
    spec, taken = built.spec, built.resources
    fit = occupancy(built.arch, spec.threads, taken.registers, taken.static_smem + spec.dynamic_smem)
    return Card(
        name=spec.name,
        arch=str(built.arch),
        threads=spec.threads,
        static_smem=taken.static_smem,
        dynamic_smem=spec.dynamic_smem,
        registers=taken.registers,
        spills=taken.spill_stores + taken.spill_loads,
        stack=taken.stack,
        blocks=fit.blocks if fit else None,
        occupancy=fit.warps if fit else None,
        milliseconds=built.milliseconds or None,
        origin=_ORIGIN.get(built.origin, built.origin),
    )


def card_table(cards: Sequence[Card]) -> str:
    """One line a card; blocks is how many fit on a multiprocessor, warps the share of its warps that they fill."""
    heads = ("name", "arch", "threads", "smem", "regs", "spills", "blocks", "warps", "ms", "from")
    rows = [
        (
            c.name,
            c.arch,
            str(c.threads),
            size(c.static_smem + c.dynamic_smem),
            _or_dash(c.registers),
            _or_dash(c.spills),
            _or_dash(c.blocks),
            _or_dash(c.occupancy, "{:.0%}"),
            _or_dash(c.milliseconds, "{:.0f}"),
            c.origin,
        )
        for c in cards
    ]
    return table(heads, rows, left=("name", "arch", "from"))


def facts_table(spec: Spec) -> str:
    """A kernel's own facts: its formula, then a line an axis."""
    rows = [(axis.name, str(spec[axis.name]), axis.doc) for axis in spec.kernel.axes]
    rows += [(flag.name, "yes" if spec[flag.name] else "no", flag.doc) for flag in spec.kernel.flags]
    rows += [
        ("dtype", spec.dtype.name, f"{spec.dtype.c} in memory"),
        ("threads", str(spec.threads), "per block"),
        ("smem", str(spec.static_smem), "bytes, static"),
        ("", str(spec.dynamic_smem), "bytes, dynamic"),
        ("grid", "", spec.kernel.grid),
        ("symbol", "", spec.symbol),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{name:{widths[0]}}  {value:>{widths[1]}}  {doc}".rstrip() for name, value, doc in rows]
    return "\n".join([spec.name, "", spec.kernel.summary, "", *spec.formula.splitlines(), "", *lines])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> str:
    """Aligned plain text: the columns named in `left` to the left, numbers to the right."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = [
        [cell.ljust(w) if head in left else cell.rjust(w) for cell, w, head in zip(line, widths, heads, strict=True)]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def size(count: float) -> str:
    """Bytes for people: 512, 2.5K, 1.0G."""
    for unit in ("", "K", "M"):
        if count < 1024:
            return f"{count:.1f}{unit}" if unit else f"{count:.0f}"
        count /= 1024
    return f"{count:.1f}G"


def _or_dash(value: float | None, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def find_tool(name: str) -> Path | None:
    """One of the toolkit's programs, from its wheel or from an installed toolkit."""
    try:
        from cuda import pathfinder

        found = pathfinder.find_nvidia_binary_utility(name)
    except Exception:  # not installed, or an older one that does not know the program
        found = None
    found = found or shutil.which(name)
    return Path(found) if found else None


def disassemble(cubin: bytes) -> str:
    """The machine code of a cubin as SASS; raises ToolchainError where no disassembler is installed."""
    for name, options in (("nvdisasm", ["--print-code"]), ("cuobjdump", ["--dump-sass"])):
        tool = find_tool(name)
        if tool is not None:
            return _run_on(cubin, tool, options)
    raise ToolchainError("neither nvdisasm nor cuobjdump is installed", hint="pip install 'kgen[inspect]'")


def comparable(sass: str, symbol: str) -> str:
    """SASS without addresses and the kernel's own name, so that a diff shows instructions only."""
    text = re.sub(r"^ *//-+ .*\n", "", sass, flags=re.MULTILINE).replace(symbol, "kernel")
    return re.sub(r"/\*[0-9a-f]{4,}\*/ *", "", text)


def _run_on(cubin: bytes, tool: Path, options: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([tool, *options, file], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{tool.name} fails: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip("\n") + "\n"
