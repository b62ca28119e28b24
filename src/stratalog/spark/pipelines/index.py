"""Offset, time and transaction indexes of whole directories and buckets: verified, made anew, converted 8 <-> 12 bytes.

    verify_indexes(spark, paths=["/var/lib/stratalog"]).report().print()
    rebuild_indexes(spark, paths=["/var/lib/stratalog"], only_damaged=True)
    convert_indexes(spark, 12, remote="s3://bucket/tiered", dry_run=True)

Directories must not be served meanwhile (the command holds their locks). Consumers of a bucket make their own index
while one is being replaced; of a bucket that a cluster owns indexes are written only with the stopped directory of its
broker among `paths`, as a segment might be deleted there while its manifest is put. Everything may be run again after
it was interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.errors import UsageError
from stratalog.jobs.index import INDEX_INTERVAL_BYTES
from stratalog.remote.ownership import OwnershipFile
from stratalog.spark.pipelines.index_local import convert_local, rebuild_local, segments_of, verify_local
from stratalog.spark.pipelines.index_remote import change_remote, check_may_write
from stratalog.spark.pipelines.index_rows import IndexChange, IndexResult, Outcome
from stratalog.spark.pipelines.progress import SILENT, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IndexChange", "IndexResult", "Outcome", "convert_indexes", "rebuild_indexes", "verify_indexes"]


def verify_indexes(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    progress: Progress = SILENT,
) -> IndexResult:
    """Hold every entry against the records; all that is wrong is DAMAGED. Nothing is changed."""
    directories, chosen = _places(paths, remote), _chosen(topics)
    changes = [
        IndexChange(each.partition, str(each.path), Outcome.DAMAGED, f"found {each.found}, expected {each.expected}")
        for each in (verify_local(spark, directories, chosen, progress) if directories else ())
    ]
    count = sum(1 for _ in segments_of(directories, chosen))
    if remote is not None:
        found, there = change_remote(spark, remote, remote_options or {}, topics, progress, action="verify")
        changes, count = changes + found, count + there
    return _result("verify", changes, count, False)


def rebuild_indexes(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    to: int | None = None,
    interval_bytes: int = INDEX_INTERVAL_BYTES,
    only_damaged: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> IndexResult:
    """Make indexes anew from the records, those of transactions only where they are wrong.

    `to` (8 or 12) and `interval_bytes` are for directories; without `to`, and in a bucket, an index keeps its format.
    UsageError, before anything is written, for a log that is too large for the format; NotOwnerError for a bucket that
    is another's.
    """
    directories, chosen = _places(paths, remote), _chosen(topics)
    _entry_size(to)
    changes: list[IndexChange] = []
    count = sum(1 for _ in segments_of(directories, chosen))
    if remote is not None and not dry_run:
        check_may_write(remote, remote_options or {}, "rebuild", _incarnations(directories))
    if directories:
        changes += rebuild_local(
            spark,
            directories,
            chosen,
            progress,
            entry_size=to,
            interval_bytes=interval_bytes,
            only_damaged=only_damaged,
            is_dry=dry_run,
        )
    if remote is not None:
        found, there = change_remote(
            spark,
            remote,
            remote_options or {},
            topics,
            progress,
            action="rebuild",
            only_damaged=only_damaged,
            is_dry=dry_run,
            incarnations=_incarnations(directories),
        )
        changes, count = changes + found, count + there
    return _result("rebuild", changes, count, dry_run)


def convert_indexes(
    spark: SparkSession,
    to: int,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> IndexResult:
    """Give all offset indexes entries of `to` bytes. With a DAMAGED among the changes nothing was written of that tier.

    Brokers below metadata.version 32 (4.4-IV1) read entries of 8 bytes only, and those reach to 2 GiB: UsageError for
    what does not fit.
    """
    directories, chosen = _places(paths, remote), _chosen(topics)
    _entry_size(to)
    changes: list[IndexChange] = []
    count = sum(1 for _ in segments_of(directories, chosen))
    if remote is not None and not dry_run:
        check_may_write(remote, remote_options or {}, "convert", _incarnations(directories))
    if directories:
        changes += convert_local(spark, directories, chosen, progress, entry_size=to, is_dry=dry_run)
    if remote is not None:
        found, there = change_remote(
            spark,
            remote,
            remote_options or {},
            topics,
            progress,
            action="convert",
            entry_size=to,
            is_dry=dry_run,
            incarnations=_incarnations(directories),
        )
        changes, count = changes + found, count + there
    return _result("convert", changes, count, dry_run)


def _result(action: str, changes: Sequence[IndexChange], segments: int, is_dry: bool) -> IndexResult:
    ordered = sorted(changes, key=lambda change: (change.partition, change.place))
    return IndexResult(action, tuple(ordered), segments, is_dry)


def _incarnations(directories: Sequence[Path]) -> frozenset[str] | None:
    """The processes that ran with the directories, None without any."""
    if not directories:
        return None
    return frozenset[str]().union(*(OwnershipFile(each).all_incarnations for each in directories))


def _places(paths: Sequence[str | Path], remote: str | None) -> list[Path]:
    if not paths and remote is None:
        raise UsageError("which indexes? give paths, a remote URL, or both")
    return [Path(path) for path in paths]


def _chosen(topics: Collection[str] | None) -> frozenset[str] | None:
    return None if topics is None else frozenset(topics)


def _entry_size(to: int | None) -> None:
    if to not in (None, 8, 12):
        raise UsageError(f"{to}: an offset index entry has 8 or 12 bytes")
