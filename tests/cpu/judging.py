"""What comes of a mutant: its kernel's case (kgen/samples) runs under watch, in a process of its own.

A report, a wrong result, a crash or a wait for ever flags it. What passes in the forward order runs in the others too.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple
from unittest import mock

from kgen import nvrtc
from kgen.cpu.library import ARCH
from kgen.cpu.run import launch as run
from kgen.cpu.run.frame import ORDERS
from kgen.errors import CompileError, ExecutionError
from kgen.recipe import recipe
from kgen.render import render_recipe
from kgen.samples import call, cases_of, verify
from kgen.spec import Spec
from tests.cpu.executing import watched
from tests.cpu.mutation import Mutant
from tests.cpu.survivors import explanation

LIMIT = 300.0
"""Seconds that a mutant may take with its compilation."""
PATIENCE = 3.0
"""Seconds without progress after which a launch counts as hung."""


class Verdict(NamedTuple):
    """What came of a mutant.

    how   "same code" where the compiler made the same of it, so that nothing was removed; "flagged", "survived"; or
          "refused" where it does not compile
    why   the kind of report, "wrong result", "crash"; of a survivor its explanation, if there is one
    """

    spec: Spec
    mutant: Mutant
    how: str
    why: str
    seconds: float

    def __str__(self) -> str:
        one = self.mutant
        return f"{self.how:9} {self.why[:60]:16} {self.spec}:{one.line}: {one.kind}: {one.removed}"


@functools.cache
def source_of(spec: Spec) -> str:
    """The generated text of a specialization."""
    return render_recipe(recipe(spec)).text


def reason_for(spec: Spec, mutant: Mutant) -> str:
    """Why a mutant survives, if that is known."""
    lines = [line.strip() for line in source_of(spec).splitlines()]
    return explanation(spec.name, mutant.removed, " / ".join(lines[mutant.line - 2 : mutant.line + 2])) or ""


def judge(work: Iterable[tuple[Spec, Mutant]], jobs: int) -> Iterator[Verdict]:
    """Run mutants, so many side by side, each in a process that is killed after LIMIT seconds."""
    context = multiprocessing.get_context("fork")
    waiting = iter(work)
    running: dict[Any, tuple[Any, Spec, Mutant, float]] = {}
    while True:
        while len(running) < jobs and (item := next(waiting, None)) is not None:
            _original(item[0]), _cases(item[0])  # known to all children
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(*item, writer))
            process.start()
            writer.close()
            running[reader] = (process, *item, time.monotonic())
        if not running:
            return
        ended = wait(list(running), timeout=1.0)
        for reader, (process, spec, mutant, began) in list(running.items()):
            seconds = time.monotonic() - began
            if reader in ended:
                try:
                    how, why = reader.recv()
                except EOFError:
                    how, why = "flagged", "crash"
            elif seconds > LIMIT:
                os.killpg(process.pid or 0, signal.SIGKILL)
                how, why = "flagged", "hang"
            else:
                continue
            process.join()
            reader.close()
            del running[reader]
            yield Verdict(spec, mutant, how, why, seconds)


def _child(spec: Spec, mutant: Mutant, told: Connection) -> None:
    os.setsid()  # so that what it starts ends with it
    told.send(_outcome(spec, mutant))


def _outcome(spec: Spec, mutant: Mutant) -> tuple[str, str]:
    try:
        ptx = _ptx(mutant.text, spec)
    except CompileError as error:
        return "refused", str(error).splitlines()[-1]
    if _code(ptx) == _original(spec):
        return "same code", ""
    try:
        for order in ORDERS:
            for case in _cases(spec):
                with mock.patch.object(run, "PATIENCE", PATIENCE), watched({spec: ptx}, order=order) as watch:
                    results = call(case)
                if watch.findings:
                    return "flagged", watch.findings[0].kind
                verify(case, results)
    except ExecutionError as error:
        return "flagged", str(error)
    except Exception:  # of `verify`, or of an operator that reads what its kernel found
        return "flagged", "wrong result"
    return "survived", reason_for(spec, mutant)


_cases = functools.cache(cases_of)


@functools.cache
def _original(spec: Spec) -> str:
    return _code(_ptx(source_of(spec), spec))


def _ptx(text: str, spec: Spec) -> str:
    """What the compiler makes of a text, if it is told how many threads a block has."""
    told = f"{{ __builtin_assume(threadIdx.x < {spec.threads});"
    text = re.sub(rf"({spec.symbol}\([^)]*\)\s*)\{{", lambda found: found[1] + told, text, count=1)
    return nvrtc.compile_ptx(text, "kernel", ARCH)


def _code(ptx: str) -> str:
    """PTX but for lines, columns and the order of what a predicate is made of."""
    ptx = re.sub(r"^\s*\.(?:loc|file)\b.*\n|//.*", "", ptx, flags=re.MULTILINE)
    return re.sub(
        r"((?:or|and)\.pred\s+%p\d+, )(%p\d+), (%p\d+);", lambda m: m[1] + ", ".join(sorted(m.groups()[1:])), ptx
    )
