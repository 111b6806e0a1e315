"""Every specialization of the default set, run by the executor with its checks on and compared with float64."""

from __future__ import annotations

from pathlib import Path

import pytest

import kgen
from kgen.spec import Spec
from tests.cpu.cases import call, case_of, verify
from tests.cpu.executing import explained, watched


@pytest.mark.parametrize("spec", kgen.select(), ids=str)
def test_a_default_kernel_gives_the_right_numbers_and_no_report(spec: Spec, shared_cache: Path) -> None:
    case = case_of(spec)
    ran: list[Spec] = []
    with watched(ran) as watch:
        results = call(case)
    assert spec in ran, f"the case of {spec} ran {explained(ran)}"
    assert not watch.findings, watch
    verify(case, results)
