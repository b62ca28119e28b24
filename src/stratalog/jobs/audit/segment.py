"""Rules about one segment: its objects against its manifest and against the metadata. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from stratalog.inspect import REMAKEABLE, Manifest, ManifestFault, PartitionMetadata, SegmentObjects
from stratalog.jobs.audit.findings import (
    AuditKind,
    DeleteObjects,
    Mend,
    ObjectFinding,
    Offsets,
    RemakeIndexes,
    WriteManifest,
)
from stratalog.jobs.findings import Severity
from stratalog.remote.api import INT32_MAX, RemoteLogSegmentMetadata, RemoteLogSegmentState
from stratalog.remote.storage import (
    CONTENTS,
    ObjectInfo,
    ObjectKey,
    ObjectKind,
    ObjectLayout,
    SegmentManifest,
    object_key,
    stored_objects,
)
from stratalog.remote.transactions import is_bulk


class MetadataState(enum.Enum):
    UNKNOWN = "the metadata is not available, or does not reach back far enough"
    ABSENT = "it is not mentioned"
    COPYING = "COPY_SEGMENT_STARTED"
    FINISHED = "COPY_SEGMENT_FINISHED"
    DELETING = "DELETE_SEGMENT_STARTED"
    DELETED = "DELETE_SEGMENT_FINISHED"


_STATES = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: MetadataState.COPYING,
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: MetadataState.FINISHED,
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: MetadataState.DELETING,
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: MetadataState.DELETED,
}


def state_of(segment_id: UUID, metadata: PartitionMetadata | None) -> MetadataState:
    """Return the state of a segment. It is UNKNOWN if the metadata does not mention the partition at all."""
    if metadata is None:
        return MetadataState.UNKNOWN
    if segment_id in metadata.deleted:
        return MetadataState.DELETED
    known = metadata.segments.get(segment_id)
    if known is not None:
        return _STATES[known.state]
    return MetadataState.ABSENT if metadata.is_complete and metadata.mentions_anything else MetadataState.UNKNOWN


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """All that is known of one segment that has objects."""

    stored: SegmentObjects
    manifest: Manifest | None
    metadata: RemoteLogSegmentMetadata | None
    state: MetadataState
    is_young: bool
    #: Whether a broker copies segments of this partition, judged by its other segments.
    has_broker: bool = True
    #: When the youngest object of the job that staged it was written. The job may still be running.
    job_newest_ms: int | None = None

    def finding(
        self,
        severity: Severity,
        kind: AuditKind,
        text: str,
        action: str,
        *,
        mend: Mend | None = None,
        key: str | None = None,
        size: int | None = None,
        newest_ms: int | None = None,
    ) -> ObjectFinding:
        segment_id = self.stored.segment_id
        partition = segment_id.topic_id_partition
        return ObjectFinding(
            severity=severity,
            kind=kind,
            topic=partition.topic,
            partition=partition.partition,
            segment_id=segment_id.id,
            object_key=key,
            offsets=self.offsets,
            bytes=self.stored.bytes if size is None else size,
            text=text,
            action=action,
            mend=mend,
            newest_ms=self.stored.newest_ms if newest_ms is None else newest_ms,
        )

    @property
    def offsets(self) -> Offsets | None:
        if isinstance(self.manifest, SegmentManifest):
            return Offsets(self.manifest.base_offset, self.manifest.end_offset)
        if self.metadata is not None:
            return Offsets(self.metadata.start_offset, self.metadata.end_offset)
        return None

    def leftover(
        self, kind: AuditKind, text: str, action: str, *, mend: Mend | None = None, newest_ms: int | None = None
    ) -> ObjectFinding:
        """Return a finding about a copy or deletion that may still be in progress."""
        severity = Severity.NOTE if self.is_young else Severity.WARNING
        return self.finding(severity, kind, text, action, mend=mend, newest_ms=newest_ms)


def audit_segment(facts: SegmentFacts) -> Iterator[ObjectFinding]:
    if facts.state is MetadataState.DELETING:
        yield _unfinished_deletion(facts)
    elif facts.state is MetadataState.DELETED:
        yield _undeleted(facts)
    elif facts.manifest is None and facts.stored.is_replaced:
        yield _replaced(facts)
    elif facts.manifest is None:
        yield _without_manifest(facts)
    elif isinstance(facts.manifest, ManifestFault):
        yield _bad_manifest(facts, facts.manifest)
    else:
        yield from _objects_of(facts, facts.manifest)
        yield from _against_metadata(facts, facts.manifest)


def audit_without_objects(known: RemoteLogSegmentMetadata) -> Iterator[ObjectFinding]:
    """Yield the findings of a segment that the metadata mentions and that has no objects."""
    partition, offsets = known.topic_id_partition, Offsets(known.start_offset, known.end_offset)
    if known.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        severity, kind = Severity.ERROR, AuditKind.MISSING_SEGMENT
        size, text = known.segment_size_bytes, "its copy is declared finished, but it has no objects"
        action = _LOOK_FOR_RECORDS
    elif known.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        severity, kind, size = Severity.NOTE, AuditKind.UNFINISHED_COPY, 0
        text, action = "a copy was started and left nothing", "none: the broker writes it off"
    else:
        severity, kind, size = Severity.NOTE, AuditKind.UNFINISHED_DELETION, 0
        text, action = "its objects are deleted, but the deletion is not yet declared", "none: the broker declares it"
    yield ObjectFinding(
        severity=severity,
        kind=kind,
        topic=partition.topic,
        partition=partition.partition,
        segment_id=known.segment_id.id,
        offsets=offsets,
        bytes=size,
        text=text,
        action=action,
        newest_ms=known.event_timestamp_ms,
    )


_LOOK_FOR_RECORDS = "look for these offsets on the broker's disk, in a replica or in an older version of the bucket"


def _delete_unless_whole(stored: SegmentObjects) -> DeleteObjects:
    """Return the deletion of a segment that has no manifest, if it still has none."""
    return DeleteObjects(stored.keys_to_delete(), stored.manifest_key)


def _unfinished_deletion(facts: SegmentFacts) -> ObjectFinding:
    begun = facts.metadata.event_timestamp_ms if facts.metadata is not None else 0
    return facts.leftover(
        AuditKind.UNFINISHED_DELETION,
        "its deletion has started, but objects are left",
        "repair deletes the rest; the broker declares it",
        mend=DeleteObjects(facts.stored.keys_to_delete()),
        newest_ms=max(begun, facts.stored.newest_ms),
    )


def _undeleted(facts: SegmentFacts) -> ObjectFinding:
    """Report a deleted segment that still has objects.

    With records and manifest it may have been restored on purpose. A manifest alone comes from a late put, whose caller
    had given up and deleted the segment.
    """
    if facts.stored.has_manifest_object and facts.stored.get(ObjectKind.LOG) is None:
        return facts.leftover(
            AuditKind.UNDELETED,
            "the metadata says it was deleted, but a manifest without records is left",
            "repair deletes it",
            mend=DeleteObjects(facts.stored.keys_to_delete()),
        )
    if facts.stored.has_manifest_object:
        return facts.finding(
            Severity.WARNING,
            AuditKind.UNDELETED,
            "the metadata says it was deleted, but its manifest exists",
            "delete it by hand, unless it was restored on purpose",
        )
    return facts.leftover(
        AuditKind.UNDELETED,
        "the metadata says it was deleted, but objects are left",
        "repair deletes them",
        mend=_delete_unless_whole(facts.stored),
    )


def _replaced(facts: SegmentFacts) -> ObjectFinding:
    """Report a replaced segment. Brokers own the segments that they know of, even if others have the same offsets."""
    if facts.state in (MetadataState.COPYING, MetadataState.FINISHED):
        return facts.finding(
            Severity.WARNING,
            AuditKind.REPLACED,
            "another segment has replaced it, but the brokers do not know",
            "tier restore adds the new one to the metadata; where brokers serve a bucket, its compaction needs --kafka",
        )
    return facts.leftover(
        AuditKind.REPLACED,
        "another segment has replaced it, but its objects are left",
        "the next compaction deletes them, or repair",
        mend=_delete_unless_whole(facts.stored),
    )


def _without_manifest(facts: SegmentFacts) -> ObjectFinding:
    stored = facts.stored
    if facts.state is MetadataState.FINISHED:
        return _lost_manifest(
            facts, AuditKind.MISSING_MANIFEST, "its copy is declared finished, but it has no manifest"
        )
    if facts.state is MetadataState.COPYING:
        return facts.leftover(
            AuditKind.UNFINISHED_COPY,
            "a copy was started and never finished",
            "none: the broker removes it in its next run",
        )
    newest_ms = None
    if facts.state is MetadataState.ABSENT:
        text = "it has no manifest, and no metadata mentions it"
    elif is_bulk(stored.segment_id.id) and not facts.has_broker:
        text, newest_ms = "a bulk load has staged it and never published it", facts.job_newest_ms
    elif not stored.has_required:
        text = "it has no manifest and is incomplete, so it cannot be read"
    else:
        return facts.leftover(
            AuditKind.ORPHAN,
            "it has no manifest, and it is unknown whether its copy was finished",
            "give the data directory (--data-dir), whose metadata shows it",
        )
    delete = _delete_unless_whole(stored)
    return facts.leftover(AuditKind.ORPHAN, text, "repair deletes it", mend=delete, newest_ms=newest_ms)


def _lost_manifest(facts: SegmentFacts, kind: AuditKind, text: str) -> ObjectFinding:
    """Report a finished copy that readers cannot open. It can be mended if its objects may prove the manifest."""
    log = facts.stored.get(ObjectKind.LOG)
    known = facts.metadata
    if known is None or log is None or not _sizes_agree(log.size, known.segment_size_bytes):
        text += ", and its records are missing" if log is None else ""
        return facts.finding(
            Severity.ERROR, AuditKind.MISSING_SEGMENT if log is None else kind, text, _LOOK_FOR_RECORDS
        )
    if facts.stored.layout is not ObjectLayout.STRATALOG:
        return facts.finding(Severity.ERROR, kind, text, "look for the manifest in an older version of the bucket")
    return facts.finding(
        Severity.ERROR,
        kind,
        text,
        "repair writes it, if the objects prove it",
        mend=WriteManifest(known),
        newest_ms=max(known.event_timestamp_ms, facts.stored.newest_ms),
    )


def _bad_manifest(facts: SegmentFacts, fault: ManifestFault) -> ObjectFinding:
    key = facts.stored.manifest_key
    if fault.from_the_future:
        return facts.finding(
            Severity.ERROR, AuditKind.UNKNOWN_VERSION, fault.reason, "use the version that wrote it", key=key
        )
    if facts.state is MetadataState.FINISHED:
        return _lost_manifest(facts, AuditKind.DAMAGED_MANIFEST, fault.reason)
    action = (
        "give the data directory (--data-dir), whose metadata shows it"
        if facts.state is MetadataState.UNKNOWN
        else "look for the manifest in an older version of the bucket"
    )
    return facts.finding(Severity.ERROR, AuditKind.DAMAGED_MANIFEST, fault.reason, action, key=key)


def has_records(stored: SegmentObjects, manifest: SegmentManifest) -> bool:
    """Return whether the records exist with the size in the manifest."""
    key = object_key(manifest, ObjectKind.LOG)
    log = stored.at(key)
    return log is not None and log.size == stored_objects(manifest)[key]


def misfits(stored: SegmentObjects, manifest: SegmentManifest) -> Iterator[tuple[str, ObjectInfo | None, int]]:
    """Yield key, object found and expected size of each object that is missing or has another size."""
    for key, size in stored_objects(manifest).items():
        found = stored.at(key)
        if found is None or found.size < size or (found.size != size and manifest.layout is ObjectLayout.STRATALOG):
            yield key, found, size


def _objects_of(facts: SegmentFacts, manifest: SegmentManifest) -> Iterator[ObjectFinding]:
    """Report missing objects, wrong sizes, and objects that the manifest does not list."""
    sound_records = has_records(facts.stored, manifest)
    for key, found, size in misfits(facts.stored, manifest):
        kind, text = (
            (AuditKind.MISSING_OBJECT, "the manifest lists it, but it does not exist")
            if found is None
            else (AuditKind.WRONG_SIZE, f"it has {found.size} bytes, the manifest says {size}")
        )
        yield object_finding(facts, manifest, key, kind, text, sound_records)
    listed = stored_objects(manifest).keys() | {facts.stored.manifest_key}
    for info in facts.stored.objects.values():
        if info.key not in listed:
            yield _unlisted(facts, manifest, info)


def object_finding(
    facts: SegmentFacts, manifest: SegmentManifest, key: str, what: AuditKind, text: str, sound_records: bool
) -> ObjectFinding:
    """Report an object that is missing or damaged.

    In our layout, everything else can be rebuilt while the records exist.
    """
    found = facts.stored.at(key)
    size = stored_objects(manifest)[key] if found is None else found.size
    parsed = ObjectKey.parse(key)
    kind = None if parsed is None else parsed.kind
    if kind in CONTENTS[1:] and sound_records and manifest.layout is ObjectLayout.STRATALOG:
        mend = RemakeIndexes(manifest.key(ObjectKind.MANIFEST), (kind,))
        return facts.finding(
            Severity.ERROR, what, text, _REMADE.get(kind, _FROM_RECORDS), mend=mend, key=key, size=size
        )
    return facts.finding(Severity.ERROR, what, text, _LOOK_FOR_RECORDS, key=key, size=size)


_FROM_RECORDS = "repair rebuilds it from the records"
_WITH_HISTORY = "repair rebuilds it from the records, if the bucket has the producer state before it"
_REMADE = {
    ObjectKind.TXN_INDEX: _WITH_HISTORY,
    ObjectKind.PRODUCER_SNAPSHOT: _WITH_HISTORY,
    ObjectKind.LEADER_EPOCHS: "repair rebuilds it from the manifests",
}


def _unlisted(facts: SegmentFacts, manifest: SegmentManifest, info: ObjectInfo) -> ObjectFinding:
    """Report an object that its segment's manifest does not list. It is waste, unless the manifest should list it."""
    parsed = ObjectKey.parse(info.key)
    kind = None if parsed is None else parsed.kind
    wanted = kind is ObjectKind.TXN_INDEX and not manifest.txn_index_empty
    is_ours = manifest.layout is ObjectLayout.STRATALOG and kind is not None
    mend = DeleteObjects((info.key,)) if is_ours and not wanted and kind not in REMAKEABLE else None
    return facts.finding(
        Severity.WARNING,
        AuditKind.UNLISTED_OBJECT,
        "the manifest of its segment does not list it",
        "none: it is left alone" if mend is None else "repair deletes it",
        mend=mend,
        key=info.key,
        size=info.size,
    )


