"""Every specialization of the default set, run by the executor with its checks on and compared with float64.

Its warps run in a random order: in the forward one they do without checks, in the tests of its operator.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kgen
from kgen import nvrtc
from kgen.cpu.library import ARCH
from kgen.render import render
from kgen.samples import call, cases_of, verify
from kgen.spec import Spec
from tests.cpu.executing import watched


@pytest.mark.parametrize("spec", kgen.select(), ids=str)
def test_a_default_kernel_gives_the_right_numbers_and_no_report(spec: Spec, shared_cache: Path) -> None:
    cases = cases_of(spec)
    assert cases
    for case in cases:
        with watched(order="random") as watch:
            results = call(case)
        assert spec.name in watch.kernels, f"a case of {spec} ran {', '.join(watch.kernels)}"
        assert not watch.findings, watch
        verify(case, results)


def test_no_default_kernel_is_too_long_for_a_first_call_in_a_second_and_a_half() -> None:
    """NVRTC, translation and g++ take 0.2 ms for each line of PTX on two idle cores, all together (2026-11-22)."""
    longest = [spec for spec in kgen.select() if spec.kernel.name.startswith(("gated_", "linear_", "lmha_chunk"))]
    lines = {spec.name: nvrtc.compile_ptx(render(spec).text, spec.name, ARCH).count(";\n") for spec in longest}
    assert {name: count for name, count in lines.items() if count > 5300} == {}
