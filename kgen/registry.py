"""Which kernels are known, and how a name or a selection finds its specializations.

The grammar of names, read from the left by the longest registered kernel name:

    kernel ("_" letter value)* ("_" flag)* "_" dtype
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

from kgen import declared, hints
from kgen.errors import SpecError
from kgen.spec import Kernel, Spec

_AXIS_TOKEN = re.compile(r"([a-z]{1,2})([0-9]{1,18})")
_YES_NO = {"0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}

_registry: dict[str, Kernel] = {}


def register(kernel: Kernel) -> Kernel:
    """Make a kernel known by name to `parse`, `select` and the command line; returns it.

    Registering a second kernel of the same name replaces the first, so that a notebook cell can run twice; but none of
    kgen's own. Raises SpecError for what is wrong with the declaration.
    """
    declared.check(kernel)
    if kernel.name in _registry and _is_own(kernel) != _is_own(_registry[kernel.name]):
        raise SpecError(f"kgen has a kernel {kernel.name!r} of its own", hint="give the other one another name")
    _registry[kernel.name] = kernel
    return kernel


def _is_own(kernel: Kernel) -> bool:
    return kernel.derive.__module__.startswith("kgen.")


def registered() -> dict[str, Kernel]:
    """The kernels known so far, by name."""
    return dict(_registry)


def parse(name: str) -> Spec:
    """The Spec that a name stands for; raises SpecError, and says what is taken, when there is none."""
    if not isinstance(name, str):
        raise SpecError(f"parse: name is {name!r}; it takes the name of a specialization")
    owners = [kernel for stem, kernel in _registry.items() if name == stem or name.startswith(stem + "_")]
    if not owners:
        raise SpecError(f"no kernel is called {name!r}", hint=hints.owners(name, _registry))
    kernel = max(owners, key=lambda owner: len(owner.name))
    *tokens, last = name.removeprefix(kernel.name).strip("_").split("_")
    dtypes = {dtype.name: dtype for dtype in kernel.dtypes}
    if last not in dtypes:
        raise SpecError(f"{name!r} does not end in a dtype of {kernel.name}", hint=grammar(kernel))
    spec = kernel.spec(dtype=dtypes[last], **_axis_values(kernel, name, tokens))
    if spec.name != name:
        raise SpecError(f"{name!r} is not how that specialization is written", hint=f"it is {spec.name}")
    return spec


def select(words: Sequence[str], among: Iterable[Kernel]) -> list[Spec]:
    """Specializations by exact name, kernel name, glob, or `axis=value` pairs (`e=64,128 dtype=f16 reverse=no`).

    Names and globs add up; pairs narrow what they gave, or everything where there is no name. Raises SpecError for
    a word that matches nothing.
    """
    pairs = [
        (key.lower(), values.lower().split(",")) for key, found, values in (w.partition("=") for w in words) if found
    ]
    names = [word for word in words if "=" not in word]
    everything = list(among)
    among = [kernel for kernel in everything if all(key in _keys(kernel) for key, _ in pairs)]
    chosen = {} if names else dict.fromkeys(_narrowed(among, pairs))
    for name in names:
        found = _named(name, among, pairs)
        if not found and _is_glob(name):
            raise _nothing([name, *map(_written, pairs)], _meant([name], everything), pairs)
        chosen.update(dict.fromkeys(found))
    if not chosen:
        raise _nothing(words, _meant(names, everything), pairs)
    return list(chosen)


def grammar(kernel: Kernel) -> str:
    """How names of this kernel are written: what stands in brackets is left out at its default."""
    axes = "".join(f"[_{a.letter}{a.name}]" if a.default is not None else f"_{a.letter}{a.name}" for a in kernel.axes)
    flags = "".join(f"[_{flag.name}]" for flag in kernel.flags)
    return f"{kernel.name}{axes}{flags}_{{{','.join(map(str, kernel.dtypes))}}}"


def completions(start: str, among: Iterable[Kernel]) -> list[str]:
    """How a name that begins so may go on: to a kernel's name, then by one word at a time, and to legal names only."""
    among = list(among)
    found = [kernel.name for kernel in among if kernel.name.startswith(start)]
    for kernel in among:
        if f"{start}_".startswith(f"{kernel.name}_"):
            found += _continued(kernel, start)
    return found


def _continued(kernel: Kernel, start: str) -> list[str]:
    """By the next word; by more where there is only one choice, so that a shell does not take the name for finished."""
    axes = [[f"{axis.letter}{value}" for value in axis.values if value != axis.default] for axis in kernel.axes]
    words = [*axes, *([flag.name] for flag in kernel.flags), [dtype.name for dtype in kernel.dtypes]]
    needed = [*(axis.default is None for axis in kernel.axes), *(False for _ in kernel.flags), True]
    typed, _, last = start.removeprefix(kernel.name).rpartition("_")
    at = 0
    for word in typed.split("_")[1:]:
        after = [place for place in range(at, len(words)) if word in words[place]]
        if not after or any(needed[at : after[0]]):
            return []
        at = after[0] + 1
    if at == len(words):  # nothing comes behind the dtype
        return []
    until = needed.index(True, at) + 1
    stem = kernel.name + typed + "_"
    found = [stem + word for place in range(at, until) for word in words[place] if word.startswith(last)]
    whole = {stem + word for word in words[-1]} if until == len(words) else set()
    found = [name for name in found if name not in whole or _is_legal(name)]
    return _continued(kernel, found[0] + "_") if len(found) == 1 and found[0] not in whole else found


