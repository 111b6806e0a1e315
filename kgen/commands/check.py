"""Running kernels under watch on this machine's CPU: check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgen.commands.common import json_option, name_argument, print_json

if TYPE_CHECKING:
    from kgen.spec import Spec


@click.command()
@name_argument("spec")
@click.argument("shape", nargs=-1, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, help="Seed of the random order.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds of work allowed per launch.")
@json_option
def check(spec: Spec, shape: tuple[int, ...], seed: int, timeout: float, as_json: bool) -> None:
    """Run a kernel on the CPU and report its errors.

    It runs three times, in different orders. Reports races within and between blocks, out-of-bounds and misaligned
    accesses, reads of memory that was never written, barriers that some threads miss, deadlocks, and wrong results.
    Needs no GPU. By default sizes are chosen to suit the kernel. SHAPE sets them: B H T E M for linear attention; rows
    and columns for operators along rows or columns; results and products per result for matrix-vector products;
    indices, rows and columns for take; B H T D for rope; otherwise the shape of the elements:

        kgen check lmha_e64_t1_f32 1 2 100 60 40
    """
    from kgen.checking import watching
    from kgen.cpu.run.frame import ORDERS
    from kgen.errors import KgenError, SpecError
    from kgen.samples import call, cases_of, complaint, no_case

    runs: list[dict[str, Any]] = []
    for order in ORDERS:
        for case in cases_of(spec, shape or None):
            with watching(order=order, seed=seed, timeout=timeout) as watch:
                try:
                    results = call(case)
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # such as too wide heads
                    if isinstance(error, KgenError):
                        raise
                    raise no_case(spec, shape, str(error)) from error
            if spec.name not in watch.kernels:
                at_this_shape = " at this shape" if shape else ""
                hint = f"it launches {', '.join(watch.kernels) or 'nothing'}"
                raise SpecError(f"the sample call of {spec.name} does not launch it{at_this_shape}", hint=hint)
            wrong = complaint(case, results)
            found = [finding._asdict() for finding in watch.findings]
            shapes = [list(given.shape) for given in case.inputs if hasattr(given, "shape")]
            runs.append({"order": order, "inputs": shapes, "wrong": wrong, "findings": found})
            if not as_json:
                for finding in watch.findings:
                    click.echo(f"{finding}\n")
                verdict = f"wrong results: {wrong}" if wrong else "right results"
                reports = f"{len(found)} report{'' if len(found) == 1 else 's'}"
                given = " ".join("x".join(map(str, one)) or "scalar" for one in shapes)
                click.echo(f"{order:8} {given}: {verdict}, {reports}")
    if as_json:
        print_json({"name": spec.name, "runs": runs})
    if any(run["findings"] or run["wrong"] for run in runs):
        raise SystemExit(1)
