"""kgen cache: what is kept on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kgen.commands.common import json_option, print_json

if TYPE_CHECKING:
    from kgen.store import Record


def _parse_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    from kgen.config import parse_size

    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def cache() -> None:
    """Inspect and clean up the compiled kernels on disk."""


@cache.command("ls")
@json_option
def ls(as_json: bool) -> None:
    """List every entry, its size and when it was last used."""
    from kgen.build import store
    from kgen.report import size, table

    records = store().entries()
    if as_json:
        return print_json([_as_dict(record) for record in records])
    rows = [(record.arch, record.name, size(record.bytes), _age(record.used), record.key) for record in records]
    return click.echo(table(("arch", "name", "size", "used", "key"), rows, left=("arch", "name", "key")))


@cache.command()
@json_option
def info(as_json: bool) -> None:
    """Show where the cache is, and how full."""
    from kgen.build import store
    from kgen.report import size

    facts = store().info()
    if as_json:
        return print_json(facts)
    return click.echo(
        f"{facts['path']}\n{facts['entries']} entries, {size(facts['bytes'])} of {size(facts['limit_bytes'])}"
    )


@cache.command()
@json_option
def verify(as_json: bool) -> None:
    """Check every byte of every entry.

    Removes nothing: a damaged entry is compiled again when it is used.
    """
    from kgen.build import store

    problems = store().verify()
    if as_json:
        print_json([_as_dict(record) | {"problem": problem} for record, problem in problems])
    else:
        for record, problem in problems:
            click.echo(f"damaged  {record.path}  {problem}")
        click.echo(f"{store().info()['entries']} entries, {len(problems)} damaged")
    if problems:
        raise click.exceptions.Exit(1)


@cache.command()
@click.option("--max-size", callback=_parse_size, required=True, help="The size to shrink to, in bytes or as 256M, 1G.")
@json_option
def trim(max_size: int, as_json: bool) -> None:
    """Remove the least recently used entries."""
    from kgen.build import store

    _say_removed(store().trim(max_size), as_json)


@cache.command()
@json_option
def clear(as_json: bool) -> None:
    """Remove every entry."""
    from kgen.build import store

    _say_removed(store().clear(), as_json)


def _say_removed(records: Sequence[Record], as_json: bool) -> None:
    from kgen.build import store
    from kgen.report import size

    if as_json:
        print_json([_as_dict(record) for record in records])
    else:
        freed = size(sum(record.bytes for record in records))
        click.echo(f"{len(records)} entries removed, {freed} freed from {store().root}")


def _as_dict(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "arch": record.arch,
        "key": record.key,
        "bytes": record.bytes,
        "used": record.used,
        "path": str(record.path),
    }


def _age(used: float) -> str:
    """How long ago, in the largest unit that has passed; the cache knows it to the hour."""
    hours = max(0.0, time.time() - used) / 3600
    return "just now" if hours < 1 else f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} d ago"
