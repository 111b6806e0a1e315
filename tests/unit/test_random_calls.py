"""Random calls: those of each family pass, what is wrong with an operator is noticed, and a failure comes again."""

from __future__ import annotations

import os
import re
from itertools import count, islice
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.dtypes import BF16
from tests.random_calls import elements, expressions, gated, jobs, normalized, norms, run
from tests.random_calls.__main__ import main
from tests.random_calls.call import Family, Making
from tests.random_calls.compare import BAR
from tests.random_calls.run import MODULES, Begun, Done, Settings, drawn, make, operators

FEW = Settings(seed=5, cpu=True, most=400)
NO_OPERATORS = {"checked", "explain", "workspace"}


@pytest.fixture
def squares_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number is a call of `kgen.square`."""
    monkeypatch.setattr(run, "FAMILIES", [Family(("square",), elements.named, 1)])


def of_module(module: ModuleType) -> list[int]:
    """The first calls that the families of a module make; fewer where a call's kernels take long to compile."""
    name, most = module.__name__, 1 if module in (gated, normalized) else 2
    return list(islice((n for n in count() if drawn(FEW, n, FEW.device()).family.make.__module__ == name), most))


def squares(found: int) -> list[Done]:
    """What came of the first calls of `kgen.square`."""
    device = FEW.device()
    made = (make(FEW, number, device, lambda message: None) for number in range(found))
    return [done for done in made if done is not None]


def beside(x: Any) -> Any:
    """The element of a view that is last in memory, and what lies behind it."""
    last = x[tuple(slice(-1, None) if stride > 0 else slice(1) for stride in x.strides)]
    return np.lib.stride_tricks.as_strided(last, (2,), (x.itemsize,))


def right(x: Any, out: Any = None) -> Any:
    out = np.empty_like(x) if out is None else out
    out[...] = x.astype("f4") ** 2
    return out


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_calls_of_each_family_pass(module: ModuleType, shared_cache: object) -> None:
    device = FEW.device()
    with kgen.backend("cpu"):
        for number in of_module(module):
            done = make(FEW, number, device, lambda message: None)
            assert done is not None and not done.failure, f"{done}\nagain: {FEW.alone(number)}"


def test_every_operator_is_called() -> None:
    public = {name for name, module in kgen._FACE.items() if module.startswith("ops.")}
    assert set(operators()) == public - NO_OPERATORS


@pytest.mark.usefixtures("squares_only")
def test_an_operator_that_is_right_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kgen, "square", right)
    assert [done.failure for done in squares(12)] == [""] * 12


@pytest.mark.usefixtures("squares_only")
def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Any, out: Any = None) -> Any:
        result = right(x, out)
        last = tuple(-1 for _ in x.shape)
        result[last] = result[last] + 1 if np.isfinite(result[last]) else 1
        return result

    monkeypatch.setattr(kgen, "square", wrong)
    assert all(re.search("is off by|is 1.0 at .*, not (nan|inf)", done.failure) for done in squares(12))


@pytest.mark.parametrize("making", [expressions.of_floats, expressions.of_integers])
def test_a_wrong_result_of_an_expression_is_noticed(
    monkeypatch: pytest.MonkeyPatch, making: Making, shared_cache: object
) -> None:
    right = kgen.elementwise

    def wrong(text: str, **options: Any) -> Any:
        result = right(text, **options)
        result[...] = result != 1 if result.dtype == bool else result + np.abs(result) / 50 + 1
        return result

    monkeypatch.setattr(kgen, "elementwise", wrong)
    monkeypatch.setattr(run, "FAMILIES", [Family(("elementwise",), making, 1)])
    with kgen.backend("cpu"):
        failures = [done.failure for done in squares(8)]
    assert sum(failure.startswith("Wrong: the result is") for failure in failures) >= 5, failures


