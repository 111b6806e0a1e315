"""Instructions on fragments, of which each lane of a warp holds a part in its registers, as numbers for the runtime.

Unrolled loops have hundreds of them in a row, which stand in one table. Products are functions of the frame that are
compiled once for all kernels.
"""

from __future__ import annotations

import functools

from kgen.cpu.forms import matrix_forms
from kgen.cpu.translate import memory
from kgen.cpu.translate.emitter import Emitter, unknown
from kgen.cpu.translate.operands import listed
from kgen.cpu.translate.ptx import Instruction

_TILES = -1
_READ, _WRITE, _TRANSPOSED = 1, 2, 4


def product(emit: Emitter, at: Instruction) -> list[int]:
    """The number of a product, and where its operands lie."""
    if at.opcode not in matrix_forms():
        raise unknown(at)
    emit.products.setdefault(at.opcode, _source(at.opcode))
    return [[*emit.products].index(at.opcode), *_rows(emit, at.operands, at)]


def tiles(emit: Emitter, at: Instruction) -> list[int]:
    """ldmatrix and stmatrix: how many tiles, what is done with them, and where addresses and fragments lie."""
    parts = memory.words(at)
    loads = parts[0] == "ldmatrix"
    place, fragment = (at.operands[1], at.operands[0]) if loads else at.operands
    base, offset = memory.place(place, at)
    if parts[1:4] != ["sync", "aligned", "m8n8"] or parts[-1] != "b16" or memory.space_of(at) != "SHARED":
        raise unknown(at)
    count = len(listed(fragment))
    if f"x{count}" not in parts:
        raise unknown(at, f"takes not {count} registers here")
    how = (_READ if loads else _WRITE) | (_TRANSPOSED if "trans" in parts else 0)
    return [_TILES, count, how, offset, emit.site(at), *_rows(emit, (base, fragment), at)]


def _rows(emit: Emitter, texts: tuple[str, ...], at: Instruction) -> list[int]:
    """Where registers lie in the frame, in the order of the operands."""
    parts = [part for text in texts for part in listed(text)]
    if missing := [part for part in parts if part not in emit.names.rows]:
        raise unknown(at, f"takes only registers here, not {missing[0]}")
    return [emit.names.rows[part] for part in parts]


@functools.cache
def _source(opcode: str) -> str:
    """The C++ of a product, a `kg::Product`."""
    form = matrix_forms()[opcode]
    counts = [int(count) for count in (form.result, *form.operands)]
    lines = [
        '#include "kernel.h"',
        f'#include "{form.include}"',
        'extern "C" int kg_product(uint32_t (*rows)[32], const int32_t* which)',
        "{",
        f"    uint32_t* x[{sum(counts)}];",
        f"    for (int i = 0; i < {sum(counts)}; ++i) x[i] = rows[which[i]];",
        f"    {form.expression}({', '.join(f'x + {sum(counts[:i])}' for i in range(len(counts)))});",
        f"    return {sum(counts)};",
        "}",
    ]
    return "\n".join(lines)
