"""Errors: one base, the built-in kinds that people catch, a hint on a line of its own."""

from __future__ import annotations

import pickle

import pytest

from kgen import errors
from kgen.config import ConfigError
from kgen.errors import CompileError, KgenError, SpecError

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KgenError)] + [ConfigError]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_is_caught_as_kgen_error_and_shows_its_hint_on_a_line_of_its_own(kind: type[KgenError]) -> None:
    with pytest.raises(KgenError) as caught:
        raise kind("it broke", hint="mend it")
    assert str(caught.value) == "it broke\n  hint: mend it"
    assert str(kind("it broke")) == "it broke"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("SpecError", ValueError),
        ("ArchError", ValueError),
        ("CompileError", RuntimeError),
        ("ToolchainError", RuntimeError),
        ("DeviceError", RuntimeError),
        ("CaptureError", RuntimeError),
        ("JitDisabledError", RuntimeError),
        ("CacheWarning", UserWarning),
    ],
)
def test_errors_are_also_the_builtin_kind_that_people_expect(name: str, builtin: type[Exception]) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, builtin)
    assert issubclass(kind, Warning) or kind in ALL


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CompileError("it broke", log="line 3", hint="mend it")))
    assert (str(error), error.log, error.hint) == ("it broke\n  hint: mend it", "line 3", "mend it")
    assert isinstance(pickle.loads(pickle.dumps(SpecError("no"))), SpecError)