@pytest.mark.usefixtures("squares_only")
def test_a_write_beside_the_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def writing(x: Any, out: Any = None) -> Any:
        if out is not None:
            beside(out)[1] = 0
        return right(x, out)

    monkeypatch.setattr(kgen, "square", writing)
    made = squares(12)
    given = [done for done in made if "out=" in done.told]
    assert given and all("wrote 1 elements of memory beside" in done.failure for done in given)
    assert all(not done.failure for done in made if done not in given)


@pytest.mark.usefixtures("squares_only")
def test_a_write_to_an_input_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def writing(x: Any, out: Any = None) -> Any:
        result = right(x, out)
        x[tuple(0 for _ in x.shape)] += 1
        return result

    monkeypatch.setattr(kgen, "square", writing)
    assert all("argument 0, which is only read" in done.failure for done in squares(4))


@pytest.mark.usefixtures("squares_only")
def test_a_nan_that_is_read_beside_an_input_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(x: Any, out: Any = None) -> Any:
        result = right(x, out)
        if not x.flags.c_contiguous:  # then something lies behind it
            result[tuple(-1 for _ in x.shape)] += 0 * beside(x)[1]
        return result

    monkeypatch.setattr(kgen, "square", reading)
    failures = [done.failure for done in squares(12) if "strides" in done.told.split("out=")[0]]
    assert any("the result is nan" in failure for failure in failures)


@pytest.mark.usefixtures("squares_only")
def test_other_bits_from_a_second_call_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def unsteady(x: Any, out: Any = None) -> Any:
        calls.append(x)
        result = right(x, out)
        if len(calls) > 1 and calls[-2] is x:
            result[...] = np.nextafter(result.astype("f4"), np.float32(9e9)).astype(x.dtype) + np.float32(1e-3)
        return result

    monkeypatch.setattr(kgen, "square", unsteady)
    assert any("other bits" in done.failure for done in squares(60))


@pytest.mark.usefixtures("squares_only")
def test_a_failing_call_is_made_again_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kgen, "square", lambda x, out=None: right(x, out) * np.nan)
    assert main(["--cpu", "--most", "300", "--seed", "7", "--operator", "square", "--seconds", "60"]) == 1
    told = capsys.readouterr().out
    first = told[: told.index("  again:")]
    again = re.search(r"again: python -m tests\.random_calls (.*)", told)
    assert again is not None and "FAILED: square" in told.splitlines()[-1]

    assert main(again[1].split()) == 1
    assert capsys.readouterr().out.startswith(first)
    monkeypatch.setattr(kgen, "square", right)
    assert main(again[1].split()) == 0
    assert capsys.readouterr().out.splitlines() == ["square 1", "1 calls of 1 operators, seed 7", "none failed"]


def dies(settings: Settings, job: int, of: int, seconds: float, pipe: Any) -> None:
    pipe.send(Done(job, "relu"))
    pipe.send(Begun(job + of, "square"))
    os._exit(3)


def test_a_process_that_dies_is_a_failure_of_the_call_that_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tally = jobs.Tally(FEW, said.append)
    monkeypatch.setattr(jobs, "_job", dies)
    jobs.in_processes(FEW, 2, 1, tally)
    assert tally.made == {"relu": 2} and tally.failed == {"square": 2}
    assert all("the process ended with 3" in line for line in said)
    assert {re.search(r"--call (\d)", line)[1] for line in said} == {"2", "3"}


def test_a_gradient_that_cancels_is_judged_by_its_terms() -> None:
    """Of a layer norm whose dy is constant along rows, dx is nothing but rounding errors."""
    terms, rest = np.full((4, 100), 0.3), np.full((4, 100), 2e-8)
    assert norms.bar_of_gradient(rest, terms, norms.SLACK * BAR[BF16]) * 2e-8 == pytest.approx(
        norms.OF_TERMS * 0.3, rel=1e-6
    )
    assert norms.bar_of_gradient(terms, terms, norms.SLACK * BAR[BF16]) == norms.SLACK * BAR[BF16]
