"""Tests of the CPU executor share one cache of compiled kernels."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _one_cache(shared_cache: Path) -> None:
    """What one test compiled, the next one finds."""
