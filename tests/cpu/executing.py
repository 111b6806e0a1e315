"""Running operators under watch on NumPy arrays, with a record of which kernels that takes.

The text of a kernel may be exchanged for another one: that is how mutants run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest import mock

from kgen.arch import Arch
from kgen.checking import watching
from kgen.cpu import library, run
from kgen.cpu.watch import Watch
from kgen.ops.calls import Operator, Plan
from kgen.spec import Spec


@contextmanager
def watched(ran: list[Spec], sources: Mapping[Spec, str] | None = None) -> Iterator[Watch]:
    """Inside the block every operator runs checked kernels; `ran` gets the specialization of each launch.

    sources  CUDA text in place of a specialization's own
    """
    exchanged = sources or {}

    def library_of(spec: Spec, arch: Arch = library.ARCH, *, check: bool = False) -> library.Library:
        ran.append(spec)
        text = exchanged.get(spec)
        if text is None:
            return library.library_of(spec, arch, check=True)
        return library.library_of_text(text, arch, check=True, title=spec.name)

    with ExitStack() as stack:
        watch = stack.enter_context(watching(timeout=20))
        stack.enter_context(mock.patch.object(run, "library_of", library_of))
        stack.enter_context(mock.patch.object(Operator, "_plan", _plan))
        yield watch


def _plan(self: Operator, taken: list[object], written: list[object], options: tuple[object, ...], stream: int) -> Plan:
    """A fresh plan, since those that an operator remembers are bound to other libraries."""
    return self.prepare(self.name, taken, written, *options)


def explained(ran: list[Spec]) -> str:
    """The kernels that ran, in words."""
    return ", ".join(dict.fromkeys(spec.name for spec in ran)) or "no kernel"