def _is_legal(name: str) -> bool:
    try:
        return bool(parse(name))
    except SpecError:
        return False


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
            raise SpecError(f"{name!r}: {token!r} is no axis or flag of {kernel.name}", hint=grammar(kernel))
        if key in values:
            raise SpecError(f"{name!r} gives {key} twice", hint=grammar(kernel))
        values[key] = value
    return values


Pairs = Sequence[tuple[str, Sequence[str]]]


def _named(name: str, among: Sequence[Kernel], pairs: Pairs) -> list[Spec]:
    """What an exact name, a kernel's name, or a glob stands for, as far as the pairs admit it."""
    if name in _registry:
        return list(_narrowed([kernel for kernel in among if kernel.name == name], pairs))
    if not _is_glob(name):
        spec = parse(name)
        return [spec] if spec.kernel in among and _admits(spec, pairs) else []
    near = _meant([name], among)
    return [spec for spec in _narrowed(near, pairs) if fnmatch.fnmatchcase(spec.name, name)]


def _is_glob(name: str) -> bool:
    return any(c in name for c in "*?[")


def _meant(names: Sequence[str], among: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that names and globs may be of; all of them where there is no name."""

    def answers(kernel: Kernel, name: str) -> bool:
        literal = re.split(r"[*?[]", name)[0]
        if literal == name:
            return name == kernel.name or (name not in _registry and name.startswith(f"{kernel.name}_"))
        return kernel.name.startswith(literal) or literal.startswith(kernel.name)

    return [kernel for kernel in among if not names or any(answers(kernel, name) for name in names)]


def _written(pair: tuple[str, Sequence[str]]) -> str:
    return f"{pair[0]}={','.join(pair[1])}"


def _narrowed(among: Iterable[Kernel], pairs: Pairs) -> Iterator[Spec]:
    """The specializations that the pairs admit, without a walk through all the others."""
    for kernel in among:
        keys = _keys(kernel)

        def admits(name: str, value: object) -> bool:
            return all(keys[key] != name or _means(value, wanted) for key, wanted in pairs)  # noqa: B023  used at once

        if admits("kernel", kernel):
            yield from kernel.specs(admits)


def _admits(spec: Spec, pairs: Pairs) -> bool:
    keys = _keys(spec.kernel)
    point = {"kernel": spec.kernel, "dtype": spec.dtype}
    point |= {axis.name: value for axis, value in zip(spec.kernel.axes, spec.values)}
    point |= {flag.name: flag.name in spec.flags for flag in spec.kernel.flags}
    return all(_means(point[keys[key]], wanted) for key, wanted in pairs)


def _keys(kernel: Kernel) -> dict[str, str]:
    """What may stand before `=`, and whose values it narrows."""
    keys = {"kernel": "kernel", "dtype": "dtype"}
    for axis in kernel.axes:
        keys |= {axis.letter: axis.name, axis.name.lower(): axis.name}
    return keys | {flag.name: flag.name for flag in kernel.flags}


def _values(kernel: Kernel, key: str) -> list[object]:
    """What may stand behind `key=`."""
    name = _keys(kernel)[key]
    if name in ("kernel", "dtype"):
        return [kernel] if name == "kernel" else list(kernel.dtypes)
    return [value for axis in kernel.axes if axis.name == name for value in axis.values] or [True, False]


def _nothing(words: Sequence[str], kernels: Sequence[Kernel], pairs: Pairs) -> SpecError:
    """What to raise where no specialization is left: the first pair that none of these kernels admits has the hint."""
    hint = "kgen list shows what there is"
    for key, wanted in pairs if kernels else ():
        having = [kernel for kernel in kernels if key in _keys(kernel)]
        values = [value for kernel in having for value in _values(kernel, key)]
        if not having:
            words_before = [word for kernel in kernels for word in _keys(kernel)]
            hint = f"pairs are of {hints.listed(key, words_before)}"
        elif not any(_means(value, wanted) for value in values):
            hint = f"{key} is one of {hints.listed(wanted[0], map(_word, values))}"
        else:
            continue
        break
    return SpecError(f"no specialization matches {' '.join(words)!r}", hint=hint)


def _word(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else getattr(value, "name", str(value))


def _means(value: object, wanted: Sequence[str]) -> bool:
    if isinstance(value, bool):
        return value in [_YES_NO.get(word) for word in wanted]
    return getattr(value, "name", str(value)) in wanted
