"""A kernel before it is cut up: constants stand where they are used, and arithmetic does not part what is one.

Neither changes what a lane computes. Masks and counts show, and there are far fewer loops over the lanes: compilers
write a tensor core's next address, and the zeros it starts from, between two of its instructions.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from kgen.cpu.translate.lane import lookup
from kgen.cpu.translate.ptx import REGISTER, Entry, Instruction, instruction

_CUTS = re.compile(
    r"shfl|vote|match|activemask|redux|elect|bar\b|barrier|mma|ldmatrix|stmatrix|movmatrix|nanosleep|wgmma"
    r"|setmaxnreg|mbarrier\.(try_wait|test_wait)"
)
_ENDS = re.compile(r"(bra|brx|ret|exit)\b")
_CONSTANT = re.compile(r"mov\.[busf](?:16|32|64) (?:-?\d+|0[xX][0-9a-fA-F]+|0[fFdD][0-9a-fA-F]+)")
_FRAGMENTS = re.compile(r"mma|stmatrix|movmatrix")  # take registers only


@functools.cache
def is_cut(opcode: str) -> bool:
    """Whether lanes of a warp, or warps, wait for one another at such an instruction."""
    return bool(_CUTS.match(opcode))


@functools.cache
def _is_end(opcode: str) -> bool:
    return bool(_ENDS.match(opcode))


def spread_constants(entry: Entry) -> None:
    """Put constants in place of the registers that hold nothing else."""
    code = [item for item in entry.body if isinstance(item, Instruction)]
    writes = Counter(name for item in code for name in item.writes)
    known = {
        item.operands[0]: item.operands[1]
        for item in code
        if item.opcode.startswith("mov.")
        and not item.guard
        and writes[item.operands[0]] == 1
        and _CONSTANT.fullmatch(f"{item.opcode} {item.operands[1]}")
    }

    def filled(item: Instruction) -> Instruction:
        if known.keys().isdisjoint(item.reads) or _FRAGMENTS.match(item.opcode):
            return item
        first = 1 if item.writes else 0
        operands = [
            text if "[" in text else REGISTER.sub(lambda found: known.get(found[0], found[0]), text)
            for text in item.operands[first:]
        ]
        operands[:0] = item.operands[:first]
        return instruction(item.opcode, tuple(operands), item.guard, item.line, item.caller, entry.registers)

    body = [item if isinstance(item, str) else filled(item) for item in entry.body]
    used = {name for item in body if isinstance(item, Instruction) for name in item.reads}
    gone = known.keys() - used
    entry.body = [
        item
        for item in body
        if isinstance(item, str) or not (item.opcode.startswith("mov.") and item.operands[0] in gone)
    ]


def gather_arithmetic(entry: Entry) -> None:
    """Move what lies between two cuts up to the work before them, where it is all arithmetic that needs neither."""
    body: list[Instruction | str] = []
    run: list[Instruction] = []
    for item in entry.body:
        if isinstance(item, str) or _is_end(item.opcode) or (item.guard and is_cut(item.opcode)):
            body += [*_gathered(run), item]
            run = []
        else:
            run.append(item)
    entry.body = [*body, *_gathered(run)]


def _gathered(run: list[Instruction]) -> Iterator[Instruction]:
    """The same instructions, from one branch to the next, in another order."""
    parts: list[list[Instruction]] = [[]]  # what lies between cuts; each but the first begins with one
    work: list[int] = []  # the parts in which there is something else
    written: dict[str, int] = defaultdict(int)  # the last part that writes a register,
    used: dict[str, int] = defaultdict(int)  # and that reads or writes it

    def close(code: list[Instruction]) -> None:
        """`code` is the end of the last part."""
        at = len(parts) - 1
        if all(map(_only_computes, code)):
            inside = {name for item in code for name in item.writes}
            first = max(
                [written[name] for item in code for name in item.reads if name not in inside]
                + [used[name] for name in inside],
                default=0,
            )
            at = max([number for number in work if number >= first], default=at)
        parts[at] += code
        if code and at not in work:
            work.append(at)
        note(code, at)

    def note(code: list[Instruction], at: int) -> None:
        for item in code:
            for name in item.writes:
                written[name] = used[name] = max(used[name], at)
            for name in item.reads:
                used[name] = max(used[name], at)

    code: list[Instruction] = []
    for item in run:
        if is_cut(item.opcode):
            close(code)
            code = []
            parts.append([item])
            note([item], len(parts) - 1)
        else:
            code.append(item)
    close(code)
    for part in parts:
        yield from part


def _only_computes(item: Instruction) -> bool:
    """Whether an instruction without a guard changes nothing but its result, whenever it runs."""
    if item.guard or not item.writes:
        return False
    moves = item.opcode.startswith("mov.") and "clock" not in item.operands[1] and "timer" not in item.operands[1]
    return moves or lookup(item.opcode) is not None
