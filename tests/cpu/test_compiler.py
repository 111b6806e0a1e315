"""Which C++ compiler the executor takes."""

from __future__ import annotations

import re

import pytest

from kgen.cpu.compiler import build, compiler
from kgen.errors import CompileError, ToolchainError


@pytest.mark.parametrize("command", ["/nowhere/g++", "no-such-compiler -O1", " "])
def test_a_compiler_that_is_not_there_is_an_error_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("KGEN_CXX", command)
    with pytest.raises(ToolchainError, match=f"KGEN_CXX names {re.escape(command)}, which is no command here"):
        compiler.__wrapped__()


def test_a_command_that_compiles_nothing_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.cpu.compiler.compiler", lambda: ("true",))
    with pytest.raises(CompileError, match="true says that all is well, and makes no library") as caught:
        build("")
    assert "KGEN_CXX" in str(caught.value)
