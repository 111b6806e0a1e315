"""Forms on the CPU executor: the same kernels and inputs as on a GPU, through NVRTC's PTX and its translation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kgen import cpu
from tests.cpu.conformance.form import Form
from tests.cpu.conformance.inputs import inputs_of
from tests.cpu.conformance.kernels import THREADS, source, symbol
from tests.cpu.conformance.tiles import Words


def run(forms: Sequence[Form]) -> Iterator[tuple[Form, list[Words]]]:
    """What each form writes; all are compiled together. Raises what compiling raises: an instruction not known."""
    kernel = cpu.compile_cuda(source(forms))
    for form in forms:
        given = np.concatenate(inputs_of(form))
        # Above the results lie 32 bytes for each lane, where atomics have their slots.
        written = np.full((len(form.outs) + 4) * form.cases, 0xAAAAAAAAAAAAAAAA, np.uint64)
        kernel.launch(symbol(form), grid=form.cases // THREADS, block=THREADS, args=[given, written])
        yield form, [written[j * form.cases : (j + 1) * form.cases] for j in range(len(form.outs))]
