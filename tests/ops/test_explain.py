"""`kgen.explain` of every default kernel's sample call."""

from __future__ import annotations

import numpy as np
import pytest

import kgen
from kgen.ops import calls
from kgen.registry import parse, registered
from kgen.samples import Case, cases_of
from kgen.scratch import listing

DEFAULTS = [name for kernel in registered().values() for name in kernel.defaults]
SEVERAL_PARTS = ("histogram", "quantize")


def told(monkeypatch: pytest.MonkeyPatch, case: Case) -> str:
    """What a call would do, by plans that are not kept, whose kernels stand idle and need no compiler."""
    monkeypatch.setattr(calls, "remember", lambda *_: None)
    with kgen.backend("cpu"), listing():
        return kgen.explain(case.operator, *case.inputs, **case.options)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_public_operators_call_is_explained_or_said_to_have_several_parts(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for case in cases_of(parse(name)):
        called = getattr(case.operator, "__name__", "")
        if getattr(kgen, called, None) is not case.operator:
            continue  # a function of the samples
        if called in SEVERAL_PARTS:
            with pytest.raises(TypeError, match="more than one part"):
                told(monkeypatch, case)
            continue
        *steps, why = told(monkeypatch, case).splitlines()
        assert why.startswith("because ")
        for step in steps:
            kernel, _, blocks = step.partition(" on ")
            assert "{" in kernel or parse(kernel).name == kernel
            assert blocks.split()[0].isdigit()


def test_an_embedding_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    table, indices = np.ones((9, 64), np.float32), np.zeros((3, 2), np.int64)
    assert told(monkeypatch, Case(kgen.embedding, (indices, table), {}, np.empty(0))).startswith("take_n16_l16_a1_i64 ")
