"""Kernels, their axes, and the points of them that can be generated.

A `Kernel` declares a template and the axes it can be cut along; a `Spec` is one legal point, and has one name. The
name parses back to the Spec (registry.py): it is the file's stem, the CUDA symbol, the cache entry, the test id, and
what the command line takes.

    lmha_low_occupancy_e128_w4_c4_reverse_f16
    kernel             axes        flags   dtype       an axis at its default and a false flag are left out
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from kgen.arch import OLDEST, Arch
from kgen.dtypes import BF16, F16, F32, DType, dtype_of
from kgen.errors import SpecError

MOST_THREADS = 1024
"""Of a block."""


class Axis(NamedTuple):
    """One integer constant of a template.

    name     the constant in the generated file, `WARPS`
    letter   one or two letters that stand for it in names, `w`
    values   the legal values, in the order in which people would try them
    doc      what it counts, for the header comment
    default  the value that names leave out; None: always written
    """

    name: str
    letter: str
    values: tuple[int, ...]
    doc: str
    default: int | None = None


class Flag(NamedTuple):
    """One yes-or-no choice of a template; `name` appears in a specialization's name when it is true."""

    name: str
    doc: str


@dataclass(frozen=True, eq=False)
class Kernel:
    """A template and everything that may be asked of it.

    formula  what it computes, for the header; a function of a Spec where flags change that
    derive   from a Spec, the further constants its template needs; at least THREADS, and STATIC_SMEM / DYNAMIC_SMEM
             (bytes) where it uses shared memory
    check    from a Spec, why this combination of legal values is illegal, or None
    grid     how blocks map onto the problem, in words for the header
    origin   where the method comes from, for the header
    defaults names that `kgen build` emits when asked for nothing in particular
    templates  the folder of the template, for kernels that kgen does not ship
    stem     the template's, where several kernels share one
    text     from a Spec, what its template needs beside numbers: names, types, code
    """

    name: str
    summary: str
    formula: str | Callable[[Spec], str]
    axes: tuple[Axis, ...]
    derive: Callable[[Spec], Mapping[str, int]]
    flags: tuple[Flag, ...] = ()
    dtypes: tuple[DType, ...] = (F32, F16, BF16)
    check: Callable[[Spec], str | None] = lambda spec: None
    grid: str = ""
    origin: str = ""
    min_arch: Arch = OLDEST
    defaults: tuple[str, ...] = ()
    templates: Path | None = None
    stem: str = ""
    text: Callable[[Spec], Mapping[str, Any]] = lambda spec: {}

    @property
    def template(self) -> str:
        """The template's file name; operator, test and template share one stem."""
        return f"{self.stem or self.name}.cu.j2"

    def spec(self, *, dtype: object = None, **values: int | bool) -> Spec:
        """The specialization at these axis values and flags; what is left out takes its default.

        >>> vec = Axis("VEC", "v", (1, 2, 4), "elements per load")
        >>> saxpy = Kernel("saxpy", "y += a x", "", (vec,), lambda spec: {"THREADS": 256})
        >>> saxpy.spec(VEC=4, dtype="f32").name
        'saxpy_v4_f32'
        """
        for name in values:
            self._refuse_unknown(name)
        chosen = dict(values)
        points = []
        for axis in self.axes:
            value = chosen.pop(axis.name, axis.default)
            if value is None:
                raise SpecError(
                    f"{self.name}: the axis {axis.name} ({axis.doc}) needs a value",
                    hint=f"one of {', '.join(map(str, axis.values))}",
                )
            points.append(operator.index(value))
        flags = frozenset(flag.name for flag in self.flags if chosen.pop(flag.name, False))
        if dtype is None and len(self.dtypes) > 1:
            raise SpecError(f"{self.name} needs a dtype", hint=f"one of {', '.join(map(str, self.dtypes))}")
        spec = Spec(self, tuple(points), flags, self.dtypes[0] if dtype is None else dtype_of(dtype))
        self._refuse_illegal(spec)
        return spec

    def _refuse_unknown(self, name: str) -> None:
        known = [axis.name for axis in self.axes] + [flag.name for flag in self.flags]
        if name not in known:
            raise SpecError(f"{self.name} has no axis {name!r}", hint=f"it has {', '.join(known)}")

    def _refuse_illegal(self, spec: Spec) -> None:
        for axis, value in zip(self.axes, spec.values, strict=True):
            if value not in axis.values:
                raise SpecError(
                    f"{self.name}: {axis.name}={value} ({axis.doc}) is not generated",
                    hint=f"{axis.name} is one of {', '.join(map(str, axis.values))}",
                )
        if spec.dtype not in self.dtypes:
            raise SpecError(
                f"{self.name} is not generated for {spec.dtype}", hint=f"dtypes: {', '.join(map(str, self.dtypes))}"
            )
        problem = self.check(spec)
        if problem:
            raise SpecError(f"{spec.name} is illegal: {problem}")

    def specs(self, admits: Callable[[str, object], bool] = lambda name, value: True) -> Iterator[Spec]:
        """Every legal specialization; `admits` narrows the values of an axis or flag by its name, and of "dtype"."""
        words = [flag.name for flag in self.flags]
        subsets = [frozenset(c) for n in range(len(words) + 1) for c in itertools.combinations(words, n)]
        subsets = [subset for subset in subsets if all(admits(word, word in subset) for word in words)]
        dtypes = [dtype for dtype in self.dtypes if admits("dtype", dtype)]
        axes = [[value for value in axis.values if admits(axis.name, value)] for axis in self.axes]
        for dtype, flags in itertools.product(dtypes, subsets):
            for values in itertools.product(*axes):
                spec = Spec(self, values, flags, dtype)
                if self.check(spec) is None:
                    yield spec


