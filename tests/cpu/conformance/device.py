"""Forms on a GPU: compiles their kernels with NVRTC, launches them through CuPy, brings back what they wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kgen.errors import CompileError
from tests.cpu.conformance.form import Form
from tests.cpu.conformance.inputs import inputs_of
from tests.cpu.conformance.kernels import THREADS, source, symbol
from tests.cpu.conformance.tiles import Words

UNIT = 24
"""Forms that are compiled together."""


def run(forms: Sequence[Form], refused: list[Form]) -> Iterator[tuple[Form, list[Words]]]:
    """What each form writes; those that this compiler does not take are appended to `refused`."""
    import cupy

    units = [list(forms[at : at + UNIT]) for at in range(0, len(forms), UNIT)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for compiled in pool.map(_compile, units):
            for unit, cubin in compiled:
                if cubin is None:
                    refused += unit
                    continue
                module = cupy.cuda.function.Module()
                module.load(cubin)
                for form in unit:
                    yield form, _launch(cupy, module.get_function(symbol(form)), form)


def _launch(cupy: Any, function: Any, form: Form) -> list[Words]:
    given = cupy.asarray(np.concatenate(inputs_of(form)))
    # Above the results lie 32 bytes for each lane, where atomics have their slots.
    written = cupy.full((len(form.outs) + 4) * form.cases, 0xAAAAAAAAAAAAAAAA, "u8")
    function((form.cases // THREADS, 1, 1), (THREADS, 1, 1), (given, written))
    host = cupy.asnumpy(written)
    return [host[j * form.cases : (j + 1) * form.cases] for j in range(len(form.outs))]


def _compile(forms: list[Form]) -> list[tuple[list[Form], bytes | None]]:
    """Cubins of all forms, in halves where the compiler refuses one of them."""
    try:
        return [(forms, cubin(source(forms)))]
    except CompileError:
        if len(forms) == 1:
            return [(forms, None)]
        half = len(forms) // 2
        return _compile(forms[:half]) + _compile(forms[half:])


def cubin(text: str) -> bytes:
    """A compilation unit for sm_90a; raises CompileError with the compiler's log."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, "forms.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--gpu-architecture=sm_90a", "--std=c++17"))
        result: bytes = nvrtc.getCUBIN(program)
        return result + b"\0"
    except nvrtc.NVRTCError as error:
        raise CompileError("forms do not compile", log=nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
