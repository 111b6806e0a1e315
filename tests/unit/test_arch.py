"""Architectures: how they are written, ordered, and which device runs which."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.arch import OLDEST, Arch
from kgen.errors import ArchError

ARCHS = st.builds(Arch, st.integers(1, 30), st.integers(0, 9), st.sampled_from(["", "a", "f"]))


@given(ARCHS)
def test_the_text_of_an_arch_parses_back_to_it(arch: Arch) -> None:
    assert Arch.parse(str(arch)) == arch
    assert Arch.parse(str(arch).replace("sm_", "compute_")) == arch
    assert Arch.parse(str(arch).removeprefix("sm_")) == arch


@pytest.mark.parametrize(
    ("text", "arch"),
    [("sm_90a", Arch(9, 0, "a")), (" SM_100F ", Arch(10, 0, "f")), ("75", Arch(7, 5)), ("sm_121", Arch(12, 1))],
)
def test_the_last_digit_is_the_minor(text: str, arch: Arch) -> None:
    assert Arch.parse(text) == arch


@pytest.mark.parametrize("text", ["", "sm_", "sm_9", "sm_90b", "sm_90aa", "sm-90", "hopper", "sm_90 a", "sm_9000"])
def test_anything_else_is_refused_and_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ArchError, match="no GPU architecture") as caught:
        Arch.parse(text)
    assert repr(text) in str(caught.value)
    assert "sm_90a" in str(caught.value.hint)


@given(st.text(max_size=12))
def test_any_text_is_an_arch_or_an_arch_error(text: str) -> None:
    with contextlib.suppress(ArchError):
        Arch.parse(text)


def test_archs_are_ordered_by_age_and_not_by_spelling() -> None:
    names = ["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_120"]
    assert [str(arch) for arch in sorted(map(Arch.parse, reversed(names)))] == names
    assert Arch.parse("sm_75") == OLDEST


@pytest.mark.parametrize(
    ("arch", "runs", "fails"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90", [(9, 0)], [(8, 9), (10, 0)]),
        ("sm_90a", [(9, 0)], [(8, 9), (10, 0), (9, 1)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (12, 0)]),
        ("sm_103f", [(10, 3)], [(10, 0)]),
        ("sm_120a", [(12, 0)], [(12, 1)]),
    ],
)
def test_a_cubin_runs_on_later_minors_unless_it_is_for_one_device_only(
    arch: str, runs: list[tuple[int, int]], fails: list[tuple[int, int]]
) -> None:
    assert all(Arch.parse(arch).runs_on(device) for device in runs)
    assert not any(Arch.parse(arch).runs_on(device) for device in fails)


@given(st.integers(7, 13), st.integers(0, 9))
def test_what_is_compiled_for_a_device_runs_on_it(major: int, minor: int) -> None:
    arch = Arch.of_device((major, minor))
    assert arch.runs_on((major, minor))
    assert arch.suffix == ("a" if major >= 9 else "")
