"""One test, two devices: `xp` is NumPy with the CPU executor behind it, then CuPy. All share one cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen


@pytest.fixture(autouse=True)
def _one_cache(shared_cache: Path) -> None:
    """What one test compiled, the next one finds."""


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def xp(request: pytest.FixtureRequest) -> Any:
    """The array library to make a test's arrays, views and strides with."""
    if request.param == "gpu":
        yield pytest.importorskip("cupy")
    else:
        with kgen.backend("cpu"):
            yield np


@pytest.fixture
def asnumpy(xp: ModuleType) -> Callable[[Any], np.ndarray]:
    """What a result holds, on the host."""
    return xp.asnumpy if hasattr(xp, "asnumpy") else np.asarray
