"""The catalogue's kernels on the executor give what a real H200 gave on the same sample calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgen.samples import verify
from kgen.spec import Spec
from tests.cpu import conformance_samples as samples

GOLDEN = samples.load(Path(__file__).parent / "golden" / "h200_samples.npz")


@pytest.mark.parametrize("spec", samples.chosen(), ids=str)
def test_a_sample_call_gives_the_bits_that_an_h200_gave(spec: Spec) -> None:
    """Also where its text, or how it is launched, has changed since: what it gives has not, or is recorded anew."""
    found, results = samples.run(spec, gpu=False)
    verify(samples.case_of(spec), results)
    if expected := GOLDEN.get(spec.name):
        different = samples.differing(found, expected)
        assert different <= samples.APPROXIMATE.get(spec.kernel.name, 0), f"{different:.1e} of what an H200 gave"


def test_most_calls_are_recorded_and_some_of_kernels_as_they_still_are(capsys: pytest.CaptureFixture[str]) -> None:
    current = [spec.name for spec in samples.chosen()]
    recorded = [name for name in current if name in GOLDEN]
    same = [name for name in recorded if not samples.changed(GOLDEN[name])]
    with capsys.disabled():
        print(f"\n{len(recorded)} of {len(current)} sample calls recorded on an H200, {len(same)} of unchanged kernels")
    assert same and len(recorded) >= 0.9 * len(current)


def test_every_family_of_the_catalogue_is_recorded() -> None:
    for name in samples.KERNELS:
        assert any(recorded.startswith(f"{name}_") for recorded in GOLDEN), name


def test_golden_outputs_were_all_written() -> None:
    for name, record in GOLDEN.items():
        for words in record.samples:
            assert words.size == 1 or len(np.unique(words)) > 1, name
