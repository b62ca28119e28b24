"""Findings for multipart uploads that were never completed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from stratalog.inspect import parse_key
from stratalog.jobs.audit.findings import AuditKind, ObjectFinding, TakeBackUpload
from stratalog.jobs.findings import Severity
from stratalog.remote.storage import PendingUpload


def audit_uploads(
    uploads: Iterable[PendingUpload], *, now_ms: int, grace_ms: int, topics: Collection[str] | None = None
) -> Iterator[ObjectFinding]:
    """Yield a finding for each upload of an object of `topics` (None for all). A young one may be in progress."""
    for upload in uploads:
        key = parse_key(upload.key)
        if key is None:
            if topics is None:
                yield ObjectFinding(
                    severity=Severity.NOTE,
                    kind=AuditKind.UNFINISHED_UPLOAD,
                    object_key=upload.key,
                    text="an upload of an object that belongs to no segment was not finished",
                    action="none: it is left alone",
                    newest_ms=upload.begun_ms,
                )
            continue
        partition = key.segment_id.topic_id_partition
        if topics is not None and partition.topic not in topics:
            continue
        severity = Severity.NOTE if upload.begun_ms > now_ms - grace_ms else Severity.WARNING
        yield ObjectFinding(
            severity=severity,
            kind=AuditKind.UNFINISHED_UPLOAD,
            topic=partition.topic,
            partition=partition.partition,
            segment_id=key.segment_id.id,
            object_key=upload.key,
            text="a multipart upload was never completed; its parts take space, and no listing shows them",
            action="repair aborts it",
            mend=TakeBackUpload(upload),
            newest_ms=upload.begun_ms,
        )
