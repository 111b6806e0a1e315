"""Removes one barrier, wait, fence or bounds test at a time from default kernels; the executor must notice each.

    python -m tests.cpu.mutants                        every default kernel
    python -m tests.cpu.mutants 'softmax*' --json      of these, as JSON lines

Each mutant runs the kernel's case (kgen/samples) under watch in a process of its own: a report, a wrong result, a
crash or a wait for ever flags it. What survives must be among the survivors that tests/cpu/survivors.py explains.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple
from unittest import mock

import kgen
from kgen import nvrtc
from kgen.cpu import run
from kgen.cpu.library import ARCH
from kgen.errors import CompileError, ExecutionError
from kgen.recipe import recipe
from kgen.render import render_recipe
from kgen.samples import call, cases_of, verify
from kgen.spec import Spec
from tests.cpu.executing import watched
from tests.cpu.mutation import Mutant, mutants
from tests.cpu.survivors import explanation

LIMIT = 60.0
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


def source_of(spec: Spec) -> str:
    """The generated text of a specialization."""
    return render_recipe(recipe(spec)).text


def judge(work: Iterable[tuple[Spec, Mutant]], jobs: int) -> Iterator[Verdict]:
    """Run mutants, so many side by side, each in a process that is killed after LIMIT seconds."""
    context = multiprocessing.get_context("fork")
    waiting = iter(work)
    running: dict[Any, tuple[Any, Spec, Mutant, float]] = {}
    while True:
        while len(running) < jobs and (item := next(waiting, None)) is not None:
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
        if _ptx(mutant.text, spec) == _ptx(source_of(spec), spec):
            return "same code", ""
    except CompileError as error:
        return "refused", str(error).splitlines()[-1]
    try:
        for case in cases_of(spec):
            with mock.patch.object(run, "PATIENCE", PATIENCE), watched({spec: mutant.text}) as watch:
                results = call(case)
            if watch.findings:
                return "flagged", watch.findings[0].kind
            verify(case, results)
    except ExecutionError as error:
        return "flagged", str(error)
    except Exception:  # of `verify`, or of an operator that reads what its kernel found
        return "flagged", "wrong result"
    return "survived", explanation(spec.name, mutant.removed, source_of(spec).splitlines()[mutant.line - 1]) or ""


def _ptx(text: str, spec: Spec) -> str:
    """What the compiler makes of a text, but for lines and columns, if it is told how many threads a block has."""
    told = f"{{ __builtin_assume(threadIdx.x < {spec.threads});"
    text = re.sub(rf"({spec.symbol}\([^)]*\)\s*)\{{", lambda found: found[1] + told, text, count=1)
    ptx = nvrtc.compile_ptx(text, "kernel", ARCH)
    ptx = re.sub(r"^\s*\.(?:loc|file)\b.*\n|//.*", "", ptx, flags=re.MULTILINE)
    return re.sub(
        r"((?:or|and)\.pred\s+%p\d+, )(%p\d+), (%p\d+);", lambda m: m[1] + ", ".join(sorted(m.groups()[1:])), ptx
    )


def main(arguments: list[str] | None = None) -> int:
    """Judge the mutants of the kernels that are named; 0 where every survivor is explained and 95 % are flagged."""
    parser = argparse.ArgumentParser(prog="python -m tests.cpu.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["*"], help="specializations, or globs of them")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each mutant")
    parser.add_argument("--jobs", type=int, default=run.cores(), help="mutants side by side")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    given = parser.parse_args(arguments)
    chosen = [spec for spec in kgen.select() if any(fnmatch.fnmatch(spec.name, name) for name in given.names)]
    work = [(spec, mutant) for spec in chosen for mutant in mutants(source_of(spec))]
    if given.list:
        for spec, mutant in work:
            print(f"{spec}:{mutant.line}: {mutant.kind}: {mutant.removed}")
        return 0
    verdicts = []
    for number, verdict in enumerate(judge(work, given.jobs), 1):
        verdicts.append(verdict)
        if given.json:
            told = verdict._asdict() | {"spec": verdict.spec.name, **verdict.mutant._asdict()}
            print(
                json.dumps({name: told[name] for name in ("spec", "line", "kind", "removed", "how", "why")}), flush=True
            )
        else:
            print(f"[{number}/{len(work)}] {verdict}", flush=True)
    return report(verdicts)


def report(verdicts: list[Verdict]) -> int:
    """Print what came of it; 1 where too much survives, or something for no known reason."""
    counts = Counter(verdict.how for verdict in verdicts)
    by = Counter(verdict.why.split(":")[0] for verdict in verdicts if verdict.how == "flagged")
    changed = counts["flagged"] + counts["survived"]
    riddles = [verdict for verdict in verdicts if verdict.how == "survived" and not verdict.why]
    share = counts["flagged"] / max(1, counts["flagged"] + len(riddles))
    print(
        f"{changed} mutants ({counts['same code']} more are the same code, {counts['refused']} do not compile): "
        f"{counts['flagged']} flagged ({', '.join(f'{n} {why}' for why, n in by.most_common())}), "
        f"{counts['survived']} survive, {len(riddles)} of them for no known reason; "
        f"{100 * share:.1f} % of those that no reason makes equivalent are flagged",
        file=sys.stderr,
    )
    for verdict in riddles:
        print(f"unexplained: {verdict}", file=sys.stderr)
    return 1 if riddles or share < 0.95 else 0


if __name__ == "__main__":
    sys.exit(main())
