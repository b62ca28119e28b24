"""Check everything in data directories and a bucket: CRCs, order, lineage, gaps, overlaps, orphans, metadata.

    result = audit("s3://bucket/tiered", paths=["/var/lib/stratalog"], state="/var/lib/audit")
    result.report().print()

The rules are those of `stratalog fsck` and `stratalog tier audit --deep`. One task reads each content once. With a
`state`, sealed contents that were sound are not read again until they change. Nothing is changed: `stratalog fsck
--repair` and `stratalog tier repair` do what `action` proposes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.inspect import DataDirSet
from stratalog.jobs.audit.bucket import READERS, AuditOptions, Bucket, audit_bucket
from stratalog.jobs.audit.result import AuditFinding, AuditResult, ordered
from stratalog.jobs.executor import Executor
from stratalog.jobs.fsck import fsck
from stratalog.jobs.ledger import Ledger, State
from stratalog.jobs.progress import SILENT, Progress
from stratalog.util import SYSTEM_CLOCK

#: Younger objects may belong to a copy or a deletion in progress.
GRACE_MS: Final = 24 * 3_600_000

_LEDGER: Final = "audit"


def audit(
    remote: str | None = None,
    *,
    paths: Sequence[str | Path] = (),
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    state: State | str | Path | None = None,
    grace_ms: int = GRACE_MS,
    executor: Executor = READERS,
    progress: Progress = SILENT,
) -> AuditResult:
    """Check everything in a bucket and in log directories that no broker serves; with both, against each other.

    `topics` limits the audit of the bucket, and the findings of the directories. Objects younger than `grace_ms` may
    belong to a copy or deletion in progress.

    Returns:
        All findings of both tiers, and the extent of the audit.

    Raises:
        UsageError: There is nothing to audit.
        RemoteStorageError, OSError, TaskError: Something cannot be read.

    """
    directories = [Path(path) for path in paths]
    if not directories and remote is None:
        raise UsageError("nothing to audit: give paths, a remote URL, or both")
    kept = state if isinstance(state, State) or state is None else State(state)
    findings: list[AuditFinding] = []
    partitions = segments = size = read = known = 0
    with Ledger(kept, _LEDGER) as ledger:
        if directories:
            local = fsck(directories, executor=executor, ledger=ledger, progress=progress)
            findings += map(AuditFinding.of_local, local.findings)
            partitions += len(local.partitions)
            segments += sum(each.segments for each in local.partitions)
            size += sum(each.size for each in local.partitions)
            read, known = local.read_bytes, local.known_segments
        if remote is not None:
            found = audit_bucket(
                Bucket(remote, remote_options),
                AuditOptions(SYSTEM_CLOCK.now_ms(), grace_ms, topics, deep=True),
                DataDirSet(directories) if directories else None,
                executor=executor,
                ledger=ledger,
                progress=progress,
            )
            findings += map(AuditFinding.of_remote, found.findings)
            partitions += found.partitions
            segments += found.segments
            size += found.bytes
            read, known = read + found.read_bytes, known + found.known_segments
    if topics is not None:
        findings = [finding for finding in findings if not finding.topic or finding.topic in topics]
    return AuditResult(ordered(findings), partitions, segments, size, read, known)
