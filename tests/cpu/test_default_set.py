"""Every specialization of the default set, run by the executor with its checks on and compared with float64."""

from __future__ import annotations

from pathlib import Path

import pytest

import kgen
from kgen.samples import call, cases_of, verify
from kgen.spec import Spec
from tests.cpu.executing import watched


@pytest.mark.parametrize("spec", kgen.select(), ids=str)
def test_a_default_kernel_gives_the_right_numbers_and_no_report_in_any_order(spec: Spec, shared_cache: Path) -> None:
    for case in cases_of(spec):
        for order in ("forward", "random"):
            with watched(order=order) as watch:
                results = call(case)
            assert spec.name in watch.kernels, f"a case of {spec} ran {', '.join(watch.kernels)}"
            assert not watch.findings, watch
            verify(case, results)
