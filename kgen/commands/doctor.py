"""kgen doctor: what is here, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import asdict

import click

from kgen.commands.common import json_option, print_json


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Show what works on this machine, and how to fix what does not.

    Exits with 1 if kernels cannot be rendered and compiled.
    """
    from kgen import doctor as diagnosis

    checks = diagnosis.checks()
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        click.echo(diagnosis.table(checks))
    if any(check.required and not check.ok for check in checks):
        raise click.exceptions.Exit(1)
