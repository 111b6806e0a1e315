"""Mutants of a kernel's text: it without one barrier, wait, fence or bounds test.

The text is read as its brackets pair up, line by line; a mutant has as many lines as the original. What compares only
constants and turns of unrolled loops is no bounds test: the compiler decides it, and the kernel tests nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """A text without one thing.

    line     where that was, from 1
    kind     "barrier" (or any other wait, arrival or fence), "bound", "clamp"
    removed  what was removed
    text     what is left
    """

    line: int
    kind: str
    removed: str
    text: str


_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|^[ \t]*#else.*?#endif|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.DOTALL | re.MULTILINE,
)
_BUILTIN = re.compile(r"\b__(syncthreads(?:_or|_and|_count)?|syncwarp|threadfence(?:_block|_system)?)\(")
_IN_ASM = re.compile(
    r"\b(bar|barrier)\.|\bmbarrier\.(arrive|try_wait|test_wait)|\bcp\.async\.(wait|commit|mbarrier|bulk\.(wait|commit))"
    r"|\bfence\.|\bmembar\.|\bwgmma\.(fence|commit|wait)"
)
_ASM = re.compile(r"\basm\b(?:\s+volatile)?\s*\(")
_FUNCTION = re.compile(r"\b__device__\b([^;{}()]*?)\b(\w+)\(")
_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_ELSEWHERE = re.compile(r"[^\n]*\b(?:constexpr|static_assert|alignas|template)\b[^\n]*|[ \t]*#[^\n]*")
_COMPARED = re.compile(r" (<=?) ")
_EXIT = re.compile(r"\bif \(([^\n]*)\) \{\s*(?:return|continue|break)\b")
_MINIMUM = re.compile(r"(?<![\w.])min\(")
_FLOAT = re.compile(r"-?\d+\.\d*f?|-?\d+f")
_UNROLLED = re.compile(r"#pragma unroll\n\s*for \(int (\w+) = ([^;]*;[^;]*);[^{]*\{")
_NAME = re.compile(r"[A-Za-z_]\w*")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*|sizeof")
_ASSIGNED = re.compile(r"(?<![=<>!+*/&|^-])=(?!=)|[+*/&|^-]=")


def mutants(text: str) -> list[Mutant]:
    """Every mutant of a kernel's text, in the order of its lines."""
    source = _Source(text)
    found = [*source.barriers(), *source.bounds(), *source.clamps()]
    return sorted(dict.fromkeys(found), key=lambda mutant: (mutant.line, mutant.removed))


