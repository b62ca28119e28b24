"""Audit the objects of one partition in a bucket: facts in, findings out. Pure.

Every rule is one function and checks one thing. `segment` has the rules for one segment, `offsets` those for all
segments together. The rules follow from the order of copy and delete (`docs/formats/remote_layout.md`), the states in
`segment_state` and the lineage in `lineage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from stratalog.inspect import LogFacts, Manifest, PartitionMetadata, group_objects
from stratalog.jobs.audit.findings import AuditKind, ObjectFinding
from stratalog.jobs.audit.offsets import audit_offsets
from stratalog.jobs.audit.segment import (
    MetadataState,
    SegmentFacts,
    audit_segment,
    audit_without_objects,
    has_records,
    state_of,
)
from stratalog.jobs.findings import Severity
from stratalog.remote.api import RemotePartitionDeleteState, TopicIdPartition
from stratalog.remote.storage import ObjectInfo, SegmentManifest
from stratalog.remote.transactions import job_of


def audit_partition(
    partition: TopicIdPartition,
    manifests: Mapping[UUID, Manifest],
    metadata: PartitionMetadata | None,
    objects: Iterable[ObjectInfo],
    log_facts: LogFacts | None = None,
    *,
    now_ms: int,
    grace_ms: int,
) -> list[ObjectFinding]:
    """Return all findings of one partition, by start offset.

    `manifests` are those of `objects`, by segment id. `metadata` is None if it is not available. Objects that look like
    a copy or deletion in progress and are younger than `grace_ms` give a note.
    """
    sets, foreign = group_objects(objects)
    has_broker = any(isinstance(each, SegmentManifest) and each.broker_id >= 0 for each in manifests.values())
    newest_of_job: dict[bytes, int] = {}
    for segment_id, stored in sets.items():
        job = job_of(segment_id)
        newest_of_job[job] = max(newest_of_job.get(job, 0), stored.newest_ms)
    findings: list[ObjectFinding] = []
    readable: list[SegmentManifest] = []
    for segment_id, stored in sorted(sets.items(), key=lambda item: (item[1].start_offset, item[0])):
        facts = SegmentFacts(
            stored,
            manifests.get(segment_id),
            None if metadata is None else metadata.segments.get(segment_id),
            state_of(segment_id, metadata),
            is_young=newest_of_job[job_of(segment_id)] > now_ms - grace_ms,
            has_broker=has_broker,
            job_newest_ms=newest_of_job[job_of(segment_id)],
        )
        findings += audit_segment(facts)
        if isinstance(facts.manifest, SegmentManifest) and _is_readable(facts):
            readable.append(facts.manifest)
    if metadata is not None:
        for segment_id, known in metadata.segments.items():
            if segment_id not in sets:
                findings += audit_without_objects(known)
        if sets and metadata.is_complete and not metadata.mentions_anything:
            findings.append(_unknown_partition(partition, sum(stored.bytes for stored in sets.values())))
    if metadata is not None and metadata.delete_state in _DELETING and sets:
        findings.append(_partition_deletion(partition, sum(stored.bytes for stored in sets.values())))
    if metadata is None or metadata.delete_state is None:
        findings += audit_offsets(partition, readable, log_facts)
    findings += (foreign_object(info, partition) for info in foreign)
    return findings


_DELETING = (
    RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
    RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
)


def _is_readable(facts: SegmentFacts) -> bool:
    """Return whether readers get the records: manifest and records exist, and the metadata does not delete them."""
    return (
        isinstance(facts.manifest, SegmentManifest)
        and has_records(facts.stored, facts.manifest)
        and facts.state not in (MetadataState.DELETING, MetadataState.DELETED)
    )


def _partition_deletion(partition: TopicIdPartition, size: int) -> ObjectFinding:
    return ObjectFinding(
        severity=Severity.WARNING,
        kind=AuditKind.UNFINISHED_DELETION,
        topic=partition.topic,
        partition=partition.partition,
        bytes=size,
        text="the deletion of the partition has started, but objects are left",
        action="none: the broker continues when it is started",
    )


def _unknown_partition(partition: TopicIdPartition, size: int) -> ObjectFinding:
    return ObjectFinding(
        severity=Severity.WARNING,
        kind=AuditKind.UNKNOWN_PARTITION,
        topic=partition.topic,
        partition=partition.partition,
        bytes=size,
        text="the metadata of the data directory does not mention this partition",
        action="if the topic was deleted, remove its directory by hand; otherwise name the right data directory, or "
        "restore the topic with tier restore",
    )


def foreign_object(info: ObjectInfo, partition: TopicIdPartition | None = None) -> ObjectFinding:
    """Return a finding for an object that belongs to no segment; `partition` is the one whose directory it is in."""
    return ObjectFinding(
        severity=Severity.NOTE,
        kind=AuditKind.FOREIGN_OBJECT,
        topic="" if partition is None else partition.topic,
        partition=None if partition is None else partition.partition,
        object_key=info.key,
        bytes=info.size,
        text="this object belongs to no segment",
        action="none: it is left alone",
        newest_ms=info.last_modified_ms,
    )
