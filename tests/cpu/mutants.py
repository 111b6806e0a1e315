"""Removes one barrier, wait, fence or bounds test at a time from default kernels; the executor must notice each.

    python -m tests.cpu.mutants                           every default kernel
    python -m tests.cpu.mutants 'softmax*' --json         of these, as JSON lines
    python -m tests.cpu.mutants --known FILE              what FILE knows of the same text, samples and executor is kept
    python -m tests.cpu.mutants --known FILE --survivors  judge again only what survived there, whatever changed since

What survives must be among the survivors that tests/cpu/survivors.py explains, and what is listed there must survive.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import inspect
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import kgen
from kgen.cpu.compiler import HERE, cores
from kgen.samples import CASES
from kgen.spec import Spec
from tests.cpu.judging import Verdict, judge, reason_for, source_of
from tests.cpu.mutation import Mutant, mutants

Work = list[tuple[Spec, Mutant]]


class Known:
    """Verdicts of earlier runs, in a file of JSON lines: by the mutant, and what else decided them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._verdicts: dict[str, tuple[str, str, str]] = {}  # by mutant: circumstances, how, why
        if path and path.exists():
            for line in path.read_text().splitlines():
                mutant, *verdict = json.loads(line)
                self._verdicts[mutant] = tuple(verdict)
        executor = [path for path in sorted(HERE.rglob("*")) if path.suffix in (".py", ".h", ".cpp")]
        self._executor = b"".join(path.read_bytes() for path in executor)

    def __call__(self, spec: Spec, mutant: Mutant, whatever: bool = False) -> Verdict | None:
        """What is known of a mutant under these circumstances; `whatever`: or, if it did not survive, under others."""
        found = self._verdicts.get(_digest(spec.name, mutant.text))
        if found is None or not (found[0] == self._circumstances(spec) or (whatever and found[1] != "survived")):
            return None
        return Verdict(spec, mutant, found[1], reason_for(spec, mutant) if found[1] == "survived" else found[2], 0)

    def add(self, verdict: Verdict) -> None:
        record = (self._circumstances(verdict.spec), verdict.how, verdict.why)
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps([_digest(verdict.spec.name, verdict.mutant.text), *record]) + "\n")

    def _circumstances(self, spec: Spec) -> str:
        make = CASES.get(spec.kernel.name) or CASES[spec.kernel.stem]
        return _digest(*_samples(sys.modules[make.__module__]), source_of(spec), self._executor)


def _samples(module: ModuleType) -> list[str]:
    """The text of a module of samples, and of those whose functions it takes."""
    takes = {x.__module__ for x in vars(module).values() if inspect.isfunction(x)} | {module.__name__}
    return [inspect.getsource(sys.modules[name]) for name in sorted(takes) if name.startswith("kgen.samples")]


def _digest(*parts: str | bytes) -> str:
    return hashlib.sha256(b"\0".join(x if isinstance(x, bytes) else x.encode() for x in parts)).hexdigest()[:16]


def main(arguments: list[str] | None = None) -> int:
    """Judge the mutants of the kernels that are named; 0 where every survivor is explained and 95 % are flagged."""
    parser = argparse.ArgumentParser(prog="python -m tests.cpu.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["*"], help="specializations, or globs of them")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each mutant")
    parser.add_argument("--jobs", type=int, default=cores(), help="mutants side by side")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--known", type=Path, help="verdicts of earlier runs; new ones are added")
    parser.add_argument("--survivors", action="store_true", help="keep all that is known but what survived")
    given = parser.parse_args(arguments)
    chosen = [spec for spec in kgen.select() if any(fnmatch.fnmatch(spec.name, name) for name in given.names)]
    without = [spec for spec in chosen if not (spec.kernel.name in CASES or spec.kernel.stem in CASES)]
    chosen = [spec for spec in chosen if spec not in without]
    work = [(spec, mutant) for spec in chosen for mutant in mutants(source_of(spec))]
    if given.list:
        for spec, mutant in work:
            print(f"{spec}:{mutant.line}: {mutant.kind}: {mutant.removed}")
        return 0
    known = Known(given.known)
    verdicts = [found for item in work if (found := known(*item, given.survivors))]
    settled = {(one.spec, one.mutant) for one in verdicts}
    work = [item for item in work if item not in settled]
    for number, verdict in enumerate(judge(work, given.jobs), 1):
        known.add(verdict)
        verdicts.append(verdict)
        if given.json:
            told = verdict._asdict() | {"spec": verdict.spec.name, **verdict.mutant._asdict()}
            shown = {name: told[name] for name in ("spec", "line", "kind", "removed", "how", "why")}
            print(json.dumps(shown), flush=True)
        else:
            print(f"[{number}/{len(work)}] {verdict.seconds:4.1f} s {verdict}", flush=True)
    for spec in without:
        print(f"{spec} has no sample call: its mutants do not run", file=sys.stderr)
    return report(verdicts) or int(bool(without))


def report(verdicts: list[Verdict]) -> int:
    """Print what came of it; 1 where too much survives, or something for no known reason, or less than is listed."""
    counts = Counter(verdict.how for verdict in verdicts)
    by = Counter(verdict.why.split(":")[0] for verdict in verdicts if verdict.how == "flagged")
    for name, of in sorted(_by_kernel(verdicts).items()):
        print(f"{name:24} {of['flagged']:4} flagged, {of['survived']:3} survive, {of['same code']:3} are the same code")
    changed = counts["flagged"] + counts["survived"]
    riddles = [verdict for verdict in verdicts if verdict.how == "survived" and not verdict.why]
    share = counts["flagged"] / max(1, counts["flagged"] + len(riddles))
    print(
        f"{changed} mutants ({counts['same code']} more are the same code, {counts['refused']} do not compile): "
        f"{counts['flagged']} flagged ({', '.join(f'{n} {why}' for why, n in by.most_common())}), "
        f"{100 * counts['flagged'] / max(1, changed):.1f} % of all; "
        f"{counts['survived']} survive, {len(riddles)} of them for no known reason; "
        f"{100 * share:.1f} % of those that no reason makes equivalent are flagged",
        file=sys.stderr,
    )
    wrong = [verdict for verdict in verdicts if verdict.how == "flagged" and reason_for(verdict.spec, verdict.mutant)]
    for verdict in riddles:
        print(f"unexplained: {verdict}", file=sys.stderr)
    for verdict in wrong:
        print(f"flagged, though listed as a survivor: {verdict}", file=sys.stderr)
    return 1 if riddles or wrong or share < 0.95 else 0


def _by_kernel(verdicts: list[Verdict]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.spec.kernel.name, Counter())[verdict.how] += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
