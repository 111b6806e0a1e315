"""Every KGEN_* environment variable, read in one place.

`config()` reads the environment anew at each call (a few microseconds, never on the hot path), so a change takes effect
at once and tests need no reset.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kgen.errors import KgenError

BACKENDS = ("auto", "gpu", "cpu")
_HERE = Path(__file__).resolve().parent
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class ConfigError(KgenError, ValueError):
    """An environment variable or a setting that kgen cannot read."""


class Config(NamedTuple):
    """The settings in force.

    cache_dir    KGEN_CACHE_DIR    where compiled kernels are kept; default $XDG_CACHE_HOME/kgen or ~/.cache/kgen
    cache_bytes  KGEN_CACHE_SIZE   size at which the least recently used are dropped: 512M, 2G; default 1G
    shelf        KGEN_SHELF        kernels compiled elsewhere, only read; default those that kgen was installed with
    backend      KGEN_BACKEND      what computes NumPy arrays: "gpu", "cpu" (executor), or "auto", the first there is
    jit          KGEN_JIT          "off" forbids compiling: a kernel that is in no cache is an error
    overlap      KGEN_OVERLAP      "off" lets no kernel be launched before the one ahead of it has ended
    templates    KGEN_TEMPLATES    a folder searched for templates before kgen's own
    kernels      KGEN_KERNELS      a Python file that declares more kernels, for the command line
    cxx          KGEN_CXX          the C++ compiler of the CPU executor; by default g++, clang++, or the wheel ziglang
    """

    cache_dir: Path
    cache_bytes: int
    shelf: Path
    backend: str
    jit: bool
    overlap: bool
    templates: Path | None
    kernels: Path | None
    cxx: str | None


def config() -> Config:
    """The settings of this moment."""
    return Config(
        cache_dir=_cache_dir(),
        cache_bytes=_size("KGEN_CACHE_SIZE", "1G"),
        shelf=_path("KGEN_SHELF") or _HERE / "cubins",
        backend=_choice("KGEN_BACKEND", BACKENDS),
        jit=_switch("KGEN_JIT", "on"),
        overlap=_switch("KGEN_OVERLAP", "on"),
        templates=_path("KGEN_TEMPLATES"),
        kernels=_path("KGEN_KERNELS"),
        cxx=os.environ.get("KGEN_CXX") or None,
    )


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None


def _cache_dir() -> Path:
    chosen = _path("KGEN_CACHE_DIR")
    if chosen is not None:
        return chosen
    try:
        return (_path("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "kgen"
    except RuntimeError:  # a container's user without a home; if this cannot be written either, the store says so
        return Path("/.cache/kgen")


def parse_size(text: str) -> int:
    """Bytes from `4096`, `512M` or `2g`; ValueError for anything else."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not digits.isdecimal() or unit not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write bytes, or a number with K, M or G: 512M")
    return int(digits) * _UNITS[unit]


def _size(variable: str, default: str) -> int:
    text = os.environ.get(variable) or default
    try:
        return parse_size(text)
    except ValueError:
        hint = f"{variable} takes bytes, or a number with K, M or G: 512M"
        raise ConfigError(f"{variable}={text!r} is not a size", hint=hint) from None


def _choice(variable: str, values: tuple[str, ...]) -> str:
    text = os.environ.get(variable) or values[0]
    if text not in values:
        raise ConfigError(f"{variable}={text!r} is unknown", hint=f"{variable} is one of {', '.join(values)}")
    return text


def _switch(variable: str, default: str) -> bool:
    text = (os.environ.get(variable) or default).lower()
    if text in ("on", "1", "true", "yes"):
        return True
    if text in ("off", "0", "false", "no"):
        return False
    raise ConfigError(f"{variable}={text!r} is neither on nor off", hint=f"set {variable} to on or off, or unset it")
