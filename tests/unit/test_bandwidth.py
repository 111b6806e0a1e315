"""The rows whose bandwidth is told, with NumPy in CuPy's place and arrays of a few kilobytes, on the executor."""

from __future__ import annotations

import cupy
import numpy as np
import pytest

import kgen
from kgen import bandwidth
from kgen.bandwidth.run import _error, chosen, complaints, drawn, summary
from kgen.benchmarks import BenchError
from kgen.dtypes import BF16, F32

SMALL = 1 << 14


@pytest.fixture
def on_the_executor(monkeypatch: pytest.MonkeyPatch, shared_cache: object) -> None:
    for name in ("random", "empty", "empty_like", "sqrt", "exp", "log", "maximum", "tri"):
        monkeypatch.setattr(cupy, name, getattr(np, name))
    monkeypatch.setattr(bandwidth, "NBYTES", SMALL)
    monkeypatch.setenv("KGEN_BACKEND", "cpu")


def names() -> list[str]:
    return list(dict.fromkeys(row.name for dtype in (F32, BF16) for row in bandwidth.rows(dtype)))


@pytest.mark.parametrize("name", [name for name in names() if "gelu" not in name])  # whose reference is CuPy's own
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_rows_of_every_name_are_right(name, dtype, on_the_executor) -> None:
    rows = [row for row in bandwidth.rows(dtype) if row.name == name]
    small = [row for row in rows if np.prod([int(n) for n in row.shape.split("x")]) <= SMALL]
    for row in small[:2]:
        problem = row.prepare()
        assert _error(problem) <= bandwidth.BARS[dtype], row.label
        assert problem.nbytes >= max(array.nbytes for array in problem.moved)


def test_a_row_whose_result_is_wrong_is_told(on_the_executor, monkeypatch) -> None:
    monkeypatch.setattr(kgen, "relu", lambda x, out: np.copyto(out, x) or out)
    (row,) = [row for row in bandwidth.rows(F32) if row.name == "relu"]
    assert _error(row.prepare()) > bandwidth.BARS[F32]


def test_globs_choose_rows_by_their_labels() -> None:
    labels = [row.label for row in chosen(("softmax 16384x4096 *", "add 6*"), ("f32", "bf16"))]
    assert labels == ["add 67108864 f32", "softmax 16384x4096 f32"]
    assert len(chosen((), ("f32",))) > 200
    with pytest.raises(BenchError, match="no row matches softmax 1x"):
        chosen(("softmax 1x",), ("f32",))
    with pytest.raises(BenchError, match="no rows are of 'i8'"):
        chosen((), ("i8",))


def test_processes_that_check_rows_find_them(monkeypatch) -> None:
    """A child that cannot import what it is to call ends the pool; here it only lacks a GPU, or finds none wrong."""
    for found in complaints(chosen(("add 6*",), ("f32",)), 1):
        assert found is None or "Error" in found


def test_rows_have_the_widths_that_are_asked_for() -> None:
    rows = chosen((), ("f32",), (137, 4099))
    assert all(
        "137" in row.shape.split("x") or "4099" in row.shape.split("x") for row in rows if "down" not in row.name
    )
    assert {row.name for row in rows} >= {
        "layer_norm",
        "rms_norm_backward",
        "softmax",
        "argmax along",
        "gemv",
        "transpose",
    }
    assert drawn(9, 3) == drawn(9, 3) != drawn(9, 4)
    assert all(128 <= width <= 262144 for width in drawn(300, 0))


def test_operators_are_summed_up_by_their_least_and_median() -> None:
    rows = chosen(("relu *", "add *"), ("f32", "bf16"))
    told = summary([(row, 0.9 + at / 100) for at, row in enumerate(rows)])
    assert [line["name"] for line in told] == ["add", "add of x[1:]", "relu", "relu of x[1:]"]
    assert told[0] == {"name": "add", "rows": 2, "least": 0.9, "median": pytest.approx(0.92)}
