"""The kernels that try forms: each reads a lane's operands, executes one instruction, and stores what it wrote.

Words travel as 64 bits whatever their type, operand j of lane i at [j][i]. How a kernel of each style looks:

    lane     every lane for itself
    warp     operand `mask` says which lanes execute the instruction; the others store ABSENT
    atomic   on a slot of its own in global or shared memory; the outputs are the instruction's, then the slot's
    matrix   the first operands fill the warp's rows of shared memory, the next says which row a lane points at; the
             outputs are the instruction's, or the rows' after it where it has none
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.cpu.conformance.form import Form, register

THREADS = 64
ABSENT = 0xDEAD

_TO = {
    "h": "static_cast<unsigned short>({})",
    "r": "static_cast<unsigned>({})",
    "p": "static_cast<unsigned>({})",
    "l": "{}",
    "f": "__uint_as_float(static_cast<unsigned>({}))",
    "d": "__longlong_as_double(static_cast<long long>({}))",
}
_FROM = {"f": "__float_as_uint({})", "d": "static_cast<Word>(__double_as_longlong({}))"}
_C = {"h": "unsigned short", "r": "unsigned", "p": "unsigned", "l": "Word", "f": "float", "d": "double"}


def symbol(form: Form) -> str:
    """The kernel's name.

    >>> symbol(Form("cvt.rn.f16.f32", ("f16",), ("f32",)))
    'form_cvt_rn_f16_f32'
    """
    text = form.name.replace("{", "v").replace("|", "p").replace("!", "not")
    return "form_" + re.sub(r"\W+", "_", text).strip("_")


def source(forms: Sequence[Form]) -> str:
    """One compilation unit with a kernel for each form."""
    return "using Word = unsigned long long;\n\n" + "\n".join(_STYLES[form.style](form) for form in forms)


def _assembly(form: Form, operands: Sequence[str], outs: Sequence[str], ins: Sequence[str]) -> str:
    """The asm statement. `operands` are types, outputs first; predicates go through registers made within it."""
    text = form.name
    if "$" not in text:
        text += " " + ", ".join(f"${i}" for i in range(len(operands)))
    before, after = "", ""
    for i, kind in enumerate(operands):
        if register(kind) != "p":
            continue
        text = re.sub(rf"\${i}(?!\d)", f"p{i}", text)
        before += f".reg .pred p{i}; "
        if i < len(outs):
            after += f" selp.u32 ${i}, 1, 0, p{i};"
        else:
            before += f"setp.ne.u32 p{i}, ${i}, 0; "
    body = re.sub(r"\$(\d+)", r"%\1", f"{{ {before}{text};{after} }}".replace("%", "%%"))
    letters = ["r" if (r := register(kind)) == "p" else r for kind in operands]
    written = ", ".join(f'"={letter}"({name})' for letter, name in zip(letters, outs))
    read = ", ".join(f'"{letter}"({name})' for letter, name in zip(letters[len(outs) :], ins))
    return f'asm volatile("{body}" : {written} : {read} : "memory");'


def _kernel(form: Form, body: str, shared: str = "") -> str:
    return (
        f'extern "C" __global__ void {symbol(form)}(const Word* in, Word* out)\n{{\n{shared}'
        "    const int n = gridDim.x * blockDim.x;\n"
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"{body}}}\n"
    )


def _load(form: Form) -> str:
    lines = []
    for j, kind in enumerate(form.ins):
        letter = register(kind)
        lines.append(f"    const {_C[letter]} a{j} = {_TO[letter].format(f'in[{j} * n + i]')};\n")
    return "".join(lines)


def _declare(form: Form) -> str:
    return "".join(f"    {_C[register(kind)]} d{j} = 0;\n" for j, kind in enumerate(form.outs))


def _store(form: Form, condition: str = "") -> str:
    lines = []
    for j, kind in enumerate(form.outs):
        value = _FROM.get(register(kind), "{}").format(f"d{j}")
        value = f"{condition} ? {value} : {ABSENT}u" if condition else value
        lines.append(f"    out[{j} * n + i] = {value};\n")
    return "".join(lines)


def _names(form: Form) -> tuple[list[str], list[str]]:
    return [f"d{j}" for j in range(len(form.outs))], [f"a{j}" for j in range(len(form.ins))]


def _lane(form: Form) -> str:
    outs, ins = _names(form)
    return _kernel(
        form, _load(form) + _declare(form) + f"    {_assembly(form, form.outs + form.ins, outs, ins)}\n" + _store(form)
    )


def _warp(form: Form) -> str:
    outs, ins = _names(form)
    if "mask" not in form.ins:
        return _lane(form)
    present = f"a{form.ins.index('mask')} >> (threadIdx.x & 31) & 1"
    body = _load(form) + _declare(form)
    body += f"    if ({present}) {{\n        {_assembly(form, form.outs + form.ins, outs, ins)}\n    }}\n"
    return _kernel(form, body + _store(form, f"({present})"))


def _atomic(form: Form) -> str:
    """`ins` are the slots' first contents (several for a vector) and the operands; `outs` end with the slots after."""
    slots = sum(kind.startswith("slot:") for kind in form.ins)
    kind = form.ins[0].removeprefix("slot:")
    letter = register(kind)
    outs, ins = _names(form)
    shared = ".shared" in form.name
    body = _load(form) + _declare(form)
    if shared:
        space = f"    __shared__ __align__(16) {_C[letter]} slots[{THREADS} * {slots}];\n"
        body += f"    {_C[letter]}* const slot = slots + threadIdx.x * {slots};\n"
    else:
        # In the output's own memory, above what it takes: 32 bytes for each lane.
        space = ""
        body += f"    {_C[letter]}* const slot = reinterpret_cast<{_C[letter]}*>(out + {len(form.outs)} * n + 4 * i);\n"
    body += "".join(f"    slot[{j}] = a{j};\n" for j in range(slots))
    pointer = "static_cast<unsigned>(__cvta_generic_to_shared(slot))" if shared else "slot"
    body += f"    const auto address = {pointer};\n"
    results = len(form.outs) - slots
    operands = (*form.outs[:results], "b32" if shared else "b64", *form.ins[slots:])
    shown = form
    if "$" not in form.name:
        shown = form._replace(name=f"{form.name} $0, [$1], " + ", ".join(f"${j}" for j in range(2, len(operands))))
    body += f"    {_assembly(shown, operands, outs[:results], ['address', *ins[slots:]])}\n"
    body += "".join(f"    d{results + j} = slot[{j}];\n" for j in range(slots))
    return _kernel(form, body + _store(form), space)


def _matrix(form: Form) -> str:
    """`ins` begin with the four words of a lane's row and the row that it points at; stores end with registers."""
    outs, ins = _names(form)
    loads = form.name.startswith("ldmatrix")
    body = _load(form) + _declare(form)
    body += "    unsigned* const warp = rows + (threadIdx.x >> 5) * 128;\n"
    body += "".join(f"    warp[(threadIdx.x & 31) * 4 + {j}] = a{j};\n" for j in range(4))
    body += "    __syncwarp();\n"
    body += "    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(warp + a4 * 4));\n"
    written, kinds = (outs, form.outs) if loads else ([], ())
    body += f"    {_assembly(form, (*kinds, 'b32', *form.ins[5:]), written, ['address', *ins[5:]])}\n"
    if not loads:
        body += "    __syncwarp();\n"
        body += "".join(f"    d{j} = warp[(threadIdx.x & 31) * 4 + {j}];\n" for j in range(4))
    shared = f"    __shared__ __align__(16) unsigned rows[{THREADS} * 4];\n"
    return _kernel(form, body + _store(form), shared)


_STYLES = {"lane": _lane, "warp": _warp, "atomic": _atomic, "matrix": _matrix}
