"""Norms of rows that begin anywhere, in packs that begin with sectors, beside float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.backend import backend
from kgen.dtypes import DTYPES
from kgen.ops.norm import sectors
from kgen.ops.norm.norm import layer_norm, rms_norm
from kgen.ops.questions import explain
from tests.ops.test_norm_span import assert_norms_agree, numbers
from tests.ops.test_softmax import examples
from tests.plans import forget

AsNumpy = Callable[[Any], np.ndarray]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However few rows there are, of whatever width; other tests of the same shapes are planned otherwise."""
    forget()
    of_kinds = [
        (size, count, wide, apart) for size in (2, 4) for count in (1, 2) for wide in (0, 1) for apart in (0, 1)
    ]
    monkeypatch.setattr(sectors, "PAYS", dict.fromkeys(of_kinds, range(1 << 30)))
    monkeypatch.setattr(sectors, "TURNS", 0)
    monkeypatch.setattr(sectors, "FILLED", 0)
    yield
    forget()


@pytest.mark.parametrize(
    ("dtype", "shape", "own", "ahead"),
    [
        ("bf16", (67, 129), "bf16", 0),
        ("bf16", (35, 1023), "f32", 3),
        ("f16", (33, 2049), "f16", 5),
        ("f16", (1, 4097), "f32", 0),
        ("bf16", (17, 3001), "bf16", 7),  # threads of three warps
        ("f32", (70, 191), "f16", 1),
        ("f32", (20, 765), "f32", 2),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_rows_of_whole_sectors_agree_with_float64(
    dtype: str, shape: tuple[int, int], own: str, ahead: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    assert_norms_agree("norm_sectors", shape, dtype, own, ahead, xp, asnumpy)


@pytest.mark.parametrize(
    ("dtype", "shape", "own", "ahead", "behind"),
    [
        ("bf16", (67, 129), "bf16", 1, -1),
        ("bf16", (33, 1000), "f32", 1, -1),
        ("f16", (40, 2050), "f16", 0, 3),
        ("f32", (35, 511), "f32", 1, -1),
        ("f32", (1, 1025), "f32", 2, 1),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_results_may_begin_elsewhere(
    dtype: str, shape: tuple[int, int], own: str, ahead: int, behind: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    assert_norms_agree("norm_sectors", shape, dtype, own, ahead, xp, asnumpy, behind)


@examples
@given(data=st.data())
@pytest.mark.usefixtures("everywhere")
def test_rows_of_any_width_agree_with_float64(data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy) -> None:
    dtype = data.draw(st.sampled_from(["f32", "f16", "bf16"]))
    full = 16 // DTYPES[dtype].itemsize
    columns = data.draw(st.integers(8 * full, 1000).filter(lambda n: n % full))
    rows, ahead = data.draw(st.integers(1, 70)), data.draw(st.integers(0, full - 1))
    own, behind = data.draw(st.sampled_from(["f32", dtype])), data.draw(st.integers(0, full - 1))
    assert_norms_agree("norm_sectors", (rows, columns), dtype, own, ahead, xp, asnumpy, behind)


def test_a_row_is_the_same_to_the_bit_whether_or_not_it_has_a_partner(
    xp: ModuleType, asnumpy: AsNumpy, everywhere: None
) -> None:
    host, weight = numbers((40, 129), "bf16", 1), xp.asarray(numbers((129,), "bf16", 2))
    every = asnumpy(layer_norm(xp.asarray(host), weight, weight))
    for rows in (1, 16, 17, 33):
        assert asnumpy(layer_norm(xp.asarray(host[:rows]), weight, weight)).tobytes() == every[:rows].tobytes()


@pytest.mark.usefixtures("everywhere")
def test_other_rows_are_left_to_other_kernels() -> None:
    """Which begin with a vector, have no weights, or a residual."""
    aligned, rows, w = np.ones((40, 160), "e"), np.ones((40, 129), "e"), np.ones(129, "e")
    with backend("cpu"):
        assert "norm_sectors" in explain(layer_norm, rows, w, w)
        assert "norm_sectors" not in explain(layer_norm, rows)
        assert "norm_sectors" not in explain(layer_norm, aligned, aligned[0], aligned[0])
        assert "norm_sectors" not in explain(rms_norm, rows, w, residual=rows)