@dataclass(frozen=True)
class Spec:
    """One specialization: a kernel and a value for each of its axes; `Kernel.spec` makes the legal ones."""

    kernel: Kernel
    values: tuple[int, ...]
    flags: frozenset[str]
    dtype: DType

    def __getitem__(self, name: str) -> int:
        """The value of an axis (`spec["WARPS"]`), or of a flag as 0 or 1."""
        for axis, value in zip(self.kernel.axes, self.values, strict=True):
            if axis.name == name:
                return value
        self.kernel._refuse_unknown(name)
        return int(name in self.flags)

    @cached_property
    def name(self) -> str:
        """The one name of this specialization."""
        axes = [f"{a.letter}{v}" for a, v in zip(self.kernel.axes, self.values, strict=True) if v != a.default]
        flags = [flag.name for flag in self.kernel.flags if flag.name in self.flags]
        return "_".join([self.kernel.name, *axes, *flags, self.dtype.name])

    @property
    def formula(self) -> str:
        """What it computes, in a line or several."""
        formula = self.kernel.formula
        return formula if isinstance(formula, str) else formula(self)

    @property
    def symbol(self) -> str:
        """The kernel's name in the cubin."""
        return f"kgen_{self.name}"

    @cached_property
    def derived(self) -> Mapping[str, int]:
        """The constants that follow from the axes, THREADS first among them."""
        made = self.kernel.derive(self)
        threads = made.get("THREADS") if isinstance(made, Mapping) else None
        if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
            raise SpecError(
                f"{self.name}: derive gives {made!r}", hint=f"a mapping with THREADS, 1 to {MOST_THREADS} of a block"
            )
        return dict(made)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.derived["THREADS"]

    @property
    def static_smem(self) -> int:
        """Bytes of shared memory that the kernel declares."""
        return self.derived.get("STATIC_SMEM", 0)

    @property
    def dynamic_smem(self) -> int:
        """Bytes of shared memory that a launch must ask for."""
        return self.derived.get("DYNAMIC_SMEM", 0)

    def __str__(self) -> str:
        return self.name


def check_spec(function: str, spec: object) -> None:
    """SpecError where something else came in place of a specialization, such as its name."""
    if not isinstance(spec, Spec):
        hint = "kgen.parse gives the specialization of a name"
        raise SpecError(f"{function}: spec is {spec!r}; it takes a Spec", hint=hint)
