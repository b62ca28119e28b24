"""The sub-commands of `stratalog index`, their options and exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.index.inspect import inspect_target
from stratalog.cli.index.rebuild import convert_target, rebuild_target
from stratalog.cli.index.verify import verify_target
from stratalog.cli.options import JsonLines
from stratalog.errors import UsageError
from stratalog.jobs.index import INDEX_INTERVAL_BYTES, find_target
from stratalog.log.format import OffsetIndexFormat, format_of

_PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="An index file, a partition directory or a data directory.")
]


def inspect(
    path: _PathArgument,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Number of entries to show, first and last. 0 shows all.")
    ] = 20,
    as_json: JsonLines = False,
) -> int:
    """Show the format of indexes, how it was detected, and their entries.

    Exit code 1: an index is corrupt.

    \b
    Example:
      stratalog index inspect --limit 6 data/flights-0/00000000000000000000.index
    """
    return 1 if inspect_target(find_target(path), limit, as_json=as_json) else 0


def verify(path: _PathArgument, as_json: JsonLines = False) -> int:
    """Compare every entry of offset and time indexes with the log.

    Exit code 1: an entry is wrong or missing.

    \b
    Example:
      stratalog index verify data/flights-0
    """
    return 1 if verify_target(find_target(path), as_json=as_json) else 0


def rebuild(
    path: _PathArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="8|12", help="Bytes of an offset index entry. Default: keep the format."),
    ] = None,
    interval: Annotated[
        int, typer.Option("--interval", min=0, metavar="BYTES", help="The topic's index.interval.bytes.")
    ] = INDEX_INTERVAL_BYTES,
    only_damaged: Annotated[
        bool, typer.Option("--only-damaged", help="Rebuild only indexes in which 'verify' finds errors.")
    ] = False,
    as_json: JsonLines = False,
) -> int:
    """Rebuild indexes from their logs, while no broker serves them.

    Exit code 1: a log ends with an incomplete batch.

    \b
    Example:
      stratalog index rebuild --only-damaged data
    """
    form = None if to is None else _format(to)
    torn = rebuild_target(
        find_target(path),
        form=form,
        index_interval_bytes=interval,
        only_damaged=only_damaged,
        as_json=as_json,
    )
    return 1 if torn else 0


def convert(
    path: _PathArgument,
    to: Annotated[str, typer.Option("--to", metavar="8|12", help="Bytes of an offset index entry.")],
    as_json: JsonLines = False,
) -> int:
    """Convert offset indexes to another format, while no broker serves them.

    Brokers below 4.4-IV1 (metadata.version 32) read only entries of 8 bytes, which end at 2 GiB. Nothing is written
    unless every index is valid and fits. To finish an interrupted conversion, run the same command again.

    Exit code 1: an index is damaged.

    \b
    Example:
      stratalog index convert --to 12 data
    """
    form = _format(to)
    return 1 if convert_target(find_target(path), form, as_json=as_json) else 0


def _format(text: str) -> OffsetIndexFormat:
    if text not in ("8", "12"):
        raise UsageError(f"--to {text}: an offset index entry has 8 or 12 bytes")
    return format_of(int(text))
