"""Every segment of data directories and of a bucket checked: CRCs, order, lineage, gaps, overlaps, orphans, metadata.

    result = audit(spark, paths=["/var/lib/stratalog"], remote="s3://bucket/tiered", state="/var/lib/audit")
    result.report().print()
    result.to_frame(spark).write.parquet("/tmp/findings")

Each content is read once, by a task of its own; with a `state`, sealed content that was found sound is not read again
while it is the same. Nothing is changed: `stratalog fsck --repair` and `stratalog tier repair` do what `action`
proposes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError
from stratalog.inspect import DataDirs
from stratalog.spark.pipelines.audit_rows import AuditFinding, AuditResult, ordered
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.spark.pipelines.state import Ledger, State
from stratalog.util import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditFinding", "AuditResult", "audit"]

#: What is younger may be a copy or a deletion under way.
GRACE_MS: Final = 24 * 3_600_000

_LEDGER: Final = "audit"


def audit(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    state: State | str | Path | None = None,
    grace_ms: int = GRACE_MS,
    progress: Progress = SILENT,
) -> AuditResult:
    """Check everything in `paths` (log directories that no broker serves) and in `remote`.

    With both, against each other.

    `topics` limits the bucket, and what is told of the directories. UsageError when there is nothing to look at;
    RemoteStorageError, OSError, TaskError when something cannot be read.
    """
    directories = [Path(path) for path in paths]
    if not directories and remote is None:
        raise UsageError("nothing to audit: give paths, a remote URL, or both")
    kept = state if isinstance(state, State) or state is None else State(state)
    findings: list[AuditFinding] = []
    partitions = segments = size = read = known = 0
    with Ledger(kept, _LEDGER) as ledger:
        if directories:
            from stratalog.spark.pipelines.audit_local import audit_local

            local = audit_local(spark, directories, ledger, progress)
            findings += map(AuditFinding.of_local, local.report.findings)
            partitions += len(local.report.partitions)
            segments += sum(each.segments for each in local.report.partitions)
            size += sum(each.size for each in local.report.partitions)
            read, known = local.read_bytes, local.known_segments
        if remote is not None:
            from stratalog.spark.pipelines.audit_remote import audit_remote

            data_dirs = DataDirs(directories) if directories else None
            found = audit_remote(
                spark,
                remote,
                remote_options or {},
                topics=topics,
                data_dirs=data_dirs,
                now_ms=SYSTEM_CLOCK.now_ms(),
                grace_ms=grace_ms,
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
