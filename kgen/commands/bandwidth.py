"""What part of the copy bandwidth operators reach: bandwidth."""

from __future__ import annotations

from typing import Any

import click

from kgen.commands.common import StatusLine, json_option, print_json


@click.command()
@click.argument("globs", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, default=["f32", "bf16"], show_default=True, help="f32, f16 or bf16.")
@click.option("--columns", multiple=True, type=click.IntRange(1), help="Use rows of this width; repeatable.")
@click.option("--random", "count", default=0, help="Use this many random widths from 128 to 262144.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random widths.")
@click.option("--jobs", default=4, show_default=True, help="Processes that compile and check in parallel.")
@json_option
def bandwidth(
    globs: tuple[str, ...],
    dtypes: tuple[str, ...],
    columns: tuple[int, ...],
    count: int,
    seed: int,
    jobs: int,
    as_json: bool,
) -> None:
    """Measure operators against the copy bandwidth.

    Uses arrays of 268 MB with narrow to wide rows, aligned and unaligned; each result is first compared with float64.
    GLOBS select rows by their labels, which may name widths that the tables do not have:

        kgen bandwidth 'softmax 16384x4096 *' 'layer_norm *' --dtype f16
        kgen bandwidth 'rms_norm *' --columns 1357 --random 8
    """
    from kgen.bandwidth.run import chosen, complaints, drawn, summary, timed
    from kgen.bench import machine
    from kgen.device import current_device
    from kgen.timing import copy_bandwidth

    asked = chosen(globs, dtypes, (*columns, *drawn(count, seed)))
    current_device()
    with StatusLine() as line:
        line.say(f"checking {len(asked)} rows")
        wrong = complaints(asked, jobs)
    width = copy_bandwidth()
    if not as_json:
        click.echo(f"{machine()['device']}, copy {width / 1e9:.0f} GB/s")
    told: list[dict[str, Any]] = []
    for row, complained in zip(asked, wrong, strict=True):
        told.append({"row": row.label, "wrong": complained} | ({} if complained else timed(row, width)))
        if not as_json:
            figures = complained or "{ms:9.4f} ms {of_copy:7.1%}".format(**told[-1])
            click.echo(f"{row.label:56} {figures}")
    whole = summary([(row, line["of_copy"]) for row, line in zip(asked, told) if "of_copy" in line])
    if as_json:
        print_json({"machine": machine(), "copy_gb_s": width / 1e9, "rows": told, "summary": whole})
    elif len(told) > 1:
        click.echo(f"\n{'':56} rows   least  median")
        for part in whole:
            click.echo("{name:56} {rows:4}  {least:6.1%}  {median:6.1%}".format(**part))
    if any(line["wrong"] for line in told):
        raise click.exceptions.Exit(1)