def _against_metadata(facts: SegmentFacts, manifest: SegmentManifest) -> Iterator[ObjectFinding]:
    known = facts.metadata
    if facts.state is MetadataState.ABSENT:
        yield facts.leftover(
            AuditKind.UNREFERENCED,
            "it is complete, but no metadata mentions it, so no broker reads it",
            "tier restore makes it known again; if you do not want it, delete it by hand",
        )
    elif facts.state is MetadataState.COPYING:
        yield facts.leftover(
            AuditKind.UNFINISHED_COPY,
            "it is complete, but its copy was never declared finished",
            "none: the broker copies it again and removes this one",
        )
    elif known is not None and (differences := "; ".join(_differences(manifest, known))):
        yield facts.finding(
            Severity.ERROR, AuditKind.METADATA_DIFFERS, differences, "tier restore uses the values in the manifest"
        )


def _differences(manifest: SegmentManifest, known: RemoteLogSegmentMetadata) -> Iterator[str]:
    said = manifest.metadata()
    for name, here, there in (
        ("start offset", said.start_offset, known.start_offset),
        ("end offset", said.end_offset, known.end_offset),
        ("largest timestamp", said.max_timestamp_ms, known.max_timestamp_ms),
        ("leader epochs", dict(said.segment_leader_epochs), dict(known.segment_leader_epochs)),
    ):
        if here != there:
            yield f"{name} {here} in the manifest, {there} in the metadata"
    if not _sizes_agree(said.segment_size_bytes, known.segment_size_bytes):
        yield f"{said.segment_size_bytes} bytes in the manifest, {known.segment_size_bytes} in the metadata"


def _sizes_agree(true_size: int, known: int) -> bool:
    """Return whether the sizes agree. The metadata may have the size clamped to the maximum of Kafka's field."""
    return true_size == known or (known == INT32_MAX and true_size > INT32_MAX)
