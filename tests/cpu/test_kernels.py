"""Every kernel of the default set that has a sample call: right against float64 under watch, and nothing to report."""

from __future__ import annotations

import numpy as np
import pytest

import kgen
from kgen.checking import watching
from kgen.samples import sample, samples

SPECS = [spec for spec in kgen.select() if spec.kernel.name in samples()]


@pytest.mark.parametrize("name", [spec.name for spec in SPECS])
def test_a_default_kernel_is_right_and_silent_in_any_order(name: str) -> None:
    spec = kgen.parse(name)
    made = sample(spec)
    for order in ("forward", "random"):
        with watching(order=order, seed=1) as watch:
            results = made.call()
        assert name in watch.kernels
        assert not watch.findings, str(watch)
        assert made.error(results) <= made.tolerance


def test_the_same_kernel_unwatched_gives_the_same_bits() -> None:
    made = sample(kgen.parse("lmha_e64_t1_f32"), seed=3)
    with watching() as watch:
        checked = made.call()
    assert watch.kernels
    with kgen.backend("cpu"):
        np.testing.assert_array_equal(made.call(), checked)
