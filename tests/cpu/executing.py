"""Running operators under watch with other text in place of some kernels': that is how mutants run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from kgen.arch import Arch
from kgen.checking import watching
from kgen.cpu import library
from kgen.cpu.check.watch import Watch
from kgen.cpu.run import launch as run
from kgen.ops.calls import Operator, Plan
from kgen.spec import Spec


@contextmanager
def watched(sources: Mapping[Spec, str] | None = None, *, order: str = "forward") -> Iterator[Watch]:
    """Inside the block every launch is checked; specializations in `sources` run that CUDA text or PTX."""
    exchanged = sources or {}

    def library_of(spec: Spec, arch: Arch = library.ARCH, *, check: bool = False) -> library.Library:
        text = exchanged.get(spec)
        if text is None:
            return library.library_of(spec, arch, check=check)
        return library.library_of_text(text, arch, check=check, title=spec.name)

    replaced = mock.patch.object(run, "library_of", library_of)
    with watching(order=order, seed=1, timeout=20) as watch, replaced, mock.patch.object(Operator, "_plan", fresh_plan):
        yield watch


def fresh_plan(
    self: Operator, taken: list[object], written: list[object], options: tuple[object, ...], stream: int
) -> Plan:
    """A fresh plan, since those that an operator remembers have settings of their own."""
    return self.prepare(self.name, taken, written, *options)
