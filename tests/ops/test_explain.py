"""`kgen.explain` of every default kernel's sample call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.errors import JitDisabledError
from kgen.ops import calls
from kgen.registry import parse, registered
from kgen.samples import Case, cases_of, options_of
from kgen.scratch import listing

DEFAULTS = [name for kernel in registered().values() for name in kernel.defaults]


def told(monkeypatch: pytest.MonkeyPatch, case: Case) -> str:
    """What a call would do, by plans that are not kept, whose kernels stand idle and need no compiler."""
    monkeypatch.setattr(calls, "remember", lambda *_: None)
    for where, name, value in case.settings:
        monkeypatch.setattr(where, name, value)
    with kgen.backend("cpu"), listing():
        return kgen.explain(case.operator, *case.inputs, **options_of(case))


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_public_operators_call_is_explained(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for case in cases_of(parse(name)):
        called = getattr(case.operator, "__name__", "")
        if getattr(kgen, called, None) is not case.operator:
            continue  # a function of the samples
        lines = told(monkeypatch, case).splitlines()
        assert lines[-1].startswith("because ")
        for step in lines:
            if step.startswith("because "):  # of each part of a call that has several
                continue
            kernel, _, blocks = step.partition(" on ")
            assert "{" in kernel or parse(kernel).name == kernel
            assert blocks.split()[0].isdigit()


@pytest.mark.parametrize("function", [kgen.sum, kgen.histogram, kgen.relu], ids=lambda one: one.__name__)
def test_a_call_is_explained_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: Any) -> None:
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KGEN_JIT", "off")
    x = np.ones(1237, "f")
    with kgen.backend("cpu"):
        assert " on " in kgen.explain(function, x)
        with pytest.raises(JitDisabledError):  # nor is what was explained taken for what can run
            function(x)


def test_an_embedding_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    table, indices = np.ones((9, 64), np.float32), np.zeros((3, 2), np.int64)
    case = Case(kgen.embedding, (indices, table), {}, np.empty((3, 2, 64)), dtype=table.dtype)
    assert told(monkeypatch, case).startswith("take_n16_l16_a1_i64 ")


@pytest.mark.parametrize(
    ("function", "given", "options", "kernels"),
    [
        (kgen.bincount, (np.zeros(9, np.int32),), {}, ["histogram"]),
        (kgen.bincount, (np.zeros(9, np.int32),), {"length": 70_000}, ["histogram"]),
        (
            kgen.bincount,
            (np.zeros(9, np.int32), np.ones(9)),
            {"length": 5},
            ["histogram_largest", "histogram_weights", "histogram_total"],
        ),
        (
            kgen.histogram,
            (np.ones((3, 5), np.float32),),
            {"density": True},
            ["histogram_extremes", "histogram", "histogram_density"],
        ),
        (kgen.quantize, (np.ones((3, 5), np.float32),), {}, ["quantize_largest", "quantize_largest", "quantize"]),
        (kgen.quantize, (np.ones((3, 5), np.float32),), {"axis": 0}, ["quantize_columns_e4m3"] * 2),
        (kgen.quantize, (np.ones((3, 5), np.float32), "int8", 0.5), {}, ["quantize"]),
    ],
)
def test_a_call_of_several_operators_is_explained_part_by_part(
    monkeypatch: pytest.MonkeyPatch, function: Any, given: tuple[Any, ...], options: dict[str, Any], kernels: list[str]
) -> None:
    lines = told(monkeypatch, Case(function, given, options, np.empty(0))).splitlines()
    steps = [step for step in lines if not step.startswith("because ")]
    assert [step.startswith(kernel) for step, kernel in zip(steps, kernels, strict=True)] == [True] * len(kernels)


def test_what_a_bincount_asks_again_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = told(monkeypatch, Case(kgen.bincount, (np.zeros(9, np.int32),), {}, np.empty(0)))
    assert text.endswith("; the host waits for the greatest element; again, if there are more than 768 of them")


def test_where_the_result_goes_decides_with_the_rest() -> None:
    x = np.zeros((64, 4100), np.float32)
    apart = np.zeros(x.size + 1, np.float32)[1:].reshape(x.shape)
    with kgen.backend("cpu"), listing():
        outs = (None, np.zeros_like(x), apart)
        fresh, alike, elsewhere = (kgen.explain(kgen.softmax, x, -1, out=out).split()[0] for out in outs)
        assert fresh == alike != elsewhere
        with pytest.raises(ValueError, match="out has shape"):
            kgen.explain(kgen.softmax, x, -1, out=apart[:3])


def test_an_expression_is_explained_with_its_operands_as_when_it_is_prepared() -> None:
    x, y = np.zeros((3, 8), np.float32), np.zeros(8, np.float32)
    prepared = kgen.elementwise("2 * x + y")
    with kgen.backend("cpu"), listing():
        expected = kgen.explain(prepared, x, y)
        assert kgen.explain(kgen.elementwise, "2 * x + y", x=x, y=y) == expected
        assert kgen.workspace(kgen.elementwise, "2 * x + y", x=x, y=y) == kgen.workspace(prepared, x, y)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (kgen.causal_dot_product, [np.zeros((1, 2, 0, 4), "f")] * 3),
        (kgen.gla, [np.zeros((0, 2, 3, 4), "f")] * 4),
        (kgen.rope, [np.zeros((1, 2, 0, 8), "f")]),
        (kgen.softmax, [np.zeros((0, 3), "f")]),
    ],
)
def test_a_call_whose_results_are_empty_launches_nothing(function: Any, given: list[np.ndarray]) -> None:
    with kgen.backend("cpu"):
        assert kgen.explain(function, *given) == "because there is nothing to compute"
        assert kgen.workspace(function, *given) == 0


@pytest.mark.parametrize("ask", [kgen.explain, kgen.workspace])
def test_only_operators_of_kgen_are_explained(ask: Any) -> None:
    for other in (np.sum, len, kgen.build, "relu", None):
        with pytest.raises(TypeError, match="is no operator of kgen's"):
            ask(other, np.zeros(3))
    with pytest.raises(TypeError, match="sum: missing a required argument: 'x'"):
        ask(kgen.sum)
