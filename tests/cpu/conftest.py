"""Tests of the CPU executor share one cache of compiled kernels; `watched` is a test under watch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kgen.checking import watching
from kgen.cpu.check.watch import Watch


@pytest.fixture(autouse=True)
def _one_cache(shared_cache: Path) -> None:
    """What one test compiled, the next one finds."""


@pytest.fixture
def watched() -> Iterator[Watch]:
    """Every launch of the test runs on the CPU and is checked; the test fails where there is anything to report."""
    with watching() as watch:
        yield watch
    assert not watch.findings, str(watch)
