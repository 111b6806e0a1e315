"""Operands of PTX as C++: a register is a name, in a region, or an element of a row of the frame, over the lanes."""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Mapping

from kgen.cpu.forms import C_TYPES
from kgen.cpu.translate.ptx import SIZES, Entry, Instruction, Module, Variable
from kgen.errors import UnknownInstructionError

_FLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|(0)?\d+)U?")
_BYTES = {"float": 4, "double": 8} | {f"{u}int{n}_t": n // 8 for u in ("", "u") for n in (8, 16, 32, 64)}
_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
_SPECIAL = {
    "laneid": "(uint32_t)l",
    "warpid": "w->index",
    "nwarpid": "((w->ntid[0] * w->ntid[1] * w->ntid[2] + 31) / 32)",
    "lanemask_eq": "(1u << l)",
    "lanemask_lt": "((1u << l) - 1)",
    "lanemask_le": "((2u << l) - 1)",
    "lanemask_gt": "~((2u << l) - 1)",
    "lanemask_ge": "~((1u << l) - 1)",
    "cluster_ctarank": "w->cluster_rank",
    "cluster_nctarank": "w->cluster_size",
    "is_explicit_cluster": "(w->cluster_size > 1)",
    "dynamic_smem_size": "w->dynamic_shared",
    "total_smem_size": "w->total_shared",
    "aggr_smem_size": "w->total_shared",
    "smid": "0u",
    "nsmid": "1u",
    "gridid": "0u",
    "clock": "(uint32_t)++*w->progress",
    "clock_hi": "0u",
    "clock64": "(uint64_t)++*w->progress",
    "globaltimer": "(uint64_t)++*w->progress",
    "globaltimer_lo": "(uint32_t)++*w->progress",
}


class Names:
    """The registers and variables of a kernel in C++; `shared` has the offset of each variable in shared memory."""

    def __init__(self, entry: Entry, module: Module, shared: Mapping[str, int], local: Mapping[str, int]) -> None:
        self.entry = entry
        self.registers = entry.registers
        self.params = entry.offsets()
        self.globals = {name: variable for name, variable in module.variables.items() if variable.space != "shared"}
        self.shared = shared
        self.local = local
        self.lanes = False  # whether registers are rows of the frame here
        self.arrays: dict[str, str] = {}  # of the registers that live from place to place
        self.rows: dict[str, int] = {}  # and where in the frame those of 32 bits and more lie
        self.used_globals: set[str] = set()

    def register(self, name: str) -> str:
        """The C++ lvalue of a register."""
        return f"{self.arrays[name]}[l]" if self.lanes else c_name(name)

    def condition(self, name: str) -> str:
        """A predicate register, `!` before it or not, as a C++ condition."""
        return f"!{self.register(name[1:])}" if name.startswith("!") else self.register(name)

    def kind(self, name: str) -> str:
        """The C++ type of a register."""
        return register_type(self.registers[name])

    def value(self, text: str, kind: str, at: Instruction) -> str:
        """An operand as a C++ expression of the type that goes with the PTX type `kind`."""
        wanted = C_TYPES[kind]
        if text.startswith("!"):
            return f"!{self.value(text[1:], kind, at)}"
        if text in self.registers:
            return _converted(self.register(text), self.kind(text), wanted)
        return self._constant(text, wanted, at)

    def _constant(self, text: str, wanted: str, at: Instruction) -> str:
        if text.startswith("%"):
            return f"({wanted}){self._special(text[1:], at)}"
        if (number := constant(text, wanted)) is not None:
            return number
        if text == "WARP_SZ":
            return "32u"
        base, _, offset = re.sub(r"\s", "", text).partition("+")
        if (place := self.address(base)) is not None:
            return f"({wanted})({place}{f' + {int(offset, 0)}' if offset else ''})"
        raise UnknownInstructionError(f"the executor does not know the operand {text!r} of `{at}`", line=at.line)

    def address(self, name: str) -> str | None:
        """Where a variable lies, in its own state space: an offset in shared memory, else a host address."""
        if name in self.shared:
            return f"{self.shared[name]}u"
        if name in self.local:
            return f"(uint64_t)(w->local + (uint64_t)l * w->local_size + {self.local[name]})"
        if name in self.params:
            return f"(uint64_t)(w->args + {self.params[name]})"
        if name in self.globals:
            self.used_globals.add(name)
            return f"w->variables[{[*self.globals].index(name)}]"
        return None

    def _special(self, name: str, at: Instruction) -> str:
        base, _, part = name.partition(".")
        if base in _VECTORS and part in ("x", "y", "z"):
            lane = "[l]" if base == "tid" else ""
            return f"w->{base}[{'xyz'.index(part)}]{lane}"
        if base in _SPECIAL and not part:
            return _SPECIAL[base]
        raise UnknownInstructionError(
            f"the executor does not know the special register %{name} of `{at}`", line=at.line
        )

    def assign(self, text: str, kind: str, expression: str) -> str:
        """A statement that writes a value of the PTX type `kind` to an operand; `_` takes nothing."""
        if text == "_":
            return f"(void)({expression});"
        held, given = self.kind(text), C_TYPES[kind]
        if held != given and held != f"u{given}":
            expression = _converted(f"({given})({expression})", given, held)
        return f"{self.register(text)} = {expression};"


@functools.cache
def register_type(kind: str) -> str:
    """The C++ type that holds a register of a declared type: floats as themselves, all else unsigned."""
    if kind in ("f32", "f64", "pred"):
        return C_TYPES[kind]
    return f"uint{8 * SIZES[kind]}_t"


@functools.cache
def c_name(name: str) -> str:
    """A PTX name as a C++ name; registers without a number must not be taken for the generated code's own names."""
    plain = re.sub(r"[^\w]", "_", name.lstrip("%"))
    return f"v_{plain}" if name.startswith("%") and not plain[-1].isdigit() else plain


def constant(text: str, wanted: str) -> str | None:
    """A number as PTX writes it, in C++; None where it is something else."""
    if found := _FLOAT.fullmatch(text):
        bits, single = int(found[2], 16), found[1] in "fF"
        return f"(double){_literal(bits, 'float')}" if single and wanted == "double" else _literal(bits, wanted)
    if found := _INTEGER.fullmatch(text):
        return _literal(int(text.rstrip("U"), 16 if "x" in text.lower() else 8 if found[1] else 10), wanted)
    return None


def initial(variable: Variable) -> bytes:
    """What a variable holds in the beginning."""
    size, data = SIZES[variable.type], b""
    for text in variable.values:
        if found := _FLOAT.fullmatch(text):
            bits = int(found[2], 16)
        elif _INTEGER.fullmatch(text):
            bits = int(text.rstrip("U"), 0)
        else:
            raise UnknownInstructionError(f"the executor does not know the initial value {text!r} of {variable.name}")
        data += (bits & (1 << 8 * size) - 1).to_bytes(size, "little")
    return data.ljust(variable.size, b"\0")


def _literal(bits: int, wanted: str) -> str:
    """A constant of a C++ type; floats by their bits."""
    if wanted == "bool":
        return "true" if bits else "false"
    size = _BYTES[wanted]
    bits &= (1 << 8 * size) - 1
    if wanted in ("float", "double"):
        number = struct.unpack("<f" if size == 4 else "<d", bits.to_bytes(size, "little"))[0]
        if not math.isfinite(number):
            return f"kg::{wanted}_of({bits}u)"
        text = number.hex() + ("f" if size == 4 else "")
    elif wanted[0] == "u":
        text = f"{bits}{'ull' if size == 8 else 'u'}"
    elif bits == 1 << (8 * size - 1):
        text = f"({wanted}){bits}u"
    else:
        text = f"{bits - (bits >> (8 * size - 1) << 8 * size)}{'ll' if size == 8 else ''}"
    if size < 4:
        text = f"({wanted}){text}"
    return text if text[0] != "-" else f"({text})"


def _converted(expression: str, held: str, wanted: str) -> str:
    if held == wanted:
        return expression
    if held in ("float", "double"):
        return f"({wanted})kg::bits_of({expression})"
    if wanted in ("float", "double"):
        return f"kg::{wanted}_of({expression})"
    return f"({wanted}){expression}"


def listed(text: str) -> tuple[str, ...]:
    """The registers of a vector operand `{a, b}`; of a plain one, itself.

    >>> listed("{%f1, %f2}"), listed("%f1")
    (('%f1', '%f2'), ('%f1',))
    """
    if text.startswith("{"):
        return tuple(part.strip() for part in text.strip("{} ").split(","))
    return (text,)
