"""Verify, rebuild and convert (8 <-> 12 bytes) the indexes of whole directories and buckets.

    verify_indexes(paths=["/var/lib/stratalog"]).report().print()
    rebuild_indexes(paths=["/var/lib/stratalog"], only_damaged=True)
    convert_indexes(12, remote="s3://bucket/tiered", dry_run=True)

No broker may serve the directories (the command holds their locks). Readers of a bucket rebuild an index themselves
while it is being replaced. If a cluster owns the bucket, pass the directory of its stopped broker in `paths`: a running
broker might delete a segment while its manifest is put. An interrupted job can be run again.

All three functions raise UsageError if there is nothing to do, and OSError, RemoteStorageError or TaskError if
something cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from stratalog.errors import UsageError
from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.index.dirs import rebuild_dirs, verify_dirs
from stratalog.jobs.index.local import convert_targets
from stratalog.jobs.index.rebuild import INDEX_INTERVAL_BYTES
from stratalog.jobs.index.remote import BucketWork, change_bucket, check_may_write
from stratalog.jobs.index.result import IndexChange, IndexResult, Outcome
from stratalog.jobs.index.targets import SegmentTarget, targets_in
from stratalog.jobs.progress import SILENT, Progress
from stratalog.log import list_partitions
from stratalog.log.format import OffsetIndexFormat, format_of
from stratalog.remote.ownership import OwnershipFile


def verify_indexes(
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> IndexResult:
    """Compare every entry with the records, and report wrong indexes as DAMAGED. Change nothing."""
    directories = _places(paths, remote)
    changes = [
        IndexChange(each.partition, str(each.path), Outcome.DAMAGED, f"found {each.found}, expected {each.expected}")
        for each in (verify_dirs(directories, topics, executor, progress) if directories else ())
    ]
    count = len(_targets(directories, topics))
    if remote is not None:
        work = BucketWork(remote, dict(remote_options or {}), "verify")
        found, there = change_bucket(work, topics, executor, progress)
        changes, count = changes + found, count + there
    return _result("verify", changes, count, False)


def rebuild_indexes(
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    to: int | None = None,
    interval_bytes: int = INDEX_INTERVAL_BYTES,
    only_damaged: bool = False,
    dry_run: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> IndexResult:
    """Rebuild indexes from the records; transaction indexes only if they are wrong.

    `to` (8 or 12) and `interval_bytes` apply to directories. Without `to`, and in a bucket, an index keeps its format.
    Raises UsageError, before anything is written, if a log is too large for the format, and NotOwnerError if the bucket
    has another owner.
    """
    directories, form = _places(paths, remote), _form(to)
    targets = _targets(directories, topics)
    work = _bucket_work("rebuild", remote, remote_options, directories, dry_run, only_damaged=only_damaged)
    changes: list[IndexChange] = []
    if directories:
        changes += rebuild_dirs(
            directories,
            targets,
            topics,
            form=form,
            interval_bytes=interval_bytes,
            only_damaged=only_damaged,
            is_dry=dry_run,
            executor=executor,
            progress=progress,
        )
    there = 0
    if work is not None:
        found, there = change_bucket(work, topics, executor, progress)
        changes += found
    return _result("rebuild", changes, len(targets) + there, dry_run)


def convert_indexes(
    to: int,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> IndexResult:
    """Convert all offset indexes to entries of `to` bytes. A tier with a DAMAGED index is left unchanged.

    Brokers below metadata.version 32 (4.4-IV1) read only entries of 8 bytes, whose positions end at 2 GiB. Raises
    UsageError if a position does not fit.
    """
    directories, form = _places(paths, remote), _form(to)
    assert form is not None
    targets = _targets(directories, topics)
    work = _bucket_work("convert", remote, remote_options, directories, dry_run, form=form)
    changes = convert_targets(targets, form, is_dry=dry_run, executor=executor, progress=progress)
    there = 0
    if work is not None:
        found, there = change_bucket(work, topics, executor, progress)
        changes += found
    return _result("convert", changes, len(targets) + there, dry_run)


def _result(action: str, changes: Sequence[IndexChange], segments: int, is_dry: bool) -> IndexResult:
    ordered = sorted(changes, key=lambda change: (change.partition, change.place))
    return IndexResult(action, tuple(ordered), segments, is_dry)


def _bucket_work(
    action: str,
    remote: str | None,
    options: Mapping[str, str] | None,
    directories: Sequence[Path],
    is_dry: bool,
    *,
    form: OffsetIndexFormat | None = None,
    only_damaged: bool = False,
) -> BucketWork | None:
    """Return the job for the bucket, or None without one. Raises NotOwnerError before a directory is changed."""
    if remote is None:
        return None
    work = BucketWork(
        url=remote,
        options=dict(options or {}),
        action=action,
        form=form,
        only_damaged=only_damaged,
        is_dry=is_dry,
        incarnations=_incarnations(directories),
    )
    check_may_write(work)
    return work


def _incarnations(directories: Sequence[Path]) -> frozenset[str] | None:
    """Return the ids of all broker processes that used the directories, or None without directories."""
    if not directories:
        return None
    return frozenset[str]().union(*(OwnershipFile(each).all_incarnations for each in directories))


def _targets(directories: Sequence[Path], topics: Collection[str] | None) -> list[SegmentTarget]:
    return [
        target
        for directory in directories
        for topic, _, path in list_partitions(directory)
        if topics is None or topic in topics
        for target in targets_in(path)
    ]


def _places(paths: Sequence[str | Path], remote: str | None) -> list[Path]:
    if not paths and remote is None:
        raise UsageError("no indexes are named: give paths, a remote URL, or both")
    return [Path(path) for path in paths]


def _form(to: int | None) -> OffsetIndexFormat | None:
    if to not in (None, 8, 12):
        raise UsageError(f"{to}: an offset index entry has 8 or 12 bytes")
    return None if to is None else format_of(to)
