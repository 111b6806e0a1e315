"""Which kernels are known, and how a name or a selection finds its specializations.

The grammar of names, read from the left by the longest registered kernel name:

    kernel ("_" letter value)* ("_" flag)* "_" dtype
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

from kgen.errors import SpecError
from kgen.spec import Kernel, Spec

_AXIS_TOKEN = re.compile(r"([a-z]{1,2})([0-9]{1,18})")
_YES_NO = {"0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}

_registry: dict[str, Kernel] = {}


def register(kernel: Kernel) -> Kernel:
    """Make a kernel known by name to `parse`, `select` and the command line; returns it.

    Registering a second kernel of the same name replaces the first, so that a notebook cell can run twice.
    """
    letters = [axis.letter for axis in kernel.axes]
    flags = [flag.name for flag in kernel.flags]
    in_names = [*letters, *flags, *(dtype.name for dtype in kernel.dtypes)]
    in_template = [*(axis.name for axis in kernel.axes), *flags]
    if any(len(set(words)) < len(words) for words in (in_names, in_template)):
        raise SpecError(f"{kernel.name}: two axes or flags share a name")
    # Otherwise a name would not read back: `_` separates its words, and a number belongs to the letters before it.
    well_formed = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", kernel.name) and all(
        re.fullmatch(pattern, word)
        for pattern, words in ((r"[a-z]{1,2}", letters), (r"[a-z]+", flags))
        for word in words
    )
    if not well_formed:
        raise SpecError(f"{kernel.name!r}: names are lower case, axis letters one or two of a-z, flags one word of a-z")
    _registry[kernel.name] = kernel
    return kernel


def registered() -> dict[str, Kernel]:
    """The kernels known so far, by name."""
    return dict(_registry)


def parse(name: str) -> Spec:
    """The Spec that a name stands for; raises SpecError, and says what is taken, when there is none."""
    owners = [kernel for stem, kernel in _registry.items() if name == stem or name.startswith(stem + "_")]
    if not owners:
        raise SpecError(f"no kernel is called {name!r}", hint=f"known: {', '.join(sorted(_registry)) or 'none'}")
    kernel = max(owners, key=lambda owner: len(owner.name))
    *tokens, last = name.removeprefix(kernel.name).strip("_").split("_")
    dtypes = {dtype.name: dtype for dtype in kernel.dtypes}
    if last not in dtypes:
        raise SpecError(f"{name!r} does not end in a dtype of {kernel.name}", hint=_grammar(kernel))
    spec = kernel.spec(dtype=dtypes[last], **_axis_values(kernel, name, tokens))
    if spec.name != name:
        raise SpecError(f"{name!r} is not how that specialization is written", hint=f"it is {spec.name}")
    return spec


def select(words: Sequence[str], among: Iterable[Kernel]) -> list[Spec]:
    """Specializations by exact name, kernel name, glob, or `axis=value` pairs (`e=64,128 dtype=f16 reverse=no`).

    Names and globs add up; pairs narrow what they gave, or everything where there is no name. Raises SpecError for
    a word that matches nothing.
    """
    pairs = [word.partition("=")[::2] for word in words if "=" in word]
    names = [word for word in words if "=" not in word]
    among = list(among)
    chosen: dict[Spec, None] = {}
    if not names:
        chosen = dict.fromkeys(spec for kernel in among for spec in kernel.specs())
    for name in names:
        chosen.update(dict.fromkeys(_named(name, among)))
    for key, values in pairs:
        chosen = dict.fromkeys(spec for spec in chosen if _matches(spec, key.lower(), values.lower().split(",")))
    if not chosen:
        raise SpecError(f"no specialization matches {' '.join(words)!r}", hint="kgen list shows what there is")
    return list(chosen)


def _grammar(kernel: Kernel) -> str:
    """How names of this kernel are written."""
    axes = "".join(f"[_{a.letter}{a.name}]" if a.default is not None else f"_{a.letter}{a.name}" for a in kernel.axes)
    flags = "".join(f"[_{flag.name}]" for flag in kernel.flags)
    return f"{kernel.name}{axes}{flags}_{{{','.join(map(str, kernel.dtypes))}}}"


def _axis_values(kernel: Kernel, name: str, tokens: Sequence[str]) -> dict[str, int | bool]:
    axes = {axis.letter: axis.name for axis in kernel.axes}
    values: dict[str, int | bool] = {}
    for token in tokens:
        match = _AXIS_TOKEN.fullmatch(token)
        if match and match[1] in axes:
            key, value = axes[match[1]], int(match[2])
        elif any(flag.name == token for flag in kernel.flags):
            key, value = token, True
        else:
            raise SpecError(f"{name!r}: {token!r} is no axis or flag of {kernel.name}", hint=_grammar(kernel))
        if key in values:
            raise SpecError(f"{name!r} gives {key} twice", hint=_grammar(kernel))
        values[key] = value
    return values


def _named(name: str, among: Sequence[Kernel]) -> list[Spec]:
    if name in _registry:
        return list(_registry[name].specs())
    if not any(c in name for c in "*?["):
        return [parse(name)]
    literal = re.split(r"[*?[]", name)[0]
    near = [kernel for kernel in among if kernel.name.startswith(literal) or literal.startswith(kernel.name)]
    found = [spec for kernel in near for spec in kernel.specs() if fnmatch.fnmatchcase(spec.name, name)]
    if not found:
        raise SpecError(f"no specialization matches {name!r}", hint="kgen list shows what there is")
    return found


def _matches(spec: Spec, key: str, wanted: Sequence[str]) -> bool:
    if key in ("dtype", "kernel"):
        return (spec.dtype.name if key == "dtype" else spec.kernel.name) in wanted
    for axis in spec.kernel.axes:
        if key in (axis.letter, axis.name.lower()):
            return str(spec[axis.name]) in wanted
    for flag in spec.kernel.flags:
        if key == flag.name:
            return bool(spec[flag.name]) in [_YES_NO.get(word) for word in wanted]
    return False