class _Source:
    """A text, and the same with blanks for comments, literals, preprocessor lines and what is for older devices.

    In the latter brackets pair up.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.code = _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        self.loops = [(found.start(), self.closing(found.end() - 1)) for found in _LOOP.finditer(self.code)]
        self.elsewhere = [found.span() for found in _ELSEWHERE.finditer(self.code)]
        self.turns = [  # of loops that are unrolled: the variable, and where it counts
            (found[1], found.end(), self.closing(found.end() - 1))
            for found in _UNROLLED.finditer(text)
            if all(name == found[1] or _CONSTANT.fullmatch(name) for name in _NAME.findall(found[2]))
        ]

    def closing(self, at: int) -> int:
        """Where the bracket that opens at `at` closes."""
        depth = 0
        for place in range(at, len(self.code)):
            depth += (self.code[place] in "([{") - (self.code[place] in ")]}")
            if depth == 0:
                return place
        raise ValueError(f"the bracket in line {self.line(at)} does not close")

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def without(self, start: int, end: int, kind: str, instead: str = "", shown: str = "") -> Mutant:
        """The text with [start, end) exchanged; lines stay where they are."""
        removed = self.text[start:end]
        lines = "\n" * (removed.count("\n") - instead.count("\n"))
        text = self.text[:start] + instead + lines + self.text[end:]
        return Mutant(self.line(start), kind, " ".join((shown or removed).split()), text)

    # Barriers.

    def barriers(self) -> Iterator[Mutant]:
        """Without one synchronisation: as a statement, and where it is a function of its own, without each call too."""
        for start, end, value in self._synchronisations():
            yield self.without(start, end, "barrier", value or "")
        for found in _FUNCTION.finditer(self.code):
            opened = self.code.find("{", self.closing(found.end() - 1))
            closed = self.closing(opened)
            inside = [one for one in self._synchronisations(outputs=True) if opened < one[0] < closed]
            if not inside or not found[1].split() or found[1].split()[-1] != "void":
                continue
            rest = "".join(c for at, c in enumerate(self.code) if opened < at < closed and not _within(at, inside))
            if _ASSIGNED.search(rest):
                continue  # it does other things too
            if any(one[2] is None for one in inside):  # it asks until the answer is yes
                yield self.without(opened + 1, closed, "barrier", shown=f"all of {found[2]}()")
            called = re.compile(rf"(?<=[;{{}})\s])(?<!void ){found[2]}(?:<[^;()]*>)?\(")
            for call in called.finditer(self.code):
                end = self.closing(call.end() - 1) + 1
                if self.code[end : end + 1] == ";":
                    yield self.without(call.start(), end, "barrier")

    def _synchronisations(self, outputs: bool = False) -> list[tuple[int, int, str | None]]:
        """Where they are, and what takes their place; None: nothing can, since they have results."""
        found: list[tuple[int, int, str | None]] = []
        for one in _BUILTIN.finditer(self.code):
            end = self.closing(one.end() - 1)
            found.append((one.start(), end + 1, f"({self.text[one.end() : end]})" if "_" in one[1] else ""))
        for one in _ASM.finditer(self.code):
            end = self.closing(one.end() - 1)
            if _IN_ASM.search(self.text, one.end(), end):
                _, _, operands = self.code[one.end() : end].partition(":")
                written = operands.partition(":")[0].strip()
                found.append((one.start(), end + 1, None if written else ""))
        return [one for one in found if outputs or one[2] is not None]

    # Bounds.

    def bounds(self) -> Iterator[Mutant]:
        """With `true` for one comparison that lets something happen, or `false` for one that leaves early."""
        for found in _COMPARED.finditer(self.code):
            start, end = self._operand(found.start(), -1), self._operand(found.end() - 1, 1)
            if not self._is_test(start, end):
                continue
            yield self.without(start, end, "bound", "true")
        for left in _EXIT.finditer(self.code):
            for part in re.finditer(r"[^&|]+", left[1]):
                start = left.start(1) + part.start() + (len(part[0]) - len(part[0].lstrip()))
                end = left.start(1) + part.end() - (len(part[0]) - len(part[0].rstrip()))
                if re.search(r" >=? ", self.code[start:end]) and self.closing_is_balanced(start, end):
                    yield self.without(start, end, "bound", "false")

    def closing_is_balanced(self, start: int, end: int) -> bool:
        part = self.code[start:end]
        return part.count("(") == part.count(")")

    def _is_test(self, start: int, end: int) -> bool:
        around = self.code[max(0, start - 4) : start] + " " + self.code[end : end + 4]
        part = self.code[start:end]
        return not (
            any(low <= start < high for low, high in (*self.loops, *self.elsewhere))
            or "||" in around
            or _FLOAT.fullmatch(_COMPARED.split(part)[-1].strip())
            or self._is_decided(start, end)
        )

    def _is_decided(self, start: int, end: int) -> bool:
        """Whether a compiler knows all that is compared."""
        turns = {name for name, low, high in self.turns if low <= start < high}
        return all(name in turns or _CONSTANT.fullmatch(name) for name in _NAME.findall(self.code[start:end]))

    def _operand(self, at: int, step: int) -> int:
        """Where the operand of a comparison begins or ends, from the operator on."""
        depth = 0
        opening, closing = ("([{", ")]}") if step > 0 else (")]}", "([{")
        while 0 <= at < len(self.code):
            c = self.code[at]
            if c in closing:
                if depth == 0:
                    break
                depth -= 1
            elif c in opening:
                depth += 1
            elif depth == 0 and (
                c in ",;?"
                or (c == ":" and ":" not in (self.code[at - 1], self.code[at + 1]))
                or self.code[at : at + 2] in ("&&", "||")
                or (step < 0 and self.code[at - 1 : at + 1] in ("&&", "||"))
                or (c == "=" and self.code[at - 1] not in "<>!=" and self.code[at + 1] != "=")
            ):
                break
            at += step
        at = at if step > 0 else at + 1
        while self.code[at - (step > 0)].isspace():
            at -= step
        keyword = re.match(r"return\s+|!\s*", self.code[at:]) if step < 0 else None
        return at + keyword.end() if keyword else at

    # Clamps.

    def clamps(self) -> Iterator[Mutant]:
        """With one argument in place of a minimum of two, unless that is kept: x = min(x, ..)."""
        for found in _MINIMUM.finditer(self.code):
            end = self.closing(found.end() - 1)
            if any(low <= found.start() < high for low, high in self.elsewhere):
                continue
            before = re.search(r"([\w.\[\]]+)\s*=\s*$", self.code[: found.start()])
            parts = self._arguments(found.end(), end)
            if len(parts) != 2 or (before and before[1] in (self.text[a:b].strip() for a, b in parts)):
                continue
            for low, high in parts:
                kept = self.text[low:high].strip()
                shown = f"{self.text[found.start() : end + 1]} -> {kept}"
                yield self.without(found.start(), end + 1, "clamp", f"({kept})", shown)

    def _arguments(self, at: int, end: int) -> list[tuple[int, int]]:
        parts, depth, start = [], 0, at
        for place in range(at, end):
            depth += (self.code[place] in "([{") - (self.code[place] in ")]}")
            if (
                self.code[place] == ","
                and depth == 0
                and self.code.count("<", start, place) == self.code.count(">", start, place)
            ):
                parts.append((start, place))
                start = place + 1
        return [*parts, (start, end)]


def _within(at: int, spans: list[tuple[int, int, str | None]]) -> bool:
    return any(low <= at < high for low, high, _ in spans)
