"""Which C++ compiler the executor takes."""

from __future__ import annotations

import re

import pytest

from kgen.cpu.compiler import compiler
from kgen.errors import ToolchainError


@pytest.mark.parametrize("command", ["/nowhere/g++", "no-such-compiler -O1", " "])
def test_a_compiler_that_is_not_there_is_an_error_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("KGEN_CXX", command)
    with pytest.raises(ToolchainError, match=f"KGEN_CXX names {re.escape(command)}, which is no command here"):
        compiler.__wrapped__()
