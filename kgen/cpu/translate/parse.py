"""PTX text -> Module; registers of inner scopes are renamed, so that each name stands for one."""

from __future__ import annotations

import math
import re

from kgen.cpu.translate.ptx import SIZES, Entry, Instruction, Module, Variable, instruction
from kgen.errors import CompileError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([$\w%]+)\s*:(?!:)")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)[^\n]*")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
_DECLARED = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([$\w]+)"
    r"((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr[^,\]]*?)?\s+([$\w]+)(?:\[(\d+)\])?\s*$")
_GUARD = re.compile(r"@(!?[%$\w]+)\s+")
_OPERAND = re.compile(r"(?:[^,\[{(]|[\[{(][^\]})]*[\]})])+")
_SPACE = re.compile(r"[\s;]*")
_HEAD = re.compile(r"\s*(?:\.(?:version|target|address_size|file|loc)\b[^\n]*|\.section[^{]*\{[^}]*\})")
_FUNC = re.compile(r"(?:\.\w+\s+)*\.func\s*(?:\([^)]*\)\s*)?([$\w]+)")
_ENTRY = re.compile(r"\s*(?:\.(?:visible|weak)\s+)*\.entry\s+([$\w]+)\s*")
_REGISTERS = re.compile(r"\.reg\s+(?:\.\w+\s+)*?\.(\w+)\s+(.*)", re.DOTALL)


_IN_PLACE_OF_MATH = "pow, sin, cos, tan and lgamma of float64 call such: compute them in float32 here, or on a GPU"
_IN_PLACE_OF_CALLS = "leave out printf, assert and malloc, and mark functions __forceinline__"


def parse(text: str) -> Module:
    """Take a PTX file apart; raises CompileError for what it cannot read."""
    text = _COMMENT.sub("", text)
    module = Module({}, {})
    at = 0
    while at < len(text):
        if head := _HEAD.match(text, at):
            at = head.end()
            continue
        if entry := _ENTRY.match(text, at):
            at = _entry(text, entry.end(), entry[1], module)
            continue
        end = text.find(";", at)
        if end < 0:
            break
        statement = text[at:end].strip()
        if called := _FUNC.match(statement):
            raise CompileError(
                f"the executor runs no function that was not inlined, as {called[1]}",
                hint=_IN_PLACE_OF_MATH if called[1].startswith("__internal") else _IN_PLACE_OF_CALLS,
            )
        if statement:
            _declare(statement, module.variables)
        at = end + 1
    return module


