"""kgen build: emit sources and manifest, compile them for several architectures, and say what each takes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgen.commands.common import (
    FOLDER,
    StatusLine,
    archs_option,
    json_option,
    out_option,
    print_diff,
    print_json,
    words_argument,
)

if TYPE_CHECKING:
    from kgen.arch import Arch
    from kgen.build import Built
    from kgen.errors import KgenError
    from kgen.generated import Emitted
    from kgen.render import Source
    from kgen.spec import Spec

_FAULTS_SHOWN = 5


@click.command()
@words_argument
@archs_option("sm_80,sm_90a,sm_100a")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Parallel compilations; by default one per core.")
@out_option
@click.option("--check", is_flag=True, help="Only check whether the folder is up to date; needs no compiler.")
@click.option("--shelf", type=FOLDER, help="Also put the cubins into this folder, for KGEN_SHELF on other machines.")
@click.option("--force", is_flag=True, help="Compile even what is in the cache.")
@json_option
def build(
    words: tuple[str, ...],
    archs: tuple[Arch, ...],
    jobs: int | None,
    out: Path,
    check: bool,
    shelf: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Generate and compile kernels, and list what they take.

    Sources and a manifest are written to generated/, cubins to the cache and next to their sources. WORDS select
    specializations as in `kgen list`, which are added to the folder. Without WORDS, the folder becomes exactly the
    default set.
    """
    from kgen import catalog, generated, report
    from kgen.build import shelve

    started = time.perf_counter()
    specs = catalog.select(*words)
    if check:
        return _check(specs, out, exactly=not words, as_json=as_json)
    sources, faults = _rendered(specs)
    # A kernel that does not render keeps its old file, which must not pass for one that nobody wants any more.
    emitted = generated.emit(sources, out, exactly=not words and not faults)
    built, skipped, unbuilt = _compiled([source.spec for source in sources], archs, jobs, force)
    for kernel in built:
        generated.place_cubin(kernel.spec, kernel.arch, kernel.cubin, out)
        if shelf:
            shelve(kernel, shelf)
    faults += unbuilt
    cards = [report.card(kernel) for kernel in sorted(built, key=lambda kernel: (kernel.spec.name, kernel.arch))]
    seconds = time.perf_counter() - started
    if as_json:
        print_json(
            {
                "sources": {"written": emitted.written, "unchanged": emitted.unchanged, "removed": emitted.removed},
                "kernels": [card.as_dict() for card in cards],
                "skipped": [{"name": spec.name, "arch": str(arch)} for spec, arch in skipped],
                "failed": [str(fault) for fault in faults],
                "seconds": round(seconds, 2),
            }
        )
    elif cards:
        click.echo(report.card_table(cards) + "\n")
    _say_faults(faults)
    if not as_json:
        _say_skipped(skipped)
        click.echo(_closing(emitted, built, len(faults), seconds))
    if faults:
        raise click.exceptions.Exit(1)
    return None


def _check(specs: list[Spec], out: Path, *, exactly: bool, as_json: bool) -> None:
    from kgen import generated
    from kgen.render import render

    found = generated.drift([render(spec) for spec in specs], out, exactly=exactly)
    if as_json:
        print_json({"checked": len(specs), "drift": [asdict(each) for each in found]})
    else:
        for each in found:
            click.echo(f"{each.kind}  {out / each.path}{'  (nothing emits it)' if each.kind == 'stale' else ''}")
            print_diff(each.diff)
        click.echo(f"{len(specs)} sources in {out} checked, {len(found)} files drifted")
    if found:
        hint = "kgen build writes what is missing or modified; delete what nothing emits"
        click.echo(f"kgen: {out} is not what kgen emits\n  hint: {hint}", err=True)
        raise click.exceptions.Exit(1)


def _rendered(specs: Iterable[Spec]) -> tuple[list[Source], list[KgenError]]:
    from kgen.errors import TemplateError
    from kgen.render import render

    sources: list[Source] = []
    faults: list[KgenError] = []
    for spec in specs:
        try:
            sources.append(render(spec))
        except TemplateError as fault:
            faults.append(fault)
    return sources, faults


def _compiled(
    specs: list[Spec], archs: tuple[Arch, ...], jobs: int | None, force: bool
) -> tuple[list[Built], list[tuple[Spec, Arch]], list[KgenError]]:
    """What was built, what an architecture is too old for, and what failed: also if all was skipped."""
    from kgen.arch import OLDEST
    from kgen.build import build_many
    from kgen.errors import ArchError, KgenError

    failed: list[KgenError] = [
        ArchError(f"{arch} is too old; kgen builds for {OLDEST} and later") for arch in archs if arch < OLDEST
    ]
    archs = tuple(arch for arch in archs if arch >= OLDEST)
    chosen = {arch: [spec for spec in specs if spec.kernel.min_arch <= arch] for arch in archs}
    skipped = [(spec, arch) for arch in archs for spec in specs if spec.kernel.min_arch > arch]
    if skipped and not any(chosen.values()):
        failed.append(ArchError(f"nothing to build: no kernel asked for is for {' or '.join(map(str, archs))}"))
    total, done = sum(map(len, chosen.values())), itertools.count(1)
    results: list[Built | KgenError] = []
    with StatusLine() as line:

        def tick(spec: Spec, arch: Arch, result: Built | KgenError) -> None:
            line.say(f"{next(done)}/{total}  {spec.name} for {arch}")

        for arch, wanted in chosen.items():
            results += build_many(wanted, [arch], jobs=jobs, force=force, progress=tick)
    built = [result for result in results if not isinstance(result, KgenError)]
    return built, skipped, failed + [result for result in results if isinstance(result, KgenError)]


def _say_faults(faults: list[KgenError]) -> None:
    # What is missing here is missing for every kernel, and said once.
    messages = list(dict.fromkeys(map(str, faults)))
    for message in messages[:_FAULTS_SHOWN]:
        click.echo(f"kgen: {message}\n", err=True)
    if len(messages) > _FAULTS_SHOWN:
        click.echo(f"kgen: and {len(messages) - _FAULTS_SHOWN} more failures", err=True)


def _say_skipped(skipped: list[tuple[Spec, Arch]]) -> None:
    too_old = dict.fromkeys((spec.kernel, arch) for spec, arch in skipped)
    for kernel, arch in too_old:
        click.echo(f"skipped {kernel.name} for {arch}: it needs {kernel.min_arch}")


def _closing(emitted: Emitted, built: list[Built], failed: int, seconds: float) -> str:
    compiled = sum(kernel.origin == "compiled" for kernel in built)
    removed = f", {len(emitted.removed)} removed" if emitted.removed else ""
    return (
        f"{len(emitted.written)} sources written, {len(emitted.unchanged)} unchanged{removed}; "
        f"{compiled} compiled, {len(built) - compiled} from cache, {failed} failed; {seconds:.1f} s"
    )
