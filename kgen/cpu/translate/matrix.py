"""Instructions on fragments, of which each lane of a warp holds a part in its registers.

Products are functions of the frame that are compiled once for all kernels; tiles in memory are moved by the runtime.
"""

from __future__ import annotations

import functools

from kgen.cpu.forms import function_name, matrix_forms
from kgen.cpu.translate import memory
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.operands import listed
from kgen.cpu.translate.ptx import Instruction


def rows(emit: Emitter, texts: tuple[str, ...], at: Instruction) -> tuple[int, ...]:
    """Where registers lie in the frame, in the order of the operands."""
    parts = [part for text in texts for part in listed(text)]
    if missing := [part for part in parts if part not in emit.names.rows]:
        raise unknown(at, f"takes only registers here, not {missing[0]}")
    return tuple(emit.names.rows[part] for part in parts)


def product(emit: Emitter, at: Instruction) -> str:
    """Products of fragments: a function of the frame, which is compiled once for all kernels."""
    if at.opcode not in matrix_forms():
        raise unknown(at)
    name = f"kg_{function_name(at.opcode)}"
    emit.products[name] = _source(at.opcode)
    return f"{name}(f->u32, ROWS);"


@functools.cache
def _source(opcode: str) -> str:
    """The C++ of such a function, a `kg::Product`."""
    form = matrix_forms()[opcode]
    counts = [int(count) for count in (form.result, *form.operands)]
    lines = [
        '#include "kernel.h"',
        f'#include "{form.include}"',
        'extern "C" void kg_product(uint32_t (*rows)[32], const uint16_t* which)',
        "{",
        f"    uint32_t* x[{sum(counts)}];",
        f"    for (int i = 0; i < {sum(counts)}; ++i) x[i] = rows[which[i]];",
        f"    kg::{function_name(opcode)}({', '.join(f'x + {sum(counts[:i])}' for i in range(len(counts)))});",
        "}",
    ]
    return "\n".join(lines)


def tiles(emit: Emitter, at: Instruction) -> tuple[str, tuple[str, str]]:
    """ldmatrix and stmatrix: the runtime moves tiles, and knows which lane has which part of them."""
    parts = memory.words(at)
    loads = parts[0] == "ldmatrix"
    place, fragment = (at.operands[1], at.operands[0]) if loads else at.operands
    base, offset = memory.place(place, at)
    if parts[1:4] != ["sync", "aligned", "m8n8"] or parts[-1] != "b16" or memory.space_of(at) != "SHARED":
        raise unknown(at)
    how = f"kg::{'READ' if loads else 'WRITE'}, {'true' if 'trans' in parts else 'false'}"
    count = len(listed(fragment))
    if f"x{count}" not in parts:
        raise unknown(at, f"takes not {count} registers here")
    return f"w->calls->tiles(w, f->u32, ROWS, {offset}, {count}, {how}, {emit.site(at)});", (base, fragment)
