"""Whole kernels on the executor give bit for bit what a real H200 gave, the sums of the tensor cores included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cpu import conformance_cases as cases

GOLDEN = np.load(Path(__file__).parent / "golden" / "h200_kernels.npz")


@pytest.mark.parametrize("case", cases.cases(), ids=lambda case: case.name)
def test_a_kernel_gives_the_bits_that_an_h200_gave(case):
    found = cases.packed({case.name: cases.run_on_executor(case)})
    for name, out in found.items():
        expected = GOLDEN[name]
        assert out.shape == expected.shape
        different = np.flatnonzero(out != expected)
        assert not different.size, f"{different.size} of {out.size} numbers differ, the first at {different[0]}"


def test_every_kernel_of_linear_attention_is_recorded():
    kernels = {case.step.spec.kernel.name for case in cases.cases()}
    assert kernels >= {"lmha_low_occupancy", "lmha", "lmha_chunk", "lmha_query", "lmha_total"}
    assert {name.rpartition("/")[0] for name in GOLDEN.files} == {case.name for case in cases.cases()}


def test_golden_outputs_were_all_written():
    for name in GOLDEN.files:
        assert not (GOLDEN[name] == np.iinfo(GOLDEN[name].dtype).max).any()
        assert len(np.unique(GOLDEN[name])) > GOLDEN[name].size / 100
