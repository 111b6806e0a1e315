"""Settings: read anew at each call, with an error that names the variable when one cannot be read."""

from __future__ import annotations

import contextlib
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.config import ConfigError, _size, config

VARIABLES = ("KGEN_CACHE_DIR", "KGEN_CACHE_SIZE", "KGEN_JIT", "KGEN_TEMPLATES", "KGEN_KERNELS", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def _bare_environment(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def test_defaults_without_any_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    settings = config()
    assert settings.cache_dir == Path("/home/someone/.cache/kgen")
    assert (settings.cache_bytes, settings.jit, settings.templates, settings.kernels) == (1 << 30, True, None, None)


def test_cache_dir_goes_before_the_desktops_cache_and_that_before_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert config().cache_dir == Path("/xdg/kgen")
    monkeypatch.setenv("KGEN_CACHE_DIR", "~/mine")
    monkeypatch.setenv("HOME", "/home/someone")
    assert config().cache_dir == Path("/home/someone/mine")


def test_a_user_without_a_home_has_settings_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert config().cache_dir == Path("/.cache/kgen")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("4096", 4096), ("3K", 3072), ("512m", 512 << 20), ("2G", 2 << 30), ("", 1 << 30)]
)
def test_sizes_are_bytes_or_carry_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_SIZE", text)
    assert config().cache_bytes == size


@pytest.mark.parametrize("text", ["G", "1.5G", "-1", "1T", "many", "1 G", "²", "1GB"])
def test_a_size_that_cannot_be_read_names_the_variable_and_the_form(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_SIZE", text)
    with pytest.raises(ConfigError, match="KGEN_CACHE_SIZE=") as caught:
        config()
    assert "512M" in str(caught.value.hint)


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6))
def test_any_text_is_a_size_or_a_config_error(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KGEN_CACHE_SIZE", text)
        with contextlib.suppress(ConfigError):
            assert _size("KGEN_CACHE_SIZE", "1G") >= 0


@pytest.mark.parametrize(("text", "jit"), [("off", False), ("0", False), ("No", False), ("ON", True), ("1", True)])
def test_jit_is_switched_by_any_usual_word(text: str, jit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_JIT", text)
    assert config().jit is jit


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_JIT", "maybe")
    with pytest.raises(ConfigError, match="KGEN_JIT='maybe' is neither on nor off"):
        config()


def test_a_change_of_the_environment_takes_effect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_KERNELS", "/one.py")
    assert config().kernels == Path("/one.py")
    monkeypatch.setenv("KGEN_KERNELS", "/two.py")
    assert config().kernels == Path("/two.py")
