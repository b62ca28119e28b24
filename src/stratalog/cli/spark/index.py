"""`stratalog spark index`: verify, rebuild and convert the indexes of whole directories and buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stratalog.cli.fsck import held
from stratalog.cli.options import DataDirs, Json, Remote, RemoteOptions, Topics
from stratalog.cli.spark.options import InputOptions, places
from stratalog.cli.spark.session import Conf, Master, RemoteSession, spark_session
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.jobs.index import IndexResult

DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would be done, and change nothing.")]


def verify(
    data_dir: DataDirs = None,
    remote: Remote = None,
    topic: Topics = None,
    remote_option: RemoteOptions = None,
    master: Master = None,
    remote_session: RemoteSession = None,
    conf: Conf = None,
    as_json: Json = False,
) -> int:
    """Compare every entry of offset, time and transaction indexes with the records.

    Exit code 1: an entry is wrong or missing.

    \b
    Example:
      stratalog spark index verify --data-dir /var/lib/stratalog --remote s3://bucket/tiered
    """
    from stratalog.jobs.index import verify_indexes

    where = places(data_dir, remote, remote_option, topic)
    with _locked(where, False), spark_session("stratalog index", master, remote_session, conf) as spark:
        return _done(verify_indexes, spark, where.arguments(), as_json)


def rebuild(
    data_dir: DataDirs = None,
    remote: Remote = None,
    topic: Topics = None,
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
    dry_run: DryRun = False,
    remote_option: RemoteOptions = None,
    master: Master = None,
    remote_session: RemoteSession = None,
    conf: Conf = None,
    as_json: Json = False,
) -> int:
    """Rebuild indexes from the records.

    Exit code 1: an index could not be rebuilt, or a log ends with an incomplete batch.

    \b
    Example:
      stratalog spark index rebuild --only-damaged --data-dir /var/lib/stratalog
    """
    from stratalog.jobs.index import rebuild_indexes

    where = places(data_dir, remote, remote_option, topic)
    more = {
        "to": None if to is None else _entry_size(to),
        "interval_bytes": interval,
        "only_damaged": only_damaged,
        "dry_run": dry_run,
    }
    with (
        _locked(where, not dry_run),
        spark_session("stratalog index", master, remote_session, conf) as spark,
    ):
        return _done(rebuild_indexes, spark, where.arguments() | more, as_json)


def convert(
    to: Annotated[str, typer.Option("--to", metavar="8|12", help="Bytes of an offset index entry.")],
    data_dir: DataDirs = None,
    remote: Remote = None,
    topic: Topics = None,
    dry_run: DryRun = False,
    remote_option: RemoteOptions = None,
    master: Master = None,
    remote_session: RemoteSession = None,
    conf: Conf = None,
    as_json: Json = False,
) -> int:
    """Convert offset indexes to entries of 8 or 12 bytes. Nothing is written unless all are valid and fit.

    Exit code 1: an index is damaged.

    \b
    Example:
      stratalog spark index convert --to 12 --data-dir /var/lib/stratalog
    """
    from stratalog.jobs.index import convert_indexes

    where = places(data_dir, remote, remote_option, topic)
    more = {"to": _entry_size(to), "dry_run": dry_run}
    with (
        _locked(where, not dry_run),
        spark_session("stratalog index", master, remote_session, conf) as spark,
    ):
        return _done(convert_indexes, spark, where.arguments() | more, as_json)


@contextmanager
def _locked(where: InputOptions, exclusively: bool) -> Iterator[None]:
    with held([Path(each) for each in where.paths], REAL_FILESYSTEM, exclusively=exclusively):
        yield


def _done(job: Callable[..., IndexResult], spark: SparkSession, options: dict[str, Any], as_json: bool) -> int:
    from stratalog.jobs import terminal_progress
    from stratalog.spark import SparkExecutor

    result = job(**options, executor=SparkExecutor(spark), progress=terminal_progress())
    result.report().print(as_json=as_json)
    return 1 if result.problems else 0


def _entry_size(text: str) -> int:
    if text not in ("8", "12"):
        raise UsageError(f"--to {text}: an offset index entry has 8 or 12 bytes")
    return int(text)