def _entry(text: str, at: int, name: str, module: Module) -> int:
    made = module.entries[name] = Entry(name)
    if text[at] == "(":
        end = text.index("{", at)
        close = text.rindex(")", at, end)
        for item in filter(None, (part.strip() for part in text[at + 1 : close].split(","))):
            found = _PARAM.match(item)
            if found is None:
                raise CompileError(f"{name}: parameter {item!r} cannot be read")
            size = SIZES[found[2]] * int(found[4] or 1)
            made.params.append(Variable(found[3], "param", int(found[1] or SIZES[found[2]]), found[2], size))
        at = close + 1
    body = text.index("{", at)
    cluster = re.search(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", text[at:body])
    if cluster:
        made.cluster = (int(cluster[1]), int(cluster[2] or 1), int(cluster[3] or 1))
    if threads := re.search(r"\.(?:max|req)ntid\s+([\d, ]+)", text[at:body]):
        made.threads = math.prod(map(int, threads[1].split(",")))
    made.launched_registers = _launched_registers(text[at:body], made.threads)
    return _Body(made).read(text, body + 1)


def _launched_registers(directives: str, threads: int) -> int:
    """What a launch gives each thread of a kernel that has setmaxnreg: as many as 65536 registers allow, in eights."""
    if most := re.search(r"\.maxnreg\s+(\d+)", directives):
        return int(most[1])
    blocks = re.search(r"\.minnctapersm\s+(\d+)", directives)
    if not threads or not blocks:
        return 0
    warpgroups = -(-threads // 128)
    return 65536 // (128 * warpgroups * int(blocks[1])) // 8 * 8


class _Body:
    """Reads the statements of one kernel; a scope maps the names that it declares to unique ones."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.scopes: list[dict[str, str]] = [{}]
        self.serials = [0]  # of the open scopes: a label's name is its own with that of its scope
        self.branches: list[tuple[int, tuple[int, ...]]] = []
        self.line = self.caller = 0
        self.count = 0

    def read(self, text: str, at: int) -> int:
        """Read up to the brace that closes the kernel; the position after it."""
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if text[at] == "{":
                self.count += 1
                self.scopes.append({})
                self.serials.append(self.count)
                at += 1
            elif text[at] == "}":
                self.scopes.pop()
                self.serials.pop()
                at += 1
                if not self.scopes:
                    self._resolve()
                    return at
            elif found := _LOC.match(text, at):
                self._at(found)
                at = found.end()
            elif found := _LABEL.match(text, at):
                self.entry.body.append(self._label(found[1]))
                at = found.end()
            else:
                end = text.index(";", at)
                self._statement(text[at:end].strip())
                at = end + 1

    def _at(self, found: re.Match[str]) -> None:
        file, line = found[1], int(found[2])
        places = [(file, line), *((f, int(n)) for f, n in _INLINED.findall(found[0]))]
        own = [n for f, n in places if f == "1" and n]
        if own or not line:
            self.line = own[0] if own else self.line
            self.caller = own[1] if len(own) > 1 else 0

    def _statement(self, statement: str) -> None:
        if statement.startswith(".reg"):
            self._registers(statement)
        elif statement.startswith(".pragma"):
            pass
        elif statement.startswith(".branchtargets"):
            name = self.entry.body.pop()  # read as a label
            self.entry.tables[str(name)] = tuple(self._label(x.strip()) for x in statement.split(None, 1)[1].split(","))
        elif statement.startswith("."):
            _declare(statement, self.entry.variables)
        else:
            guard = _GUARD.match(statement)
            rest = statement[guard.end() :] if guard else statement
            opcode, *tail = rest.split(None, 1)
            operands = self._renamed(tail[0]) if tail else ""
            name = self._renamed(guard[1]) if guard else ""
            if opcode.startswith("bra") and len(self.scopes) > 1:
                self.branches.append((len(self.entry.body), tuple(self.serials)))
            registers = self.entry.registers
            self.entry.body.append(instruction(opcode, _split(operands), name, self.line, self.caller, registers))

    def _registers(self, statement: str) -> None:
        found = _REGISTERS.match(statement)
        if found is None:
            raise CompileError(f"{self.entry.name}: {statement!r} cannot be read")
        for item in (part.strip() for part in found[2].split(",")):
            name, _, count = item.partition("<")
            if count:
                for number in range(int(count.rstrip("> "))):
                    self.entry.registers[f"{name}{number}"] = found[1]
            elif len(self.scopes) == 1:
                self.entry.registers[name] = found[1]
            else:
                self.count += 1
                self.scopes[-1][name] = unique = f"%{name.strip('%')}__{self.count}"
                self.entry.registers[unique] = found[1]

    def _label(self, name: str) -> str:
        return name if len(self.scopes) == 1 else f"{name}__{self.serials[-1]}"

    def _resolve(self) -> None:
        """Point the branches out of inner scopes at the nearest label of that name."""
        labels = {item for item in self.entry.body if isinstance(item, str)}
        for at, serials in self.branches:
            jump = self.entry.body[at]
            assert isinstance(jump, Instruction)
            names = [f"{jump.operands[0]}__{serial}" for serial in reversed(serials)]
            found = next((name for name in names if name in labels), jump.operands[0])
            self.entry.body[at] = jump._replace(operands=(found,))

    def _renamed(self, operands: str) -> str:
        if len(self.scopes) == 1:
            return operands
        names = {key: value for scope in self.scopes for key, value in scope.items()}
        return re.sub(r"[%$A-Za-z_][\w$%]*", lambda m: names.get(m[0], m[0]), operands)


def _split(operands: str) -> tuple[str, ...]:
    """Operands, split at the commas outside of brackets."""
    if "," not in operands:
        return (operands,) if operands else ()
    if "[" not in operands and "{" not in operands and "(" not in operands:
        return tuple(map(str.strip, operands.split(",")))
    return tuple(part.strip() for part in _OPERAND.findall(operands))


def _declare(statement: str, variables: dict[str, Variable]) -> None:
    found = _DECLARED.match(statement.strip())
    if found is None:
        raise CompileError(f"PTX statement {statement[:200]!r} cannot be read")
    space, align, kind, name, dims, values = found.groups()
    size = SIZES[kind]
    for extent in re.findall(r"\[(\d*)\]", dims):
        size *= int(extent or 0)
    elements = tuple(part.strip() for part in re.sub(r"[{}]", "", values or "").split(",") if part.strip())
    if dims == "[]" and elements:
        size = SIZES[kind] * len(elements)
    variables[name] = Variable(name, space, int(align or SIZES[kind]), kind, size, elements)
