"""`stratalog spark index`: verify, rebuild and convert the indexes of whole directories and buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from stratalog import jobs
from stratalog.cli.options import Json, PlanOnly
from stratalog.cli.spark.options import JobInputs
from stratalog.cli.spark.session import JobResult, SessionOptions, print_result
from stratalog.errors import UsageError


def verify(inputs: JobInputs, session: SessionOptions, as_json: Json = False) -> int:
    """Compare every entry of offset, time and transaction indexes with the records.

    Exit code 1: an entry is wrong or missing.

    \b
    Example:
      stratalog spark index verify --data-dir /var/lib/stratalog --remote s3://bucket/tiered
    """
    where = inputs.places()
    with where.held(for_check=True), session.executor("stratalog index") as executor:
        return _run(jobs.verify_indexes, where.arguments(), executor, as_json)


def rebuild(
    inputs: JobInputs,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="8|12", help="In directories: bytes of an offset index entry. Default: keep the format."
        ),
    ] = None,
    interval: Annotated[
        int, typer.Option("--interval", min=0, metavar="BYTES", help="The topics' index.interval.bytes.")
    ] = 4096,
    only_damaged: Annotated[
        bool, typer.Option("--only-damaged", help="Rebuild only indexes in which verify finds errors.")
    ] = False,
    dry_run: PlanOnly = False,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Rebuild indexes from the records.

    Exit code 1: an index could not be rebuilt, or a log ends with an incomplete batch.

    \b
    Example:
      stratalog spark index rebuild --only-damaged --data-dir /var/lib/stratalog
    """
    where = inputs.places()
    more = {
        "to": None if to is None else _entry_size(to),
        "interval_bytes": interval,
        "only_damaged": only_damaged,
        "dry_run": dry_run,
    }
    with where.held(for_check=dry_run), session.executor("stratalog index") as executor:
        return _run(jobs.rebuild_indexes, where.arguments() | more, executor, as_json)


def convert(
    to: Annotated[str, typer.Option("--to", metavar="8|12", help="Bytes of an offset index entry.")],
    inputs: JobInputs,
    *,
    dry_run: PlanOnly = False,
    session: SessionOptions,
    as_json: Json = False,
) -> int:
    """Convert offset indexes to entries of 8 or 12 bytes. Nothing is written unless all are valid and fit.

    Exit code 1: an index is damaged.

    \b
    Example:
      stratalog spark index convert --to 12 --data-dir /var/lib/stratalog
    """
    where = inputs.places()
    more = {"to": _entry_size(to), "dry_run": dry_run}
    with where.held(for_check=dry_run), session.executor("stratalog index") as executor:
        return _run(jobs.convert_indexes, where.arguments() | more, executor, as_json)


def _run(job: Callable[..., JobResult], options: dict[str, Any], executor: jobs.Executor, as_json: bool) -> int:
    result = job(**options, executor=executor, progress=jobs.terminal_progress())
    return print_result(result, as_json=as_json)


def _entry_size(text: str) -> int:
    if text not in ("8", "12"):
        raise UsageError(f"--to {text}: an offset index entry has 8 or 12 bytes")
    return int(text)
