"""Verify and rebuild all indexes of data directories, transaction indexes too, by the rules of `stratalog fsck`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from stratalog.jobs.executor import Executor
from stratalog.jobs.fsck import FileFinding, FsckKind, fsck
from stratalog.jobs.index.local import rebuild_targets
from stratalog.jobs.index.result import IndexChange, Outcome
from stratalog.jobs.index.targets import SegmentTarget
from stratalog.jobs.progress import Progress
from stratalog.log.format import OffsetIndexFormat, parse_partition_dir
from stratalog.util import REAL_FILESYSTEM

_OFFSET_AND_TIME: Final = (FsckKind.INDEX_MISSING, FsckKind.INDEX_DAMAGED, FsckKind.INDEX_ENTRY, FsckKind.INDEX_INEXACT)
_TRANSACTION: Final = (FsckKind.TXN_INDEX_DAMAGED, FsckKind.TXN_INDEX_ENTRY)


def verify_dirs(
    directories: Sequence[Path], topics: Collection[str] | None, executor: Executor, progress: Progress
) -> list[FileFinding]:
    """Return the faults of offset, time and transaction indexes."""
    return [
        finding
        for finding in fsck(directories, executor=executor, progress=progress).findings
        if finding.kind in (*_OFFSET_AND_TIME, *_TRANSACTION)
        and (topics is None or (parse_partition_dir(finding.partition) or ("",))[0] in topics)
    ]


def rebuild_dirs(
    directories: Sequence[Path],
    targets: Sequence[SegmentTarget],
    topics: Collection[str] | None,
    *,
    form: OffsetIndexFormat | None,
    interval_bytes: int,
    only_damaged: bool,
    is_dry: bool,
    executor: Executor,
    progress: Progress,
) -> list[IndexChange]:
    """Rebuild indexes; transaction indexes only if they are wrong, as the log may not reach back far enough."""
    findings = verify_dirs(directories, topics, executor, progress)
    if only_damaged:
        damaged = {finding.path.with_suffix("") for finding in findings if finding.kind in _OFFSET_AND_TIME}
        targets = [target for target in targets if target.log.with_suffix("") in damaged]
    changes = rebuild_targets(
        targets, form=form, interval_bytes=interval_bytes, is_dry=is_dry, executor=executor, progress=progress
    )
    by_file = {finding.path: finding for finding in reversed(findings) if finding.kind in _TRANSACTION}
    for path, finding in by_file.items():
        if finding.action is None:
            text = "cannot be verified: a transaction began before the log, or the log has gaps"
            changes.append(IndexChange(finding.partition, str(path), Outcome.SKIPPED, text))
            continue
        if not is_dry:
            finding.action.carry_out(REAL_FILESYSTEM)
        changes.append(IndexChange(finding.partition, str(path), Outcome.REBUILT, finding.action.describe()))
    return changes
